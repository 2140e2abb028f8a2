"""The records of the metadata log, as Kafka's KRaft controllers write them.

Type numbers, fields and versions are Kafka's, so that its tools read our metadata log and its documentation applies.
A record's value is framed: a frame version, the record's type and its version, each an unsigned varint, then the
record itself. What this release does not know is refused and never skipped: a node that ignored a record would
hold an image that differs from everyone else's.
"""
# ruff: noqa: RUF012

from __future__ import annotations

from typing import ClassVar, Final

from penstock.wire.codec import Limits, decode_whole, encode
from penstock.wire.compression import Buffer
from penstock.wire.errors import WireError
from penstock.wire.records import read_unsigned_varint, write_unsigned_varint
from penstock.wire.schema import Field, Message, Schema, versions_of
from penstock.wire.uuids import ZERO_UUID

FRAME_VERSION: Final = 1
RECORD_LIMITS: Final = Limits(max_elements=1_000_000, max_tagged_fields=1_000)

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2


class MetadataRecord(Message):
    """The base of everything that may stand in the metadata log."""

    record_type: ClassVar[int]


def encode_metadata_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """The value of the record, framed; in the newest version unless an older one is asked for."""
    out = bytearray((FRAME_VERSION,))
    write_unsigned_varint(out, record.record_type)
    if version is None:
        version = versions_of(type(record))[-1]
    write_unsigned_varint(out, version)
    encode(record, version, out)
    return bytes(out)


def decode_metadata_record(value: Buffer | None) -> MetadataRecord:
    """The record in a framed value. Raises WireError for a type or version that this release does not know."""
    if value is None:
        raise WireError("a metadata record without a value")
    try:
        frame_version, position = read_unsigned_varint(value, 0)
        record_type, position = read_unsigned_varint(value, position)
        version, position = read_unsigned_varint(value, position)
    except IndexError:
        raise WireError("a metadata record whose frame is cut off") from None
    if frame_version != FRAME_VERSION:
        raise WireError(f"a metadata record with frame version {frame_version}: this release knows {FRAME_VERSION}")
    cls = METADATA_RECORDS.get(record_type)
    if cls is None:
        raise WireError(f"a metadata record of the unknown type {record_type}: written by a newer release?")
    if version not in versions_of(cls):
        raise WireError(
            f"{cls.__name__} version {version}: this release knows {cls.schema.versions}; written by a newer one?"
        )
    return decode_whole(cls, version, value, position, limits=RECORD_LIMITS)


class BrokerEndpoint(Message):
    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0

    schema = Schema(
        "0-3",
        "0+",
        (
            Field("name", "string"),
            Field("host", "string"),
            Field("port", "uint16"),
            Field("security_protocol", "int16"),
        ),
    )


class BrokerFeature(Message):
    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0

    schema = Schema(
        "0-3",
        "0+",
        (
            Field("name", "string"),
            Field("min_supported_version", "int16"),
            Field("max_supported_version", "int16"),
        ),
    )


class RegisterBrokerRecord(MetadataRecord):
    """A broker joined the cluster, or came back as a new incarnation."""

    broker_id: int = 0
    is_migrating_zk_broker: bool = False
    incarnation_id: bytes = ZERO_UUID
    broker_epoch: int = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: list[bytes] = []

    record_type = 0
    schema = Schema(
        "0-3",
        "0+",
        (
            Field("broker_id", "int32"),
            Field("is_migrating_zk_broker", "bool", "2+"),
            Field("incarnation_id", "uuid"),
            Field("broker_epoch", "int64"),
            Field("end_points", BrokerEndpoint, array=True),
            Field("features", BrokerFeature, array=True),
            Field("rack", "string", nullable="0+"),
            Field("fenced", "bool"),
            Field("in_controlled_shutdown", "bool", "1+"),
            Field("log_dirs", "uuid", "3+", array=True, tag=0, tagged="3+"),
        ),
    )


class UnregisterBrokerRecord(MetadataRecord):
    """A broker left the cluster for good."""

    broker_id: int = 0
    broker_epoch: int = 0

    record_type = 1
    schema = Schema(
        "0",
        "0+",
        (
            Field("broker_id", "int32"),
            Field("broker_epoch", "int64"),
        ),
    )


class TopicRecord(MetadataRecord):
    """A topic was created; its partitions follow in the same batch."""

    name: str = ""
    topic_id: bytes = ZERO_UUID

    record_type = 2
    schema = Schema(
        "0",
        "0+",
        (
            Field("name", "string"),
            Field("topic_id", "uuid"),
        ),
    )


class PartitionRecord(MetadataRecord):
    """The whole state of a partition. Version 1 adds directories (KIP-858), 2 eligible leaders (KIP-966)."""

    partition_id: int = -1
    topic_id: bytes = ZERO_UUID
    replicas: list[int] = []
    isr: list[int] = []
    removing_replicas: list[int] = []
    adding_replicas: list[int] = []
    leader: int = NO_LEADER
    leader_recovery_state: int = 0
    leader_epoch: int = -1
    partition_epoch: int = -1
    directories: list[bytes] = []
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None

    record_type = 3
    schema = Schema(
        "0-2",
        "0+",
        (
            Field("partition_id", "int32"),
            Field("topic_id", "uuid"),
            Field("replicas", "int32", array=True),
            Field("isr", "int32", array=True),
            Field("removing_replicas", "int32", array=True),
            Field("adding_replicas", "int32", array=True),
            Field("leader", "int32"),
            Field("leader_recovery_state", "int8", tag=0, tagged="0+"),
            Field("leader_epoch", "int32"),
            Field("partition_epoch", "int32"),
            Field("directories", "uuid", "1+", array=True),
            Field("eligible_leader_replicas", "int32", "2+", array=True, nullable="2+", tag=1, tagged="2+"),
            Field("last_known_elr", "int32", "2+", array=True, nullable="2+", tag=2, tagged="2+"),
        ),
    )


class ConfigRecord(MetadataRecord):
    """A configuration was set, or removed where the value is null."""

    resource_type: int = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""

    record_type = 4
    schema = Schema(
        "0",
        "0+",
        (
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("name", "string"),
            Field("value", "string", nullable="0+"),
        ),
    )


class PartitionChangeRecord(MetadataRecord):
    """What changed in a partition; what did not is null, −1 or −2."""

    partition_id: int = -1
    topic_id: bytes = ZERO_UUID
    isr: list[int] | None = None
    leader: int = NO_LEADER_CHANGE
    replicas: list[int] | None = None
    removing_replicas: list[int] | None = None
    adding_replicas: list[int] | None = None
    leader_recovery_state: int = -1
    directories: list[bytes] | None = None
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None

    record_type = 5
    schema = Schema(
        "0-2",
        "0+",
        (
            Field("partition_id", "int32"),
            Field("topic_id", "uuid"),
            Field("isr", "int32", array=True, nullable="0+", tag=0, tagged="0+"),
            Field("leader", "int32", tag=1, tagged="0+"),
            Field("replicas", "int32", array=True, nullable="0+", tag=2, tagged="0+"),
            Field("removing_replicas", "int32", array=True, nullable="0+", tag=3, tagged="0+"),
            Field("adding_replicas", "int32", array=True, nullable="0+", tag=4, tagged="0+"),
            Field("leader_recovery_state", "int8", tag=5, tagged="0+"),
            Field("directories", "uuid", "1+", array=True, nullable="1+", tag=8, tagged="1+"),
            Field("eligible_leader_replicas", "int32", "2+", array=True, nullable="2+", tag=6, tagged="2+"),
            Field("last_known_elr", "int32", "2+", array=True, nullable="2+", tag=7, tagged="2+"),
        ),
    )


class FenceBrokerRecord(MetadataRecord):
    """A broker may not lead any more. Newer releases write BrokerRegistrationChangeRecord."""

    id: int = 0
    epoch: int = 0

    record_type = 7
    schema = Schema(
        "0",
        "0+",
        (
            Field("id", "int32"),
            Field("epoch", "int64"),
        ),
    )


class UnfenceBrokerRecord(MetadataRecord):
    """A broker may lead again. Newer releases write BrokerRegistrationChangeRecord."""

    id: int = 0
    epoch: int = 0

    record_type = 8
    schema = Schema(
        "0",
        "0+",
        (
            Field("id", "int32"),
            Field("epoch", "int64"),
        ),
    )


class RemoveTopicRecord(MetadataRecord):
    """A topic was deleted, with all its partitions."""

    topic_id: bytes = ZERO_UUID

    record_type = 9
    schema = Schema("0", "0+", (Field("topic_id", "uuid"),))


class UserScramCredentialRecord(MetadataRecord):
    """A user's SCRAM credential was set."""

    name: str = ""
    mechanism: int = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int = 0

    record_type = 11
    schema = Schema(
        "0",
        "0+",
        (
            Field("name", "string"),
            Field("mechanism", "int8"),
            Field("salt", "bytes"),
            Field("stored_key", "bytes"),
            Field("server_key", "bytes"),
            Field("iterations", "int32"),
        ),
    )


class FeatureLevelRecord(MetadataRecord):
    """A feature's level was set; 0 removes it."""

    name: str = ""
    feature_level: int = 0

    record_type = 12
    schema = Schema(
        "0",
        "0+",
        (
            Field("name", "string"),
            Field("feature_level", "int16"),
        ),
    )


class ClientQuotaEntity(Message):
    entity_type: str = ""
    entity_name: str | None = ""

    schema = Schema(
        "0",
        "0+",
        (
            Field("entity_type", "string"),
            Field("entity_name", "string", nullable="0+"),
        ),
    )


class ClientQuotaRecord(MetadataRecord):
    """A quota was set or removed; an entity without a name is the default."""

    entity: list[ClientQuotaEntity] = []
    key: str = ""
    value: float = 0.0
    remove: bool = False

    record_type = 14
    schema = Schema(
        "0",
        "0+",
        (
            Field("entity", ClientQuotaEntity, array=True),
            Field("key", "string"),
            Field("value", "float64"),
            Field("remove", "bool"),
        ),
    )


class ProducerIdsRecord(MetadataRecord):
    """A block of producer ids was given to a broker; the next one begins at `next_producer_id`."""

    broker_id: int = 0
    broker_epoch: int = -1
    next_producer_id: int = 0

    record_type = 15
    schema = Schema(
        "0",
        "0+",
        (
            Field("broker_id", "int32"),
            Field("broker_epoch", "int64"),
            Field("next_producer_id", "int64"),
        ),
    )


class BrokerRegistrationChangeRecord(MetadataRecord):
    """What changed about a registered broker: `fenced` is 1, −1 for unfenced, 0 for as before."""

    broker_id: int = 0
    broker_epoch: int = 0
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: list[bytes] = []

    record_type = 17
    schema = Schema(
        "0-2",
        "0+",
        (
            Field("broker_id", "int32"),
            Field("broker_epoch", "int64"),
            Field("fenced", "int8", tag=0, tagged="0+"),
            Field("in_controlled_shutdown", "int8", "1+", tag=1, tagged="1+"),
            Field("log_dirs", "uuid", "2+", array=True, tag=2, tagged="2+"),
        ),
    )


class AccessControlEntryRecord(MetadataRecord):
    """An ACL was added."""

    id: bytes = ZERO_UUID
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 0
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0

    record_type = 18
    schema = Schema(
        "0",
        "0+",
        (
            Field("id", "uuid"),
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("pattern_type", "int8"),
            Field("principal", "string"),
            Field("host", "string"),
            Field("operation", "int8"),
            Field("permission_type", "int8"),
        ),
    )


class RemoveAccessControlEntryRecord(MetadataRecord):
    """An ACL was removed."""

    id: bytes = ZERO_UUID

    record_type = 19
    schema = Schema("0", "0+", (Field("id", "uuid"),))


class NoOpRecord(MetadataRecord):
    """Nothing changed; the controller shows that it is alive."""

    record_type = 20
    schema = Schema("0", "0+", ())


class RemoveUserScramCredentialRecord(MetadataRecord):
    """A user's SCRAM credential was removed."""

    name: str = ""
    mechanism: int = 0

    record_type = 22
    schema = Schema(
        "0",
        "0+",
        (
            Field("name", "string"),
            Field("mechanism", "int8"),
        ),
    )


class BeginTransactionRecord(MetadataRecord):
    """What follows counts only once the EndTransactionRecord is there (KIP-868)."""

    name: str | None = None

    record_type = 23
    schema = Schema("0", "0+", (Field("name", "string", nullable="0+", tag=0, tagged="0+"),))


class EndTransactionRecord(MetadataRecord):
    """The records since the BeginTransactionRecord count."""

    record_type = 24
    schema = Schema("0", "0+", ())


class AbortTransactionRecord(MetadataRecord):
    """The records since the BeginTransactionRecord never happened."""

    reason: str | None = None

    record_type = 25
    schema = Schema("0", "0+", (Field("reason", "string", nullable="0+", tag=0, tagged="0+"),))


class ControllerEndpoint(Message):
    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0

    schema = Schema(
        "0",
        "0+",
        (
            Field("name", "string"),
            Field("host", "string"),
            Field("port", "uint16"),
            Field("security_protocol", "int16"),
        ),
    )


class ControllerFeature(Message):
    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0

    schema = Schema(
        "0",
        "0+",
        (
            Field("name", "string"),
            Field("min_supported_version", "int16"),
            Field("max_supported_version", "int16"),
        ),
    )


class RegisterControllerRecord(MetadataRecord):
    """A controller said who it is and what it can do."""

    controller_id: int = 0
    incarnation_id: bytes = ZERO_UUID
    zk_migration_ready: bool = False
    end_points: list[ControllerEndpoint] = []
    features: list[ControllerFeature] = []

    record_type = 27
    schema = Schema(
        "0",
        "0+",
        (
            Field("controller_id", "int32"),
            Field("incarnation_id", "uuid"),
            Field("zk_migration_ready", "bool"),
            Field("end_points", ControllerEndpoint, array=True),
            Field("features", ControllerFeature, array=True),
        ),
    )


METADATA_RECORDS: Final[dict[int, type[MetadataRecord]]] = {
    cls.record_type: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RegisterControllerRecord,
    )
}
