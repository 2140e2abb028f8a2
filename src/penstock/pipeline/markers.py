"""Markers: which batch of a query was the last one written, kept in a compacted topic.

A marker is a record whose key names the writer (the query's id, and the writer's name if it has one) and whose value
holds the batch id, as JSON. It is written in the same transaction as the batch, so whoever reads committed records sees
both or neither; compaction keeps the newest of each key.

    | field | meaning |
    |---|---|
    | `version` | 1; a marker of a version that is not known is refused, never guessed at |
    | `batchId` | the batch that this transaction wrote: it and all before it are in their topics |
    | `records` | how many records the batch had, for whoever checks |

The marker is read once, when a writer starts, and in this order: transactions are initialised (which ends what an older
incarnation left open, one way or the other, and fences it), then the high watermark is taken, then everything below it
is read as read_committed. A marker of this writer that was committed is below that mark, and none can follow, because
only the one who initialised last can commit. Records of other writers that are still undecided there are waited for.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.client import (
    EARLIEST,
    LATEST,
    ClientSettings,
    Cluster,
    IsolationLevel,
    PartitionRange,
    RangeUnavailable,
    UnsupportedSetting,
    fetch_ranges,
    librdkafka_properties,
)
from penstock.pipeline.topic_errors import MarkerError

if TYPE_CHECKING:
    from concurrent.futures import Future

DEFAULT_TOPIC: Final = "__penstock_markers"
VERSION: Final = 1

REPLICATION_FACTOR_MAX: Final = 3
TOPIC_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # A query may write several markers a second. What is not compacted yet is read at every start: keep that small.
    "segment.bytes": str(8 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
ADMIN_TIMEOUT_S: Final = 30.0
NEW_TOPIC_PAUSE_S: Final = 0.1
READ_TIMEOUT_S: Final = 120.0
"""How long undecided records of other writers are waited for; by default their transactions end after one minute."""

log = logging.getLogger("penstock.pipeline")


@dataclass(frozen=True)
class Marker:
    """The last batch that a writer committed."""

    batch_id: int
    records: int

    def encode(self) -> bytes:
        fields = {"version": VERSION, "batchId": self.batch_id, "records": self.records}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Self:
        """The marker in a record's value; MarkerError for what is none."""
        name = key.decode(errors="replace")
        try:
            fields = json.loads(value)
            version, batch_id, records = fields["version"], fields["batchId"], fields["records"]
        except (ValueError, TypeError, KeyError):
            raise MarkerError(
                f"the marker of {name} is not one: {value[:80]!r}. Something else writes to this topic: "
                "give to_topic a marker_topic of its own"
            ) from None
        if version != VERSION:
            raise MarkerError(
                f"the marker of {name} has version {version}, and only {VERSION} is known here: "
                "it was written by a newer Penstock, run that one"
            )
        if not (isinstance(batch_id, int) and isinstance(records, int) and batch_id >= 0 and records >= 0):
            raise MarkerError(f"the marker of {name} makes no sense: {value[:80]!r}")
        return cls(batch_id, records)


@dataclass(frozen=True)
class MarkerTopic:
    """The topic that holds the markers of a cluster's queries."""

    properties: Mapping[str, str]
    """How to reach the cluster, under Java's or librdkafka's names."""
    name: str = DEFAULT_TOPIC
    timeout_s: float = READ_TIMEOUT_S

    def ensure(self) -> None:
        """Creates the topic if it is not there, and refuses one that would not keep markers."""
        admin = AdminClient({**librdkafka_properties(self.properties), "log_level": "0"})
        try:
            metadata = admin.list_topics(timeout=ADMIN_TIMEOUT_S)
            created = self.name not in metadata.topics and self._create(admin, len(metadata.brokers))
            if not created:
                self._check_policy(admin)
        except KafkaException as error:
            raise self._unusable(error.args[0]) from error

    def read(self, key: bytes) -> Marker | None:
        """The newest committed marker of this key; None if there is none."""
        newest = dict(self._committed_values(key))
        markers = [Marker.decode(key, value) for value in newest.values() if value is not None]
        # A key lives in one partition, unless partitions were added since.
        return max(markers, key=lambda marker: marker.batch_id, default=None)

    def _committed_values(self, key: bytes) -> Iterator[tuple[int, bytes | None]]:
        """(partition, value) of every committed record with this key, oldest first within a partition."""
        try:
            settings = ClientSettings.from_properties(
                {**self.properties, "default.api.timeout.ms": str(int(self.timeout_s * 1000))}
            )
        except UnsupportedSetting:
            yield from _read_with_librdkafka(self, key)
            return
        try:
            yield from _read(settings, self.name, key)
        except RangeUnavailable as error:
            raise self._undecided() from error

    def _create(self, admin: AdminClient, broker_count: int) -> bool:
        """False if someone else was faster."""
        replication_factor = min(REPLICATION_FACTOR_MAX, broker_count)
        config = {**TOPIC_CONFIG, "min.insync.replicas": str(max(1, replication_factor - 1))}
        topic = NewTopic(self.name, num_partitions=1, replication_factor=replication_factor, config=config)
        try:
            _result(admin.create_topics([topic])[self.name])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    def _check_policy(self, admin: AdminClient) -> None:
        try:
            config = self._config(admin)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            log.warning("whether the marker topic %s is compacted may not be asked here: make sure of it", self.name)
            return
        assert isinstance(config, dict)
        policy = config["cleanup.policy"].value
        if policy != "compact":
            raise MarkerError(
                f"the marker topic {self.name} has cleanup.policy={policy}, which deletes markers with time: "
                f"set it to compact (`penstock configs alter --topic {self.name} cleanup.policy=compact`), "
                "or give to_topic another marker_topic"
            )

    def _config(self, admin: AdminClient) -> object:
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        deadline_s = time.monotonic() + ADMIN_TIMEOUT_S
        while True:
            try:
                return _result(admin.describe_configs([resource])[resource])
            except KafkaException as error:
                # A topic that was created a moment ago is not known to every broker yet.
                unknown = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                if not unknown or time.monotonic() >= deadline_s:
                    raise
                time.sleep(NEW_TOPIC_PAUSE_S)

    def _unusable(self, error: KafkaError) -> MarkerError:
        fixes = {
            KafkaError.TOPIC_AUTHORIZATION_FAILED: "let this user create, describe, read and write it",
            KafkaError.CLUSTER_AUTHORIZATION_FAILED: "let this user create topics, or create it (compacted) for them",
            KafkaError._TRANSPORT: "no broker answers: look at bootstrap_servers",
            KafkaError._TIMED_OUT: "no broker answers: look at bootstrap_servers",
        }
        fix = fixes.get(error.code())
        reason = f"{error.str()} ({error.name()})"
        return MarkerError(f"the marker topic {self.name} cannot be used: {reason}" + (f": {fix}" if fix else ""))

    def _undecided(self) -> MarkerError:
        return MarkerError(
            f"the marker topic {self.name} has held undecided records of another query for {self.timeout_s:.0f} s, "
            "so the own marker cannot be read: that query's transaction ends with its transaction.timeout.ms, "
            "start again then, or give to_topic a marker_topic of its own"
        )


def _read(settings: ClientSettings, topic: str, key: bytes) -> Iterator[tuple[int, bytes | None]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.arrow import RecordDecoder

    with Cluster(settings) as cluster:
        partitions = [(topic, one.partition) for one in cluster.topics([topic])[topic].partitions]
        ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST))  # the high watermarks: read_uncommitted
        starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ranges = [
            PartitionRange(*partition, starts[partition].offset, end.offset)
            for partition, end in ends.items()
            if starts[partition].offset < end.offset
        ]
        decoders = {one.partition: RecordDecoder(topic, one.partition, start=one.start, end=one.end) for one in ranges}
        wanted = pa.scalar(key, pa.binary())
        for fetched in fetch_ranges(cluster, ranges, isolation=IsolationLevel.READ_COMMITTED):
            for batch in decoders[fetched.partition].decode(fetched.records, fetched.aborted):
                found = batch.filter(pc.equal(batch.column("key"), wanted))
                for value in found.column("value").to_pylist():
                    yield fetched.partition, value


def _read_with_librdkafka(topic: MarkerTopic, key: bytes) -> Iterator[tuple[int, bytes | None]]:
    """The same for clusters that only librdkafka can log in to (Kerberos, for one)."""
    settings = {
        **librdkafka_properties(topic.properties),
        "group.id": "penstock-markers",
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "earliest",
    }
    # One that reads committed records would be told the last stable offset for the high watermark, which another
    # query's open transaction may hold below our marker.
    watermarks = Consumer({**settings, "isolation.level": "read_uncommitted"})
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    try:
        for number in watermarks.list_topics(topic.name, timeout=ADMIN_TIMEOUT_S).topics[topic.name].partitions:
            partition = TopicPartition(topic.name, number)
            start, end = watermarks.get_watermark_offsets(partition, timeout=ADMIN_TIMEOUT_S, cached=False)
            if start < end:
                yield from _read_partition(consumer, topic, TopicPartition(topic.name, number, start), end, key)
    except KafkaException as error:
        raise topic._unusable(error.args[0]) from error
    finally:
        consumer.close()
        watermarks.close()


def _read_partition(
    consumer: Consumer, topic: MarkerTopic, start: TopicPartition, end: int, key: bytes
) -> Iterator[tuple[int, bytes | None]]:
    consumer.assign([start])
    idle_s = 0.0
    while idle_s < topic.timeout_s:
        message = consumer.poll(1.0)
        error = None if message is None else message.error()
        offset = None if message is None else message.offset()
        if message is None or offset is None:
            idle_s += 1.0
        elif error is None:
            idle_s = 0.0
            if offset < end and message.key() == key:
                yield start.partition, message.value()
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        elif offset >= end:
            # Control records have been passed by now, which no message tells of.
            return
    raise topic._undecided()


def _result(future: Future[object]) -> object:
    return future.result(timeout=ADMIN_TIMEOUT_S)
