"""Reads the facts that `penstock host check` judges: /proc, /sys, limits of this process, the kernel's clock."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.planning.host import DirectoryFacts, HostFacts

SYSCTLS = (
    "vm.max_map_count", "vm.swappiness", "vm.dirty_ratio", "vm.dirty_background_ratio", "vm.dirty_bytes",
    "vm.dirty_background_bytes", "net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
)  # fmt: skip
CLOCK_SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
TIMEX_BYTES = 512
"""More than `struct timex` takes on any machine."""
UNSYNCHRONISED = 5
"""TIME_ERROR: what adjtimex(2) returns for a clock that nobody sets."""
SLAVES_DEPTH_MAX = 8


class Mount(NamedTuple):
    device_number: str
    mount_point: str
    options: tuple[str, ...]
    file_system: str


def read_facts(directories: Sequence[Path], root: Path = Path("/")) -> HostFacts:
    """The facts of this machine. `root` is where /proc and /sys are, for tests."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    mounts = read_mounts(_text(root / "proc/self/mountinfo") or "")
    system = _mount_of("/", mounts)
    return HostFacts(
        open_files=_limit(soft),
        open_files_hard=_limit(hard),
        sysctls={name: text for name in SYSCTLS if (text := _text(root / "proc/sys" / name.replace(".", "/")))},
        swap_bytes=swap_bytes(_text(root / "proc/swaps")),
        directories=tuple(_directory(path, mounts, root) for path in directories),
        system_device=_disk(system.device_number, root).name if system is not None else None,
        clock_synchronised=_clock_synchronised(),
        clock_source=_text(root / CLOCK_SOURCE),
    )


def read_mounts(text: str) -> list[Mount]:
    """The lines of /proc/self/mountinfo, see proc(5). Options of the mount and of the file system are joined."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(), after.split()
        if len(fields) < 6 or len(more) < 2:
            continue
        options = fields[5].split(",") + (more[2].split(",") if len(more) > 2 else [])
        point = fields[4].replace("\\040", " ")
        found.append(Mount(fields[2], point, tuple(dict.fromkeys(options)), more[0]))
    return found


def swap_bytes(text: str | None) -> int | None:
    """The size of all swap areas, from /proc/swaps, which counts in KiB."""
    if text is None:
        return None
    sizes = [line.split()[2] for line in text.splitlines()[1:] if len(line.split()) > 2]
    return sum(int(size) for size in sizes if size.isdecimal()) * 1024


class _Disk(NamedTuple):
    name: str | None
    kind: str | None
    raid: str | None


def _disk(device_number: str, root: Path) -> _Disk:
    """The disk of a block device, by its number `major:minor`."""
    link = root / "sys/dev/block" / device_number
    if not link.exists():
        return _Disk(None, None, None)
    directory = link.resolve()
    if (directory / "partition").exists():
        directory = directory.parent
    name = directory.name
    level = _text(directory / "md/level")
    kind = _kind(directory)
    return _Disk(name, kind, level)


def _kind(directory: Path, depth: int = 0) -> str | None:
    name = directory.name
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith(("vd", "xvd")):
        return "virtual"
    # An array or a mapped device is what its parts are; one rotating part makes all of it slow.
    parts = sorted((directory / "slaves").glob("*")) if depth < SLAVES_DEPTH_MAX else []
    kinds = [
        _kind(part.resolve().parent if (part / "partition").exists() else part.resolve(), depth + 1) for part in parts
    ]
    if kinds:
        return "hdd" if "hdd" in kinds else kinds[0]
    return {"0": "ssd", "1": "hdd"}.get(_text(directory / "queue/rotational") or "")


def _directory(path: Path, mounts: Sequence[Mount], root: Path) -> DirectoryFacts:
    whole = path.absolute()
    # A directory that a broker will create is judged by where it would be.
    while not whole.exists() and whole != whole.parent:
        whole = whole.parent
    whole = whole.resolve()
    mount = _mount_of(str(whole), mounts)
    total = free = None
    try:
        space = os.statvfs(whole)
        total, free = space.f_frsize * space.f_blocks, space.f_frsize * space.f_bavail
    except OSError:
        pass
    if mount is None:
        return DirectoryFacts(path=str(path), total_bytes=total, free_bytes=free)
    disk = _disk(mount.device_number, root)
    return DirectoryFacts(
        path=str(path),
        mount_point=mount.mount_point,
        device=disk.name,
        file_system=mount.file_system,
        options=mount.options,
        kind=disk.kind,
        raid=disk.raid,
        total_bytes=total,
        free_bytes=free,
    )


def _mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that a path is on: the longest mount point before it, and of equal ones the last, which is on top."""
    found: Mount | None = None
    for mount in mounts:
        inside = path == mount.mount_point or path.startswith(mount.mount_point.rstrip("/") + "/")
        if inside and (found is None or len(mount.mount_point) >= len(found.mount_point)):
            found = mount
    return found


def _limit(value: int) -> int:
    return 2**31 - 1 if value == resource.RLIM_INFINITY else value


def _clock_synchronised() -> bool | None:
    """Asks the kernel whether somebody sets its clock. Reading (modes = 0) needs no rights."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state: int = adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
    return None if state < 0 else state != UNSYNCHRONISED


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
