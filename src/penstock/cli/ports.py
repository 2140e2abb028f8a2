"""Whether a TCP port can be listened on."""

from __future__ import annotations

import socket


def is_taken(host: str, port: int) -> bool:
    """Whether another process listens at this address. Port 0 stands for any free one."""
    if port == 0:
        return False
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier process that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False
