"""The table of served APIs: one row per API. APIs without a row are not served.

Oldest versions are those that Kafka 4.0 kept (KIP-896), newest the newest that Kafka calls stable. Serving another
API or version begins with its row here: ApiVersions' answer, the dispatcher's gate and the compatibility table of
the documentation are made from it.

Every API also has its limits, because the broker has to say no before it decodes: the largest frame and the most
array elements that one request may have (a stranger's 40 MB Metadata request must not cost seconds or gigabytes). APIs
that are served in one go have fewer: at their limit they hold the broker for some 20 ms.
"""

from enum import Enum, IntEnum
from functools import cache
from importlib import import_module
from typing import Final

import msgspec
from msgspec.structs import replace

from penstock.wire.acls import Access, Operation, ResourceKind
from penstock.wire.codec import Limits, Message
from penstock.wire.messages.index import MESSAGES

KIB: Final = 1024
MIB: Final = 1024 * KIB
# The default of Kafka's socket.request.max.bytes: no frame is larger, whatever the API.
FRAME_BYTES_MAX: Final = 100 * MIB
TAGGED_FIELDS_MAX: Final = 1_000
IN_ONE_GO: Final = 20_000
CHANGES_IN_ONE_GO: Final = 5_000
"""Elements of a request that is decided as a whole, each of which costs more than to look something up."""


class ApiKey(IntEnum):
    """Every API of the protocol, served or not."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


def api_name(key: int) -> str:
    """Kafka's name and the number, `ShareFetch (78)`, for a message about an API that may have no row."""
    if key in MESSAGES:
        return f"{MESSAGES[key].name} ({key})"
    try:
        return f"{ApiKey(key).name.title().replace('_', '')} ({key})"
    except ValueError:
        return f"API key {key}, which Kafka does not have"


class QuotaClass(Enum):
    """The quotas that a request is charged to."""

    NONE = "nothing"
    PRODUCE = "bytes of records produced, and time"
    FETCH = "bytes of records fetched, and time"
    REQUEST = "time"
    CONTROLLER_MUTATION = "partitions created and deleted (KIP-599), and time"


WRITE_TOPIC: Final = Access(Operation.WRITE, ResourceKind.TOPIC)
READ_TOPIC: Final = Access(Operation.READ, ResourceKind.TOPIC)
DESCRIBE_TOPIC: Final = Access(Operation.DESCRIBE, ResourceKind.TOPIC)
CREATE_TOPIC: Final = Access(Operation.CREATE, ResourceKind.TOPIC)
DELETE_TOPIC: Final = Access(Operation.DELETE, ResourceKind.TOPIC)
ALTER_TOPIC: Final = Access(Operation.ALTER, ResourceKind.TOPIC)
DESCRIBE_CONFIGS_TOPIC: Final = Access(Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC)
ALTER_CONFIGS_TOPIC: Final = Access(Operation.ALTER_CONFIGS, ResourceKind.TOPIC)
READ_GROUP: Final = Access(Operation.READ, ResourceKind.GROUP)
DESCRIBE_GROUP: Final = Access(Operation.DESCRIBE, ResourceKind.GROUP)
DELETE_GROUP: Final = Access(Operation.DELETE, ResourceKind.GROUP)
DESCRIBE_CONFIGS_GROUP: Final = Access(Operation.DESCRIBE_CONFIGS, ResourceKind.GROUP)
ALTER_CONFIGS_GROUP: Final = Access(Operation.ALTER_CONFIGS, ResourceKind.GROUP)
CREATE_CLUSTER: Final = Access(Operation.CREATE, ResourceKind.CLUSTER)
DESCRIBE_CLUSTER: Final = Access(Operation.DESCRIBE, ResourceKind.CLUSTER)
CLUSTER_ACTION: Final = Access(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
ALTER_CLUSTER: Final = Access(Operation.ALTER, ResourceKind.CLUSTER)
DESCRIBE_CONFIGS_CLUSTER: Final = Access(Operation.DESCRIBE_CONFIGS, ResourceKind.CLUSTER)
ALTER_CONFIGS_CLUSTER: Final = Access(Operation.ALTER_CONFIGS, ResourceKind.CLUSTER)
IDEMPOTENT_WRITE: Final = Access(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER)
WRITE_TRANSACTIONAL_ID: Final = Access(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID: Final = Access(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)


class ServedApi(msgspec.Struct, frozen=True):
    """One row of the table."""

    key: ApiKey
    min_version: int
    max_version: int
    behaviour: str
    """A note for users, for the documentation."""
    advertised_min_version: int = -1
    """The minimum version to advertise if it differs from `min_version`; −1 if it does not."""
    max_frame_bytes: int = 4 * MIB
    max_elements: int = 100_000
    access: tuple[Access, ...] = ()
    """The operations that the handler checks for each element, as in Kafka."""
    whole: Operation | None = None
    """The cluster operation that the gate checks: without it the whole request is refused."""
    quota: QuotaClass = QuotaClass.REQUEST
    before_login: bool = False
    """Whether it is served to clients that have not authenticated yet."""
    is_forwarded: bool = False
    """Any broker accepts it and forwards it to the active controller, which authorises and decides it (KIP-590)."""

    @property
    def is_for_members(self) -> bool:
        """Whether only nodes of the cluster may send it."""
        return self.whole is Operation.CLUSTER_ACTION

    @property
    def name(self) -> str:
        """Kafka's name, for example `ListOffsets`."""
        return MESSAGES[self.key].name

    @property
    def module(self) -> str:
        """The name as a module name, for example `list_offsets`."""
        return MESSAGES[self.key].module

    @property
    def flexible_from(self) -> int:
        return MESSAGES[self.key].flexible_from

    @property
    def advertised_min(self) -> int:
        return self.min_version if self.advertised_min_version < 0 else self.advertised_min_version

    @property
    def versions(self) -> range:
        return range(self.min_version, self.max_version + 1)

    @property
    def limits(self) -> Limits:
        return Limits(max_elements=self.max_elements, max_tagged_fields=TAGGED_FIELDS_MAX)

    @property
    def request(self) -> type[Message]:
        """The request's class; its module is imported on first use."""
        return _message_class(self.key, "Request")

    @property
    def response(self) -> type[Message]:
        return _message_class(self.key, "Response")


@cache
def _message_class(key: int, suffix: str) -> type[Message]:
    messages = MESSAGES[key]
    cls: type[Message] = getattr(import_module(f"penstock.wire.messages.{messages.module}"), messages.name + suffix)
    return cls


NO_TOKENS: Final = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on a plaintext listener of Kafka"

_ROWS: Final = (
    ServedApi(
        ApiKey.PRODUCE,
        3,
        13,
        "acks 0, 1 and all; idempotent producers; every codec; record batches of version 2 only. Versions 0 to 2 are "
        "advertised because older librdkafka stops compressing without them (KAFKA-18659), but refused, as in "
        "Kafka 4",
        advertised_min_version=0,
        max_frame_bytes=FRAME_BYTES_MAX,
        access=(WRITE_TOPIC, WRITE_TRANSACTIONAL_ID),
        quota=QuotaClass.PRODUCE,
    ),
    ServedApi(
        ApiKey.FETCH,
        4,
        18,
        "Long polling, incremental fetch sessions (KIP-227), from followers near the consumer from 11 (KIP-392), topic "
        "ids from 13",
        max_frame_bytes=16 * MIB,
        max_elements=200_000,
        access=(READ_TOPIC, CLUSTER_ACTION),
        quota=QuotaClass.FETCH,
    ),
    ServedApi(
        ApiKey.LIST_OFFSETS,
        1,
        11,
        "Earliest, latest, by timestamp, largest timestamp (7), earliest local (8); without tiered storage the "
        "latest tiered (9) and earliest pending upload (11) offsets are unknown",
        access=(DESCRIBE_TOPIC,),
    ),
    ServedApi(
        ApiKey.METADATA,
        0,
        13,
        "All topics, by name, by id (10); automatic creation where it is enabled",
        access=(DESCRIBE_TOPIC, CREATE_TOPIC, CREATE_CLUSTER),
    ),
    ServedApi(
        ApiKey.OFFSET_COMMIT,
        2,
        10,
        "Members of classic groups, of consumer groups (9) and consumers without a group; topic ids from 10",
        max_elements=IN_ONE_GO,
        access=(READ_GROUP, READ_TOPIC),
    ),
    ServedApi(
        ApiKey.OFFSET_FETCH,
        1,
        10,
        "All offsets of a group from 2, several groups from 8, topic ids from 10",
        access=(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ),
    ServedApi(
        ApiKey.FIND_COORDINATOR,
        0,
        6,
        "Coordinators of groups and transactional ids, several at once from 4; share groups are refused. The first "
        "request creates `__consumer_offsets` or `__transaction_state` and waits for it",
        access=(DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID),
    ),
    ServedApi(
        ApiKey.JOIN_GROUP, 0, 9, "Classic groups, with static members from 5", max_elements=10_000, access=(READ_GROUP,)
    ),
    ServedApi(
        ApiKey.HEARTBEAT,
        0,
        4,
        "Classic groups, with static members from 3",
        max_frame_bytes=64 * KIB,
        max_elements=1_000,
        access=(READ_GROUP,),
    ),
    ServedApi(ApiKey.LEAVE_GROUP, 0, 5, "Several members at once from 3", access=(READ_GROUP,), max_elements=IN_ONE_GO),
    ServedApi(
        ApiKey.SYNC_GROUP,
        0,
        5,
        "Assignments are passed through as they are; together they must fit a batch of `__consumer_offsets`",
        max_frame_bytes=16 * MIB,
        access=(READ_GROUP,),
    ),
    ServedApi(
        ApiKey.DESCRIBE_GROUPS, 0, 6, "Classic groups; GROUP_ID_NOT_FOUND for others from 6", access=(DESCRIBE_GROUP,)
    ),
    ServedApi(
        ApiKey.LIST_GROUPS, 0, 5, "Filtered by state from 4, by type from 5", access=(DESCRIBE_CLUSTER, DESCRIBE_GROUP)
    ),
    ServedApi(
        ApiKey.SASL_HANDSHAKE,
        0,
        1,
        "The mechanism of a login; ILLEGAL_SASL_STATE on a listener without SASL, and for 0",
        max_frame_bytes=64 * KIB,
        before_login=True,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.API_VERSIONS,
        0,
        4,
        "A newer request than 4 is answered in version 0 with UNSUPPORTED_VERSION and the whole table (KIP-511)",
        max_frame_bytes=64 * KIB,
        max_elements=1_000,
        before_login=True,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.CREATE_TOPICS,
        2,
        7,
        "Validation only on request; topic ids and configs in the answer",
        access=(CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS_TOPIC),
        quota=QuotaClass.CONTROLLER_MUTATION,
        is_forwarded=True,
        max_elements=IN_ONE_GO,
    ),
    ServedApi(
        ApiKey.DELETE_TOPICS,
        1,
        6,
        "By name, and by id from 6",
        max_elements=CHANGES_IN_ONE_GO,
        access=(DELETE_TOPIC, DESCRIBE_TOPIC),
        quota=QuotaClass.CONTROLLER_MUTATION,
        is_forwarded=True,
    ),
    ServedApi(
        ApiKey.DELETE_RECORDS,
        0,
        2,
        "Moves the log's start; −1 means the high watermark",
        max_elements=IN_ONE_GO,
        access=(DELETE_TOPIC,),
    ),
    ServedApi(
        ApiKey.INIT_PRODUCER_ID,
        0,
        5,
        "Ids for idempotent and transactional producers. Version 6 (two-phase commit, KIP-939) is not stable in Kafka",
        max_frame_bytes=128 * KIB,
        max_elements=1_000,
        access=(WRITE_TRANSACTIONAL_ID, IDEMPOTENT_WRITE, WRITE_TOPIC),
    ),
    ServedApi(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        2,
        4,
        "For consumers that detect truncation, and followers (KIP-320)",
        max_elements=IN_ONE_GO,
        access=(CLUSTER_ACTION, DESCRIBE_TOPIC),
    ),
    ServedApi(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        0,
        5,
        "From producers until 3; from brokers, for several transactions at once, from 4 (KIP-890)",
        max_elements=IN_ONE_GO,
        access=(WRITE_TRANSACTIONAL_ID, WRITE_TOPIC, CLUSTER_ACTION),
    ),
    ServedApi(
        ApiKey.ADD_OFFSETS_TO_TXN,
        0,
        4,
        "Adds the partition of `__consumer_offsets` that holds a group's offsets",
        max_frame_bytes=128 * KIB,
        access=(WRITE_TRANSACTIONAL_ID, READ_GROUP),
    ),
    ServedApi(
        ApiKey.END_TXN,
        0,
        5,
        "Commit or abort; raises the producer's epoch from 5 (KIP-890)",
        max_frame_bytes=128 * KIB,
        access=(WRITE_TRANSACTIONAL_ID,),
    ),
    ServedApi(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        2,
        "On listeners for nodes: ends transactions in partitions of this broker; version 2 of transactions from 2 "
        "(KIP-1228)",
        max_elements=IN_ONE_GO,
        access=(CLUSTER_ACTION, ALTER_CLUSTER),
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.TXN_OFFSET_COMMIT,
        0,
        5,
        "Offsets that take effect when the transaction commits, for both group protocols; adds the group's partition "
        "to the transaction from 5 (KIP-890)",
        max_elements=IN_ONE_GO,
        access=(WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC),
    ),
    ServedApi(
        ApiKey.DESCRIBE_ACLS,
        1,
        3,
        "All pattern types, also MATCH. Without an authoriser SECURITY_DISABLED",
        whole=Operation.DESCRIBE,
        max_frame_bytes=64 * KIB,
    ),
    ServedApi(
        ApiKey.CREATE_ACLS,
        1,
        3,
        "Literal and prefixed patterns; hosts are `*`, addresses or CIDR ranges (the ranges are Penstock's). Without "
        "an authoriser SECURITY_DISABLED",
        whole=Operation.ALTER,
        is_forwarded=True,
        max_elements=CHANGES_IN_ONE_GO,
    ),
    ServedApi(
        ApiKey.DELETE_ACLS,
        1,
        3,
        "By filters, all pattern types. Without an authoriser SECURITY_DISABLED",
        whole=Operation.ALTER,
        is_forwarded=True,
        max_elements=CHANGES_IN_ONE_GO,
    ),
    ServedApi(
        ApiKey.DESCRIBE_CONFIGS,
        1,
        4,
        "Topics, brokers, loggers and groups, with synonyms, types and documentation",
        access=(DESCRIBE_CONFIGS_CLUSTER, DESCRIBE_CONFIGS_TOPIC, DESCRIBE_CONFIGS_GROUP),
    ),
    ServedApi(
        ApiKey.ALTER_CONFIGS,
        0,
        2,
        "Replaces all configs of a resource; the incremental API is the better one",
        max_elements=CHANGES_IN_ONE_GO,
        access=(ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_GROUP),
        is_forwarded=True,
    ),
    ServedApi(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        1,
        2,
        "A broker has one directory: a move to it changes nothing, any other is LOG_DIR_NOT_FOUND",
        max_elements=IN_ONE_GO,
        whole=Operation.ALTER,
    ),
    ServedApi(
        ApiKey.DESCRIBE_LOG_DIRS,
        1,
        5,
        "Sizes and lags per partition, volume sizes from 4",
        max_elements=IN_ONE_GO,
        whole=Operation.DESCRIBE,
    ),
    ServedApi(
        ApiKey.SASL_AUTHENTICATE,
        0,
        2,
        "The messages of a login, and again to renew it (KIP-368); ILLEGAL_SASL_STATE on a listener without SASL",
        max_frame_bytes=512 * KIB,
        before_login=True,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.CREATE_PARTITIONS,
        0,
        3,
        "With or without assignments",
        access=(ALTER_TOPIC,),
        quota=QuotaClass.CONTROLLER_MUTATION,
        is_forwarded=True,
        max_elements=CHANGES_IN_ONE_GO,
    ),
    ServedApi(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, NO_TOKENS),
    ServedApi(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, NO_TOKENS),
    ServedApi(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, NO_TOKENS),
    ServedApi(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, NO_TOKENS),
    ServedApi(ApiKey.DELETE_GROUPS, 0, 2, "Groups without members", access=(DELETE_GROUP,)),
    ServedApi(
        ApiKey.ELECT_LEADERS,
        0,
        2,
        "Preferred leaders, and unclean elections from 1",
        whole=Operation.ALTER,
        is_forwarded=True,
    ),
    ServedApi(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        0,
        1,
        "Set, delete, append, subtract; levels of loggers at their broker (KIP-412)",
        max_elements=CHANGES_IN_ONE_GO,
        access=(ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_GROUP),
        is_forwarded=True,
    ),
    ServedApi(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        1,
        "Moves partitions to other replicas, and cancels that (KIP-455); other replication factors can be forbidden "
        "from 1",
        whole=Operation.ALTER,
        is_forwarded=True,
    ),
    ServedApi(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        0,
        "Partitions that are on their way to other replicas",
        max_elements=IN_ONE_GO,
        whole=Operation.DESCRIBE,
        is_forwarded=True,
    ),
    ServedApi(
        ApiKey.OFFSET_DELETE,
        0,
        0,
        "Topics that no member subscribes to",
        access=(DELETE_GROUP, READ_TOPIC),
        max_elements=IN_ONE_GO,
    ),
    ServedApi(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        0,
        1,
        "Quotas of users, client ids, both, and addresses; defaults included",
        whole=Operation.DESCRIBE_CONFIGS,
        max_elements=IN_ONE_GO,
    ),
    ServedApi(
        ApiKey.ALTER_CLIENT_QUOTAS,
        0,
        1,
        "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, and "
        "connection_creation_rate of an address; host names are not resolved",
        whole=Operation.ALTER_CONFIGS,
        max_elements=IN_ONE_GO,
        is_forwarded=True,
    ),
    ServedApi(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        0,
        "Mechanisms and iterations of users, never their keys",
        whole=Operation.DESCRIBE,
        max_elements=IN_ONE_GO,
    ),
    ServedApi(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        0,
        "Credentials are set and deleted by user, all or none of a user's (KIP-554)",
        whole=Operation.ALTER,
        quota=QuotaClass.CONTROLLER_MUTATION,
        is_forwarded=True,
        max_elements=IN_ONE_GO,
    ),
    ServedApi(
        ApiKey.DESCRIBE_QUORUM,
        0,
        2,
        "Leader, voters and observers of the metadata quorum, with directories and listeners from 2",
        max_frame_bytes=64 * KIB,
        max_elements=1_000,
        whole=Operation.DESCRIBE,
        is_forwarded=True,
    ),
    ServedApi(
        ApiKey.UPDATE_FEATURES,
        0,
        2,
        "All or nothing; levels that some node does not know are refused",
        whole=Operation.ALTER,
        is_forwarded=True,
        max_elements=1_000,
    ),
    ServedApi(ApiKey.DESCRIBE_CLUSTER, 0, 2, "Brokers, with fenced ones (2) on request"),
    ServedApi(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        0,
        "Producers whose state a partition keeps, with their open transactions (KIP-664)",
        access=(READ_TOPIC,),
    ),
    ServedApi(
        ApiKey.UNREGISTER_BROKER,
        0,
        0,
        "A broker that is gone for good",
        max_frame_bytes=64 * KIB,
        whole=Operation.ALTER,
        is_forwarded=True,
    ),
    ServedApi(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        0,
        "State, timeout, start and partitions of transactional ids",
        access=(DESCRIBE_TRANSACTIONAL_ID,),
        max_elements=IN_ONE_GO,
    ),
    ServedApi(
        ApiKey.LIST_TRANSACTIONS,
        0,
        2,
        "Filtered by state and producer id, by duration from 1, by pattern from 2",
        access=(DESCRIBE_TRANSACTIONAL_ID,),
    ),
    ServedApi(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        1,
        "The consumer protocol (KIP-848): assignors `uniform` and `range`, regular expressions from 1",
        access=(READ_GROUP, DESCRIBE_TOPIC),
        max_elements=IN_ONE_GO,
    ),
    ServedApi(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        1,
        "Groups of the consumer protocol (KIP-848)",
        access=(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ),
    ServedApi(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        0,
        0,
        "The metrics that a client should push (KIP-714), by the subscriptions of the resource type client-metrics",
    ),
    ServedApi(
        ApiKey.PUSH_TELEMETRY,
        0,
        0,
        "Gauges and sums in OTLP's format, exported on the Prometheus endpoint; at most `telemetry.max.bytes`, and "
        "4 MiB decompressed",
    ),
    ServedApi(
        ApiKey.LIST_CONFIG_RESOURCES,
        0,
        1,
        "Version 0 lists client metrics only, as in Kafka (KIP-1142)",
        whole=Operation.DESCRIBE_CONFIGS,
        max_elements=1_000,
    ),
    ServedApi(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        0,
        "In pages, with eligible leader replicas (KIP-966)",
        access=(DESCRIBE_TOPIC,),
    ),
    ServedApi(
        ApiKey.ADD_RAFT_VOTER,
        0,
        1,
        "One voter of the metadata quorum more, once it has caught up; the answer waits for the commit",
        max_frame_bytes=64 * KIB,
        max_elements=1_000,
        whole=Operation.ALTER,
        is_forwarded=True,
    ),
    ServedApi(
        ApiKey.REMOVE_RAFT_VOTER,
        0,
        0,
        "One voter of the metadata quorum fewer, if enough of the others keep up",
        max_frame_bytes=64 * KIB,
        whole=Operation.ALTER,
        is_forwarded=True,
    ),
)

SERVED: Final[dict[ApiKey, ServedApi]] = {row.key: row for row in sorted(_ROWS, key=lambda row: row.key)}
"""The APIs served to clients."""

_OF_NODES: Final = (
    ServedApi(
        ApiKey.VOTE,
        1,
        2,
        "Votes, and pre-votes from 2 (KIP-996), by node and directory (KIP-853)",
        whole=Operation.CLUSTER_ACTION,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.BEGIN_QUORUM_EPOCH,
        1,
        1,
        "A new leader of the metadata quorum makes itself known",
        whole=Operation.CLUSTER_ACTION,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.END_QUORUM_EPOCH,
        1,
        1,
        "A leader that stops names its successors",
        whole=Operation.CLUSTER_ACTION,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.FETCH,
        17,
        18,
        "The metadata log, for the replicas of the quorum and for brokers",
        whole=Operation.CLUSTER_ACTION,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.FETCH_SNAPSHOT,
        1,
        1,
        "Snapshots of the metadata, piece by piece",
        whole=Operation.CLUSTER_ACTION,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.ENVELOPE,
        0,
        0,
        "A client's administrative request, passed on by a broker (KIP-590)",
        max_frame_bytes=5 * MIB,
        whole=Operation.CLUSTER_ACTION,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.ALTER_PARTITION,
        2,
        3,
        "A leader's proposal of a new ISR, with broker epochs from 3 (KIP-903)",
        whole=Operation.CLUSTER_ACTION,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.BROKER_REGISTRATION,
        0,
        4,
        "A broker joins under a new incarnation",
        whole=Operation.CLUSTER_ACTION,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.BROKER_HEARTBEAT,
        0,
        1,
        "A broker is alive, or asks leave to stop",
        whole=Operation.CLUSTER_ACTION,
        quota=QuotaClass.NONE,
    ),
    ServedApi(
        ApiKey.ALLOCATE_PRODUCER_IDS,
        0,
        0,
        "The next block of producer ids",
        whole=Operation.CLUSTER_ACTION,
        quota=QuotaClass.NONE,
    ),
)

_ALSO_OF_CONTROLLERS: Final = (
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
)

OF_CONTROLLERS: Final[dict[ApiKey, ServedApi]] = {
    row.key: row
    for row in sorted(
        (
            *_OF_NODES,
            *(SERVED[key] for key in _ALSO_OF_CONTROLLERS),
            *(replace(row, is_forwarded=False) for row in _ROWS if row.is_forwarded),
            # As in Kafka: a broker tells everyone about the cluster, a controller only those who may change it.
            replace(SERVED[ApiKey.DESCRIBE_CLUSTER], whole=Operation.ALTER),
        ),
        key=lambda row: row.key,
    )
}
"""The APIs on the listeners of controllers: requests between nodes, requests that brokers forward, and requests that
Kafka's tools send with `--bootstrap-controller`."""

BETWEEN_NODES_IN_KAFKA: Final = frozenset(
    {
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
"""APIs that only Kafka's own nodes use among themselves, and no client or tool. Penstock's nodes do not need them."""

_BY_NAME: Final = {row.name: row for row in (*_OF_NODES, *_ROWS)}


def api_named(name: str) -> ServedApi:
    """The row by Kafka's name, for example `Fetch`: of the listeners for clients where both have one."""
    return _BY_NAME[name]


def markdown_table() -> str:
    """The compatibility table of the documentation."""
    lines = ["| API | key | versions | flexible from | behaviour |", "|---|---:|---|---:|---|"]
    for api in SERVED.values():
        versions = f"{api.min_version}–{api.max_version}" if api.max_version > api.min_version else f"{api.max_version}"
        if api.advertised_min != api.min_version:
            versions += f" (advertised from {api.advertised_min})"
        flexible = str(api.flexible_from) if api.flexible_from <= api.max_version else "none"
        lines.append(f"| {api.name} | {int(api.key)} | {versions} | {flexible} | {api.behaviour} |")
    return "\n".join(lines) + "\n"
