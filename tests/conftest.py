"""Fixtures for every folder of tests."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator
from typing import TextIO

import pytest
from hypothesis import HealthCheck, settings

from support.server_process import ServerProcess
from support.spark import spark

__all__ = ["spark"]

# The same examples in every run, so that a run fails by what was changed and not by chance; PENSTOCK_EXAMPLES=fresh
# looks for others. How long an example takes tells of the machine, not of the code.
settings.register_profile(
    "penstock",
    derandomize=os.environ.get("PENSTOCK_EXAMPLES") != "fresh",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("penstock")


# An archive of Spark's classes takes a minute of processor time to make: no test shall start that in the background.
os.environ.setdefault("PENSTOCK_CLASS_ARCHIVE", "use")

STDERR = pytest.StashKey[TextIO]()
END_S = 60.0


def pytest_configure(config: pytest.Config) -> None:
    """The mark that xdist knows is set below with and without it."""
    config.addinivalue_line("markers", "xdist_group(name): tests that one process runs (pytest-xdist)")
    # Where the process ends for good, nobody reads any more what a test's output was captured into.
    config.stash[STDERR] = os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "w")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The end of a test that its own timeout could not end, because it is a signal and the test waits in C.

    The process says where all its threads are, and is gone; pytest-xdist names the test.
    """
    mark = item.get_closest_marker("timeout")
    limit_s = float(mark.args[0] if mark and mark.args else item.config.getini("timeout"))
    faulthandler.dump_traceback_later(2 * limit_s + END_S, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The same for threads that a failed test left behind, which Python waits for before it ends."""
    faulthandler.dump_traceback_later(END_S, exit=True, file=session.config.stash[STDERR])


def pytest_runtest_call(item: pytest.Function) -> None:
    """A broker that many tests share and that died fails each of them at once, with its last words."""
    given = {one for one in item.funcargs.values() if isinstance(one, str | ServerProcess)}
    for server in ServerProcess.running:
        if not server.alive() and given & {server, server.bootstrap}:
            pytest.fail(f"{server.name} ended by itself:\n{server.log_tail()}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what takes long to start run in one process: one Spark session, one Apache Kafka per folder.

    They come first: the other processes have enough to do meanwhile, and nobody waits for the last group in the end.
    What is tested with both brokers is tested with Penstock in every run, and with Apache Kafka by `make compat`.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif "apache-kafka" in item.name:
            item.add_marker(pytest.mark.xdist_group(f"apache-kafka {item.path.parent}"))
        if "apache-kafka" in item.name:
            item.add_marker(pytest.mark.compat)
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
