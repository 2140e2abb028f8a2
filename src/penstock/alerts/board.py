"""The topic `penstock.alerts`: alerts and silences, compacted, so that every program sees the same.

Keys are `alert/<rule>/<kind>/<name>` and `silence/<id>`; values are JSON, and a tombstone removes one. A monitor reads
the topic when it starts and follows it for new silences; `penstock alerts` reads it and writes silences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from penstock.alerts.engine import Alert, State
from penstock.alerts.silences import Silence
from penstock.client import EARLIEST, LATEST, BrokerError, Cluster, TopicPartition, fetch_range
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.records import build_keyed_batch, iter_batches, iter_records

T = TypeVar("T")

TOPIC: Final = "penstock.alerts"
SETTINGS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
NAMES_UP_TO: Final = 12
ENTRIES_MAX: Final = 20_000
_decode_alert: Final = msgspec.json.Decoder(Alert).decode
_decode_silence: Final = msgspec.json.Decoder(Silence).decode


class Board:
    """Alerts and silences of one cluster, as of the last `read`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._next = -1
        self.alerts: dict[str, Alert] = {}
        self.silences: dict[str, Silence] = {}

    def read(self) -> None:
        """Reads what came since the last call. Raises ClientError."""
        if TOPIC not in self._cluster.existing_topics([TOPIC]):
            return
        place = TopicPartition(TOPIC, 0)
        if self._next < 0:
            self._next = self._cluster.list_offsets({place: EARLIEST})[place].offset
        end = self._cluster.list_offsets({place: LATEST})[place].offset
        if end < self._next:
            # The topic was deleted and created again.
            self._next = 0
            self.alerts.clear()
            self.silences.clear()
        if end <= self._next:
            return
        for fetched in fetch_range(self._cluster, TOPIC, 0, self._next, end):
            for header, batch in iter_batches(fetched.records, partial_tail=True):
                for record in () if header.is_control else iter_records(batch):
                    if record.offset >= self._next:
                        self._take(record.key, record.value)
        self._next = end

    def write(self, changes: dict[str, bytes | None], time_ms: int) -> None:
        """Writes entries; None removes one. Creates the topic if needed. Raises ClientError."""
        if not changes:
            return
        self._create()
        pairs = [(key.encode(), value) for key, value in changes.items()]
        leader = self._cluster.leader_of(TOPIC, 0).leader_id
        connection = self._cluster.broker(leader)
        data = PartitionProduceData(index=0, records=bytes(build_keyed_batch(pairs, timestamp=time_ms)))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        version = min(connection.version_of(ProduceRequest), NAMES_UP_TO)
        answer = connection.call(request, ProduceResponse, version=version)
        for told in answer.responses:
            for one in told.partition_responses:
                if one.error_code != ErrorCode.NONE:
                    self._cluster.forget(TOPIC)
                    raise BrokerError(one.error_code, one.error_message, topic=TOPIC, doing="write")

    def firing(self) -> list[Alert]:
        return [alert for alert in self.alerts.values() if alert.state is State.FIRING]

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        kind, _, name = (key or b"").decode("utf-8", "replace").partition("/")
        if kind == "alert":
            _keep(self.alerts, name, value, _decode_alert)
        elif kind == "silence":
            _keep(self.silences, name, value, _decode_silence)

    def _create(self) -> None:
        if TOPIC in self._cluster.existing_topics([TOPIC]):
            return
        configs = [CreatableTopicConfig(name, value) for name, value in SETTINGS.items()]
        request = CreateTopicsRequest(
            [CreatableTopic(TOPIC, 1, -1, [], configs)], timeout_ms=self._cluster.settings.request_timeout_ms
        )
        answer = self._cluster.any_broker().call(request, CreateTopicsResponse)
        for told in answer.topics:
            if told.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(told.error_code, told.error_message, topic=TOPIC, doing="create the topic")
        self._cluster.leader(TOPIC, 0)


def alert_entry(alert: Alert) -> tuple[str, bytes | None]:
    """The entry of an alert; one that is resolved is removed."""
    return f"alert/{alert.key}", None if alert.state is State.RESOLVED else msgspec.json.encode(alert)


def silence_entry(silence: Silence) -> tuple[str, bytes]:
    return f"silence/{silence.id}", msgspec.json.encode(silence)


def _keep(entries: dict[str, T], name: str, value: bytes | None, decode: Callable[[bytes], T]) -> None:
    if value is None:
        entries.pop(name, None)
        return
    try:
        if name in entries or len(entries) < ENTRIES_MAX:
            entries[name] = decode(value)
    except msgspec.MsgspecError:
        entries.pop(name, None)
