"""What `penstock monitor` costs on a large cluster: CPU, memory, and the latency of the broker it watches.

    python -m bench.monitor --partitions 10000 --groups 1000 --seconds 60

One broker with so many partitions, and so many groups that have committed offsets. A producer sends one record at a
time (acks=all) without and then with the monitor; both percentiles are printed. The monitor's CPU is that of its
process after a minute (its start is not the question), and its memory the largest resident size seen.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock import client
from penstock.monitor.scraping import scrape
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.records import build_keyed_batch

PARTITIONS_PER_TOPIC = 10
TOPICS_AT_ONCE = 100
WARM_UP_S = 60.0
PACE_S = 0.01
COMMIT_NAMES_UP_TO = 9
PRODUCE_NAMES_UP_TO = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, _broker(Path(directory)) as (address, metrics):
        settings = client.ClientSettings.from_properties({"bootstrap.servers": address})
        with client.Cluster(settings) as cluster:
            topics = max(1, options.partitions // PARTITIONS_PER_TOPIC)
            _create(cluster, topics)
            _commit(cluster, options.groups, topics)
            print(f"{topics * PARTITIONS_PER_TOPIC:,} partitions, {options.groups:,} groups", flush=True)
            before = _latencies(cluster, options.seconds / 2)
            with _monitor(address, metrics) as (pid, served):
                time.sleep(WARM_UP_S)
                cpu_s, began_s = _cpu_s(pid), time.monotonic()
                during = _latencies(cluster, options.seconds)
                share = (_cpu_s(pid) - cpu_s) / (time.monotonic() - began_s)
                resident = _resident_bytes(pid)
                intervals = scrape(served, ["penstock_monitor_interval_seconds"])
    found = {
        "partitions": topics * PARTITIONS_PER_TOPIC,
        "groups": options.groups,
        "seconds": options.seconds,
        "monitor_core_share": round(share, 4),
        "monitor_resident_mb": round(resident / 1e6, 1),
        "monitor_intervals_s": intervals,
        "produce_p50_ms": {"without": _quantile(before, 0.5), "with": _quantile(during, 0.5)},
        "produce_p99_ms": {"without": _quantile(before, 0.99), "with": _quantile(during, 0.99)},
    }
    print(json.dumps(found, indent=2))
    if options.results is not None:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(json.dumps(found, indent=2) + "\n")


@contextmanager
def _broker(directory: Path) -> Iterator[tuple[str, str]]:
    port, metrics = _free_port(), _free_port()
    command = [
        sys.executable, "-m", "penstock", "server", "--listen", f"127.0.0.1:{port}", "--data", str(directory / "data"),
        "--metrics", f"127.0.0.1:{metrics}",
    ]  # fmt: skip
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("penstock: ready"):
                    break
            yield f"127.0.0.1:{port}", f"127.0.0.1:{metrics}"
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def _monitor(address: str, metrics: str) -> Iterator[tuple[int, str]]:
    command = [sys.executable, "-m", "penstock", "monitor", "-b", address, "--scrape", f"1={metrics}"]
    served = f"127.0.0.1:{_free_port()}"
    command += ["--metrics", served]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield process.pid, served
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _create(cluster: client.Cluster, topics: int) -> None:
    names = ["probe", *(f"topic-{number:05}" for number in range(topics))]
    for start in range(0, len(names), TOPICS_AT_ONCE):
        piece = [
            CreatableTopic(name, 1 if name == "probe" else PARTITIONS_PER_TOPIC, 1)
            for name in names[start : start + TOPICS_AT_ONCE]
        ]
        answer = cluster.any_broker().call(CreateTopicsRequest(piece, timeout_ms=60_000), CreateTopicsResponse)
        assert all(one.error_code == ErrorCode.NONE for one in answer.topics)


def _commit(cluster: client.Cluster, groups: int, topics: int) -> None:
    for number in range(groups):
        group = f"group-{number:05}"
        name = f"topic-{number % topics:05}"
        partitions = [OffsetCommitRequestPartition(index, 0) for index in range(PARTITIONS_PER_TOPIC)]
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(name=name, partitions=partitions)]
        )
        connection = cluster.coordinator(group)
        version = min(connection.version_of(OffsetCommitRequest), COMMIT_NAMES_UP_TO)
        answer = connection.call(request, OffsetCommitResponse, version=version)
        assert all(one.error_code == ErrorCode.NONE for topic in answer.topics for one in topic.partitions)


def _latencies(cluster: client.Cluster, seconds: float) -> list[float]:
    """Milliseconds of single records, one every 10 ms."""
    connection = cluster.leader("probe", 0)
    version = min(connection.version_of(ProduceRequest), PRODUCE_NAMES_UP_TO)
    took: list[float] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        batch = bytes(build_keyed_batch([(b"k", b"v" * 100)], timestamp=time.time_ns() // 1_000_000))
        data = TopicProduceData(name="probe", partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
        began_s = time.perf_counter()
        connection.call(request, ProduceResponse, version=version)
        took.append((time.perf_counter() - began_s) * 1000)
        time.sleep(PACE_S)
    return sorted(took)


def _quantile(values: list[float], q: float) -> float:
    return round(values[min(len(values) - 1, int(q * len(values)))], 3)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    """The largest resident size so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
