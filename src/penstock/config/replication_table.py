"""Broker properties of replication: followers, broker liveness, and partitions that move to other brokers."""

from __future__ import annotations

from penstock.config.definitions import INT64_MAX, Importance, Kind, UpdateMode, at_least, one_of
from penstock.config.tables import Section, prop

HIGH = Importance.HIGH
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
BOOLEAN, STRING, INT, LONG = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"


class Replication(Section, title="Replication"):
    """How followers copy, and when brokers are considered dead."""

    replica_lag_time_max_ms: int = prop(
        "replica.lag.time.max.ms",
        LONG,
        30_000,
        at_least(1),
        "The time after which a follower that has not caught up is removed from the in-sync replicas.",
        importance=HIGH,
        cluster_only=True,
    )
    replica_fetch_min_bytes: int = prop(
        "replica.fetch.min.bytes",
        INT,
        1,
        at_least(0),
        "The minimum number of bytes for which the leader delays the response to a follower's fetch.",
        importance=HIGH,
        cluster_only=True,
    )
    replica_fetch_max_bytes: int = prop(
        "replica.fetch.max.bytes",
        INT,
        1_048_576,
        at_least(0),
        "The maximum number of bytes per partition in a follower's fetch. A larger first batch is still sent "
        "completely.",
        cluster_only=True,
    )
    replica_fetch_response_max_bytes: int = prop(
        "replica.fetch.response.max.bytes",
        INT,
        10_485_760,
        at_least(0),
        "The maximum number of bytes in a follower's fetch.",
        cluster_only=True,
    )
    replica_fetch_wait_max_ms: int = prop(
        "replica.fetch.wait.max.ms",
        INT,
        500,
        at_least(0),
        "The maximum time that a follower's fetch waits for `replica.fetch.min.bytes`. It must not exceed "
        "`replica.lag.time.max.ms`.",
        importance=HIGH,
        cluster_only=True,
    )
    replica_fetch_backoff_ms: int = prop(
        "replica.fetch.backoff.ms",
        INT,
        1000,
        at_least(0),
        "How long a follower waits before it retries a failed fetch.",
        cluster_only=True,
    )
    replica_socket_timeout_ms: int = prop(
        "replica.socket.timeout.ms",
        INT,
        30_000,
        at_least(1),
        "How long a follower waits for a response. It must be at least `replica.fetch.wait.max.ms`.",
        importance=HIGH,
        cluster_only=True,
    )
    replica_high_watermark_checkpoint_interval_ms: int = prop(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        5000,
        at_least(1),
        "How often high watermarks are saved to disk.",
        importance=HIGH,
        cluster_only=True,
    )
    broker_heartbeat_interval_ms: int = prop(
        "broker.heartbeat.interval.ms",
        INT,
        2000,
        at_least(1),
        "How often a broker sends heartbeats to the controller.",
        cluster_only=True,
    )
    broker_session_timeout_ms: int = prop(
        "broker.session.timeout.ms",
        INT,
        9000,
        at_least(1),
        "The time without a heartbeat after which the controller fences a broker. A broker whose process has ended is "
        "fenced at once.",
        cluster_only=True,
    )
    initial_broker_registration_timeout_ms: int = prop(
        "initial.broker.registration.timeout.ms",
        INT,
        60_000,
        at_least(0),
        "How long a starting broker tries to register before it gives up.",
        cluster_only=True,
    )
    auto_leader_rebalance_enable: bool = prop(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        True,
        None,
        "Periodically return leadership to the preferred replicas.",
        importance=HIGH,
        cluster_only=True,
    )
    leader_imbalance_check_interval_seconds: int = prop(
        "leader.imbalance.check.interval.seconds",
        LONG,
        300,
        at_least(1),
        "How often the balance of leaders is checked.",
        importance=HIGH,
        cluster_only=True,
    )
    controlled_shutdown_enable: bool = prop(
        "controlled.shutdown.enable",
        BOOLEAN,
        True,
        None,
        "Transfer leadership to other brokers before stopping.",
        cluster_only=True,
    )


class Moving(Section, title="Moving partitions, reading from followers"):
    """Throttles for partitions that move to other brokers, and consumers that read from followers."""

    leader_replication_throttled_rate: int = prop(
        "leader.replication.throttled.rate",
        LONG,
        INT64_MAX,
        at_least(0),
        "The maximum rate, in bytes per second, at which this broker sends replicas listed in the topics' "
        "`leader.replication.throttled.replicas`. In-sync followers are never throttled. Keep it above 1 MB/s.",
        CLUSTER_WIDE,
        cluster_only=True,
    )
    follower_replication_throttled_rate: int = prop(
        "follower.replication.throttled.rate",
        LONG,
        INT64_MAX,
        at_least(0),
        "The maximum rate, in bytes per second, at which this broker copies replicas listed in the topics' "
        "`follower.replication.throttled.replicas` while they are not in sync. Keep it above 1 MB/s.",
        CLUSTER_WIDE,
        cluster_only=True,
    )
    replication_quota_window_num: int = prop(
        "replication.quota.window.num",
        INT,
        11,
        at_least(1),
        "The number of windows over which the rate of throttled replicas is measured.",
        cluster_only=True,
    )
    replication_quota_window_size_seconds: int = prop(
        "replication.quota.window.size.seconds",
        INT,
        1,
        at_least(1),
        "The length of one such window.",
        cluster_only=True,
    )
    replica_selector_class: str | None = prop(
        "replica.selector.class",
        STRING,
        None,
        one_of(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
        "The replica that a consumer with a rack (`client.rack`) reads from (KIP-392). With "
        f"`{RACK_AWARE_SELECTOR}` it is one in that rack, if it has the requested records; otherwise the leader. "
        "Other classes cannot be loaded here.",
        cluster_only=True,
    )
