"""What one kind of coordinator declares. All else is alike for all kinds."""

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
    """How a host writes."""

    codec: Codec
    linger_ms: float
    """How long records wait for company; up to 0, until the turn of the loop is over."""
    timeout_ms: float
    """After so long an answer that waits for the high watermark is given up."""


class Kind(Protocol[S]):
    """One kind of coordinator: where its shards are kept, what they are, and what they need of the configuration."""

    key_type: CoordinatorType
    topic: str

    def new_topic(self, config: BrokerConfig, live_brokers: int) -> NewTopic:
        """The topic, as it is created when somebody first asks for a coordinator."""

    def partition_of(self, key: str, partition_count: int) -> int: ...

    def new_shard(self, config: BrokerConfig, batch_bytes_max: int) -> S: ...

    def configure(self, shard: S, config: BrokerConfig, batch_bytes_max: int) -> None:
        """Settings have changed. `batch_bytes_max` is what the topic takes in one batch."""

    def write_settings(self, config: BrokerConfig) -> WriteSettings: ...

    def is_concerned(self, delta: MetadataDelta) -> bool:
        """Whether shards want to hear of this change of the metadata (`Shard.on_image`)."""

    def count(self, records: list[Pair]) -> None:
        """A shard has written this batch: for the metrics."""
