"""`python -m bench.compaction`: what producers notice of a compaction.

A topic is filled with values that supersede each other, under a `min.cleanable.dirty.ratio` that keeps the broker from
compacting it. Then one producer sends to another topic at a steady rate, one record per request: for a while alone, and
on while the first topic is compacted, which lowering the ratio begins and the cleaner's checkpoint ends. Latencies
count from the moment a request was due, so that a request that waits for its turn counts as late.
"""

from __future__ import annotations

import gc
import socket
import statistics
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench import command_line, processes, wire
from bench.client import LoadFailed
from bench.model import Better, Case, Metric, Sample, Side, Target
from bench.payloads import RECORD_BYTES
from bench.runner import Bench
from bench.topics import create_topics
from support.server_process import ServerProcess, admin_client

_TOPIC = "bench-compacted"
_STEADY_TOPIC = "bench-steady"
_SEGMENT_BYTES = 100 * 1024 * 1024
_RATIO = "min.cleanable.dirty.ratio"
_PROPERTIES = {"log.cleaner.backoff.ms": "200"}
_CHECKPOINT = "cleaner-offset-checkpoint"
_TIMEOUT_S = 600
_WARMUP_S = {Side.PENSTOCK: 3, Side.KAFKA: 20}


class CompactionCase(Case):
    name = "compaction"
    warmup_samples = 0
    metrics = (
        Metric("idle_p50_ms", "produce without compaction, p50", "ms", Better.LOWER, digits=2),
        Metric("busy_p50_ms", "during it", "ms", Better.LOWER, digits=2),
        Metric("idle_p99_ms", "produce without compaction, p99", "ms", Better.LOWER, digits=2),
        Metric("busy_p99_ms", "during it", "ms", Better.LOWER, digits=2),
        Metric("p99_ratio", "p99 during it, to that without", "×", Better.LOWER, digits=2),
        Metric("compacted_mb_per_s", "speed of the compaction", "MB/s", Better.HIGHER, digits=0),
        Metric("cpu_s_per_gb", "CPU of the broker during it", "s/GB", Better.LOWER),
        Metric("added_rss_mb", "memory added by it, at most (RSS)", "MB", Better.LOWER, digits=0),
    )
    targets = (
        Target("p99_ratio", 2, Better.LOWER, against=None),
        Target("busy_p99_ms", 1, Better.LOWER),
    )

    def __init__(self, megabytes: int, record_bytes: int, keys: int, rate: int, idle_s: float) -> None:
        self._megabytes = megabytes
        self._record_bytes = record_bytes
        self._keys = keys
        self._rate = rate
        self._idle_s = idle_s
        self.title = f"produce {rate}/s while {megabytes} MB of {record_bytes}-byte records are compacted"

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "megabytes": self._megabytes,
            "record_bytes": self._record_bytes,
            "keys": self._keys,
            "rate": self._rate,
            "idle_s": self._idle_s,
            "segment_bytes": _SEGMENT_BYTES,
            "broker_properties": _PROPERTIES,
            "produced_bytes": RECORD_BYTES,
            "acks": "all",
        }

    def sample(self, bench: Bench, side: Side) -> Sample:
        with bench.fresh(side, _PROPERTIES) as broker:
            broker.start()
            create_topics(broker.bootstrap, {_STEADY_TOPIC: 1})
            admin = admin_client(broker.bootstrap)
            topic = NewTopic(_TOPIC, 1, 1, config={
                "cleanup.policy": "compact", "segment.bytes": str(_SEGMENT_BYTES), _RATIO: "1.0",
            })  # fmt: skip
            admin.create_topics([topic])[_TOPIC].result(_TIMEOUT_S)
            self._fill(broker)
            closed_bytes, closed_end = _closed(broker)
            with closing(Steady(broker.bootstrap, self._rate)) as steady:
                steady.run_for(_WARMUP_S[side])
                steady.latencies_ms.clear()
                steady.run_for(self._idle_s)
                idle_ms = steady.taken()
                rss_before_mb = processes.memory(broker.pid).rss_mb
                cpu_before_s, begun_s = processes.cpu_s(broker.pid), time.monotonic()
                _set_ratio(admin, "0.01")
                rss_mb = rss_before_mb
                while _clean_end(broker) < closed_end:
                    steady.run_for(0.25)
                    rss_mb = max(rss_mb, processes.memory(broker.pid).rss_mb)
                    if time.monotonic() > begun_s + _TIMEOUT_S:
                        raise LoadFailed(f"not compacted within {_TIMEOUT_S} s")
                elapsed_s = time.monotonic() - begun_s
                busy_ms = steady.taken()
            return {
                "idle_p50_ms": statistics.median(idle_ms),
                "busy_p50_ms": statistics.median(busy_ms),
                "idle_p99_ms": _p99(idle_ms),
                "busy_p99_ms": _p99(busy_ms),
                "p99_ratio": _p99(busy_ms) / _p99(idle_ms),
                "compacted_mb_per_s": closed_bytes / 1e6 / elapsed_s,
                "cpu_s_per_gb": (processes.cpu_s(broker.pid) - cpu_before_s) / (closed_bytes / 1e9),
                "added_rss_mb": rss_mb - rss_before_mb,
            }

    def _fill(self, broker: ServerProcess) -> None:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "queue.buffering.max.kbytes": 200_000}
        )
        value = bytes(range(256)) * (self._record_bytes // 256 + 1)
        for number in range(self._megabytes * 1_000_000 // self._record_bytes):
            # A key is followed by all others, in an order that is not that of their names.
            key = b"key-%08d" % (number * 7_919 % self._keys)
            while True:
                try:
                    producer.produce(_TOPIC, value[number % 256 :][: self._record_bytes - len(key)], key=key)
                    break
                except BufferError:
                    producer.poll(0.05)
            if not number % 1_000:
                producer.poll(0)
        if left := producer.flush(_TIMEOUT_S):
            raise LoadFailed(f"{left} records were not acknowledged")


class Steady:
    """One record per request, at a steady rate, over one connection; the answers of all are timed."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self.latencies_ms: list[float] = []
        self._rate = rate
        self._pending: deque[float] = deque()
        self._received = b""
        self._frame = wire.produce_frame(_STEADY_TOPIC, 0, bytes(RECORD_BYTES))
        self._connection = wire.connect(bootstrap)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.say_api_versions(self._connection)

    def close(self) -> None:
        self._connection.close()

    def taken(self) -> list[float]:
        taken, self.latencies_ms = self.latencies_ms, []
        return taken

    def run_for(self, duration_s: float) -> None:
        """Sends what is due, and takes what comes, until the time is up and all is answered."""
        gc.disable()
        due_s = time.monotonic()
        end_s = due_s + duration_s
        try:
            while due_s < end_s:
                self._receive_until(due_s)
                self._pending.append(due_s)
                self._connection.settimeout(_TIMEOUT_S)
                self._connection.sendall(self._frame.request)
                due_s += 1 / self._rate
            while self._pending:
                self._receive(_TIMEOUT_S)
        finally:
            gc.enable()

    def _receive_until(self, until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0:
            if self._pending:
                self._receive(left_s)
            else:
                time.sleep(left_s)

    def _receive(self, timeout_s: float) -> None:
        self._connection.settimeout(max(timeout_s, 0.00001))
        try:
            data = self._connection.recv(65_536)
        except TimeoutError:
            return
        if not data:
            raise LoadFailed("the broker closed the connection")
        now_s = time.monotonic()
        self._received += data
        size = self._frame.response_bytes
        while len(self._received) >= size:
            at = self._frame.error_code_at
            if error := int.from_bytes(self._received[at : at + 2], "big"):
                raise LoadFailed(f"produce was answered with error {error}")
            self._received = self._received[size:]
            self.latencies_ms.append((now_s - self._pending.popleft()) * 1000)


def _set_ratio(admin: AdminClient, value: str) -> None:
    entry = ConfigEntry(_RATIO, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, _TOPIC, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(_TIMEOUT_S)


def _closed(broker: ServerProcess) -> tuple[int, int]:
    """The bytes of the closed segments, and the offset at which they end."""
    files = sorted(Path(broker.data_dir).glob(f"{_TOPIC}-0/*.log"))
    return sum(file.stat().st_size for file in files[:-1]), int(files[-1].stem)


def _clean_end(broker: ServerProcess) -> int:
    path = Path(broker.data_dir) / _CHECKPOINT
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return max((int(line.split()[2]) for line in lines if line.startswith(f"{_TOPIC} ")), default=0)


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def main() -> None:
    parser = command_line.parser("What producers notice of a compaction.", pairs=3)
    parser.add_argument("--megabytes", type=int, default=800, metavar="MB", help="what is compacted (default 800)")
    parser.add_argument("--record-bytes", type=int, default=1_000, metavar="N", help="of its records (default 1,000)")
    parser.add_argument("--keys", type=int, default=100_000, metavar="N", help="how many there are (default 100,000)")
    parser.add_argument("--rate", type=int, default=1_000, metavar="N", help="requests per second (default 1,000)")
    given = parser.parse_args()
    megabytes = given.megabytes // 2 if given.quick else given.megabytes
    case = CompactionCase(megabytes, given.record_bytes, given.keys, given.rate, idle_s=5 if given.quick else 20)
    try:
        command_line.run([case], given)
    except KeyboardInterrupt:
        sys.exit("interrupted; everything that was started is stopped")


if __name__ == "__main__":
    main()
