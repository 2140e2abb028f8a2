"""Writes samples and roll-ups to their topics.

One Produce request per leader and round, with acks=all. Records that could not be written are kept for the next round,
up to a limit; then the oldest are dropped and counted. So a monitor whose cluster is down neither blocks nor grows, and
resumes when the cluster is back.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable
from typing import Final

from penstock.client import BrokerError, ClientError, Cluster
from penstock.monitor.samples import (
    RAW_RETENTION_MS,
    RAW_TOPIC,
    ROLLUP_RETENTION_MS,
    ROLLUP_TOPIC,
    MetricSample,
    Rollup,
    encode,
)
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.records import build_keyed_batch

PARTITIONS: Final = 3
WAITING_MAX: Final = 100_000
"""Records that wait for a cluster that does not take them."""
BATCH_RECORDS_MAX: Final = 2_000
"""About 500 KB before compression: below the default of message.max.bytes."""
NAMES_UP_TO: Final = 12
"""The last version of Produce that names topics; later ones have ids."""
ALL_REPLICAS: Final = -1
DEFAULT_REPLICATION: Final = -1

_TOPICS: Final = {
    RAW_TOPIC: {"cleanup.policy": "delete", "retention.ms": str(RAW_RETENTION_MS)},
    ROLLUP_TOPIC: {"cleanup.policy": "compact,delete", "retention.ms": str(ROLLUP_RETENTION_MS)},
}


class Writer:
    """Writes to one cluster. Not thread-safe."""

    def __init__(self, cluster: Cluster, *, waiting_max: int = WAITING_MAX) -> None:
        self._cluster = cluster
        self._waiting: deque[tuple[str, bytes, bytes]] = deque()
        self._waiting_max = waiting_max
        self._ready = False
        self.written = 0
        self.dropped = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, records: Iterable[MetricSample | Rollup]) -> None:
        """Queues records for the next `flush`."""
        for record in records:
            topic = RAW_TOPIC if isinstance(record, MetricSample) else ROLLUP_TOPIC
            self.add_bytes(topic, record.key, encode(record))

    def add_bytes(self, topic: str, key: bytes, value: bytes) -> None:
        if len(self._waiting) >= self._waiting_max:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append((topic, key, value))

    def flush(self, time_ms: int) -> None:
        """Sends what waits. Raises ClientError if it could not; then everything still waits."""
        self._create_topics()
        while self._waiting:
            piece = [self._waiting[number] for number in range(min(BATCH_RECORDS_MAX, len(self._waiting)))]
            try:
                self._send(piece, time_ms)
            except ClientError:
                # A leader may have moved: ask for it again next time.
                for topic in {topic for topic, _, _ in piece}:
                    self._cluster.forget(topic)
                raise
            for _ in piece:
                self._waiting.popleft()
            self.written += len(piece)

    def _send(self, piece: list[tuple[str, bytes, bytes]], time_ms: int) -> None:
        counts = {topic: len(self._cluster.known_topic(topic).partitions) for topic, _, _ in piece}
        batches: dict[tuple[str, int], list[tuple[bytes, bytes | None]]] = {}
        for topic, key, value in piece:
            place = (topic, zlib.crc32(key) % counts[topic])
            batches.setdefault(place, []).append((key, value))
        by_leader: dict[int, dict[str, list[PartitionProduceData]]] = {}
        for (topic, number), pairs in batches.items():
            leader = self._cluster.leader_of(topic, number).leader_id
            batch = build_keyed_batch(pairs, timestamp=time_ms, codec=Codec.LZ4)
            data = PartitionProduceData(index=number, records=bytes(batch))
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(data)
        for leader, topics in by_leader.items():
            connection = self._cluster.broker(leader)
            request = ProduceRequest(
                acks=ALL_REPLICAS,
                timeout_ms=self._cluster.settings.request_timeout_ms,
                topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
            )
            version = min(connection.version_of(ProduceRequest), NAMES_UP_TO)
            answer = connection.call(request, ProduceResponse, version=version)
            for told in answer.responses:
                for one in told.partition_responses:
                    if one.error_code != ErrorCode.NONE:
                        raise BrokerError(
                            one.error_code, one.error_message, topic=told.name, partition=one.index, doing="write"
                        )

    def _create_topics(self) -> None:
        wanted = [topic for topic in dict.fromkeys(topic for topic, _, _ in self._waiting) if topic in _TOPICS]
        if self._ready or not wanted:
            return
        missing = [topic for topic in _TOPICS if topic not in self._cluster.existing_topics(list(_TOPICS))]
        if missing:
            request = CreateTopicsRequest(
                [
                    CreatableTopic(
                        name,
                        PARTITIONS,
                        DEFAULT_REPLICATION,
                        [],
                        [CreatableTopicConfig(key, value) for key, value in _TOPICS[name].items()],
                    )
                    for name in missing
                ],
                timeout_ms=self._cluster.settings.request_timeout_ms,
            )
            answer = self._cluster.any_broker().call(request, CreateTopicsResponse)
            for told in answer.topics:
                if told.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise BrokerError(told.error_code, told.error_message, topic=told.name, doing="create the topic")
        self._ready = True


def problem_of(error: ClientError, writer: Writer) -> str:
    """What the log says about a failed write."""
    return f"could not write figures, {writer.waiting:,} records wait: {error}"
