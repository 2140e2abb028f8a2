"""Starts the JVM of a session, and decides where its standard error output goes.

The JVM, the Python workers below it, and the processes in which Python data sources plan their batches all write to the
standard error output that the JVM was started with. Some of it is noise on every start, and some comes after the
session was stopped, when it can only confuse: a planning process that finds its socket gone prints a traceback.

So the JVM does not inherit our standard error output. It writes to a file if the caller names one, as commands do that
draw on the terminal; otherwise to a pipe, from which a thread passes every line on that is not known noise.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

_INCUBATOR: Final = re.compile(rb"WARNING: Using incubator modules: jdk\.incubator\.vector\s*")
"""Java says so on every start since Spark asks for the module; nobody can do anything about it."""
_TRACEBACK: Final = b"Traceback (most recent call last):"
_DAEMON: Final = re.compile(rb'\s+File "[^"]*pyspark[^"]*/daemon\.py", line \d+, in manager\s*')
_READER_GONE: Final = re.compile(rb"(?:BrokenPipeError|ConnectionResetError): .*\s*")
TRACEBACK_LINES_MAX: Final = 200

STDERR: Final = 2


class JvmNotStarted(Exception):
    """Spark's Java process ended before a session could be made, for the reason that it wrote."""


def start_jvm(settings: Mapping[str, str], log: Path | None) -> None:
    """Starts the JVM for the sessions of this process, which must have none yet."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
    with _open_log(log) if log is not None else _open_pipe() as stderr:
        try:
            gateway = launch_gateway(conf, popen_kwargs={"stderr": stderr})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise JvmNotStarted(f"Spark's Java process did not start: {_reason(log)}") from error
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _reason(log: Path | None) -> str:
    if log is None:
        return "what it wrote is above"
    lines = [line for line in log.read_bytes().splitlines() if line.strip() and not _INCUBATOR.fullmatch(line)]
    # Java begins with what is wrong, and ends with advice.
    first = lines[0].decode(errors="replace") if lines else "it wrote nothing"
    return f"{first} (more in {log})"


def _open_log(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


def _open_pipe() -> IO[bytes]:
    """The writing end, for the JVM. The thread ends when every process that has it is gone."""
    reading, writing = os.pipe()
    lines = os.fdopen(reading, "rb")
    threading.Thread(target=_pass_on, args=(lines,), name="spark-stderr", daemon=True).start()
    return os.fdopen(writing, "wb")


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Leaves out the lines that mean nothing to anybody, on whatever machine.

    One is a warning of Java's. The other is the traceback of a Python worker whose last write found that Spark had read
    enough and closed the socket; `penstock.spark.daemon` prevents it for tasks, but data sources are planned in
    processes of a daemon that cannot be replaced. A traceback is held back until its last line tells what it is.
    """
    held: list[bytes] = []
    for line in lines:
        if held:
            held.append(line)
            if line.startswith((b" ", b"\t")) and len(held) < TRACEBACK_LINES_MAX:
                continue
            if not (_READER_GONE.fullmatch(line) and any(map(_DAEMON.fullmatch, held))):
                yield from held
            held = []
        elif line.rstrip() == _TRACEBACK:
            held = [line]
        elif not _INCUBATOR.fullmatch(line):
            yield line
    yield from held


def _pass_on(lines: IO[bytes]) -> None:
    with lines:
        for line in without_noise(lines):
            try:
                os.write(STDERR, line)
            except OSError:  # closed, or a reader that is gone: the JVM must still be able to write
                continue
