"""A time range of a topic into another one: bounded, as it was, and going on exactly where it stopped."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.client import (
    EARLIEST,
    LATEST,
    ClientSettings,
    Cluster,
    IsolationLevel,
    PartitionRange,
    TopicMetadata,
    TopicPartition,
    fetch_ranges,
)
from penstock.pipeline.builtin.reading import topic_reader
from penstock.pipeline.builtin.replay_plan import (
    Order,
    PlanFile,
    Positions,
    ReplayError,
    ReplayPlan,
    header_of,
    place_in,
)
from penstock.wire.records import Record, iter_batches, iter_records

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Producer
    from pyspark.sql import SparkSession

    from penstock.spark.producing import Deliveries

log = logging.getLogger(__name__)

RECORDS_PER_CHUNK: Final = 200_000
ATTEMPTS_MAX: Final = 3
"""Of a chunk, in a row and with nothing written."""
LEASE_S: Final = 120
"""How long the tasks of a chunk may write. A chunk that takes longer is gone on with, as after a failure."""
DELIVERY_S: Final = 30
"""The last part of the lease, in which records are still sent and none is added: so long one may wait to be sent."""
SETTLE_S: Final = 5
"""What may pass after a lease: clocks that differ, and requests that are on their way to the broker."""
HEADER: Final = "penstock.replayed"
DECOMPRESSED_BYTES_MAX: Final = 512 << 20
DELIVERY_TIMEOUTS: Final = ("delivery.timeout.ms", "message.timeout.ms")
_RESULT: Final = "written BIGINT"


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay went."""

    records: int
    """Written to the target, by this run and by those that it continued."""
    offsets: int
    """How many offsets the range had; more than records where the topic is compacted or has transactions."""
    plan_path: Path


def replay(
    spark: SparkSession,
    bootstrap_servers: str,
    source: str,
    target: str,
    *,
    progress: str | Path,
    start: str | datetime | None = None,
    end: str | datetime | None = None,
    keep_partitions: bool = False,
    keep_timestamps: bool = True,
    trace: bool = True,
    records_per_chunk: int = RECORDS_PER_CHUNK,
    properties: Mapping[str, str] | None = None,
    target_servers: str = "",
    target_properties: Mapping[str, str] | None = None,
    on_chunk: Callable[[ReplayPlan], None] | None = None,
) -> Replayed:
    """Writes what `source` got from `start` up to `end` (exclusive) to `target`, in each partition's order.

        replay(spark, "localhost:9092", "orders", "orders.again", start="2026-01-05T08:00Z", end="2026-01-05T12:00Z",
               progress="replays/orders.json")

    Keys, values and headers stay as they are, and so do timestamps unless `keep_timestamps` is off (the target's own
    `message.timestamp.type` must be CreateTime). Records are placed by key, or with `keep_partitions` where they were.
    The range is one of positions: from the first record of `start` or later to the first of `end` or later, as Kafka
    looks times up; without them it begins at the beginning, and ends where the topic ends now. Only committed records
    are read.

    `progress` is a file that says how far the replay came. Run again with the same file, it goes on exactly where it
    stopped, wherever that was; a replay that is done does nothing. For that, each record gets one header more, which
    says where it came from; without it (`trace=False`) records of the chunk that was interrupted may be written twice.
    Who goes on in the middle of a chunk waits first until none of the tasks that wrote it can write any more, which is
    two minutes after they were started at the latest. Clocks of the machines must not differ by more than seconds.
    """
    if records_per_chunk < 1:
        raise ReplayError(f"records_per_chunk is {records_per_chunk}: it must be 1 or more")
    target_servers = target_servers or bootstrap_servers
    if source == target and target_servers == bootstrap_servers:
        raise ReplayError(f"source and target are the same topic, {source}: name another target")
    reading = {"bootstrap.servers": bootstrap_servers, **(properties or {})}
    own = properties if target_properties is None else target_properties
    writing = {"bootstrap.servers": target_servers, **(own or {})}
    order = Order(
        source, target, time_ms(start, EARLIEST), time_ms(end, LATEST), keep_partitions, keep_timestamps, trace
    )
    if order.start_ms >= 0 <= order.end_ms and order.start_ms > order.end_ms:
        raise ReplayError(f"the range ends before it begins: start is {start}, end is {end}")
    job = _Job(spark, order, reading, writing, PlanFile(Path(progress)), records_per_chunk, on_chunk)
    return job.run()


def time_ms(moment: str | datetime | None, otherwise: int) -> int:
    """A timestamp in ms; without a time zone it is UTC."""
    if moment is None:
        return otherwise
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise ReplayError(f"{moment!r} is not a time: write it like 2026-01-05T08:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


class _Job:
    def __init__(
        self,
        spark: SparkSession,
        order: Order,
        reading: Mapping[str, str],
        writing: Mapping[str, str],
        file: PlanFile,
        records_per_chunk: int,
        on_chunk: Callable[[ReplayPlan], None] | None,
    ) -> None:
        self._spark = spark
        self._order = order
        self._reading = dict(reading)
        self._writing = dict(writing)
        self._file = file
        self._records_per_chunk = records_per_chunk
        self._on_chunk = on_chunk

    def run(self) -> Replayed:
        plan = self._file.load(self._order)
        with (
            Cluster(ClientSettings.from_properties(self._reading)) as source,
            Cluster(ClientSettings.from_properties(self._writing)) as target,
        ):
            source_topic = source.topics([self._order.source])[self._order.source]
            target_topic = _target_topic(target, self._order, source_topic)
            if plan is None:
                ranges = offset_range(source, source_topic, self._order.start_ms, self._order.end_ms)
                plan = ReplayPlan.new(self._order, *ranges)
                self._file.save(plan)
            while not plan.is_done:
                interrupted = plan.chunk is not None
                if not interrupted:
                    plan = plan.next_chunk(self._records_per_chunk, topic_ends(target, target_topic))
                written = self._write(plan, target, target_topic, interrupted)
                plan = plan.chunk_done(written)
                self._file.save(plan)
                if self._on_chunk is not None:
                    self._on_chunk(plan)
        return Replayed(plan.written, sum(plan.ends.values()) - sum(plan.starts.values()), self._file.path)

    def _write(self, plan: ReplayPlan, target: Cluster, topic: TopicMetadata, interrupted: bool) -> int:
        """Writes the plan's chunk; how many of its records are in the target then."""
        failures = known = 0
        while True:
            arrived = self._arrived(plan, target, topic) if interrupted else set()
            if len(arrived) > known:
                failures, known = 0, len(arrived)
            if self._order.trace:
                plan = plan.leased(round((time.time() + LEASE_S) * 1000))
            self._file.save(plan)  # before the first task may write
            interrupted = True
            try:
                return len(arrived) + self._write_once(plan, arrived)
            except Exception as error:
                failures += 1
                if failures == ATTEMPTS_MAX:
                    raise
                log.warning("a chunk of the replay failed and is tried again: %s", str(error).splitlines()[:1])

    def _arrived(self, plan: ReplayPlan, target: Cluster, topic: TopicMetadata) -> set[tuple[int, int]]:
        """Which records of the chunk are in the target already, once no task can add to them any more."""
        assert plan.chunk is not None
        if not self._order.trace:
            return set()
        left_s = min(plan.chunk.leased_until_ms / 1000 - time.time(), LEASE_S) + SETTLE_S
        if left_s > 0:
            log.info("the replay goes on in %.0f s, when no task of before can write any more", left_s)
            time.sleep(left_s)
        return self._look(plan, target, topic)

    @staticmethod
    def _look(plan: ReplayPlan, target: Cluster, topic: TopicMetadata) -> set[tuple[int, int]]:
        """Which records of the chunk the target has."""
        assert plan.chunk is not None
        return arrived_places(target, topic, plan.chunk.target_ends, plan.replay_id)

    def _write_once(self, plan: ReplayPlan, arrived: set[tuple[int, int]]) -> int:
        assert plan.chunk is not None
        until_s = plan.chunk.leased_until_ms / 1000 if self._order.trace else None
        task = ReplayTask(self._order, self._writing, plan.replay_id, frozenset(arrived), until_s)
        return copy_ranges(self._spark, self._reading, plan.positions, plan.chunk.ends, task)


@dataclass(frozen=True)
class ReplayTask:
    """Writes the records of one partition, in their order."""

    order: Order
    properties: Mapping[str, str]
    replay_id: str
    arrived: frozenset[tuple[int, int]]
    until_s: float | None
    """When the lease ends, where there is one: nothing is sent after this."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        from penstock.spark.producing import Deliveries, open_producer

        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            # Nobody knows what the first attempt wrote but the target. The driver looks there, and tries again.
            raise ReplayError("a task of the replay was started a second time")
        deliveries = Deliveries()
        producer = open_producer(self._own_properties(), deliveries)
        written = 0
        with self.guard(producer):
            for batch in batches:
                written += self._send(producer, deliveries, batch)
            while producer.flush(1.0):
                deliveries.check()
            deliveries.check()
        yield pa.RecordBatch.from_pydict({"written": pa.array([written], pa.int64())})

    def guard(self, producer: Producer) -> AbstractContextManager[None]:
        """What surrounds the use of the producer."""
        return nullcontext()

    def _send(self, producer: Producer, deliveries: Deliveries, batch: pa.RecordBatch) -> int:
        """Hands the records of a batch to the producer, but for those that arrived before; how many these were."""
        sent = 0
        for partition, offset, key, value, time_ms, headers in zip(
            *(batch.column(index).to_pylist() for index in range(6)), strict=True
        ):
            if (partition, offset) in self.arrived:
                continue
            self._check_lease()
            pairs = [(header["key"], header["value"]) for header in headers or ()]
            if self.order.trace:
                pairs.append((HEADER, header_of(self.replay_id, partition, offset)))
            extra: dict[str, Any] = {"headers": pairs}
            if self.order.keep_timestamps:
                extra["timestamp"] = time_ms
            if self.order.keep_partitions:
                extra["partition"] = partition
            while True:
                try:
                    producer.produce(self.order.target, value, key, **extra)
                    break
                except BufferError:
                    producer.poll(0.05)
                    deliveries.check()
                    self._check_lease()
            sent += 1
        producer.poll(0)
        deliveries.check()
        return sent

    def _own_properties(self) -> dict[str, str]:
        if self.until_s is None:
            return dict(self.properties)
        own = {name: value for name, value in self.properties.items() if name not in DELIVERY_TIMEOUTS}
        return {**own, "delivery.timeout.ms": str(DELIVERY_S * 1000)}

    def _check_lease(self) -> None:
        if self.until_s is not None and time.time() >= self.until_s - DELIVERY_S:
            raise ReplayError(f"the chunk was not written within {LEASE_S - DELIVERY_S} s: the rest of it follows")


def copy_ranges(
    spark: SparkSession,
    reading: Mapping[str, str],
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    task: ReplayTask,
) -> int:
    """Runs a task for each partition that has something to copy; how many records they wrote."""
    topic = task.order.source
    wanted = [partition for partition, end in ends.items() if end > starts[partition]]
    records = (
        topic_reader(spark.read, reading)
        .option("assign", json.dumps({topic: wanted}))
        .option("startingOffsets", _offsets(topic, {one: starts[one] for one in wanted}))
        .option("endingOffsets", _offsets(topic, {one: ends[one] for one in wanted}))
        .option("includeHeaders", "true")
        .load()
        .selectExpr("partition", "offset", "key", "value", "unix_millis(timestamp) AS time_ms", "headers")
    )
    return sum(row.written for row in records.mapInArrow(task.run, _RESULT).collect())


def arrived_places(
    target: Cluster, topic: TopicMetadata, after: Mapping[int, int], replay_id: str
) -> set[tuple[int, int]]:
    """(partition, offset) in the source of each record that this replay wrote behind these offsets of the target."""
    ranges = [
        PartitionRange(topic.name, partition, after.get(partition, 0), end)
        for partition, end in topic_ends(target, topic).items()
        if end > after.get(partition, 0)
    ]
    found: set[tuple[int, int]] = set()
    for fetched in fetch_ranges(target, ranges) if ranges else ():
        for _, batch in iter_batches(fetched.records):
            for record in iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
                found.update(_places(record, replay_id))
    return found


def offset_range(cluster: Cluster, topic: TopicMetadata, start_ms: int, end_ms: int) -> tuple[Positions, Positions]:
    """Where a time range starts and ends in each partition. Times for which there is no record mean the end."""
    places = [TopicPartition(topic.name, one.partition) for one in topic.partitions]

    def listed(time_ms: int) -> Positions:
        found = cluster.list_offsets(dict.fromkeys(places, time_ms), isolation=IsolationLevel.READ_COMMITTED)
        return {place.partition: found[place].offset for place in places}

    ends = listed(LATEST)

    def settled(time_ms: int) -> Positions:
        return {
            partition: ends[partition] if offset < 0 else min(offset, ends[partition])
            for partition, offset in listed(time_ms).items()
        }

    return settled(start_ms), settled(end_ms)


def _target_topic(target: Cluster, order: Order, source: TopicMetadata) -> TopicMetadata:
    found = target.existing_topics([order.target]).get(order.target)
    count = len(source.partitions)
    if found is None:
        raise ReplayError(
            f"there is no topic {order.target} to write to: "
            f"`penstock topics create {order.target} --partitions {count}` creates it"
        )
    if order.keep_partitions and len(found.partitions) < count:
        raise ReplayError(
            f"{order.target} has {len(found.partitions)} partitions and {order.source} has {count}, so records cannot "
            f"stay in theirs: `penstock topics alter {order.target} --partitions {count}`, or leave out keep_partitions"
        )
    return found


def topic_ends(cluster: Cluster, topic: TopicMetadata) -> Positions:
    """The high watermark of each partition."""
    places = {(topic.name, one.partition): LATEST for one in topic.partitions}
    return {place.partition: listed.offset for place, listed in cluster.list_offsets(places).items()}


def _offsets(topic: str, positions: Positions) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in positions.items()}})


def _places(record: Record, replay_id: str) -> Iterator[tuple[int, int]]:
    for name, value in record.headers:
        if name == HEADER and value is not None and (place := place_in(bytes(value), replay_id)) is not None:
            yield place
