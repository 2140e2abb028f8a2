"""Consumer groups: consumers that share the partitions of topics, and their committed offsets.

Theory of operation. A group lives in the partition of `__consumer_offsets` that its id hashes to, and the
`GroupShard` of that partition decides everything about it. There are two protocols. In the *classic* one members
join, a leader among them assigns, and everybody syncs; the coordinator never looks into what they tell each other. In
the *consumer* one (KIP-848) the coordinator assigns, and members reconcile step by step with every heartbeat. A group
of one kind can become one of the other while its members stay.

    shard            requests, loading, and operations on groups of all kinds (list, describe, delete)
    table            the groups, their offsets and the settings in force; shared by the modules below
    classic          the classic protocol: sync, heartbeat, leave; with
      classic_group    the state of a group, and queries on it
      classic_join     JoinGroup
      classic_rebalance the two phases, timers, sessions
    consumer         the consumer protocol (a package)
    offsets          the committed offsets, as the bytes of the log; with
      offset_requests  OffsetCommit, OffsetFetch, OffsetDelete
      transactional_commits  TxnOffsetCommit
      deletion         tombstones, written in portions
      expiry           removal of expired offsets (KIP-211)
    records          bytes ↔ offsets and classic groups
    config           the settings

Durable: offsets; the members and assignments of a stable classic group; that a group is empty, and since when. Not
durable: sessions, rebalances in progress, ids given to members that have not joined yet. After a crash a classic
group is in its last stable state, and its members start an interrupted rebalance again.
"""

from penstock.coordinators.groups.config import GroupConfig
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.shard import RequestInfo

__all__ = ["GroupConfig", "GroupShard", "RequestInfo"]
