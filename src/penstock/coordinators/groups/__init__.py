"""Groups: consumers that share the partitions of topics, and the offsets they have come to.

Theory of operation. A group lives in the partition of `__consumer_offsets` that its id hashes to, and the
`GroupShard` of that partition decides everything about it. There are two protocols. In the *classic* one members
join, a leader among them assigns, and everybody syncs; the coordinator never looks into what they tell each other. In
the *consumer* one (KIP-848) the coordinator assigns, and members reconcile step by step with every heartbeat. A group
of one kind can become one of the other while its members stay.

    shard            requests, loading, what concerns groups of all kinds (list, describe, delete)
    table            the groups, their offsets and the settings in force: what all that follows share
    classic          the classic protocol: sync, heartbeat, leave; with
      classic_group    the state of a group, and the questions about it
      classic_join     JoinGroup
      classic_rebalance the two phases, timers, sessions
    consumer         the consumer protocol (a package)
    offsets          what was committed, as the bytes of the log; with
      offset_requests  OffsetCommit, OffsetFetch, OffsetDelete
      deletion         tombstones in portions
      expiry           what nobody needs any more (KIP-211)
    records          bytes ↔ offsets and classic groups
    config           what can be set

What is durable: offsets; the members and assignments of a stable classic group; that a group is empty, and since
when. What is not: sessions, rebalances under way, ids handed out to members that have not joined yet. After a crash a
classic group is as stable as it last was, and a rebalance that was under way is started anew by its members.
"""

from penstock.coordinators.groups.config import GroupConfig
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.shard import RequestInfo

__all__ = ["GroupConfig", "GroupShard", "RequestInfo"]
