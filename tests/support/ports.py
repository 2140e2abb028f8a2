"""Ports for servers that are killed and started again: nobody else may take them in between.

The kernel gives ports of its own range to outgoing connections, and one that was free when a server was planned may be
a client's when it starts, or starts again. So these are below that range. Test processes that run side by side
(pytest-xdist) each have a part of them for themselves, and give none a second time until all were given.
"""

from __future__ import annotations

import os
import random
import re
import socket
from functools import cache

FIRST, END = 12_000, 32_000
PARTS_MAX = 10
"""So many test processes keep out of each other's way."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    return [_Ports.of_this_process().take((0,)) for _ in range(count)]


def port_with_room() -> int:
    """A port after which those are free that a cluster of up to ten brokers will want."""
    return _Ports.of_this_process().take(tuple(above + number for above in (0, 100, 200, 300) for number in range(10)))


class _Ports:
    def __init__(self, first: int, end: int) -> None:
        self._first = first
        self._size = end - first
        # Somewhere: whoever runs the tests twice at the same time should not meet every time.
        self._at = random.randrange(self._size)
        self._given: set[int] = set()

    @staticmethod
    @cache
    def of_this_process() -> _Ports:
        worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
        if worker is None:
            return _Ports(FIRST, END)
        size = (END - FIRST) // PARTS_MAX
        first = FIRST + int(worker[1]) % PARTS_MAX * size
        return _Ports(first, first + size)

    def take(self, distances: tuple[int, ...]) -> int:
        """The next port that is free, as those at these distances from it are."""
        for _ in range(2):
            for _ in range(self._size):
                port = self._first + self._at
                self._at = (self._at + 1) % self._size
                wanted = [port + distance for distance in distances]
                fits = wanted[-1] < self._first + self._size and self._given.isdisjoint(wanted)
                if fits and all(map(_is_free, wanted)):
                    self._given.update(wanted)
                    return port
            self._given.clear()
        raise RuntimeError(f"no port is free from {self._first} on")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of before, in TIME_WAIT, keep nobody from listening.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
