"""Cases in which a node is killed: how long until records are acknowledged again, and what fails meanwhile."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import ElectionType, KafkaException, TopicPartition

from bench.client import Load, LoadFailed
from bench.cluster_client import SteadyProducer, longest_pause_s
from bench.cluster_nodes import NODES, ThreeNodes
from bench.model import Better, Case, Metric, Sample, Side, Target
from bench.payloads import RECORD_BYTES
from bench.runner import Bench
from penstock.client import ClientError, ClientSettings, Cluster
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from support.server_process import admin_client

DEFAULTS: Mapping[str, str] = {}
EQUAL: Mapping[str, str] = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
}
"""Short ones, on both sides."""

PATIENT: Mapping[str, object] = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}
"""A client that finds a new leader soon, so that what is measured is the cluster."""
TOPIC = "bench-cluster"
PARTITIONS = 6
WARM_S = 1.0
TIMEOUT_S = 90.0
CATCH_UP_TIMEOUT_S = 300.0


class ClusterCase(Case):
    """Keeps a cluster of each side from the first sample to the last."""

    warmup_samples = 0
    properties: Mapping[str, str] = DEFAULTS
    partitions = PARTITIONS

    def __init__(self) -> None:
        self._clusters: dict[Side, ThreeNodes] = {}

    def settings(self, bench: Bench) -> Mapping[str, object]:
        copies = {"replication_factor": NODES, "min_insync_replicas": 2}
        return {"nodes": NODES, **copies, "broker_properties": self.properties}

    def prepare(self, bench: Bench, side: Side) -> None:
        cluster = ThreeNodes(side, bench.options.penstock, bench.directory, self.properties)
        self._clusters[side] = cluster.__enter__()
        cluster.create(TOPIC, self.partitions)

    def clean_up(self, bench: Bench, side: Side) -> None:
        cluster = self._clusters.pop(side, None)
        if cluster is not None:
            cluster.close()

    def cluster(self, side: Side) -> ThreeNodes:
        return self._clusters[side]


class Failover(ClusterCase):
    """kill -9 of the leader of a partition, under one record every 10 ms."""

    metrics = (
        Metric("failover_s", "kill -9 to the next acknowledged write", "s", Better.LOWER, digits=2),
        Metric("back_s", "started again to in sync", "s", Better.LOWER, digits=2),
    )

    def __init__(self, *, controller: bool, equal: bool) -> None:
        super().__init__()
        self._controller = controller
        self.properties = EQUAL if equal else DEFAULTS
        who = "the leader that is also the active controller" if controller else "a leader"
        self.name = f"failover-{'controller' if controller else 'leader'}{'-equal' if equal else ''}"
        self.title = f"kill -9 of {who}, {'equal short timeouts' if equal else 'default timeouts'}"
        self.targets = (
            (Target("failover_s", 1.0, Better.LOWER),)
            if equal
            else (Target("failover_s", 2.0, Better.LOWER, against=None), Target("failover_s", 1.0, Better.LOWER))
        )

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {**super().settings(bench), "rate_per_s": 100, "client_properties": PATIENT}

    def sample(self, bench: Bench, side: Side) -> Sample:
        cluster = self.cluster(side)
        active = cluster.controller()
        leaders = cluster.leaders(TOPIC)
        partition = next(n for n, leader in enumerate(leaders) if (leader == active) == self._controller)
        with SteadyProducer(cluster.bootstrap, TOPIC, [partition], 100, PATIENT) as producer:
            if producer.wait_for_success(time.monotonic() + WARM_S, TIMEOUT_S) is None:
                raise LoadFailed("nothing was acknowledged before the kill")
            killed_s = cluster.kill(leaders[partition])
            acknowledged_s = producer.wait_for_success(killed_s, TIMEOUT_S)
        started_s = time.monotonic()
        cluster.start(leaders[partition])
        cluster.wait_whole(TOPIC)
        back_s = time.monotonic() - started_s
        _lead_as_preferred(cluster, TOPIC)
        if acknowledged_s is None:
            raise LoadFailed(f"nothing was acknowledged within {TIMEOUT_S:.0f} s after the kill")
        return {"failover_s": acknowledged_s - killed_s, "back_s": back_s}


class ControllerFailover(ClusterCase):
    """kill -9 of the active controller: until a topic is created through any of the other nodes."""

    name = "controller"
    title = "kill -9 of the active controller, default timeouts"
    metrics = (Metric("controller_s", "kill -9 to the next topic created", "s", Better.LOWER, digits=2),)
    targets = (Target("controller_s", 1.0, Better.LOWER),)

    def sample(self, bench: Bench, side: Side) -> Sample:
        cluster = self.cluster(side)
        active = cluster.controller()
        killed_s = cluster.kill(active)
        _create_until_it_works(cluster.living_bootstrap(), f"{TOPIC}-{time.monotonic_ns()}", killed_s + TIMEOUT_S)
        took_s = time.monotonic() - killed_s
        cluster.start(active)
        cluster.wait_whole(TOPIC)
        return {"controller_s": took_s}


class FollowerKill(ClusterCase):
    """kill -9 of a node that leads nothing of what is written: the longest wait of any acks=all write."""

    name = "follower"
    title = "kill -9 of a follower, default timeouts"
    metrics = (
        Metric("stall_s", "longest time without an acknowledgement", "s", Better.LOWER, digits=2),
        Metric("calm_ms", "the same before the kill", "ms", Better.LOWER, digits=1),
    )
    targets = (Target("stall_s", 1.0, Better.LOWER),)
    watched_s = 15.0

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {**super().settings(bench), "rate_per_s": 200, "watched_s": self.watched_s, "client_properties": PATIENT}

    def sample(self, bench: Bench, side: Side) -> Sample:
        cluster = self.cluster(side)
        leaders = cluster.leaders(TOPIC)
        leader = leaders[0]
        written = [number for number, one in enumerate(leaders) if one == leader]
        active = cluster.controller()
        follower = next(number for number in cluster.nodes if number not in (leader, active))
        with SteadyProducer(cluster.bootstrap, TOPIC, written, 200, PATIENT) as producer:
            begun_s = time.monotonic()
            time.sleep(3 * WARM_S)
            killed_s = cluster.kill(follower)
            time.sleep(self.watched_s)
            end_s = time.monotonic()
        cluster.start(follower)
        cluster.wait_whole(TOPIC)
        _lead_as_preferred(cluster, TOPIC)
        return {
            "stall_s": longest_pause_s(producer.deliveries, killed_s, end_s),
            "calm_ms": 1000 * longest_pause_s(producer.deliveries, begun_s + WARM_S, killed_s - 0.2),
        }


class FailedRequests(ClusterCase):
    """Retries off, one record to a request, a leader killed and started again every two minutes."""

    name = "failed-requests"
    title = "requests that fail with retries off while leaders are killed"
    metrics = (
        Metric("failed_percent", "failed", "%", Better.LOWER, digits=3),
        Metric("failed", "failed", "", Better.LOWER, digits=0),
        Metric("requests", "of", "requests", Better.HIGHER, digits=0),
    )
    targets = (Target("failed_percent", 1.0, Better.LOWER, against=None), Target("failed_percent", 1.0, Better.LOWER))
    rate = 300
    down_s = 10.0
    every_s = 120.0
    client: Mapping[str, object] = {
        **PATIENT, "message.send.max.retries": 0, "batch.num.messages": 1, "message.timeout.ms": 5000,
        "request.timeout.ms": 5000,
    }  # fmt: skip

    def __init__(self, minutes: float) -> None:
        super().__init__()
        self._seconds = minutes * 60

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            **super().settings(bench), "seconds": self._seconds_of(bench), "killed_every_s": self.every_s,
            "down_s": self.down_s, "rate_per_s": self.rate, "client_properties": self.client,
        }  # fmt: skip

    def _seconds_of(self, bench: Bench) -> float:
        return self._seconds / 4 if bench.options.quick else self._seconds

    def prepare(self, bench: Bench, side: Side) -> None:
        """With some requests that do not count: JVMs that have just started answer the first ones late."""
        super().prepare(bench, side)
        with SteadyProducer(self.cluster(side).bootstrap, TOPIC, list(range(self.partitions)), self.rate, PATIENT):
            time.sleep(5 if bench.options.quick else 20)

    def sample(self, bench: Bench, side: Side) -> Sample:
        cluster = self.cluster(side)
        partitions = list(range(self.partitions))
        end_s = time.monotonic() + self._seconds_of(bench)
        turn = 0
        with SteadyProducer(cluster.bootstrap, TOPIC, partitions, self.rate, self.client) as producer:
            while (left_s := end_s - time.monotonic()) > 0:
                time.sleep(min(left_s, self.every_s / 4))
                victim = cluster.leaders(TOPIC)[turn % self.partitions]
                turn += 1
                cluster.kill(victim)
                time.sleep(self.down_s)
                cluster.start(victim)
                time.sleep(max(0.0, min(end_s - time.monotonic(), self.every_s * 3 / 4 - self.down_s)))
        cluster.wait_whole(TOPIC)
        failed = sum(one.failed for one in producer.deliveries)
        total = len(producer.deliveries)
        return {"failed_percent": 100 * failed / total, "failed": failed, "requests": total}


class CatchUp(ClusterCase):
    """A node comes back after a gigabyte was written without it."""

    name = "catch-up"
    title = "a node that was stopped comes back, 1 GB behind"
    metrics = (
        Metric("in_sync_s", "start to in sync", "s", Better.LOWER, digits=1),
        Metric("mb_per_s", "copied", "MB/s", Better.HIGHER, digits=0),
    )
    targets = (Target("in_sync_s", 1.0, Better.LOWER),)
    messages = 1_000_000

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {**super().settings(bench), "messages": bench.scaled(self.messages), "record_bytes": RECORD_BYTES}

    def sample(self, bench: Bench, side: Side) -> Sample:
        cluster = self.cluster(side)
        messages = bench.scaled(self.messages)
        cluster.kill(NODES)
        bench.client.run(Load("produce", TOPIC, messages=messages), cluster.living_bootstrap(), None)
        started_s = time.monotonic()
        cluster.start(NODES)
        cluster.wait_whole(TOPIC, CATCH_UP_TIMEOUT_S)
        in_sync_s = time.monotonic() - started_s
        return {"in_sync_s": in_sync_s, "mb_per_s": messages * RECORD_BYTES / 1e6 / in_sync_s}


def _create_until_it_works(bootstrap: str, topic: str, deadline_s: float) -> None:
    settings = ClientSettings.from_properties(
        {"bootstrap.servers": bootstrap, "request.timeout.ms": 2000, "default.api.timeout.ms": 2000}
    )
    request = CreateTopicsRequest([CreatableTopic(topic, 1, NODES - 1, [], [])], timeout_ms=1000, validate_only=False)
    while time.monotonic() < deadline_s:
        with suppress(ClientError), Cluster(settings) as cluster:
            answer = cluster.any_broker().call(request, CreateTopicsResponse)
            if answer.topics and answer.topics[0].error_code in (0, 36):  # created, or by a request we gave up on
                return
        time.sleep(0.01)
    raise LoadFailed("no topic could be created after the kill")


def _lead_as_preferred(cluster: ThreeNodes, topic: str) -> None:
    """Every node leads some of the topic again, so that the next sample finds what it looks for."""
    client = admin_client(cluster.bootstrap)
    wanted = [TopicPartition(topic, number) for number in range(len(cluster.leaders(topic)))]
    with suppress(KafkaException):
        client.elect_leaders(ElectionType.PREFERRED, wanted).result(30)
    cluster.wait(lambda: len(set(cluster.leaders(topic))) == NODES, "lead as preferred")
