"""The broker properties of groups and their offsets, with Kafka's names, types, limits and defaults."""

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
    """All groups, and those of the classic protocol."""

    group_min_session_timeout_ms: int = prop(
        "group.min.session.timeout.ms", INT, 6_000, None,
        "The shortest session timeout that a member of a classic group may ask for.",
    )
    group_max_session_timeout_ms: int = prop(
        "group.max.session.timeout.ms", INT, 1_800_000, None,
        "The longest session timeout that a member of a classic group may ask for.",
    )
    group_initial_rebalance_delay_ms: int = prop(
        "group.initial.rebalance.delay.ms", INT, 3_000, None,
        "How long an empty classic group waits for more members before its first rebalance, so that members that are "
        "started together make one generation and not many. Set it to 0 for tests and development.",
    )
    group_max_size: int = prop(
        "group.max.size", INT, INT32_MAX, at_least(1),
        "How many members a classic group may have.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = prop(
        "group.coordinator.rebalance.protocols", LIST, PROTOCOLS,
        Validator(
            "a list of distinct values out of classic, consumer and streams, with classic among them",
            lambda value: distinct_of(*PROTOCOLS).check(value) and isinstance(value, tuple) and "classic" in value,
        ),
        "The protocols of groups that are served. Without `consumer` members of consumer groups are refused. Streams "
        "groups are not served yet, whatever is set here.",
    )
    group_coordinator_append_linger_ms: int = prop(
        "group.coordinator.append.linger.ms", INT, -1, at_least(-1),
        "How long what a coordinator has decided may wait for company before it is written. With -1 or 0 all that "
        "comes in one turn of the event loop is written together, and nothing waits.",
    )


class ConsumerGroups(Section, title="Consumer groups (KIP-848)"):
    """Groups of the consumer protocol."""

    group_consumer_session_timeout_ms: int = prop(
        "group.consumer.session.timeout.ms", INT, 45_000, at_least(1),
        "How long a member of a consumer group may be silent before it is removed.",
    )
    group_consumer_min_session_timeout_ms: int = prop(
        "group.consumer.min.session.timeout.ms", INT, 45_000, at_least(1),
        "The shortest session timeout that a consumer group may have.",
    )
    group_consumer_max_session_timeout_ms: int = prop(
        "group.consumer.max.session.timeout.ms", INT, 60_000, at_least(1),
        "The longest session timeout that a consumer group may have.",
    )
    group_consumer_heartbeat_interval_ms: int = prop(
        "group.consumer.heartbeat.interval.ms", INT, 5_000, at_least(1),
        "How often members of consumer groups are told to send heartbeats. It bounds how fast they learn of a new "
        "assignment.",
    )
    group_consumer_min_heartbeat_interval_ms: int = prop(
        "group.consumer.min.heartbeat.interval.ms", INT, 5_000, at_least(1),
        "The shortest heartbeat interval that a consumer group may have.",
    )
    group_consumer_max_heartbeat_interval_ms: int = prop(
        "group.consumer.max.heartbeat.interval.ms", INT, 15_000, at_least(1),
        "The longest heartbeat interval that a consumer group may have.",
    )
    group_consumer_assignment_interval_ms: int = prop(
        "group.consumer.assignment.interval.ms", INT, 1_000, at_least(0),
        "How much time passes at least between two assignments of a consumer group, so that members that come together "
        "cost one assignment and not many (KIP-1263).",
        UpdateMode.CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = prop(
        "group.consumer.min.assignment.interval.ms", INT, 0, at_least(0),
        "The shortest assignment interval that a consumer group may have.",
    )
    group_consumer_max_assignment_interval_ms: int = prop(
        "group.consumer.max.assignment.interval.ms", INT, 15_000, at_least(0),
        "The longest assignment interval that a consumer group may have.",
    )
    group_consumer_max_size: int = prop(
        "group.consumer.max.size", INT, INT32_MAX, at_least(1),
        "How many members a consumer group may have.",
    )
    group_consumer_assignors: tuple[str, ...] = prop(
        "group.consumer.assignors", LIST, ASSIGNORS,
        Validator(
            "a list of distinct values out of uniform and range, with at least one",
            lambda value: value != () and distinct_of(*ASSIGNORS).check(value),
        ),
        "The assignors that members of consumer groups may choose; the first one is taken where they choose none.",
    )
    group_consumer_migration_policy: str = prop(
        "group.consumer.migration.policy", STRING, "bidirectional",
        Validator(
            "one of " + ", ".join(MIGRATION_POLICIES),
            lambda value: isinstance(value, str) and value.lower() in MIGRATION_POLICIES,
        ),
        "Whether groups with live members may go over from the classic protocol to the consumer protocol (`upgrade`), "
        "back (`downgrade`), both ways or neither.",
    )
    group_consumer_regex_refresh_interval_ms: int = prop(
        "group.consumer.regex.refresh.interval.ms", INT, 600_000, at_least(10_000),
        "How often the regular expressions that members subscribe with are matched against all topics again.",
        hidden=True,
    )


class Offsets(Section, title="Committed offsets"):
    """What groups commit, and how long it is kept."""

    penstock_group_state_bytes_max: int = prop(
        "penstock.group.state.bytes.max", LONG, 1 << 30, between(1 << 20, 1 << 44),
        "What the groups that a broker coordinates may take in memory: members, and committed offsets. Beyond this "
        "there are no new groups (POLICY_VIOLATION), members (GROUP_MAX_SIZE_REACHED) or offsets "
        "(INVALID_COMMIT_OFFSET_SIZE); what is there goes on.",
    )
    offset_metadata_max_bytes: int = prop(
        "offset.metadata.max.bytes", INT, 4_096, None,
        "The longest text that may be committed with an offset.",
        importance=HIGH,
    )
    offsets_retention_ms: int = prop(
        "offsets.retention.minutes", INT, 10_080, at_least(1),
        "How long the offsets of a group are kept after its last member has left, or, of a consumer without a group, "
        "after its last commit.",
        importance=HIGH, scale=MINUTE_MS,
    )
    offsets_retention_check_interval_ms: int = prop(
        "offsets.retention.check.interval.ms", LONG, 600_000, at_least(1),
        "How often offsets are looked for that are kept no longer.",
        importance=HIGH,
    )


class OffsetsTopic(Section, title="The topic of committed offsets"):
    """`__consumer_offsets`, and how long coordinators wait for it."""

    offsets_commit_timeout_ms: int = prop(
        "offsets.commit.timeout.ms", INT, 5_000, at_least(1),
        "How long a request to a coordinator waits for what it wrote to be replicated before it is told to try again.",
        importance=HIGH,
    )
    offsets_topic_num_partitions: int = prop(
        "offsets.topic.num.partitions", INT, 50, at_least(1),
        "Partitions of `__consumer_offsets`, among which groups are spread. It counts when the topic is created, with "
        "the first group, and should not change afterwards.",
        importance=HIGH,
    )
    offsets_topic_replication_factor: int = prop(
        "offsets.topic.replication.factor", SHORT, 3, at_least(1),
        "Replicas of `__consumer_offsets`. Where fewer brokers are live when the topic is created, it gets as many as "
        "there are.",
        importance=HIGH,
    )
    offsets_topic_segment_bytes: int = prop(
        "offsets.topic.segment.bytes", INT, 104_857_600, at_least(SEGMENT_BYTES_MIN),
        "Segment size of `__consumer_offsets`: small enough for compaction to keep up and loading to be short.",
        importance=HIGH,
    )
    offsets_topic_compression_codec: int = prop(
        "offsets.topic.compression.codec", INT, 0, between(0, _CODECS_MAX),
        "How batches of `__consumer_offsets` are compressed: 0 not at all, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        importance=HIGH,
    )
