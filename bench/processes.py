"""What the kernel knows about a running broker: CPU time, memory, open files. Read from /proc, so Linux only."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KB = 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """RSS counts shared pages in full, PSS by their share; in MB of a million bytes."""

    rss_mb: float
    pss_mb: float


def cpu_s(pid: int) -> float:
    """User and system time that the process and its children have used."""
    total_ticks = 0
    for each in _family(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            total_ticks += int(fields[11]) + int(fields[12])
    return total_ticks / _TICKS_PER_S


def fine_cpu_s(pid: int) -> float:
    """The same, to the microsecond and without children that have ended: for what takes less than a few ticks."""
    total_s = 0.0
    for each in _family(pid):
        with suppress(OSError):
            # The kernel's number for the CPU clock of another process, as clock_getcpuclockid(3) makes it.
            total_s += time.clock_gettime((~each << 3) | 2)
    return total_s


def memory(pid: int) -> Memory:
    rss_kb = pss_kb = 0
    for each in _family(pid):
        with suppress(OSError):
            for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                if line.startswith("Rss:"):
                    rss_kb += int(line.split()[1])
                elif line.startswith("Pss:"):
                    pss_kb += int(line.split()[1])
    return Memory(rss_mb=rss_kb * _KB / 1e6, pss_mb=pss_kb * _KB / 1e6)


def open_files(pid: int) -> int:
    """Descriptors of every kind, sockets included, as `ulimit -n` counts them."""
    return sum(len(os.listdir(f"/proc/{each}/fd")) for each in _family(pid))


def threads(pid: int) -> int:
    return sum(len(os.listdir(f"/proc/{each}/task")) for each in _family(pid))


def raise_descriptor_limit() -> None:
    """Children inherit it: a Kafka with 10,000 partitions holds more than 10,000 files open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _family(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from _family(int(child))
