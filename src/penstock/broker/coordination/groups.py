"""The group coordinator: `GroupShard`s in the partitions of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.coordination.kind import CoordinatorType, Kind, WriteSettings
from penstock.broker.net.slices import Slices
from penstock.config import BrokerConfig
from penstock.coordinators.groups import GroupConfig, GroupShard
from penstock.coordinators.groups.config import replace
from penstock.coordinators.groups.memory import GroupMemory
from penstock.coordinators.groups.weighing import weigh
from penstock.coordinators.partitioning import partition_of
from penstock.coordinators.turn import Pair
from penstock.metadata import CONSUMER_OFFSETS, MetadataDelta, NewTopic, ResourceType
from penstock.runtime import Runtime
from penstock.wire.compression import Codec
from penstock.wire.messages.group_records import GROUP_METADATA_KEY, OFFSET_COMMIT_KEY

CONSUMER_GROUP_METADATA_KEY = 3
WEIGHINGS_APART_MS = 1_000.0
"""Minimum time between two measurements of the groups' memory."""


class GroupKind(Kind[GroupShard]):
    """Declares the group coordinator. Its counters count the records written since the broker started, by type."""

    key_type: CoordinatorType = CoordinatorType.GROUP
    topic: str = CONSUMER_OFFSETS

    def __init__(self) -> None:
        self.memory = GroupMemory()
        self.offsets = 0
        self.offset_tombstones = 0
        self.classic_groups = 0
        self.consumer_epochs = 0

    def new_topic(self, config: BrokerConfig, live_brokers: int) -> NewTopic:
        return NewTopic(
            CONSUMER_OFFSETS,
            config.offsets_topic_num_partitions,
            min(config.offsets_topic_replication_factor, max(live_brokers, 1)),
            (),
            (
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ),
        )

    def partition_of(self, key: str, partition_count: int) -> int:
        return partition_of(key, partition_count)

    def new_shard(self, config: BrokerConfig, batch_bytes_max: int) -> GroupShard:
        return GroupShard(self._config(config, batch_bytes_max))

    def configure(self, shard: GroupShard, config: BrokerConfig, batch_bytes_max: int) -> None:
        shard.config = self._config(config, batch_bytes_max)

    def _config(self, config: BrokerConfig, batch_bytes_max: int) -> GroupConfig:
        self.memory.bytes_max = config.penstock_group_state_bytes_max
        return replace(GroupConfig.part_of(config), memory=self.memory, batch_bytes_max=batch_bytes_max)

    def write_settings(self, config: BrokerConfig) -> WriteSettings:
        return WriteSettings(
            Codec(config.offsets_topic_compression_codec),
            config.group_coordinator_append_linger_ms,
            config.offsets_commit_timeout_ms,
        )

    def is_concerned(self, delta: MetadataDelta) -> bool:
        """Groups depend on the topics that they read, and on their own settings."""
        return bool(
            delta.topics_created
            or delta.topics_changed
            or delta.topics_deleted
            or any(kind == ResourceType.GROUP for kind, _ in delta.configs_changed)
        )

    def count(self, records: list[Pair]) -> None:
        for key, value in records:
            kind = key[1]
            if kind == OFFSET_COMMIT_KEY:
                if value is None:
                    self.offset_tombstones += 1
                else:
                    self.offsets += 1
            elif value is not None:
                self.classic_groups += kind == GROUP_METADATA_KEY and has_protocol(value)
                self.consumer_epochs += kind == CONSUMER_GROUP_METADATA_KEY


def has_protocol(value: bytes) -> bool:
    """Whether a classic group's record has a protocol, and so members (version, type, generation, then protocol)."""
    protocol_at = 2 + 2 + int.from_bytes(value[2:4]) + 4
    return value[protocol_at : protocol_at + 2] != b"\xff\xff"


class GroupWeighing:
    """Measures all groups of the broker when `penstock.coordinators.groups.memory` requests it."""

    def __init__(self, runtime: Runtime, memory: GroupMemory, shards: Callable[[], list[GroupShard]]) -> None:
        self._runtime = runtime
        self._memory = memory
        self._shards = shards
        self._weighed_ms = float("-inf")
        memory.weigh_soon = self._weigh_soon

    def _weigh_soon(self) -> None:
        since_ms = self._runtime.now_ms() - self._weighed_ms
        self._runtime.call_later(max(0.0, WEIGHINGS_APART_MS - since_ms), self._begin)

    def _begin(self) -> None:
        self._weighed_ms = self._runtime.now_ms()
        self._runtime.spawn(self._weigh(), "weigh groups")

    async def _weigh(self) -> None:
        self._memory.weighing()
        slices = Slices(self._runtime)
        self._memory.weighed(sum([await slices.drive(weigh(shard.table)) for shard in self._shards()]))
