"""The real controller code with up to a million partitions: what it takes to keep, load and change that much metadata.

Everything is pure, so there is no network, no disk and no second process in these numbers: they are the time and the
memory of the decisions themselves. Each size is measured in a process of its own.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

from penstock.config import BrokerConfig
from penstock.metadata import (
    EMPTY_IMAGE,
    SUPPORTED_FEATURES,
    Controller,
    Decision,
    IsrProposal,
    Listener,
    MetadataImage,
    MetadataLoader,
    NewTopic,
    PartitionReassignment,
    Registration,
    snapshot_values,
)
from penstock.raft import LogBatch, OffsetAndEpoch, VoterSet, read_snapshot, snapshot_batches
from penstock.wire.messages.metadata_records import MetadataRecord, encode_metadata_record

R = TypeVar("R")

BROKERS = 100
RACKS = 10
REPLICATION_FACTOR = 3
PARTITIONS_PER_TOPIC = 10
TOPICS_PER_REQUEST = 900
"""So that a request stays below the controller's limit of 10,000 records."""
FAILED_BROKER = 7
MOVED = 1_000
CLUSTER_ID = "x" * 22

Measured = dict[str, float]
Said = Callable[[str], None]


def measure(partitions: int, said: Said) -> Measured:
    """All numbers of one size. `said` is told what is being done."""
    before_bytes = resident_bytes()
    cluster = Cluster()
    said("creating topics")
    create_s = timed(lambda: cluster.create_topics(partitions))
    gc.collect()
    measured: Measured = {
        "partitions": cluster.image.partition_count,
        "topics": cluster.image.topic_count,
        "create_us_per_partition": create_s * 1e6 / partitions,
        "image_mb": (resident_bytes() - before_bytes) / 1e6,
    }
    said("one topic more")
    one = [new_topic("more")]
    measured["one_topic_ms"] = 1000 * timed(lambda: cluster.decide(lambda c: c.decide_create_topics(one)))
    said("a broker fails")
    measured |= cluster.fail_broker()
    said("ISR changes")
    measured |= cluster.change_isrs()
    said("moving partitions")
    measured |= cluster.move_partitions()
    said("writing a snapshot")
    measured |= cluster.snapshot(said)
    measured["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return measured


class Cluster:
    """A controller and a broker that follows it, both in this process."""

    def __init__(self) -> None:
        self._rng = Random(1)
        self._controller = Controller(
            EMPTY_IMAGE,
            cluster_id=CLUSTER_ID,
            config=BrokerConfig.resolve({"min.insync.replicas": "2"}),
            rng=self._rng,
            new_uuid=lambda: self._rng.randbytes(16),
        )
        self._offset = 0
        self._epochs: dict[int, int] = {}
        self.decide(lambda controller: controller.decide_activation())
        for broker_id in range(1, BROKERS + 1):
            registration = Registration(
                broker_id,
                CLUSTER_ID,
                self._rng.randbytes(16),
                (Listener("PLAINTEXT", f"host-{broker_id}", 9092, 0),),
                (self._rng.randbytes(16),),
                SUPPORTED_FEATURES,
                f"rack-{broker_id % RACKS}",
            )
            offset = self._offset
            decision = self.decide(
                lambda c, wanted=registration, at=offset: c.decide_register_broker(wanted, at, fenced=False)  # type: ignore[misc]
            )
            self._epochs[broker_id] = decision.reply.broker_epoch

    @property
    def image(self) -> MetadataImage:
        return self._controller.image

    def decide(self, decide: Callable[[Controller], Decision[R]]) -> Decision[R]:
        decision = decide(self._controller)
        self._offset += len(decision.records)
        return decision

    def create_topics(self, partitions: int) -> None:
        count = partitions // PARTITIONS_PER_TOPIC
        for start in range(0, count, TOPICS_PER_REQUEST):
            names = [f"topic-{number:06d}" for number in range(start, min(start + TOPICS_PER_REQUEST, count))]
            decision = self.decide(lambda c, names=names: c.decide_create_topics([new_topic(n) for n in names]))  # type: ignore[misc]
            assert not any(created.outcome.failed for created in decision.reply)

    def fail_broker(self) -> Measured:
        """It is fenced: whatever it led gets another leader. Then the same records reach a broker."""
        epoch = self._epochs[FAILED_BROKER]
        before = self.image
        decided: list[Decision[None]] = []
        fence_s = timed(lambda: decided.append(self.decide(lambda c: c.decide_fence_broker(FAILED_BROKER, epoch))))
        records = decided[0].records
        led = sum(1 for topic in before.topics() for state in topic.partitions if state.leader == FAILED_BROKER)
        assert all(state.leader != FAILED_BROKER for topic in self.image.topics() for state in topic.partitions)
        values: list[bytes] = []
        encode_s = timed(lambda: values.extend(encoded(records)))
        loader = MetadataLoader(before)
        batch = LogBatch(before.offset + 1, len(values), 1, values=tuple(values))
        follow_s = timed(lambda: loader.load([batch]))
        self.decide(lambda c: c.decide_unfence_broker(FAILED_BROKER, epoch))
        return {
            "failure_partitions": len(records) - 1,
            "failure_elections": led,
            "failure_decided_s": fence_s,
            "failure_encoded_s": encode_s,
            "failure_followed_s": follow_s,
            "failure_us_per_partition": (fence_s + encode_s) * 1e6 / max(1, len(records) - 1),
        }

    def change_isrs(self) -> Measured:
        """A leader drops a follower from up to a thousand partitions, in one request."""
        leader = FAILED_BROKER + 1
        proposals = [
            IsrProposal(topic.topic_id, number, state.leader_epoch, state.partition_epoch, state.isr[:2])
            for topic in self.image.topics()
            for number, state in enumerate(topic.partitions)
            if state.leader == leader and leader in state.isr[:2]
        ][:MOVED]
        took_s = timed(lambda: self.decide(lambda c: c.decide_alter_isrs(leader, self._epochs[leader], proposals)))
        return {"isr_change_us": took_s * 1e6 / max(1, len(proposals))}

    def move_partitions(self) -> Measured:
        """Up to a thousand partitions begin to move, and are listed."""
        wanted = []
        for topic in self.image.topics():
            for number, state in enumerate(topic.partitions):
                other = next(broker for broker in range(1, BROKERS + 1) if broker not in state.replicas)
                wanted.append(PartitionReassignment(topic.name, number, (*state.replicas[:-1], other)))
            if len(wanted) >= MOVED:
                break
        move_s = timed(lambda: self.decide(lambda c: c.decide_alter_reassignments(wanted)))
        list_s = timed(lambda: self.decide(lambda c: c.decide_list_reassignments(None)))
        return {"move_us": move_s * 1e6 / len(wanted), "list_moves_ms": list_s * 1000}

    def snapshot(self, said: Said) -> Measured:
        at = OffsetAndEpoch(self._offset, 1)
        files: list[bytes] = []

        def write() -> None:
            files.append(b"".join(snapshot_batches(at, VoterSet(), snapshot_values(self.image), timestamp_ms=1)))

        write_s = timed(write)
        said("loading a snapshot")
        loader = MetadataLoader()
        load_s = timed(lambda: loader.load_snapshot(at, read_snapshot(files[0]).values))
        assert loader.image.partition_count == self.image.partition_count
        return {"snapshot_mb": len(files[0]) / 1e6, "snapshot_write_s": write_s, "snapshot_load_s": load_s}


def new_topic(name: str) -> NewTopic:
    return NewTopic(name, PARTITIONS_PER_TOPIC, REPLICATION_FACTOR)


def encoded(records: list[MetadataRecord]) -> list[bytes]:
    return [encode_metadata_record(record) for record in records]


def timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
