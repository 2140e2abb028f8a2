"""The transaction coordinator: `TransactionShard`s in the partitions of `__transaction_state`."""

from __future__ import annotations

from penstock.broker.coordination.kind import CoordinatorType, Kind, WriteSettings
from penstock.config import BrokerConfig
from penstock.coordinators.partitioning import partition_of
from penstock.coordinators.transactions import TransactionConfig, TransactionShard
from penstock.coordinators.transactions.config import TransactionCounts, replace
from penstock.coordinators.transactions.table import ProducerIdSource
from penstock.coordinators.turn import Pair
from penstock.metadata import TRANSACTION_STATE, MetadataDelta, NewTopic
from penstock.telemetry.samples import Histogram
from penstock.wire.compression import Codec

NO_LINGER_MS = -1.0
WRITE_TIMEOUT_MS = 5_000.0
"""How long an answer waits for the replicas of the topic."""


def _none_left() -> int | None:
    return None


class TransactionKind(Kind[TransactionShard]):
    """Declares the transaction coordinator."""

    key_type: CoordinatorType = CoordinatorType.TRANSACTION
    topic: str = TRANSACTION_STATE

    def __init__(self) -> None:
        self.counts = TransactionCounts()
        self.durations = Histogram()
        self.counts.on_ended = self.durations.record
        self.take_producer_id: ProducerIdSource = _none_left
        """Set by the server."""

    def new_topic(self, config: BrokerConfig, live_brokers: int) -> NewTopic:
        replicas = min(config.transaction_state_log_replication_factor, max(live_brokers, 1))
        return NewTopic(
            TRANSACTION_STATE,
            config.transaction_state_log_num_partitions,
            replicas,
            (),
            (
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(min(config.transaction_state_log_min_isr, replicas))),
                ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )

    def partition_of(self, key: str, partition_count: int) -> int:
        return partition_of(key, partition_count)

    def new_shard(self, config: BrokerConfig, batch_bytes_max: int) -> TransactionShard:
        return TransactionShard(self._config(config, batch_bytes_max), lambda: self.take_producer_id())

    def configure(self, shard: TransactionShard, config: BrokerConfig, batch_bytes_max: int) -> None:
        shard.config = self._config(config, batch_bytes_max)

    def _config(self, config: BrokerConfig, batch_bytes_max: int) -> TransactionConfig:
        return replace(TransactionConfig.part_of(config), counts=self.counts, batch_bytes_max=batch_bytes_max)

    def write_settings(self, config: BrokerConfig) -> WriteSettings:
        return WriteSettings(Codec.NONE, NO_LINGER_MS, WRITE_TIMEOUT_MS)

    def is_concerned(self, delta: MetadataDelta) -> bool:
        """Markers for partitions that were deleted are not needed any more."""
        return bool(delta.topics_deleted)

    def count(self, records: list[Pair]) -> None:
        pass
