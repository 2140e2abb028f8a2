"""Runs the load generator: compiles it if it can, talks to it, and puts its numbers beside the broker's CPU time."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import confluent_kafka

from bench import processes
from support.apache_kafka import CACHE
from support.server_process import die_with_parent

_SOURCE = Path(__file__).with_name("loadgen.c")
_COMPILE_TIMEOUT_S = 120
_END_TIMEOUT_S = 10


class LoadFailed(Exception):
    """The load generator could not do what was asked; the message has its words."""


@dataclass(frozen=True, slots=True)
class Load:
    """One run of the load generator; its options are told at the head of `loadgen.c`."""

    mode: str
    topic: str
    messages: int = 0
    partitions: int = 0
    run_messages: int = 0
    rate: int = 0
    warmup_s: int = 0
    duration_s: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    producer_properties: Mapping[str, str] = field(default_factory=dict)
    consumer_properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What the load generator said, and what the broker's process used meanwhile."""

    numbers: Mapping[str, float]
    broker_cpu_s: float

    @property
    def megabytes_per_s(self) -> float:
        return self.numbers["bytes"] / 1e6 / self.numbers["elapsed_s"]

    @property
    def messages_per_s(self) -> float:
        return self.numbers["messages"] / self.numbers["elapsed_s"]

    @property
    def broker_cpu_s_per_gb(self) -> float:
        return self.broker_cpu_s / (self.numbers["bytes"] / 1e9)

    @property
    def client_cpu_s_per_gb(self) -> float:
        return self.numbers["client_cpu_s"] / (self.numbers["bytes"] / 1e9)


class Client:
    """The load generator and the records it sends. `kind` says which one it is, for the record."""

    def __init__(self, payloads: Path, record_bytes: int) -> None:
        self._payloads = payloads
        self._record_bytes = record_bytes
        self.librdkafka_version: str = confluent_kafka.libversion()[0]
        program, reason = _compile()
        if program is not None:
            self.kind = "loadgen.c"
            self._command = [str(program)]
        else:
            self.kind = f"loadgen_python.py ({reason})"
            self._command = [sys.executable, str(Path(__file__).with_name("loadgen_python.py"))]

    def start(self, load: Load, bootstrap: str | None) -> RunningLoad:
        """Starts it up to the point where its clients are set up; without `bootstrap` it runs a mock cluster itself."""
        where = "test.mock.num.brokers=1" if bootstrap is None else f"bootstrap.servers={bootstrap}"
        options = ["-t", load.topic, "-s", str(self._record_bytes), "-f", str(self._payloads)]
        for letter, number in (
            ("n", load.messages), ("p", load.partitions), ("r", load.run_messages),
            ("R", load.rate), ("w", load.warmup_s), ("d", load.duration_s),
        ):  # fmt: skip
            if number:
                options += [f"-{letter}", str(number)]
        options += ["-X", where, "-X", "log_level=3"]
        for letter, properties in (
            ("X", load.properties), ("P", load.producer_properties), ("C", load.consumer_properties),
        ):  # fmt: skip
            for name, value in properties.items():
                options += [f"-{letter}", f"{name}={value}"]
        return RunningLoad([*die_with_parent(), *self._command, load.mode, *options])

    def run(self, load: Load, bootstrap: str | None, broker_pid: int | None) -> LoadResult:
        with self.start(load, bootstrap) as running:
            running.wait_until_ready()
            cpu_before_s = processes.cpu_s(broker_pid) if broker_pid else 0.0
            running.go()
            numbers = running.result()
            cpu_after_s = processes.cpu_s(broker_pid) if broker_pid else 0.0
        lost = numbers.get("failed", 0) + numbers.get("missing", 0)
        if lost:
            why = numbers.get("first_error") or "no reason given"
            raise LoadFailed(f"{lost:.0f} messages of {load.mode} failed: {why}")
        return LoadResult(numbers, cpu_after_s - cpu_before_s)


class RunningLoad:
    def __init__(self, command: list[str]) -> None:
        # A file and not a pipe, which would fill up and hold the client when it has much to complain about.
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed on exit)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, text=True,
            start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate(timeout=_END_TIMEOUT_S)
        self._complaints.close()

    def wait_until_ready(self) -> None:
        self._read()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, float]:
        return self._read()

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._complaints.seek(0)
            raise LoadFailed(f"the load generator ended without a result: {self._complaints.read()[-2000:]}")
        said = cast("dict[str, float]", json.loads(line))
        if "error" in said:
            raise LoadFailed(f"the load generator says: {said['error']}")
        return said


def _compile() -> tuple[Path | None, str]:
    """The compiled load generator, or None and the reason. Kept by the hash of what went into it."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None, "no C compiler"
    library = _librdkafka()
    if library is None:
        return None, "librdkafka is not a library of its own here"
    key = hashlib.sha256(_SOURCE.read_bytes() + str(library).encode()).hexdigest()[:16]
    program = CACHE / "bench" / f"loadgen-{key}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        staging = program.with_suffix(".new")
        linking = [str(library), f"-Wl,-rpath,{library.parent}", "-lpthread"]
        command = [compiler, "-O2", "-o", str(staging), str(_SOURCE), *linking]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMPILE_TIMEOUT_S)
        if done.returncode != 0:
            return None, f"{compiler} failed: {(done.stderr.strip().splitlines() or ['no reason given'])[0]}"
        staging.rename(program)
    return program, ""


def _librdkafka() -> Path | None:
    """The library that confluent-kafka has loaded into this very process, wherever its package keeps it."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith("librdkafka") and path.exists():
            return path
    return None
