"""`penstock host check` on this machine, and the reader on made-up /proc and /sys."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli.running import Run
from penstock.cli import exit_codes
from penstock.cli.host_facts import read_facts, read_mounts, swap_bytes

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and /sys")

MOUNTS = """22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,discard
30 27 9:0 / {data} rw,noatime - xfs /dev/md0 rw,attr2
"""


def write(root: Path, path: str, text: str = "") -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with the system on a partition of sda, and data on an array of an SSD and a rotating disk."""
    root = tmp_path / "root"
    write(root, "proc/self/mountinfo", MOUNTS.format(data=tmp_path / "mnt"))
    write(root, "proc/swaps", "Filename Type Size Used Priority\n/dev/sda3 partition 1000 0 -2\n")
    write(root, "proc/sys/vm/swappiness", "60\n")
    write(root, "proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")
    write(root, "sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n")
    write(root, "sys/devices/sda/queue/rotational", "0")
    write(root, "sys/devices/sda/sda2/partition", "2")
    write(root, "sys/devices/sdb/queue/rotational", "1")
    write(root, "sys/devices/sdc/queue/rotational", "0")
    write(root, "sys/devices/md0/md/level", "raid10\n")
    write(root, "sys/devices/md0/queue/rotational", "0")
    (root / "sys/devices/md0/slaves").mkdir()
    (root / "sys/dev/block").mkdir(parents=True)
    for link, target in (
        ("sys/dev/block/8:2", "sys/devices/sda/sda2"),
        ("sys/dev/block/9:0", "sys/devices/md0"),
        ("sys/devices/md0/slaves/sdb", "sys/devices/sdb"),
        ("sys/devices/md0/slaves/sdc", "sys/devices/sdc"),
    ):
        (root / link).symlink_to(root / target)
    (tmp_path / "mnt").mkdir()
    return root


def test_facts_are_read_from_proc_and_sys(machine: Path, tmp_path: Path) -> None:
    facts = read_facts([tmp_path / "mnt" / "not" / "there" / "yet"], machine)
    assert facts.system_device == "sda", "the disk of the partition"
    assert facts.swap_bytes == 1_024_000
    assert facts.sysctls == {"vm.swappiness": "60", "net.ipv4.tcp_rmem": "4096\t131072\t6291456"}
    assert facts.clock_source == "hpet"
    assert (facts.open_files or 0) > 0
    (data,) = facts.directories
    assert (data.device, data.raid, data.file_system) == ("md0", "raid10", "xfs")
    assert data.kind == "hdd", "an array is as slow as its slowest part"
    assert data.options == ("rw", "noatime", "attr2")
    assert (data.total_bytes or 0) > 0


def test_a_machine_that_hides_its_files_has_no_facts(tmp_path: Path) -> None:
    facts = read_facts([tmp_path], tmp_path / "nothing")
    assert (facts.system_device, facts.swap_bytes, facts.clock_source, dict(facts.sysctls)) == (None, None, None, {})
    assert facts.directories[0].file_system is None


def test_odd_lines_are_skipped() -> None:
    assert read_mounts("garbage\n1 2 3:4 / /a\\040b rw - ext4 /dev/x\n")[0].mount_point == "/a b"
    assert swap_bytes("Filename Type Size\n\n") == 0


def test_the_command_reports_and_writes_a_script(run: Run, tmp_path: Path) -> None:
    result = run("host", "check", "--data", tmp_path, "--json")
    found = json.loads(result.output)
    failed = [check for check in found["checks"] if check["state"] == "failed"]
    assert found["ok"] == (not failed)
    assert result.code == (exit_codes.UNHEALTHY if failed else exit_codes.OK)
    assert {"file descriptors", "swap", f"file system of {tmp_path}", "clock"} <= {
        check["name"] for check in found["checks"]
    }
    shown = run("host", "check", "--data", tmp_path)
    assert shown.output.startswith("check\tstate\tfound\twanted\n")
    script = run("host", "check", "--data", tmp_path, "--fix-script")
    assert script.code == exit_codes.OK
    assert script.output.startswith("#!/bin/sh\n")
