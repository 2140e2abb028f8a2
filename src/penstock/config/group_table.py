"""Broker properties of groups and their offsets, with Kafka's names, types, limits and defaults."""

from __future__ import annotations

from penstock.config.definitions import (
    INT32_MAX,
    Importance,
    Kind,
    UpdateMode,
    Validator,
    at_least,
    between,
    distinct_of,
)
from penstock.config.log_table import MINUTE_MS, SEGMENT_BYTES_MIN
from penstock.config.tables import Section, prop

HIGH = Importance.HIGH
STRING, INT, SHORT, LONG, LIST = Kind.STRING, Kind.INT, Kind.SHORT, Kind.LONG, Kind.LIST

MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")
ASSIGNORS = ("uniform", "range")
PROTOCOLS = ("classic", "consumer", "streams")

_CODECS_MAX = 4


class ClassicGroups(Section, title="Groups"):
    """Settings of all groups, and of groups with the classic protocol."""

    group_min_session_timeout_ms: int = prop(
        "group.min.session.timeout.ms",
        INT,
        6_000,
        None,
        "The shortest session timeout that a member of a classic group may request.",
    )
    group_max_session_timeout_ms: int = prop(
        "group.max.session.timeout.ms",
        INT,
        1_800_000,
        None,
        "The longest session timeout that a member of a classic group may request.",
    )
    group_initial_rebalance_delay_ms: int = prop(
        "group.initial.rebalance.delay.ms",
        INT,
        3_000,
        None,
        "How long an empty classic group waits for more members before its first rebalance. Members that start within "
        "this time join in one rebalance instead of several. Set it to 0 for tests and development.",
    )
    group_max_size: int = prop(
        "group.max.size",
        INT,
        INT32_MAX,
        at_least(1),
        "The maximum number of members of a classic group.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = prop(
        "group.coordinator.rebalance.protocols",
        LIST,
        PROTOCOLS,
        Validator(
            "a list of distinct values from classic, consumer and streams that includes classic",
            lambda value: distinct_of(*PROTOCOLS).check(value) and isinstance(value, tuple) and "classic" in value,
        ),
        "The enabled group protocols. Without `consumer`, members of consumer groups are refused. Streams groups are "
        "not supported yet, whatever is set here.",
    )
    group_coordinator_append_linger_ms: int = prop(
        "group.coordinator.append.linger.ms",
        INT,
        -1,
        at_least(-1),
        "How long a coordinator may delay writing a record to combine it with others. With -1 or 0 the records of one "
        "turn of the event loop are written together without delay.",
    )


class ConsumerGroups(Section, title="Consumer groups (KIP-848)"):
    """Settings of groups with the consumer protocol."""

    group_consumer_session_timeout_ms: int = prop(
        "group.consumer.session.timeout.ms",
        INT,
        45_000,
        at_least(1),
        "The time without a heartbeat after which a member of a consumer group is removed.",
    )
    group_consumer_min_session_timeout_ms: int = prop(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        at_least(1),
        "The shortest session timeout that can be set for a consumer group.",
    )
    group_consumer_max_session_timeout_ms: int = prop(
        "group.consumer.max.session.timeout.ms",
        INT,
        60_000,
        at_least(1),
        "The longest session timeout that can be set for a consumer group.",
    )
    group_consumer_heartbeat_interval_ms: int = prop(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5_000,
        at_least(1),
        "The heartbeat interval given to members of consumer groups. It bounds how quickly members learn of a new "
        "assignment.",
    )
    group_consumer_min_heartbeat_interval_ms: int = prop(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5_000,
        at_least(1),
        "The shortest heartbeat interval that can be set for a consumer group.",
    )
    group_consumer_max_heartbeat_interval_ms: int = prop(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        at_least(1),
        "The longest heartbeat interval that can be set for a consumer group.",
    )
    group_consumer_assignment_interval_ms: int = prop(
        "group.consumer.assignment.interval.ms",
        INT,
        1_000,
        at_least(0),
        "The minimum time between two assignments of a consumer group. Members that join within it cause one "
        "assignment instead of several (KIP-1263).",
        UpdateMode.CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = prop(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        at_least(0),
        "The shortest assignment interval that can be set for a consumer group.",
    )
    group_consumer_max_assignment_interval_ms: int = prop(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15_000,
        at_least(0),
        "The longest assignment interval that can be set for a consumer group.",
    )
    group_consumer_max_size: int = prop(
        "group.consumer.max.size",
        INT,
        INT32_MAX,
        at_least(1),
        "The maximum number of members of a consumer group.",
    )
    group_consumer_assignors: tuple[str, ...] = prop(
        "group.consumer.assignors",
        LIST,
        ASSIGNORS,
        Validator(
            "a list of at least one of uniform and range, without duplicates",
            lambda value: value != () and distinct_of(*ASSIGNORS).check(value),
        ),
        "The assignors that members of consumer groups may choose. The first is used if they choose none.",
    )
    group_consumer_migration_policy: str = prop(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        Validator(
            "one of " + ", ".join(MIGRATION_POLICIES),
            lambda value: isinstance(value, str) and value.lower() in MIGRATION_POLICIES,
        ),
        "Whether groups with live members may change from the classic protocol to the consumer protocol (`upgrade`), "
        "back (`downgrade`), in both directions or not at all.",
    )
    group_consumer_regex_refresh_interval_ms: int = prop(
        "group.consumer.regex.refresh.interval.ms",
        INT,
        600_000,
        at_least(10_000),
        "How often the regular expressions of subscriptions are matched against all topics again.",
        hidden=True,
    )


class Offsets(Section, title="Committed offsets"):
    """Limits on committed offsets, and how long they are kept."""

    penstock_group_state_bytes_max: int = prop(
        "penstock.group.state.bytes.max",
        LONG,
        1 << 30,
        between(1 << 20, 1 << 44),
        "The memory for all groups that a broker coordinates: members and committed offsets. Beyond it new groups "
        "(POLICY_VIOLATION), members (GROUP_MAX_SIZE_REACHED) and offsets (INVALID_COMMIT_OFFSET_SIZE) are refused; "
        "existing ones keep working.",
    )
    offset_metadata_max_bytes: int = prop(
        "offset.metadata.max.bytes",
        INT,
        4_096,
        None,
        "The maximum size of the metadata text that may be committed with an offset.",
        importance=HIGH,
    )
    offsets_retention_ms: int = prop(
        "offsets.retention.minutes",
        INT,
        10_080,
        at_least(1),
        "How long the offsets of a group are kept after its last member has left. For a consumer that assigns its own "
        "partitions, the time counts from its last commit.",
        importance=HIGH,
        scale=MINUTE_MS,
    )
    offsets_retention_check_interval_ms: int = prop(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        at_least(1),
        "How often expired offsets are removed.",
        importance=HIGH,
    )


class OffsetsTopic(Section, title="The topic of committed offsets"):
    """The topic `__consumer_offsets`, and how long coordinators wait for its replication."""

    offsets_commit_timeout_ms: int = prop(
        "offsets.commit.timeout.ms",
        INT,
        5_000,
        at_least(1),
        "How long a coordinator waits for its write to be replicated. After that the request fails with a retriable "
        "error.",
        importance=HIGH,
    )
    offsets_topic_num_partitions: int = prop(
        "offsets.topic.num.partitions",
        INT,
        50,
        at_least(1),
        "The number of partitions of `__consumer_offsets`, over which groups are distributed. It is used when the "
        "topic is created, with the first group, and should not be changed afterwards.",
        importance=HIGH,
    )
    offsets_topic_replication_factor: int = prop(
        "offsets.topic.replication.factor",
        SHORT,
        3,
        at_least(1),
        "The replication factor of `__consumer_offsets`. If fewer brokers are live when the topic is created, it gets "
        "one replica on each of them.",
        importance=HIGH,
    )
    offsets_topic_segment_bytes: int = prop(
        "offsets.topic.segment.bytes",
        INT,
        104_857_600,
        at_least(SEGMENT_BYTES_MIN),
        "The segment size of `__consumer_offsets`. Small segments are compacted sooner and make loading faster.",
        importance=HIGH,
    )
    offsets_topic_compression_codec: int = prop(
        "offsets.topic.compression.codec",
        INT,
        0,
        between(0, _CODECS_MAX),
        "The compression of `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        importance=HIGH,
    )
