"""Properties of replication: followers, brokers that come and go, partitions on their way to other brokers."""

from __future__ import annotations

from penstock.config.definitions import INT64_MAX, Importance, Kind, UpdateMode, at_least, one_of
from penstock.config.tables import Section, prop

HIGH = Importance.HIGH
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
BOOLEAN, STRING, INT, LONG = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"


class Replication(Section, title="Replication"):
    """How followers copy, and when brokers are taken for dead."""

    replica_lag_time_max_ms: int = prop(
        "replica.lag.time.max.ms", LONG, 30_000, at_least(1),
        "A follower that has not caught up for this long leaves the in-sync replicas.",
        importance=HIGH, cluster_only=True,
    )
    replica_fetch_min_bytes: int = prop(
        "replica.fetch.min.bytes", INT, 1, at_least(0),
        "Bytes a follower waits for before its fetch is answered.",
        importance=HIGH, cluster_only=True,
    )
    replica_fetch_max_bytes: int = prop(
        "replica.fetch.max.bytes", INT, 1_048_576, at_least(0),
        "Bytes a follower asks for per partition. A larger first batch is still sent whole.",
        cluster_only=True,
    )
    replica_fetch_response_max_bytes: int = prop(
        "replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0),
        "Bytes a follower asks for in one fetch.",
        cluster_only=True,
    )
    replica_fetch_wait_max_ms: int = prop(
        "replica.fetch.wait.max.ms", INT, 500, at_least(0),
        "The longest a follower's fetch waits for `replica.fetch.min.bytes`. Not above "
        "`replica.lag.time.max.ms`.",
        importance=HIGH, cluster_only=True,
    )
    replica_fetch_backoff_ms: int = prop(
        "replica.fetch.backoff.ms", INT, 1000, at_least(0),
        "How long a follower waits after a failed fetch.",
        cluster_only=True,
    )
    replica_socket_timeout_ms: int = prop(
        "replica.socket.timeout.ms", INT, 30_000, at_least(1),
        "How long a follower waits for an answer. Not below `replica.fetch.wait.max.ms`.",
        importance=HIGH, cluster_only=True,
    )
    replica_high_watermark_checkpoint_interval_ms: int = prop(
        "replica.high.watermark.checkpoint.interval.ms", LONG, 5000, at_least(1),
        "How often high watermarks are written down.",
        importance=HIGH, cluster_only=True,
    )
    broker_heartbeat_interval_ms: int = prop(
        "broker.heartbeat.interval.ms", INT, 2000, at_least(1),
        "How often a broker tells the controller that it is alive.",
        cluster_only=True,
    )
    broker_session_timeout_ms: int = prop(
        "broker.session.timeout.ms", INT, 9000, at_least(1),
        "A broker that the controller has not heard from for this long is taken out of service. One whose process is "
        "gone is taken out at once.",
        cluster_only=True,
    )
    initial_broker_registration_timeout_ms: int = prop(
        "initial.broker.registration.timeout.ms", INT, 60_000, at_least(0),
        "How long a starting broker tries to register before it gives up.",
        cluster_only=True,
    )
    auto_leader_rebalance_enable: bool = prop(
        "auto.leader.rebalance.enable", BOOLEAN, True, None,
        "Give leadership back to the preferred replicas from time to time.",
        importance=HIGH, cluster_only=True,
    )
    leader_imbalance_check_interval_seconds: int = prop(
        "leader.imbalance.check.interval.seconds", LONG, 300, at_least(1),
        "How often the balance of leaders is looked at.",
        importance=HIGH, cluster_only=True,
    )
    controlled_shutdown_enable: bool = prop(
        "controlled.shutdown.enable", BOOLEAN, True, None,
        "Hand leadership over before stopping.",
        cluster_only=True,
    )


class Moving(Section, title="Moving partitions, reading from followers"):
    """Partitions on their way to other brokers, and readers of followers."""

    leader_replication_throttled_rate: int = prop(
        "leader.replication.throttled.rate", LONG, INT64_MAX, at_least(0),
        "Bytes a second that this broker sends to followers of the replicas named by "
        "`leader.replication.throttled.replicas` of their topics. Followers in sync are never held up. Keep it above "
        "1 MB/s.",
        CLUSTER_WIDE, cluster_only=True,
    )
    follower_replication_throttled_rate: int = prop(
        "follower.replication.throttled.rate", LONG, INT64_MAX, at_least(0),
        "Bytes a second that this broker copies of the replicas named by `follower.replication.throttled.replicas` of "
        "their topics, as long as they are not in sync. Keep it above 1 MB/s.",
        CLUSTER_WIDE, cluster_only=True,
    )
    replication_quota_window_num: int = prop(
        "replication.quota.window.num", INT, 11, at_least(1),
        "Windows over which the rates of throttled replicas are taken.",
        cluster_only=True,
    )
    replication_quota_window_size_seconds: int = prop(
        "replication.quota.window.size.seconds", INT, 1, at_least(1),
        "The length of such a window.",
        cluster_only=True,
    )
    replica_selector_class: str | None = prop(
        "replica.selector.class", STRING, None, one_of(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
        "Where a consumer that names its rack (`client.rack`) is sent to read (KIP-392): with "
        f"`{RACK_AWARE_SELECTOR}` to a replica in that rack, if one has what it asks for; otherwise to the leader. "
        "Other classes cannot be loaded here.",
        cluster_only=True,
    )
