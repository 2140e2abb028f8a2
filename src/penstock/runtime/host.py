"""What this process and its host have used, from /proc and /sys. Containers may hide any of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from penstock.runtime import HostUsage

SECTOR_BYTES: Final = 512
"""The unit of /proc/diskstats, whatever the device's own sectors are."""
BITS_PER_BYTE: Final = 8
_IDLE_FIELDS: Final = (3, 4)
"""Fields of the first line of /proc/stat that are not work: idle and iowait."""
_CPU_FIELDS: Final = 8
"""Guest time follows; it is already part of user time."""


def read_usage(data: str, root: Path = Path("/")) -> HostUsage:
    """The figures of now. `data` is a path on the disk that counts; `root` is where /proc and /sys are, for tests."""
    ticks = os.sysconf("SC_CLK_TCK")
    process = _process(root, ticks)
    memory = _memory(root)
    disk = _disk(root, data)
    received, sent, speed = _network(root)
    return HostUsage(
        process_cpu_s=process[0],
        resident_bytes=process[1],
        open_files=_open_files(root),
        cores=os.cpu_count(),
        host_cpu_s=_host_cpu(root, ticks),
        memory_total_bytes=memory.get("MemTotal"),
        memory_available_bytes=memory.get("MemAvailable"),
        disk_reads=disk[0] if disk is not None else None,
        disk_writes=disk[4] if disk is not None else None,
        disk_read_bytes=disk[2] * SECTOR_BYTES if disk is not None else None,
        disk_written_bytes=disk[6] * SECTOR_BYTES if disk is not None else None,
        disk_busy_s=disk[9] / 1000 if disk is not None else None,
        network_received_bytes=received,
        network_sent_bytes=sent,
        network_bytes_per_s_max=speed,
    )


def _process(root: Path, ticks: int) -> tuple[float | None, int | None]:
    text = _text(root / "proc/self/stat")
    # The second field is the name in parentheses, which may contain anything.
    fields = text.rpartition(")")[2].split()
    try:
        return (int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    except (IndexError, ValueError):
        return None, None


def _open_files(root: Path) -> int | None:
    try:
        return len(os.listdir(root / "proc/self/fd"))
    except OSError:
        return None


def _host_cpu(root: Path, ticks: int) -> float | None:
    fields = _text(root / "proc/stat").partition("\n")[0].split()[1 : _CPU_FIELDS + 1]
    try:
        return sum(int(value) for place, value in enumerate(fields) if place not in _IDLE_FIELDS) / ticks or None
    except ValueError:
        return None


def _memory(root: Path) -> dict[str, int]:
    found = {}
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        parts = value.split()
        if name in ("MemTotal", "MemAvailable") and parts and parts[0].isdecimal():
            found[name] = int(parts[0]) * 1024
    return found


def _disk(root: Path, data: str) -> list[int] | None:
    """The counters of the block device under a path; see the kernel's Documentation/admin-guide/iostats.rst."""
    try:
        device = os.stat(data).st_dev
    except OSError:
        return None
    wanted = (str(os.major(device)), str(os.minor(device)))
    for line in _text(root / "proc/diskstats").splitlines():
        fields = line.split()
        if len(fields) >= 14 and (fields[0], fields[1]) == wanted:
            try:
                return [int(value) for value in fields[3:14]]
            except ValueError:
                return None
    return None


def _network(root: Path) -> tuple[int | None, int | None, int | None]:
    received = sent = 0
    speeds = []
    lines = _text(root / "proc/net/dev").splitlines()[2:]
    for line in lines:
        name, _, values = line.partition(":")
        name, fields = name.strip(), values.split()
        if name == "lo" or len(fields) < 9 or not (fields[0].isdecimal() and fields[8].isdecimal()):
            continue
        received += int(fields[0])
        sent += int(fields[8])
        megabits = _text(root / "sys/class/net" / name / "speed").strip()
        if megabits.isdecimal() and int(megabits):
            speeds.append(int(megabits) * 1_000_000 // BITS_PER_BYTE)
    if not lines:
        return None, None, None
    return received, sent, max(speeds, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
