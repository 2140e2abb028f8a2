"""Cases of rest: what a broker takes to start, to stay, and to hold many partitions or connections."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack

from bench import processes, wire
from bench.client import Load
from bench.model import Better, Case, Metric, Sample, Side, Target
from bench.runner import Bench
from bench.topics import await_partitions, create_topics
from support.server_process import ServerProcess

TOPIC = "bench-first"

# The client tries to connect every few milliseconds, so that what is measured is the broker's start and not its wait.
IMPATIENT: Mapping[str, str] = {
    "linger.ms": "0",
    "log_level": "0",
    "reconnect.backoff.ms": "5",
    "reconnect.backoff.max.ms": "10",
    "retry.backoff.ms": "10",
    "retry.backoff.max.ms": "20",
    "topic.metadata.refresh.fast.interval.ms": "10",
}

_RSS = Metric("rss_mb", "memory (RSS)", "MB", Better.LOWER)
_PSS = Metric("pss_mb", "memory (PSS)", "MB", Better.LOWER)
_FILES = Metric("open_files", "open files", "", Better.LOWER, digits=0)

_PARTITIONS_PER_TOPIC = 100
_MANY_TIMEOUT_S = 1200
_SETTLE_S = 2


class Startup(Case):
    """From the spawn of the process to the first delivery report of a client that was waiting for it."""

    name = "startup"
    title = "start to first acknowledged message"
    metrics = (
        Metric("fresh_s", "empty, topic created by the message", "s", Better.LOWER, digits=2),
        Metric("existing_s", "with data, topic exists", "s", Better.LOWER, digits=2),
        Metric("stop_s", "clean stop", "s", Better.LOWER, digits=2),
    )
    targets = (Target("fresh_s", 0.25, Better.LOWER), Target("existing_s", 0.25, Better.LOWER))

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {"client_properties": IMPATIENT, "formatting": "Apache Kafka's is done before the clock starts"}

    def sample(self, bench: Bench, side: Side) -> Sample:
        with bench.fresh(side) as broker:
            fresh_s = start_to_first_acknowledgement_s(bench, broker, TOPIC)
            stopping_s = time.monotonic()
            broker.stop()
            stop_s = time.monotonic() - stopping_s
            existing_s = start_to_first_acknowledgement_s(bench, broker, TOPIC)
            return {"fresh_s": fresh_s, "existing_s": existing_s, "stop_s": stop_s}


class Idle(Case):
    """A broker that was just started, with one topic and no client."""

    name = "idle"
    title = "idle broker"
    metrics = (
        _RSS,
        _PSS,
        Metric("cpu_percent", "CPU", "% of a core", Better.LOWER, digits=2),
        Metric("threads", "threads", "", Better.LOWER, digits=0),
        _FILES,
    )
    targets = (Target("rss_mb", 0.2, Better.LOWER),)
    warmup_samples = 0

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {"settle_s": self._settle_s(bench), "observed_s": self._observed_s(bench)}

    def sample(self, bench: Bench, side: Side) -> Sample:
        with bench.fresh(side) as broker:
            broker.start()
            create_topics(broker.bootstrap, {TOPIC: 1})
            time.sleep(self._settle_s(bench))
            cpu_before_s, begun_s = processes.cpu_s(broker.pid), time.monotonic()
            time.sleep(self._observed_s(bench))
            cpu_used_s = processes.cpu_s(broker.pid) - cpu_before_s
            observed_s = time.monotonic() - begun_s
            memory = processes.memory(broker.pid)
            return {
                "rss_mb": memory.rss_mb,
                "pss_mb": memory.pss_mb,
                "cpu_percent": 100 * cpu_used_s / observed_s,
                "threads": processes.threads(broker.pid),
                "open_files": processes.open_files(broker.pid),
            }

    def _settle_s(self, bench: Bench) -> float:
        return 2 if bench.options.quick else 5

    def _observed_s(self, bench: Bench) -> float:
        return 3 if bench.options.quick else 10


class Partitions(Case):
    """Many partitions: created once on a running broker, then found again by one clean restart after another."""

    warmup_samples = 0

    def __init__(self, count: int, targets: tuple[Target, ...] = ()) -> None:
        assert count % _PARTITIONS_PER_TOPIC == 0
        self._count = count
        self._topics = {f"bench-many-{n}": _PARTITIONS_PER_TOPIC for n in range(count // _PARTITIONS_PER_TOPIC)}
        self._open = ExitStack()
        self._brokers: dict[Side, ServerProcess] = {}
        self._created: dict[Side, Sample] = {}
        self.name = f"partitions-{count}"
        self.title = f"{count:,} partitions"
        self.metrics = (
            Metric("restart_s", "clean restart to first acknowledged message", "s", Better.LOWER, digits=2),
            Metric("all_served_s", "clean restart to all partitions served", "s", Better.LOWER, digits=2),
            Metric("stop_s", "clean stop", "s", Better.LOWER, digits=2),
            Metric("rss_mb", "memory after restart (RSS)", "MB", Better.LOWER),
            Metric("pss_mb", "memory after restart (PSS)", "MB", Better.LOWER),
            Metric("open_files", "open files after restart", "", Better.LOWER, digits=0),
            Metric("create_s", "creating them (once)", "s", Better.LOWER),
            Metric("created_rss_mb", "memory when just created (RSS)", "MB", Better.LOWER),
            Metric("created_open_files", "open files when just created", "", Better.LOWER, digits=0),
        )
        self.targets = targets

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {"partitions": self._count, "partitions_per_topic": _PARTITIONS_PER_TOPIC, "settle_s": _SETTLE_S}

    def prepare(self, bench: Bench, side: Side) -> None:
        broker = self._open.enter_context(bench.fresh(side))
        broker.start()
        create_topics(broker.bootstrap, {TOPIC: 1})
        begun_s = time.monotonic()
        create_topics(broker.bootstrap, self._topics, _MANY_TIMEOUT_S)
        create_s = time.monotonic() - begun_s
        time.sleep(_SETTLE_S)
        memory, files = processes.memory(broker.pid), processes.open_files(broker.pid)
        self._created[side] = {
            "create_s": create_s,
            "created_rss_mb": memory.rss_mb,
            "created_open_files": files,
        }
        broker.stop(_MANY_TIMEOUT_S)
        self._brokers[side] = broker

    def sample(self, bench: Bench, side: Side) -> Sample:
        broker = self._brokers[side]
        begun_s = time.monotonic()
        restart_s = start_to_first_acknowledgement_s(bench, broker, TOPIC)
        # Memory and files first: asking every partition for its end may open what a broker at rest leaves closed.
        time.sleep(_SETTLE_S)
        memory, files = processes.memory(broker.pid), processes.open_files(broker.pid)
        await_partitions(broker.bootstrap, self._topics, _MANY_TIMEOUT_S)
        all_served_s = time.monotonic() - begun_s - _SETTLE_S
        begun_s = time.monotonic()
        broker.stop(_MANY_TIMEOUT_S)
        return {
            "restart_s": restart_s,
            "all_served_s": max(restart_s, all_served_s),
            "stop_s": time.monotonic() - begun_s,
            "rss_mb": memory.rss_mb,
            "pss_mb": memory.pss_mb,
            "open_files": files,
            **self._created.pop(side, {}),
        }

    def clean_up(self, bench: Bench, side: Side) -> None:
        self._open.close()


class Connections(Case):
    """Connections that said hello (ApiVersions) and then nothing."""

    warmup_samples = 0

    def __init__(self, count: int) -> None:
        self._count = count
        self.name = f"connections-{count}"
        self.title = f"{count:,} idle connections"
        self.metrics = (
            Metric("added_rss_mb", "memory added (RSS)", "MB", Better.LOWER),
            Metric("added_pss_mb", "memory added (PSS)", "MB", Better.LOWER),
            Metric("added_kb_each", "for each connection", "KB", Better.LOWER),
            Metric("connect_s", "connecting them all", "s", Better.LOWER, digits=2),
            Metric("cpu_percent", "CPU at rest with them", "% of a core", Better.LOWER, digits=2),
        )

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {"connections": self._count, "said": "ApiVersions v0", "settle_s": _SETTLE_S, "observed_s": 3}

    def sample(self, bench: Bench, side: Side) -> Sample:
        with bench.fresh(side) as broker, ExitStack() as connections:
            broker.start()
            # The first connections bring code and pools that stay: they are the broker's, not the connections' cost.
            for _ in range(10):
                with wire.connect(broker.bootstrap) as connection:
                    wire.say_api_versions(connection)
            time.sleep(_SETTLE_S)
            before = processes.memory(broker.pid)
            begun_s = time.monotonic()
            for _ in range(self._count):
                connection = connections.enter_context(wire.connect(broker.bootstrap))
                wire.say_api_versions(connection)
            connect_s = time.monotonic() - begun_s
            time.sleep(_SETTLE_S)
            cpu_before_s, begun_s = processes.cpu_s(broker.pid), time.monotonic()
            time.sleep(3)
            cpu_percent = 100 * (processes.cpu_s(broker.pid) - cpu_before_s) / (time.monotonic() - begun_s)
            after = processes.memory(broker.pid)
            return {
                "added_rss_mb": after.rss_mb - before.rss_mb,
                "added_pss_mb": after.pss_mb - before.pss_mb,
                "added_kb_each": (after.rss_mb - before.rss_mb) * 1000 / self._count,
                "connect_s": connect_s,
                "cpu_percent": cpu_percent,
            }


def start_to_first_acknowledgement_s(bench: Bench, broker: ServerProcess, topic: str) -> float:
    """Starts the broker while a client already tries to reach it; seconds from spawn to first delivery report."""
    load = Load("first", topic, properties=IMPATIENT)
    with bench.client.start(load, broker.bootstrap) as running:
        running.wait_until_ready()
        running.go()
        spawned_ns = time.monotonic_ns()
        broker.start(wait=False)
        return (running.result()["acknowledged_at_ns"] - spawned_ns) / 1e9
