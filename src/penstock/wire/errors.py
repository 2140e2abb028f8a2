"""Kafka's error codes, each with its meaning, and the exceptions that carry them.

`ErrorCode` is the number on the wire, with Kafka's name. Engine code raises `KafkaError` when a request cannot be
served; one place in the broker turns it into the response. `WireError` is for bytes that cannot be decoded.
"""

from enum import IntEnum
from typing import Self


class WireError(Exception):
    """The bytes violate the protocol: truncated, out of bounds, or beyond a limit."""


class KafkaError(Exception):
    """A request is refused with one of the protocol's codes and a message that says why."""

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = ErrorCode(code)
        self.message = self.code.message if message is None else message
        super().__init__(self.code, self.message)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class ErrorCode(IntEnum):
    """Every code of the protocol. A retriable one means that the same request may succeed later."""

    _value_: int
    retriable: bool
    message: str

    def __new__(cls, code: int, retriable: bool = False, message: str = "") -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.message = message
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Maps a code that only a newer release knows to UNKNOWN_SERVER_ERROR."""
        return cls.UNKNOWN_SERVER_ERROR if isinstance(value, int) else None

    UNKNOWN_SERVER_ERROR = -1, False, "The broker met an unexpected error; see its log."
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is outside the range of this partition's log."
    CORRUPT_MESSAGE = (
        2,
        True,
        "The batch fails its checksum, has a wrong size, or lacks a key that a compacted topic needs.",
    )
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker has no such topic or partition."
    INVALID_FETCH_SIZE = 4, False, "The requested fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader right now: an election is in progress."
    NOT_LEADER_OR_FOLLOWER = (
        6,
        True,
        "This broker is not the partition's leader, or not one of its replicas: refresh the metadata.",
    )
    REQUEST_TIMED_OUT = 7, True, "The request was not completed within its timeout."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica of this partition is not available."
    MESSAGE_TOO_LARGE = 10, False, "The batch is larger than the topic's max.message.bytes."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller has moved to another node."
    OFFSET_METADATA_TOO_LARGE = (
        12,
        False,
        "The metadata string of the committed offset is longer than offset.metadata.max.bytes.",
    )
    NETWORK_EXCEPTION = 13, True, "The connection closed before a response arrived."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator: look it up again."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic's name is not valid, or the operation is not allowed on this topic."
    RECORD_LIST_TOO_LARGE = 18, False, "The batch is larger than the topic's segment.bytes."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than min.insync.replicas requires; nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The records are in the leader's log, but fewer replicas are in sync than min.insync.replicas requires.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member's protocol type or protocols do not match those of the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "The session timeout is not between group.min.session.timeout.ms and group.max.session.timeout.ms.",
    )
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: rejoin it."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not authorized for this topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not authorized for this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not authorized for this cluster operation."
    INVALID_TIMESTAMP = 32, False, "The record's timestamp is too far from the broker's clock for this topic."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "This listener does not offer that SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request is not allowed in this state of the SASL exchange."
    UNSUPPORTED_VERSION = 35, False, "This broker does not serve that version of the API."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic with this name already exists."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = (
        38,
        False,
        "The replication factor is below 1 or above the number of available brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "The configuration is not valid."
    NOT_CONTROLLER = 41, True, "This node is not the active controller."
    INVALID_REQUEST = 42, False, "The request is inconsistent or violates the protocol; see the broker's log."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The record format on the broker does not support this request."
    POLICY_VIOLATION = 44, False, "A policy of this cluster forbids the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer sent a sequence number that was already written."
    INVALID_PRODUCER_EPOCH = (
        47,
        False,
        "The producer's epoch is older than the newest one: another producer took its place.",
    )
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this request."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id is not the one that belongs to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is above transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, True, "The previous transaction of this producer is still being completed."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The transaction coordinator was replaced by a newer one."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not authorized for this transactional id."
    SECURITY_DISABLED = 54, False, "No authorizer is configured, so there are no ACLs to work with."
    OPERATION_NOT_ATTEMPTED = 55, False, "Another part of the request failed, so this one was not tried."
    KAFKA_STORAGE_ERROR = 56, True, "The log directory failed while it was being read or written."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker no longer knows this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal is neither owner nor renewer of the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "Delegation token requests are not allowed on this kind of connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not authorized for this delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "This type of principal is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The fetch session is gone: start a new one."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session epoch is not the expected one."
    LISTENER_NOT_FOUND = 72, True, "The partition's leader has no listener of the kind this request came in on."
    TOPIC_DELETION_DISABLED = 73, False, "delete.topic.enable is false."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch of the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch of the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "This version of the API does not support the batch's compression."
    STALE_BROKER_EPOCH = 77, False, "The broker epoch is not the current one: the broker must register again."
    OFFSET_NOT_AVAILABLE = 78, True, "The leader's high watermark has not caught up with its new epoch yet."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id in this response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group already has group.max.size members."
    FENCED_INSTANCE_ID = 82, False, "Another member took over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica that may lead the partition is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition already has the requested leader."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = (
        86,
        False,
        "The group's members are subscribed to this topic, so its offsets cannot be deleted.",
    )
    INVALID_RECORD = 87, False, "The batch holds a record that this topic or API does not allow."
    UNSTABLE_OFFSET_COMMIT = 88, True, "A transaction that commits offsets for this partition is still open."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is used up: try again after the throttle time."
    PRODUCER_FENCED = 90, False, "A newer producer with the same transactional id took over."
    RESOURCE_NOT_FOUND = 91, False, "The request refers to something that does not exist."
    DUPLICATE_RESOURCE = 92, False, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, False, "The sender and this node disagree about the voter set."
    INVALID_UPDATE_VERSION = 95, False, "The update is based on a version that is not the current one."
    FEATURE_UPDATE_FAILED = 96, False, "The feature levels could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker knows no topic with that id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A live broker with this id is already registered."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id differs from that of the log on disk."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id is not that of this cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        True,
        "The fetch session used topic ids and names inconsistently: start a new one.",
    )
    INELIGIBLE_REPLICA = 107, False, "The new ISR names a replica that may not join it."
    NEW_LEADER_ELECTED = 108, False, "The change was applied and the partition has a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset was moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The coordinator fenced this member epoch: rejoin the group."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member still uses this group.instance.id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not support this assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member epoch is old: retry with the one from the next heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to an endpoint of the wrong kind (broker or controller)."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller with this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription changed: ask for it again."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The controller considers the broker's registration invalid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction failed: abort it, then continue."
    INVALID_RECORD_STATE = 121, False, "The record is not in a state that allows this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, True, "The share session is gone: start a new one."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session epoch is not the expected one."
    FENCED_STATE_EPOCH = 124, False, "The share group's state epoch is not the current one."
    INVALID_VOTER_KEY = 125, False, "The voter key is not that of the receiving node."
    DUPLICATE_VOTER = 126, False, "The node is already a voter."
    VOTER_NOT_FOUND = 127, False, "The node is not a voter."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = (
        129,
        False,
        "The client's metadata is outdated: start again from the bootstrap servers.",
    )
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The streams topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The streams topology epoch is older than the group's."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker has reached its limit of share sessions."
