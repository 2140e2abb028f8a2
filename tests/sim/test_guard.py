"""The real world stays out of a simulated run."""

from __future__ import annotations

import asyncio
import builtins
import os
import random
import secrets
import socket
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable

import pytest

from penstock.sim import SimRuntime, run
from penstock.sim.guard import Leak, guarded, leaks

LEAKS: list[Callable[[], object]] = [
    lambda: time.time(),
    lambda: time.monotonic(),
    lambda: time.sleep(0),
    lambda: random.random(),
    lambda: random.shuffle([]),
    lambda: secrets.token_bytes(4),
    lambda: uuid.uuid4(),
    lambda: os.urandom(4),
    lambda: os.open("/dev/null", os.O_RDONLY),
    lambda: os.listdir("/"),
    lambda: open("/dev/null").close(),
    lambda: socket.socket(),
    lambda: threading.Thread(target=print).start(),
    lambda: asyncio.gather(),
    lambda: asyncio.all_tasks(),
    lambda: asyncio.as_completed([]),
    lambda: asyncio.TaskGroup(),
    lambda: asyncio.wait([]),
]


@pytest.mark.parametrize("leak", LEAKS)
def test_the_real_world_is_denied(leak: Callable[[], object]) -> None:
    async def main(runtime: SimRuntime) -> None:
        leak()

    with pytest.raises(Leak):
        run(main)


def test_everything_is_put_back_after_a_run() -> None:
    async def main(runtime: SimRuntime) -> None:
        raise LookupError

    before = (time.time, os.open, builtins.open, builtins.id, socket.socket.__init__, asyncio.gather)
    with pytest.raises(LookupError):
        run(main)
    assert before == (time.time, os.open, builtins.open, builtins.id, socket.socket.__init__, asyncio.gather)


def test_addresses_are_denied_to_the_project_and_to_nobody_else() -> None:
    project = types.ModuleType("penstock.log.example")
    exec("def order(value): return id(value)", project.__dict__)
    with guarded():
        assert isinstance(id(project), int)
        with pytest.raises(Leak):
            project.order(project)


def test_a_name_bound_at_import_is_found_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(runtime: SimRuntime) -> None:
        pass

    assert leaks() == []
    module = types.ModuleType("penstock.log.example")
    exec("from time import monotonic as clock\nimport os", module.__dict__)
    monkeypatch.setitem(sys.modules, "penstock.log.example", module)
    assert leaks() == ["penstock.log.example.clock", "penstock.log.example.os"]
    with pytest.raises(Leak, match="clock"):
        run(main)


def test_the_guard_can_be_left_out() -> None:
    async def main(runtime: SimRuntime) -> float:
        return time.monotonic()

    assert run(main, guard=False) > 0


def test_other_threads_are_not_guarded() -> None:
    seen: list[float] = []
    begin, done = threading.Event(), threading.Event()

    def look_at_the_clock() -> None:
        begin.wait()
        seen.append(time.time())
        done.set()

    thread = threading.Thread(target=look_at_the_clock)
    thread.start()
    with guarded():
        begin.set()
        done.wait(10)
    thread.join()
    assert len(seen) == 1
