"""Raises when simulated code uses the real world, so that a leak is found where it happens.

While a world runs, clocks, randomness, files, sockets, threads and processes raise `Leak`, and so do the parts of
asyncio whose order depends on hashes or addresses (`wait`, `as_completed`, `gather`, `all_tasks`, `TaskGroup`), and
`id` when the project's own code calls it.

A name bound by `from time import monotonic` escapes the patching. `leaks` finds those in the engine's modules, and a
run does not start while there are any. (`tests/` also checks the imports themselves.)
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import builtins
import os
import random
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ENGINE_PACKAGES", "Leak", "guarded", "leaks"]

ENGINE_PACKAGES = ("broker", "config", "coordinators", "log", "metadata", "raft", "replication", "wire")

_DENIED: tuple[tuple[Any, str], ...] = (
    (time, "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time thread_time sleep"),
    (random, "random randint randrange choice choices shuffle uniform sample getrandbits randbytes gauss expovariate"),
    (random, "betavariate triangular normalvariate seed"),
    (random.SystemRandom, "random getrandbits"),
    (secrets, "token_bytes token_hex token_urlsafe randbelow choice randbits"),
    (uuid, "uuid1 uuid4"),
    (os, "urandom getrandom getpid open read write pread pwrite preadv pwritev fsync fdatasync ftruncate truncate"),
    (os, "rename replace unlink remove rmdir mkdir makedirs listdir scandir walk fork posix_spawn system popen"),
    (shutil, "rmtree copyfile copytree move disk_usage"),
    (tempfile, "mkstemp mkdtemp TemporaryFile NamedTemporaryFile"),
    (threading.Thread, "start"),
    (socket.socket, "__init__"),
    (socket, "create_connection create_server getaddrinfo gethostname socketpair"),
    (select, "select poll epoll"),
    (subprocess.Popen, "__init__"),
    (asyncio, "run new_event_loop to_thread wait as_completed gather all_tasks"),
    (asyncio.tasks, "wait as_completed gather all_tasks"),
    (asyncio.TaskGroup, "__init__"),
    (asyncio.Runner, "__init__"),
    (builtins, "open"),
)
_DENIED_MODULES = (asyncio, os, random, secrets, select, shutil, socket, subprocess, tempfile, threading, time, uuid)
_PROJECT = "penstock."

_depth = 0
_modules_checked = 0


class Leak(AssertionError):
    """Simulated code used something that the seed does not determine."""


@contextmanager
def guarded(enabled: bool = True) -> Iterator[None]:
    """Denies access to the real world within the block."""
    global _depth
    if not enabled or _depth:
        yield
        return
    _refuse_leaks()
    patched = []
    thread = threading.get_ident()
    for owner, names in _DENIED:
        for name in names.split():
            original = getattr(owner, name)
            patched.append((owner, name, original))
            setattr(owner, name, _deny(owner, name, original, thread))
    patched.append((builtins, "id", id))
    setattr(builtins, "id", _deny_to_project("id", id))  # noqa: B010 (an assignment would be a type error)
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        for owner, name, original in reversed(patched):
            setattr(owner, name, original)


def leaks() -> list[str]:
    """Names in loaded engine modules that are bound to something denied."""
    functions = [getattr(owner, name) for owner, names in _DENIED for name in names.split() if name != "__init__"]
    denied = {id(value): value for value in (*functions, *_DENIED_MODULES)}
    found = []
    prefixes = tuple(_PROJECT + package for package in ENGINE_PACKAGES)
    for module_name in sorted(sys.modules):
        if module_name.startswith(prefixes):
            for name, value in sorted(vars(sys.modules[module_name]).items()):
                if name != "__builtins__" and id(value) in denied:
                    found.append(f"{module_name}.{name}")
    return found


def _refuse_leaks() -> None:
    global _modules_checked
    if len(sys.modules) == _modules_checked:
        return
    found = leaks()
    if found:
        raise Leak(f"these names bypass the runtime: {', '.join(found)}")
    _modules_checked = len(sys.modules)


def _deny(owner: Any, name: str, original: Callable[..., Any], thread: int) -> Callable[..., Any]:
    def denied(*args: Any, **kwargs: Any) -> Any:
        # Other threads are not simulated, for example those of a test runner.
        if threading.get_ident() != thread:
            return original(*args, **kwargs)
        raise Leak(f"{owner.__name__}.{name} was used inside the simulation: use the runtime instead")

    return denied


def _deny_to_project(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def denied(value: object) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if caller.startswith(_PROJECT):
            raise Leak(f"{caller} used {name}(), which differs from run to run")
        return original(value)

    return denied
