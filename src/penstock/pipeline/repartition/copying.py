"""Copies chunks of the old topic with Spark, each record once, in the order of its partition.

A task must leave no gaps: if one record failed and a later one of its key arrived, the retry would swap them. Records
of one producer arrive in order, unless some of them time out while others are still being sent. So they do not time out
one by one: they wait as long as the lease lasts, and at its end everything that was not sent is purged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.client import EARLIEST, LATEST, Cluster, IsolationLevel, TopicMetadata, TopicPartition
from penstock.pipeline.builtin.replay_plan import Order, ReplayError
from penstock.pipeline.builtin.replaying import (
    DELIVERY_TIMEOUTS,
    SETTLE_S,
    ReplayTask,
    arrived_places,
    copy_ranges,
)
from penstock.pipeline.repartition.ledger import Ledger
from penstock.pipeline.repartition.plan import Offsets, RepartitionError, RepartitionPlan

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LEASE_S: Final = 120.0
LEASE_MIN_S: Final = 10.0
RECORDS_PER_CHUNK: Final = 200_000
ATTEMPTS_MAX: Final = 3
"""Of a chunk, in a row and with nothing written."""


@dataclass(frozen=True)
class CopyTask(ReplayTask):
    """Writes the records of one old partition until the lease ends."""

    @contextmanager
    def guard(self, producer: Producer) -> Iterator[None]:
        assert self.until_s is not None
        # A thread, because this one may be waiting for Spark's next rows when the lease ends.
        timer = threading.Timer(max(0.0, self.until_s - time.time()), producer.purge)
        timer.daemon = True
        timer.start()
        try:
            yield
        except BaseException:
            producer.purge()
            raise
        finally:
            timer.cancel()

    def _own_properties(self) -> dict[str, str]:
        assert self.until_s is not None
        own = {name: value for name, value in self.properties.items() if name not in DELIVERY_TIMEOUTS}
        left_ms = max(1_000, round((self.until_s - time.time() + SETTLE_S) * 1000))
        return {
            **own,
            "enable.idempotence": "true",
            "enable.gapless.guarantee": "true",
            "log_level": "3",  # librdkafka warns of this property, once for each task
            # Later than the purge, so that no record times out before another.
            "delivery.timeout.ms": str(2 * left_ms),
            "request.timeout.ms": str(min(left_ms, 30_000)),
        }

    def _check_lease(self) -> None:
        assert self.until_s is not None
        if time.time() >= self.until_s:
            raise ReplayError("the chunk was not written within its lease: the rest of it follows")


class Copier:
    """Copies the chunks of one plan, and keeps the ledger up to date."""

    def __init__(
        self,
        spark: SparkSession,
        properties: Mapping[str, str],
        ledger: Ledger,
        cluster: Cluster,
        *,
        lease_s: float = LEASE_S,
        records_per_chunk: int = RECORDS_PER_CHUNK,
    ) -> None:
        self._spark = spark
        self._properties = dict(properties)
        self._ledger = ledger
        self._cluster = cluster
        self._lease_s = lease_s
        self._records_per_chunk = records_per_chunk

    def step(self, plan: RepartitionPlan, ends: Offsets) -> RepartitionPlan:
        """Copies the next chunk up to `ends`, or finishes the one that was interrupted."""
        interrupted = plan.chunk is not None
        if not interrupted:
            target_ends = self.ends(plan.target, plan.partitions)
            plan = plan.next_chunk(self._starts(plan), ends, target_ends, self._records_per_chunk)
        plan, written = self._write(plan, interrupted)
        return self._ledger.save(plan.chunk_done(written))

    def ends(self, topic: str, partitions: int, *, committed: bool = False) -> Offsets:
        """The high watermarks of a topic, or with `committed` its last stable offsets."""
        return self._listed(
            topic,
            partitions,
            LATEST,
            IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
        )

    def _starts(self, plan: RepartitionPlan) -> Offsets:
        return self._listed(plan.source, len(plan.positions), EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def _listed(self, topic: str, partitions: int, when: int, isolation: IsolationLevel) -> Offsets:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        found = self._cluster.list_offsets(dict.fromkeys(places, when), isolation=isolation)
        return tuple(found[place].offset for place in places)

    def _write(self, plan: RepartitionPlan, interrupted: bool) -> tuple[RepartitionPlan, int]:
        failures = known = 0
        while True:
            arrived = self._arrived(plan) if interrupted else set()
            if len(arrived) > known:
                failures, known = 0, len(arrived)
            # Before the first task may write.
            plan = self._ledger.save(plan.leased(round((time.time() + self._lease_s) * 1000)))
            interrupted = True
            try:
                return plan, len(arrived) + self._write_once(plan, arrived)
            except Exception as error:
                failures += 1
                if failures == ATTEMPTS_MAX:
                    raise RepartitionError(f"a chunk failed {failures} times in a row: {error}") from error
                self._lease_s = min(2 * self._lease_s, LEASE_S)  # it may have been too short for this machine
                log.warning("a chunk failed and is tried again: %s", str(error).splitlines()[-1:])

    def _arrived(self, plan: RepartitionPlan) -> set[tuple[int, int]]:
        """Which records of the chunk are in the new topic, once no task can add to them any more."""
        assert plan.chunk is not None
        left_s = min(plan.chunk.leased_until_ms / 1000 - time.time(), max(self._lease_s, LEASE_S)) + SETTLE_S
        if left_s > 0:
            log.warning("going on in %.0f s, when no task of before can write any more", left_s)
            time.sleep(left_s)
        return arrived_places(self._cluster, self._topic(plan), dict(enumerate(plan.chunk.target_ends)), plan.id)

    def _topic(self, plan: RepartitionPlan) -> TopicMetadata:
        return self._cluster.topics([plan.target])[plan.target]

    def _write_once(self, plan: RepartitionPlan, arrived: set[tuple[int, int]]) -> int:
        assert plan.chunk is not None
        order = Order(plan.source, plan.target, EARLIEST, LATEST, False, True, True)
        writing = {**self._properties, "partitioner": plan.partitioner}
        task = CopyTask(order, writing, plan.id, frozenset(arrived), plan.chunk.leased_until_ms / 1000)
        return copy_ranges(
            self._spark, self._properties, dict(enumerate(plan.positions)), dict(enumerate(plan.chunk.ends)), task
        )
