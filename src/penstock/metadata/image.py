"""The cluster's metadata as of one offset of the metadata log. Immutable: a delta builds the next image.

Lookups by name take text or the raw bytes of a request. Repeated values share memory: all partitions with the same
replicas hold the same tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from penstock.acls.rules import Acl
from penstock.metadata.credentials import NO_CREDENTIALS, Credentials
from penstock.metadata.quotas import ClientQuota
from penstock.metadata.sharded import ShardedMap
from penstock.raft.types import OffsetAndEpoch
from penstock.wire.uuids import DIRECTORY_UNASSIGNED

NO_LEADER: Final = -1
NOTHING_YET: Final = -1

NO_CONFIGS: Final[Mapping[str, str]] = {}


class ResourceType(IntEnum):
    """The type of resource that a configuration belongs to; the numbers are the protocol's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class LeaderRecoveryState(IntEnum):
    RECOVERED = 0
    RECOVERING = 1  # after an unclean election whose recovery is not finished (KIP-704)


class PartitionState(msgspec.Struct, frozen=True, gc=False):
    """One partition. `directories` has one entry per entry of `replicas` (KIP-858)."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED


class TopicImage(msgspec.Struct, frozen=True, gc=False):
    """One topic; a partition's number is its position in the list."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]

    @property
    def replication_factor(self) -> int:
        """The replication factor of the first partition, after any reassignment in progress."""
        first = self.partitions[0]
        return len(first.replicas) - len(first.removing)


class Listener(NamedTuple):
    """An address at which clients reach a broker."""

    name: str
    host: str
    port: int
    security_protocol: int


class VersionRange(NamedTuple):
    min: int
    max: int


class BrokerRegistration(msgspec.Struct, frozen=True):
    """A broker that is registered in the cluster, alive or not."""

    id: int
    epoch: int
    incarnation_id: bytes
    listeners: tuple[Listener, ...]
    features: Mapping[str, VersionRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]

    @property
    def active(self) -> bool:
        """Whether it may lead partitions and join ISRs."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def default_directory(self) -> bytes:
        """The directory of a new replica. A broker with several directories chooses one itself and reports it later."""
        return self.directories[0] if len(self.directories) == 1 else DIRECTORY_UNASSIGNED

    def listener(self, name: str) -> Listener | None:
        return next((listener for listener in self.listeners if listener.name == name), None)

    def address(self, name: str) -> tuple[str, int] | None:
        """The address of the listener with this name; of the first listener if there is none."""
        listener = self.listener(name) or next(iter(self.listeners), None)
        return None if listener is None else (listener.host, listener.port)


class ControllerRegistration(msgspec.Struct, frozen=True):
    """A controller's registration with the features it supports (KIP-919)."""

    id: int
    incarnation_id: bytes
    listeners: tuple[Listener, ...]
    features: Mapping[str, VersionRange]


class MetadataImage:
    """All metadata as of `offset`, the last one applied."""

    __slots__ = (
        "_names",
        "acls",
        "brokers",
        "collisions",
        "configs",
        "controllers",
        "epoch",
        "features",
        "ids",
        "next_producer_id",
        "offset",
        "partition_count",
        "quotas",
        "reassigning",
        "scram",
        "topics_by_name",
    )

    def __init__(
        self,
        *,
        offset: int = NOTHING_YET,
        epoch: int = 0,
        topics_by_name: ShardedMap[TopicImage] | None = None,
        ids: ShardedMap[TopicImage] | None = None,
        collisions: ShardedMap[tuple[str, ...]] | None = None,
        configs: ShardedMap[Mapping[str, str]] | None = None,
        acls: ShardedMap[Acl] | None = None,
        brokers: Mapping[int, BrokerRegistration] | None = None,
        controllers: Mapping[int, ControllerRegistration] | None = None,
        features: Mapping[str, int] | None = None,
        next_producer_id: int = 0,
        partition_count: int = 0,
        reassigning: Mapping[bytes, int] | None = None,
        scram: Credentials = NO_CREDENTIALS,
        quotas: ShardedMap[ClientQuota] | None = None,
    ) -> None:
        self.offset = offset
        self.epoch = epoch
        self.topics_by_name = topics_by_name if topics_by_name is not None else ShardedMap[TopicImage]()
        self.ids = ids if ids is not None else ShardedMap[TopicImage]()
        # Names that differ only in '.' and '_' collide as metric names: unified name → its topics.
        self.collisions = collisions if collisions is not None else ShardedMap[tuple[str, ...]]()
        self.configs = configs if configs is not None else ShardedMap[Mapping[str, str]]()
        self.acls = acls if acls is not None else ShardedMap[Acl]()
        """By id."""
        self.brokers: Mapping[int, BrokerRegistration] = brokers or {}
        self.controllers: Mapping[int, ControllerRegistration] = controllers or {}
        self.features: Mapping[str, int] = features or {}
        self.next_producer_id = next_producer_id
        self.partition_count = partition_count
        # Topic id → the number of its partitions being reassigned; topics with none are left out.
        self.reassigning: Mapping[bytes, int] = reassigning or {}
        self.scram = scram
        """Credentials by user and mechanism."""
        # By `quotas.entity_key`.
        self.quotas = quotas if quotas is not None else ShardedMap[ClientQuota]()
        self._names: list[str] | None = None

    @property
    def snapshot_id(self) -> OffsetAndEpoch:
        """The id of a snapshot of this image."""
        return OffsetAndEpoch(self.offset + 1, self.epoch)

    @property
    def topic_count(self) -> int:
        return len(self.topics_by_name)

    def topic(self, name: str | bytes) -> TopicImage | None:
        return self.topics_by_name.get(name.encode() if isinstance(name, str) else name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        return self.ids.get(topic_id)

    def partition(self, name: str | bytes, partition: int) -> PartitionState | None:
        topic = self.topic(name)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return topic.partitions[partition]

    def topic_names(self) -> list[str]:
        """All names, sorted. Computed on first use; do not change the list."""
        if self._names is None:
            self._names = sorted(key.decode() for key in self.topics_by_name.keys())  # noqa: SIM118
        return self._names

    def topics(self) -> Iterator[TopicImage]:
        """All topics in the order of their names."""
        for name in self.topic_names():
            topic = self.topic(name)
            assert topic is not None
            yield topic

    def broker(self, node_id: int) -> BrokerRegistration | None:
        return self.brokers.get(node_id)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The settings of the resource itself, by Kafka's names, without defaults."""
        return self.configs.get(config_key(resource_type, name)) or NO_CONFIGS

    def config_resources(self) -> Iterator[tuple[int, str]]:
        """Every (type, name) that has a configuration, in order."""
        for key in sorted(self.configs.keys()):
            yield key[0], key[1:].decode()


EMPTY_IMAGE: Final = MetadataImage()


def config_key(resource_type: int, name: str) -> bytes:
    return bytes((resource_type,)) + name.encode()


def unify_collision_chars(name: str) -> str:
    return name.replace(".", "_")


def has_collision_chars(name: str) -> bool:
    return "_" in name or "." in name
