"""Judgements on made-up machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.planning.host import Check, DirectoryFacts, HostFacts, State, fix_script, judge

GOOD_DISK = DirectoryFacts(
    path="/data",
    mount_point="/data",
    device="nvme0n1",
    file_system="xfs",
    options=("rw", "noatime"),
    kind="nvme",
    total_bytes=1000,
    free_bytes=500,
)
GOOD = HostFacts(
    open_files=100_000,
    open_files_hard=100_000,
    sysctls={
        "vm.max_map_count": "262144",
        "vm.swappiness": "1",
        "vm.dirty_ratio": "80",
        "vm.dirty_background_ratio": "5",
        "net.core.rmem_max": "134217728",
        "net.core.wmem_max": "134217728",
        "net.ipv4.tcp_rmem": "4096 87380 134217728",
        "net.ipv4.tcp_wmem": "4096\t65536\t134217728",
    },
    swap_bytes=0,
    directories=(GOOD_DISK,),
    system_device="sda",
    clock_synchronised=True,
    clock_source="tsc",
)


def of(facts: HostFacts, name: str) -> Check:
    (found,) = [check for check in judge(facts) if check.name == name]
    return found


def on(**changes: object) -> HostFacts:
    return replace(GOOD, directories=(replace(GOOD_DISK, **changes),))  # type: ignore[arg-type]


def sysctl(name: str, value: str) -> HostFacts:
    return replace(GOOD, sysctls={**GOOD.sysctls, name: value})


def test_a_machine_as_the_documents_want_it_is_fit() -> None:
    checks = judge(GOOD)
    assert {check.state for check in checks} == {State.OK}
    assert not any(check.fix for check in checks)
    assert len(checks) == 16
    assert all(check.why.endswith(".") and check.source for check in checks)
    assert "Nothing is to be done" in fix_script(checks)


@pytest.mark.parametrize(
    ("facts", "name", "state"),
    [
        (replace(GOOD, open_files=20_000), "file descriptors", State.WARNING),
        (replace(GOOD, open_files=1024), "file descriptors", State.FAILED),
        (sysctl("vm.max_map_count", "65530"), "vm.max_map_count", State.WARNING),
        (sysctl("net.core.rmem_max", "212992"), "net.core.rmem_max", State.WARNING),
        (sysctl("net.ipv4.tcp_rmem", "4096 131072 6291456"), "net.ipv4.tcp_rmem", State.WARNING),
        (replace(GOOD, swap_bytes=10**9), "swap", State.OK),
        (replace(sysctl("vm.swappiness", "60"), swap_bytes=10**9), "swap", State.WARNING),
        (sysctl("vm.swappiness", "60"), "swap", State.OK),
        (sysctl("vm.dirty_ratio", "20"), "vm.dirty_ratio", State.WARNING),
        (sysctl("vm.dirty_background_ratio", "20"), "vm.dirty_background_ratio", State.WARNING),
        (on(file_system="ext4"), "file system of /data", State.OK),
        (on(file_system="btrfs"), "file system of /data", State.WARNING),
        (on(file_system="tmpfs"), "file system of /data", State.FAILED),
        (on(file_system="nfs4"), "file system of /data", State.FAILED),
        (on(options=("rw", "relatime")), "mount options of /data", State.WARNING),
        (on(options=("rw", "noatime", "nobarrier")), "mount options of /data", State.FAILED),
        (on(kind="hdd"), "disk of /data", State.WARNING),
        (on(kind="virtual"), "disk of /data", State.OK),
        (on(raid="raid10"), "RAID of /data", State.OK),
        (on(raid="raid5"), "RAID of /data", State.WARNING),
        (on(free_bytes=200), "space of /data", State.WARNING),
        (on(free_bytes=50), "space of /data", State.FAILED),
        (on(device="sda"), "separate disks", State.WARNING),
        (replace(GOOD, directories=(GOOD_DISK, replace(GOOD_DISK, path="/b"))), "separate disks", State.WARNING),
        (replace(GOOD, clock_synchronised=False), "clock", State.WARNING),
        (replace(GOOD, clock_source="hpet"), "clock source", State.WARNING),
    ],
)
def test_what_is_wrong_with_a_machine_is_told_with_its_fix(facts: HostFacts, name: str, state: State) -> None:
    found = of(facts, name)
    assert found.state is state
    assert bool(found.fix) == (state in (State.WARNING, State.FAILED))


def test_dirty_limits_in_bytes_are_a_choice_of_their_own() -> None:
    facts = replace(GOOD, sysctls={**GOOD.sysctls, "vm.dirty_ratio": "0", "vm.dirty_bytes": "1000000000"})
    assert of(facts, "vm.dirty_ratio").state is State.OK


def test_what_could_not_be_read_is_unknown_and_not_guessed() -> None:
    checks = judge(HostFacts(sysctls={}, directories=(DirectoryFacts(path="/data"),)))
    assert {check.state for check in checks} == {State.UNKNOWN}


def test_the_script_mends_what_is_safe_and_tells_the_rest() -> None:
    facts = replace(
        sysctl("vm.dirty_ratio", "20"),
        directories=(
            replace(GOOD_DISK, kind="hdd", options=("relatime",), mount_point="/a b'; rm -rf /", path="/x\nreboot"),
        ),
    )
    lines = fix_script(judge(facts)).splitlines()
    assert "sysctl -w 'vm.dirty_ratio=80'" in lines
    assert "# By hand: move the data to an SSD" in lines
    assert any(line.startswith("mount -o remount,noatime '/a b'\"'\"'; rm -rf /'") for line in lines)
    assert "reboot" not in [line.split()[0] for line in lines if line]
    assert not any("swappiness" in line for line in lines), "what is well is left alone"
