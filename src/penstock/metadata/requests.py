"""The controller's requests and results: administrative requests independent of their wire versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from penstock.acls.rules import Acl
from penstock.config import Alteration
from penstock.metadata.image import Listener, PartitionState, VersionRange
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import BeginTransactionRecord, EndTransactionRecord, MetadataRecord
from penstock.wire.uuids import ZERO_UUID

R = TypeVar("R")

RECORDS_PER_BATCH_MAX = 10_000
PARTITIONS_PER_REQUEST_MAX = 10_000
PRODUCER_ID_BLOCK_SIZE = 1000


class Decision(msgspec.Struct, Generic[R]):
    """Records to commit together, and the reply to send once they are committed."""

    records: list[MetadataRecord]
    reply: R

    def batches(self) -> list[list[MetadataRecord]]:
        """The records as batches of the log. More than one batch is wrapped in a transaction (KIP-868)."""
        if len(self.records) <= RECORDS_PER_BATCH_MAX:
            return [self.records] if self.records else []
        records = [BeginTransactionRecord(), *self.records, EndTransactionRecord()]
        return [records[i : i + RECORDS_PER_BATCH_MAX] for i in range(0, len(records), RECORDS_PER_BATCH_MAX)]


class Outcome(msgspec.Struct, frozen=True):
    """Success, or a protocol error with a message."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @property
    def failed(self) -> bool:
        return self.error != ErrorCode.NONE

    @classmethod
    def of(cls, error: KafkaError) -> Outcome:
        return cls(error.code, error.message)


DONE = Outcome()


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create. −1 means the default; `assignments` are (partition, replicas) chosen by the user."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


class TopicCreation(msgspec.Struct, frozen=True):
    name: str
    outcome: Outcome
    topic_id: bytes = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


class TopicToDelete(msgspec.Struct, frozen=True):
    """A topic to delete, by name or by id."""

    name: str | None = None
    topic_id: bytes = ZERO_UUID


class TopicDeletion(msgspec.Struct, frozen=True):
    name: str | None
    topic_id: bytes
    outcome: Outcome


class NewPartitions(msgspec.Struct, frozen=True):
    """Raises the topic's number of partitions to `count`; `assignments` are the replicas of the additional ones."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class PartitionsCreation(msgspec.Struct, frozen=True):
    name: str
    outcome: Outcome


class ConfigAlteration(msgspec.Struct, frozen=True):
    """Changes some settings of a resource (IncrementalAlterConfigs)."""

    resource_type: int
    name: str
    alterations: tuple[Alteration, ...]


class ConfigReplacement(msgspec.Struct, frozen=True):
    """Replaces all settings of a resource (AlterConfigs)."""

    resource_type: int
    name: str
    configs: tuple[tuple[str, str | None], ...]


class ConfigResult(msgspec.Struct, frozen=True):
    resource_type: int
    name: str
    outcome: Outcome


class QuotaAlteration(msgspec.Struct, frozen=True):
    """Sets quotas of one entity, or removes those whose value is None (AlterClientQuotas)."""

    parts: tuple[tuple[str, str | None], ...]
    """(type, name) as the request has them; name None is the default."""
    values: tuple[tuple[str, float | None], ...]


class QuotaResult(msgspec.Struct, frozen=True):
    parts: tuple[tuple[str, str | None], ...]
    outcome: Outcome


class Registration(msgspec.Struct, frozen=True):
    """A broker that wants to join, or to rejoin after a restart."""

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: tuple[Listener, ...]
    directories: tuple[bytes, ...]
    features: Mapping[str, VersionRange]
    rack: str | None = None
    # The epoch under which it stopped cleanly, which proves that it lost nothing. −1: no proof (KIP-966).
    previous_broker_epoch: int = -1


class RegistrationReply(msgspec.Struct, frozen=True):
    broker_epoch: int


class ProducerIdBlock(msgspec.Struct, frozen=True):
    """A block of producer ids for one broker to assign: `size` ids from `first` on."""

    first: int
    size: int = PRODUCER_ID_BLOCK_SIZE


class FeatureUpdate(msgspec.Struct, frozen=True):
    """`upgrade_type` has the protocol's values: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""

    name: str
    level: int
    upgrade_type: int = 1


class IsrProposal(msgspec.Struct, frozen=True):
    """An ISR proposed by a leader (AlterPartition). `broker_epochs`, if given, has one entry per entry of `isr`."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...] = ()
    leader_recovery_state: int = 0


class IsrResult(msgspec.Struct, frozen=True):
    """The result of a proposal; `state` is the partition's state if it was accepted."""

    topic_id: bytes
    partition: int
    error: ErrorCode
    state: PartitionState | None = None


class PartitionReassignment(msgspec.Struct, frozen=True):
    """Moves a partition to these replicas (AlterPartitionReassignments); None cancels a move in progress."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


class PartitionReassignmentResult(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    outcome: Outcome


class OngoingReassignment(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    state: PartitionState


class PartitionElection(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class PartitionElectionResult(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    outcome: Outcome


class AclDeletion(msgspec.Struct, frozen=True):
    """The ACLs that one filter matched, which are deleted now."""

    outcome: Outcome
    deleted: tuple[Acl, ...] = ()
