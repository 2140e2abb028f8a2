"""Cases under load: produce, consume, and the time from one to the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench import processes
from bench.client import Load
from bench.model import Better, Case, Metric, Sample, Side, Target
from bench.payloads import RECORD_BYTES
from bench.runner import Bench
from bench.topics import create_topics, delete_topic

# What librdkafka's mock cluster gives a topic, so that all sides have the same.
PARTITIONS = 4

_THROUGHPUT = Metric("mb_per_s", "throughput", "MB/s", Better.HIGHER, digits=0)
_REQUESTS = Metric("messages_per_s", "messages", "/s", Better.HIGHER, digits=0)
_BROKER_CPU = Metric("broker_cpu_s_per_gb", "broker CPU", "s/GB", Better.LOWER, digits=2)
_CLIENT_CPU = Metric("client_cpu_s_per_gb", "client CPU", "s/GB", Better.LOWER, digits=2)
_BROKER_CORES = Metric("broker_cores", "broker cores", "", Better.LOWER, digits=2)
_RSS = Metric("rss_mb", "memory after it (RSS)", "MB", Better.LOWER, digits=0)


@dataclass(frozen=True)
class Produce(Case):
    """Sends records of 1 KB as fast as the acknowledgements come; the clock stops with the last of them."""

    name: str
    title: str
    messages: int
    properties: Mapping[str, str]
    targets: tuple[Target, ...]
    one_per_request: bool = False
    sides = (Side.PENSTOCK, Side.KAFKA, Side.MOCK)
    under_load = True

    @property
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        first = _REQUESTS if self.one_per_request else _THROUGHPUT
        return (first, _BROKER_CPU, _BROKER_CORES, _CLIENT_CPU, _RSS)

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "messages": bench.scaled(self.messages),
            "record_bytes": RECORD_BYTES,
            "partitions": PARTITIONS,
            "acks": "all",
            "client_properties": self.properties,
        }

    def sample(self, bench: Bench, side: Side) -> Sample:
        topic = f"bench-{self.name}"
        load = Load("produce", topic, messages=bench.scaled(self.messages), properties=self.properties)
        broker = bench.shared(side)
        if broker is None:
            result = bench.client.run(load, None, None)
            return {"mb_per_s": result.megabytes_per_s, "messages_per_s": result.messages_per_s}
        create_topics(broker.bootstrap, {topic: PARTITIONS})
        try:
            result = bench.client.run(load, broker.bootstrap, broker.pid)
        finally:
            delete_topic(broker, topic)
        return {
            "mb_per_s": result.megabytes_per_s,
            "messages_per_s": result.messages_per_s,
            "broker_cpu_s_per_gb": result.broker_cpu_s_per_gb,
            "broker_cores": result.broker_cpu_s / result.numbers["elapsed_s"],
            "client_cpu_s_per_gb": result.client_cpu_s_per_gb,
            "rss_mb": processes.memory(broker.pid).rss_mb,
        }


class Consume(Case):
    """Reads a topic from its beginning, all of it in the page cache."""

    name = "consume"
    title = "consume 1 KB, from the beginning, page cache warm"
    metrics = (_THROUGHPUT, _BROKER_CPU, _BROKER_CORES, _CLIENT_CPU, _RSS)
    targets = (Target("mb_per_s", 1.0, Better.HIGHER),)
    under_load = True
    messages = 2_000_000
    topic = "bench-consume"

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "messages": bench.scaled(self.messages),
            "record_bytes": RECORD_BYTES,
            "partitions": PARTITIONS,
            "client_properties": {},
        }

    def prepare(self, bench: Bench, side: Side) -> None:
        broker = bench.shared(side)
        assert broker is not None
        create_topics(broker.bootstrap, {self.topic: PARTITIONS})
        load = Load("produce", self.topic, messages=bench.scaled(self.messages))
        bench.client.run(load, broker.bootstrap, broker.pid)

    def sample(self, bench: Bench, side: Side) -> Sample:
        broker = bench.shared(side)
        assert broker is not None
        load = Load("consume", self.topic, messages=bench.scaled(self.messages), partitions=PARTITIONS)
        result = bench.client.run(load, broker.bootstrap, broker.pid)
        return {
            "mb_per_s": result.megabytes_per_s,
            "broker_cpu_s_per_gb": result.broker_cpu_s_per_gb,
            "broker_cores": result.broker_cpu_s / result.numbers["elapsed_s"],
            "client_cpu_s_per_gb": result.client_cpu_s_per_gb,
            "rss_mb": processes.memory(broker.pid).rss_mb,
        }

    def clean_up(self, bench: Bench, side: Side) -> None:
        broker = bench.shared(side)
        assert broker is not None
        delete_topic(broker, self.topic)


class Latency(Case):
    """From just before produce() to the consumer's hands, at a steady and modest rate."""

    name = "latency"
    title = "produce → consume of 1 KB at 1,000 messages/s"
    metrics = (
        Metric("p50_ms", "p50", "ms", Better.LOWER, digits=2),
        Metric("p99_ms", "p99", "ms", Better.LOWER, digits=2),
        Metric("p999_ms", "p99.9", "ms", Better.LOWER, digits=2),
        Metric("max_ms", "max", "ms", Better.LOWER, digits=2),
        Metric("broker_cores", "broker cores", "", Better.LOWER, digits=3),
    )
    targets = (Target("p99_ms", 1.0, Better.LOWER),)
    under_load = True
    rate = 1000
    warmup_s = 5
    topic = "bench-latency"
    properties: Mapping[str, str] = {"socket.nagle.disable": "true"}
    producer_properties: Mapping[str, str] = {"linger.ms": "0"}

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "rate_per_s": self.rate,
            "warmup_s": self.warmup_s,
            "duration_s": self._duration_s(bench),
            "record_bytes": RECORD_BYTES,
            "partitions": 1,
            "client_properties": self.properties,
            "producer_properties": self.producer_properties,
        }

    def prepare(self, bench: Bench, side: Side) -> None:
        broker = bench.shared(side)
        assert broker is not None
        create_topics(broker.bootstrap, {self.topic: 1})

    def sample(self, bench: Bench, side: Side) -> Sample:
        broker = bench.shared(side)
        assert broker is not None
        load = Load(
            "latency",
            self.topic,
            rate=self.rate,
            warmup_s=self.warmup_s,
            duration_s=self._duration_s(bench),
            properties=self.properties,
            producer_properties=self.producer_properties,
        )
        result = bench.client.run(load, broker.bootstrap, broker.pid)
        percentiles = {name: result.numbers[name] for name in ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")}
        return {**percentiles, "broker_cores": result.broker_cpu_s / result.numbers["elapsed_s"]}

    def clean_up(self, bench: Bench, side: Side) -> None:
        broker = bench.shared(side)
        assert broker is not None
        delete_topic(broker, self.topic)

    def _duration_s(self, bench: Bench) -> int:
        return 3 if bench.options.quick else 10
