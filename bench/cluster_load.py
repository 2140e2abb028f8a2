"""Cases of a cluster that is well: throughput, latency, and what it takes at rest."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bench.client import Load
from bench.cluster_faults import TOPIC, ClusterCase
from bench.model import Better, Metric, Sample, Side, Target
from bench.payloads import RECORD_BYTES
from bench.runner import Bench

_CPU = Metric("cpu_s_per_gb", "CPU of the three nodes", "s/GB", Better.LOWER, digits=2)
_CORES = Metric("cores", "cores of the three nodes", "", Better.LOWER, digits=2)
_WARMUP_S = {Side.PENSTOCK: 5, Side.KAFKA: 40}
_WARMUP_MESSAGES = 100_000


class WarmCase(ClusterCase):
    """Under load for a while before the first sample, so that the JVMs have compiled what is hot."""

    warmup_samples = 1

    def prepare(self, bench: Bench, side: Side) -> None:
        super().prepare(bench, side)
        end_s = time.monotonic() + _WARMUP_S[side] / (4 if bench.options.quick else 1)
        bootstrap = self.cluster(side).bootstrap
        while time.monotonic() < end_s:
            for size in (1000, 16, 1):
                load = Load("produce", TOPIC, messages=_WARMUP_MESSAGES // (1000 // size if size > 1 else 20),
                            properties={"batch.num.messages": str(size)})  # fmt: skip
                bench.client.run(load, bootstrap, None)


class ProduceReplicated(WarmCase):
    """1 KB records as fast as three copies are acknowledged."""

    name = "produce-rf3"
    title = "produce 1 KB, acks=all, three copies"
    metrics = (Metric("mb_per_s", "throughput", "MB/s", Better.HIGHER, digits=0), _CPU, _CORES)
    targets = (Target("mb_per_s", 1.0, Better.HIGHER),)
    messages = 500_000

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {**super().settings(bench), "messages": bench.scaled(self.messages), "record_bytes": RECORD_BYTES}

    def sample(self, bench: Bench, side: Side) -> Sample:
        cluster = self.cluster(side)
        load = Load("produce", TOPIC, messages=bench.scaled(self.messages))
        before_s = cluster.cpu_s()
        result = bench.client.run(load, cluster.bootstrap, None)
        cluster.wait_whole(TOPIC)
        used_s = cluster.cpu_s() - before_s
        return {
            "mb_per_s": result.megabytes_per_s,
            "cpu_s_per_gb": used_s / (result.numbers["bytes"] / 1e9),
            "cores": used_s / result.numbers["elapsed_s"],
        }


class LatencyReplicated(WarmCase):
    """From produce() to the consumer's hands, at a steady and modest rate."""

    name = "latency-rf3"
    title = "produce → consume of 1 KB at 1,000 messages/s, acks=all, three copies"
    metrics = (
        Metric("p50_ms", "p50", "ms", Better.LOWER, digits=2),
        Metric("p99_ms", "p99", "ms", Better.LOWER, digits=2),
        Metric("p999_ms", "p99.9", "ms", Better.LOWER, digits=2),
        Metric("max_ms", "max", "ms", Better.LOWER, digits=2),
        _CORES,
    )
    targets = (Target("p99_ms", 1.0, Better.LOWER),)
    partitions = 1
    rate = 1000
    client: Mapping[str, str] = {"socket.nagle.disable": "true"}

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            **super().settings(bench), "rate_per_s": self.rate, "duration_s": self._seconds(bench),
            "record_bytes": RECORD_BYTES, "client_properties": self.client, "producer_properties": {"linger.ms": "0"},
        }  # fmt: skip

    def sample(self, bench: Bench, side: Side) -> Sample:
        cluster = self.cluster(side)
        load = Load(
            "latency", TOPIC, rate=self.rate, warmup_s=3, duration_s=self._seconds(bench), properties=self.client,
            producer_properties={"linger.ms": "0"},
        )  # fmt: skip
        before_s, begun_s = cluster.cpu_s(), time.monotonic()
        result = bench.client.run(load, cluster.bootstrap, None)
        cores = (cluster.cpu_s() - before_s) / (time.monotonic() - begun_s)
        names = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
        return {**{name: result.numbers[name] for name in names}, "cores": cores}

    def _seconds(self, bench: Bench) -> int:
        return 3 if bench.options.quick else 10


class AtRest(ClusterCase):
    """Three nodes with a topic and no client."""

    name = "rest"
    title = "three nodes at rest"
    metrics = (
        Metric("rss_mb", "memory of the three (RSS)", "MB", Better.LOWER, digits=0),
        Metric("pss_mb", "memory of the three (PSS)", "MB", Better.LOWER, digits=0),
        Metric("cpu_percent", "CPU of the three", "% of a core", Better.LOWER, digits=2),
    )
    targets = (Target("rss_mb", 1.0, Better.LOWER), Target("cpu_percent", 1.0, Better.LOWER))

    def prepare(self, bench: Bench, side: Side) -> None:
        super().prepare(bench, side)
        time.sleep(2 if bench.options.quick else 5)

    def sample(self, bench: Bench, side: Side) -> Sample:
        cluster = self.cluster(side)
        before_s, begun_s = cluster.cpu_s(), time.monotonic()
        time.sleep(3 if bench.options.quick else 15)
        percent = 100 * (cluster.cpu_s() - before_s) / (time.monotonic() - begun_s)
        memory = cluster.memory()
        return {"rss_mb": memory.rss_mb, "pss_mb": memory.pss_mb, "cpu_percent": percent}
