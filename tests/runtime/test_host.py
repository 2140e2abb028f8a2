"""The figures of the process and its host, from real and from made-up kernel files."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.runtime import HostUsage
from penstock.runtime.host import read_usage


def test_this_machine_tells_cpu_and_memory(tmp_path: Path) -> None:
    usage = read_usage(str(tmp_path))
    assert usage.process_cpu_s is not None
    assert usage.process_cpu_s > 0
    assert usage.resident_bytes is not None
    assert usage.resident_bytes > 1_000_000
    assert usage.memory_total_bytes is not None
    assert usage.memory_available_bytes is not None
    assert usage.memory_available_bytes <= usage.memory_total_bytes
    assert usage.host_cpu_s is not None
    assert usage.host_cpu_s > 0


def test_figures_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    proc, net = tmp_path / "proc", tmp_path / "sys/class/net/eth0"
    (proc / "self/fd").mkdir(parents=True)
    (proc / "net").mkdir()
    net.mkdir(parents=True)
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    fields = ["S", *["0"] * 10, str(3 * ticks), str(ticks), *["0"] * 8, "100"]
    (proc / "self/stat").write_text(f"1 (a ) name) {' '.join(fields)}\n")
    (proc / "stat").write_text(f"cpu {ticks} 0 {ticks} {9 * ticks} {5 * ticks} 0 0 0 7 7\ncpu0 1\n")
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n")
    device = os.stat(tmp_path).st_dev
    (proc / "diskstats").write_text(
        f"{os.major(device)} {os.minor(device)} vda 11 0 22 0 33 0 44 0 0 5000 0\n 8 99 other 1 1 1 1 1 1 1 1 1 1 1\n"
    )
    (proc / "net/dev").write_text(
        "head\nhead\n    lo: 9 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0\n  eth0: 70 0 0 0 0 0 0 0 80 0 0 0 0 0 0 0\n"
    )
    (net / "speed").write_text("10000\n")
    usage = read_usage(str(tmp_path), tmp_path)
    assert (usage.process_cpu_s, usage.resident_bytes) == (4.0, 100 * page)
    assert usage.host_cpu_s == 2.0
    assert (usage.memory_total_bytes, usage.memory_available_bytes) == (1_024_000, 409_600)
    assert (usage.disk_reads, usage.disk_writes) == (11, 33)
    assert (usage.disk_read_bytes, usage.disk_written_bytes, usage.disk_busy_s) == (22 * 512, 44 * 512, 5.0)
    assert (usage.network_received_bytes, usage.network_sent_bytes) == (70, 80)
    assert usage.network_bytes_per_s_max == 1_250_000_000


def test_a_host_that_hides_its_files_tells_nothing_and_fails_nothing(tmp_path: Path) -> None:
    usage = read_usage(str(tmp_path / "gone"), tmp_path)
    assert usage == HostUsage(cores=os.cpu_count())
