"""The declaration of one kind of coordinator. Everything else is shared by all kinds."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

from penstock.config import BrokerConfig
from penstock.coordinators.shard import Shard
from penstock.coordinators.turn import Pair
from penstock.metadata import MetadataDelta, NewTopic
from penstock.wire.compression import Codec

S = TypeVar("S", bound=Shard)


class CoordinatorType(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class WriteSettings(NamedTuple):
    """Settings of how a host writes."""

    codec: Codec
    linger_ms: float
    """How long records are collected into one batch. 0 or less: until the turn of the loop ends."""
    timeout_ms: float
    """How long an answer waits for the high watermark before the request fails."""


class Kind(Protocol[S]):
    """One kind of coordinator: its topic, its shards, and the part of the configuration they use."""

    key_type: CoordinatorType
    topic: str

    def new_topic(self, config: BrokerConfig, live_brokers: int) -> NewTopic:
        """The settings of the topic, which is created when a client first looks for a coordinator."""

    def partition_of(self, key: str, partition_count: int) -> int: ...

    def new_shard(self, config: BrokerConfig, batch_bytes_max: int) -> S: ...

    def configure(self, shard: S, config: BrokerConfig, batch_bytes_max: int) -> None:
        """Apply changed settings. `batch_bytes_max` is the largest batch that the topic accepts."""

    def write_settings(self, config: BrokerConfig) -> WriteSettings: ...

    def is_concerned(self, delta: MetadataDelta) -> bool:
        """Whether shards must be told of this metadata change (`Shard.on_image`)."""

    def count(self, records: list[Pair]) -> None:
        """Count the records of a batch that a shard has written, for the metrics."""
