"""Who asks the cluster: the part that Penstock's own client and confluent-kafka have in common.

`open_backend` chooses. Penstock's client reads raw batches and is several times as fast; what only librdkafka can do
(Kerberos, PKCS#12 stores, …) it says with `UnsupportedSetting`, and then librdkafka does all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import InputPartition

from penstock.client import (
    ClientSettings,
    Cluster,
    IsolationLevel,
    TopicMetadata,
    TopicPartition,
    UnsupportedSetting,
)
from penstock.client.settings import unknown_names
from penstock.spark.options import DEFAULT_POLL_TIMEOUT_MS, Client, SourceOptions
from penstock.wire.uuids import ZERO_UUID, format_uuid

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("penstock.spark")


@dataclass(frozen=True)
class Topic:
    """A topic that is there."""

    partitions: tuple[int, ...]
    topic_id: str | None
    is_internal: bool


class SourcePartition(InputPartition):
    """What one task reads."""

    def __init__(self, topic: str, partition: int, start: int, end: int, topic_id: str | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.topic_id = topic_id

    @property
    def range_key(self) -> tuple[str, int, int, int]:
        return self.topic, self.partition, self.start, self.end


class Backend(Protocol):
    """Questions to a cluster; whatever goes wrong is a ClientError that names the thing."""

    def topics(self, names: tuple[str, ...] | None) -> dict[str, Topic]:
        """Those of the named topics that exist, or all."""

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """By time: EARLIEST, LATEST or a timestamp in ms; −1 where no record is as young."""

    def close(self) -> None: ...


class Reader(Protocol):
    """What tasks read with. One of each lives on in a worker process, with its connections."""

    def read(self, part: SourcePartition, start: int) -> Iterator[tuple[Iterable[pa.RecordBatch], int]]:
        """Record batches, and the position that they bring the reader to; OffsetOutOfRange and its like end it."""

    def close(self) -> None: ...


def open_backend(options: SourceOptions) -> Backend:
    settings = client_settings(options)
    if settings is not None:
        for name, meant in unknown_names(options.properties).items():
            hint = f": did you mean kafka.{meant}?" if meant else ""
            log.warning("kafka.%s is no property of Kafka's consumers, and is ignored%s", name, hint)
        return PenstockBackend(settings)
    from penstock.spark.confluent import ConfluentBackend

    return ConfluentBackend(options)


def open_reader(options: SourceOptions) -> Reader:
    settings = client_settings(options)
    if settings is not None:
        from penstock.spark.fetching import PenstockReader

        if options.poll_timeout_ms is not None or "default.api.timeout.ms" not in options.properties:
            settings = replace(settings, api_timeout_ms=options.poll_timeout_ms or DEFAULT_POLL_TIMEOUT_MS)
        return PenstockReader(settings, options)
    from penstock.spark.confluent import ConfluentReader

    return ConfluentReader(options)


def client_settings(options: SourceOptions) -> ClientSettings | None:
    """Settings of Penstock's client; None where librdkafka has to do it."""
    if options.client is Client.CONFLUENT:
        return None
    properties = dict(options.properties)
    if options.group_id is not None:
        # There is no group to be a member of; but brokers tell clients apart by name, in quotas and logs.
        properties.setdefault("client.id", options.group_id)
    try:
        return ClientSettings.from_properties(properties)
    except UnsupportedSetting as unsupported:
        if options.client is Client.PENSTOCK:
            raise
        log.info("reading through confluent-kafka: %s", unsupported)
        return None


class PenstockBackend:
    """`penstock.client.Cluster`, as a backend."""

    def __init__(self, settings: ClientSettings) -> None:
        self._cluster = Cluster(settings)
        committed = settings.read_committed
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def topics(self, names: tuple[str, ...] | None) -> dict[str, Topic]:
        found = self._cluster.topics() if names is None else self._cluster.existing_topics(names)
        return {name: _topic(metadata) for name, metadata in found.items()}

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        asked = {(topic, partition): timestamp for (topic, partition), timestamp in wanted.items()}
        listed = self._cluster.list_offsets(asked, isolation=self._isolation)
        return {key: one.offset for key, one in listed.items()}

    def close(self) -> None:
        self._cluster.close()


def _topic(metadata: TopicMetadata) -> Topic:
    topic_id = None if metadata.topic_id == ZERO_UUID else format_uuid(metadata.topic_id)
    return Topic(tuple(one.partition for one in metadata.partitions), topic_id, metadata.is_internal)
