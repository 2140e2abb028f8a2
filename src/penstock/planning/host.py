"""Is this machine fit to run a broker (S9)? Facts in, judgements out; `penstock.cli.host_facts` reads the facts.

Each check tells its state, what was found, what is wanted, why it matters and how to mend it. A fact that could not be
read is `unknown`, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote
from typing import Final

from penstock.planning.storage import amount

OPEN_FILES_WANTED: Final = 100_000
OPEN_FILES_MIN: Final = 4_096
MAP_COUNT_WANTED: Final = 262_144
SOCKET_BUFFER_WANTED: Final = 134_217_728
DIRTY_RATIO_WANTED: Final = 80
DIRTY_RATIO_MIN: Final = 40
DIRTY_BACKGROUND_WANTED: Final = 5
DIRTY_BACKGROUND_MAX: Final = 10
SWAPPINESS_WANTED: Final = 1
DISK_USED_WARNING: Final = 0.7
DISK_USED_FAILED: Final = 0.9
NETWORK_FILE_SYSTEMS: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")
MEMORY_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")
GOOD_FILE_SYSTEMS: Final = ("xfs", "ext4")
PRECISE_CLOCKS: Final = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen")
UNSAFE_OPTIONS: Final = ("nobarrier", "barrier=0")


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFacts:
    """A directory for data, and what it lies on. None where it could not be found out."""

    path: str
    mount_point: str | None = None
    device: str | None = None
    """The disk, without its partition: `nvme0n1`, `sda`, `md0`."""
    file_system: str | None = None
    options: tuple[str, ...] = ()
    kind: str | None = None
    """`nvme`, `ssd`, `hdd` or `virtual`."""
    raid: str | None = None
    """`raid0`, `raid10` and so on, for a disk that is made of several."""
    total_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What was read of a machine. None where it could not be found out."""

    open_files: int | None = None
    """The soft limit of this process, which a broker started from here inherits."""
    open_files_hard: int | None = None
    sysctls: Mapping[str, str]
    """By name: `vm.swappiness`. One that does not exist here is missing."""
    swap_bytes: int | None = None
    directories: tuple[DirectoryFacts, ...] = ()
    system_device: str | None = None
    """The disk of the root file system."""
    clock_synchronised: bool | None = None
    clock_source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One judgement."""

    name: str
    state: State
    found: str
    wanted: str
    why: str
    source: str
    fix: str = ""
    """What to do, for a person; empty if nothing is to be done."""
    commands: tuple[str, ...] = ()
    """The same for a shell that runs as root, where that is safe to do without looking."""


def judge(facts: HostFacts) -> list[Check]:
    """All checks, in order."""
    return [
        _open_files(facts),
        _map_count(facts),
        *_buffers(facts),
        _swap(facts),
        *_dirty(facts),
        *(check for directory in facts.directories for check in _directory(directory)),
        *_separate(facts),
        *_clock(facts),
    ]


def fix_script(checks: Sequence[Check]) -> str:
    """A shell script that does what is safe to do, and tells the rest in comments."""
    lines = [
        "#!/bin/sh",
        "# Written by `penstock host check --fix-script`. Read it, then run it as root.",
        "set -eu",
    ]
    todo = [check for check in checks if check.fix and check.state in (State.WARNING, State.FAILED)]
    for check in todo:
        lines += ["", _comment(f"{check.name}: {check.found}; wanted: {check.wanted}"), _comment(check.why)]
        lines += check.commands or [_comment(f"By hand: {check.fix}")]
    if not todo:
        lines += ["", "# Nothing is to be done."]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    """A line that a shell skips, whatever a path in it contains."""
    return "# " + " ".join(text.split())


def _set(name: str, value: str) -> tuple[str, ...]:
    """Now, and after the next start."""
    file, line = "/etc/sysctl.d/90-penstock.conf", f"{name} = {value}"
    # Run twice, the script must not write the line twice.
    return (f"sysctl -w '{name}={value}'", f"grep -qsxF '{line}' {file} || printf '%s\\n' '{line}' >> {file}")


def _number(facts: HostFacts, name: str) -> int | None:
    text = facts.sysctls.get(name, "")
    return int(text) if text.isdecimal() else None


def _open_files(facts: HostFacts) -> Check:
    found = facts.open_files
    state = State.UNKNOWN
    if found is not None:
        state = State.OK if found >= OPEN_FILES_WANTED else State.WARNING
        if found < OPEN_FILES_MIN:
            state = State.FAILED
    hard = "" if facts.open_files_hard is None else f" (at most {facts.open_files_hard:,})"
    return Check(
        name="file descriptors",
        state=state,
        found="not known" if found is None else f"{found:,}{hard}",
        wanted=f"{OPEN_FILES_WANTED:,} or more",
        why="Every segment of every partition and every connection takes one. A broker without any cannot go on.",
        source="000, Broker Optimization",
        fix=f"ulimit -n {OPEN_FILES_WANTED} before the start, LimitNOFILE={OPEN_FILES_WANTED} in a systemd unit, or "
        f"the "
        "limits file"
        if state in (State.WARNING, State.FAILED)
        else "",
        commands=(
            f"printf '%s\\n' '* soft nofile {OPEN_FILES_WANTED}' '* hard nofile {OPEN_FILES_WANTED}' "
            "> /etc/security/limits.d/90-penstock.conf",
        ),
    )


def _map_count(facts: HostFacts) -> Check:
    found = _number(facts, "vm.max_map_count")
    state = State.UNKNOWN if found is None else State.OK if found >= MAP_COUNT_WANTED else State.WARNING
    return Check(
        name="vm.max_map_count",
        state=state,
        found="not known" if found is None else f"{found:,}",
        wanted=f"{MAP_COUNT_WANTED:,} or more",
        why="Apache Kafka maps two index files per segment and stops when it may map no more. Penstock maps none.",
        source="Kafka's documentation",
        fix=f"sysctl vm.max_map_count={MAP_COUNT_WANTED}" if state is State.WARNING else "",
        commands=_set("vm.max_map_count", str(MAP_COUNT_WANTED)),
    )


def _buffers(facts: HostFacts) -> Iterator[Check]:
    for name, value in (
        ("net.core.rmem_max", str(SOCKET_BUFFER_WANTED)),
        ("net.core.wmem_max", str(SOCKET_BUFFER_WANTED)),
        ("net.ipv4.tcp_rmem", f"4096 87380 {SOCKET_BUFFER_WANTED}"),
        ("net.ipv4.tcp_wmem", f"4096 65536 {SOCKET_BUFFER_WANTED}"),
    ):
        words = facts.sysctls.get(name, "").split()
        largest = int(words[-1]) if words and words[-1].isdecimal() else None
        state = State.UNKNOWN if largest is None else State.OK if largest >= SOCKET_BUFFER_WANTED else State.WARNING
        yield Check(
            name=name,
            state=state,
            found=" ".join(words) or "not known",
            wanted=value,
            why="The largest buffer of a socket. Over a long distance a small one limits what replicas and consumers "
            "get.",
            source="000, Broker Optimization",
            fix=f"sysctl {name}='{value}'" if state is State.WARNING else "",
            commands=_set(name, value),
        )


def _swap(facts: HostFacts) -> Check:
    swappiness = _number(facts, "vm.swappiness")
    state = State.OK
    if facts.swap_bytes is None:
        state = State.UNKNOWN
    elif facts.swap_bytes and (swappiness is None or swappiness > SWAPPINESS_WANTED):
        state = State.WARNING
    swap = "not known" if facts.swap_bytes is None else amount(facts.swap_bytes) if facts.swap_bytes else "none"
    return Check(
        name="swap",
        state=state,
        found=f"swap: {swap}, vm.swappiness: {'not known' if swappiness is None else swappiness}",
        wanted="no swap, or vm.swappiness=1",
        why="A broker whose memory is swapped out stalls for seconds and looks dead to the cluster. "
        "vm.swappiness=1 makes that rare; only swapoff prevents it.",
        source="000, Broker Optimization",
        fix="sysctl vm.swappiness=1, or swapoff -a and no swap in /etc/fstab" if state is State.WARNING else "",
        commands=_set("vm.swappiness", str(SWAPPINESS_WANTED)),
    )


def _dirty(facts: HostFacts) -> Iterator[Check]:
    ratio, background = _number(facts, "vm.dirty_ratio"), _number(facts, "vm.dirty_background_ratio")
    for name, found, good, wanted, why in (
        (
            "vm.dirty_ratio",
            ratio,
            ratio is not None and ratio >= DIRTY_RATIO_MIN,
            DIRTY_RATIO_WANTED,
            "At this share of memory that is not on disk yet, writers are stopped until it is. A low one stops "
            "producers.",
        ),
        (
            "vm.dirty_background_ratio",
            background,
            background is not None and background <= DIRTY_BACKGROUND_MAX,
            DIRTY_BACKGROUND_WANTED,
            "From this share on the kernel writes in the background. Early and steady writing avoids long stalls.",
        ),
    ):
        in_bytes = _number(facts, name.replace("ratio", "bytes"))
        if in_bytes:
            state, told = State.OK, f"set in bytes: {amount(in_bytes)}"
        else:
            state = State.UNKNOWN if found is None else State.OK if good else State.WARNING
            told = "not known" if found is None else f"{found} %"
        yield Check(
            name=name,
            state=state,
            found=told,
            wanted=f"{wanted} %",
            why=why,
            source="000, Broker Optimization",
            fix=f"sysctl {name}={wanted}" if state is State.WARNING else "",
            commands=_set(name, str(wanted)),
        )


def _directory(facts: DirectoryFacts) -> Iterator[Check]:
    yield _file_system(facts)
    yield _mount_options(facts)
    yield _disk_kind(facts)
    if facts.raid is not None:
        yield _raid(facts)
    yield _space(facts)


def _file_system(facts: DirectoryFacts) -> Check:
    found = facts.file_system
    state, fix = State.OK, ""
    if found is None:
        state = State.UNKNOWN
    elif found in NETWORK_FILE_SYSTEMS or found in MEMORY_FILE_SYSTEMS:
        state = State.FAILED
        fix = "put the data on a local disk with XFS"
    elif found not in GOOD_FILE_SYSTEMS:
        state = State.WARNING
        fix = "put the data on a disk of its own, made with mkfs.xfs"
    return Check(
        name=f"file system of {facts.path}",
        state=state,
        found=found or "not known",
        wanted="xfs, or ext4",
        why="XFS and ext4 keep a sync's promise and are fast for files that only grow. Data in memory is gone after a "
        "restart, and a file system over the network adds its failures to those of the disk.",
        source="000, Broker Optimization; 004, Disk Performance",
        fix=fix,
    )


def _mount_options(facts: DirectoryFacts) -> Check:
    options = ",".join(facts.options)
    unsafe = [option for option in UNSAFE_OPTIONS if option in facts.options]
    state, fix = State.OK, ""
    commands: tuple[str, ...] = ()
    if not facts.options:
        state = State.UNKNOWN
    elif unsafe:
        state = State.FAILED
        fix = f"mount without {unsafe[0]}: a power failure may lose what was synced"
    elif "noatime" not in facts.options:
        state = State.WARNING
        fix = f"mount -o remount,noatime {facts.mount_point}, and noatime in /etc/fstab"
        commands = (f"mount -o remount,noatime {quote(facts.mount_point or '')}  # and add noatime to /etc/fstab",)
    return Check(
        name=f"mount options of {facts.path}",
        state=state,
        found=options or "not known",
        wanted="noatime, write barriers on",
        why="Without noatime reads cause writes of access times. Without barriers a sync does not reach the disk.",
        source="004, Disk Performance",
        fix=fix,
        commands=commands,
    )


def _disk_kind(facts: DirectoryFacts) -> Check:
    told = {
        None: (State.UNKNOWN, "not known"),
        "virtual": (State.OK, "a virtual disk: ask its provider for IOPS and throughput"),
        "hdd": (State.WARNING, "a rotating disk"),
        "ssd": (State.OK, "SSD"),
        "nvme": (State.OK, "NVMe"),
    }
    state, found = told[facts.kind]
    return Check(
        name=f"disk of {facts.path}",
        state=state,
        found=found + (f" ({facts.device})" if facts.device else ""),
        wanted="NVMe or SSD",
        why="Many partitions are many files: their writes, and readers that are behind, make a rotating disk seek.",
        source="000, Broker Optimization; 001, Disk I/O",
        fix="move the data to an SSD" if state is State.WARNING else "",
    )


def _raid(facts: DirectoryFacts) -> Check:
    good = facts.raid in ("raid10", "raid1")
    return Check(
        name=f"RAID of {facts.path}",
        state=State.OK if good else State.WARNING,
        found=facts.raid or "",
        wanted="raid10, or single disks",
        why="RAID 5 and 6 read before they write, which is slow; RAID 0 loses everything with one disk. With three "
        "replicas single disks do as well.",
        source="000, Broker Optimization",
        fix="" if good else "make the array anew as raid10, or use its disks one by one as log.dirs",
    )


def _space(facts: DirectoryFacts) -> Check:
    state, found = State.UNKNOWN, "not known"
    if facts.total_bytes and facts.free_bytes is not None:
        used = 1 - facts.free_bytes / facts.total_bytes
        state = State.OK if used <= DISK_USED_WARNING else State.WARNING
        if used > DISK_USED_FAILED:
            state = State.FAILED
        found = f"{used:.0%} of {amount(facts.total_bytes)} in use"
    return Check(
        name=f"space of {facts.path}",
        state=state,
        found=found,
        wanted=f"at most {DISK_USED_WARNING:.0%} in use",
        why="A broker whose disk is full stops. Retention frees closed segments only, and moving partitions needs "
        "room.",
        source="002, Metrics for Capacity Planning",
        fix="a larger disk, less retention, or fewer partitions here" if state in (State.WARNING, State.FAILED) else "",
    )


def _separate(facts: HostFacts) -> Iterator[Check]:
    devices: dict[str, list[str]] = {}
    for directory in facts.directories:
        if directory.device is not None:
            devices.setdefault(directory.device, []).append(directory.path)
    unknown = [directory.path for directory in facts.directories if directory.device is None]
    shared = [paths for paths in devices.values() if len(paths) > 1]
    beside_system = devices.get(facts.system_device or "", [])
    state, found = State.OK, "each data directory has a disk of its own"
    if shared:
        state, found = State.WARNING, f"on one disk: {', '.join(shared[0])}"
    elif beside_system:
        state, found = State.WARNING, f"{', '.join(beside_system)} is on the system's disk {facts.system_device}"
    elif unknown or facts.system_device is None:
        state, found = State.UNKNOWN, "not known"
    if facts.directories:
        yield Check(
            name="separate disks",
            state=state,
            found=found,
            wanted="one disk for each data directory, apart from the system's",
            why="Log files of the system and other programs compete with the broker for the disk, and can fill it.",
            source="000, Broker Optimization",
            fix="mount a disk of its own for the data" if state is State.WARNING else "",
        )


def _clock(facts: HostFacts) -> Iterator[Check]:
    synchronised = facts.clock_synchronised
    yield Check(
        name="clock",
        state=State.UNKNOWN if synchronised is None else State.OK if synchronised else State.WARNING,
        found={None: "not known", True: "synchronised", False: "not synchronised"}[synchronised],
        wanted="synchronised by NTP",
        why="Retention, offsets by time and lag in seconds compare clocks of different machines.",
        source="Penstock",
        fix="install and start chrony or systemd-timesyncd" if synchronised is False else "",
    )
    source = facts.clock_source
    state = State.UNKNOWN if source is None else State.OK if source in PRECISE_CLOCKS else State.WARNING
    yield Check(
        name="clock source",
        state=state,
        found=source or "not known",
        wanted=", ".join(PRECISE_CLOCKS[:3]),
        why="A broker reads the clock for every request. Reading hpet or acpi_pm takes a system call and microseconds.",
        source="Penstock",
        fix="choose another in /sys/devices/system/clocksource/clocksource0/current_clocksource"
        if state is State.WARNING
        else "",
    )
