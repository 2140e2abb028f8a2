"""The properties of a broker that concern partitions on their way to other brokers, and readers of followers."""

from __future__ import annotations

from penstock.config.definitions import INT64_MAX, Definition, Kind, UpdateMode, Validator, Value, at_least, one_of

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"

EVERY_REPLICA = "*"


def _is_replica_list(value: Value) -> bool:
    if not isinstance(value, tuple):
        return False
    return value in ((), (EVERY_REPLICA,)) or all(_is_pair(item) for item in value)


def _is_pair(item: str) -> bool:
    partition, colon, broker = item.partition(":")
    return bool(colon) and all(part.isascii() and part.isdigit() for part in (partition, broker))


THROTTLED_REPLICAS = Validator(
    "the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    _is_replica_list,
)

MOVING = (
    Definition(
        "leader.replication.throttled.rate", Kind.LONG, INT64_MAX, at_least(0),
        "Bytes a second that this broker sends to followers of the replicas named by "
        "`leader.replication.throttled.replicas` of their topics. Followers in sync are never held up. Keep it above "
        "1 MB/s.",
        UpdateMode.CLUSTER_WIDE, cluster_only=True,
    ),
    Definition(
        "follower.replication.throttled.rate", Kind.LONG, INT64_MAX, at_least(0),
        "Bytes a second that this broker copies of the replicas named by `follower.replication.throttled.replicas` of "
        "their topics, as long as they are not in sync. Keep it above 1 MB/s.",
        UpdateMode.CLUSTER_WIDE, cluster_only=True,
    ),
    Definition(
        "replication.quota.window.num", Kind.INT, 11, at_least(1),
        "Windows over which the rates of throttled replicas are taken.",
        cluster_only=True,
    ),
    Definition(
        "replication.quota.window.size.seconds", Kind.INT, 1, at_least(1),
        "The length of such a window.",
        cluster_only=True,
    ),
    Definition(
        "replica.selector.class", Kind.STRING, None, one_of(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
        "Where a consumer that names its rack (`client.rack`) is sent to read (KIP-392): with "
        f"`{RACK_AWARE_SELECTOR}` to a replica in that rack, if one has what it asks for; otherwise to the leader. "
        "Other classes cannot be loaded here.",
        cluster_only=True,
    ),
)

THROTTLED_TOPICS = (
    Definition(
        "leader.replication.throttled.replicas", Kind.LIST, (), THROTTLED_REPLICAS,
        "Replicas that count against `leader.replication.throttled.rate` of the brokers that lead them: "
        "`partition:broker`, several separated by commas, or `*` for all.",
        UpdateMode.CLUSTER_WIDE,
    ),
    Definition(
        "follower.replication.throttled.replicas", Kind.LIST, (), THROTTLED_REPLICAS,
        "Replicas that count against `follower.replication.throttled.rate` of the brokers that hold them: "
        "`partition:broker`, several separated by commas, or `*` for all.",
        UpdateMode.CLUSTER_WIDE,
    ),
)
