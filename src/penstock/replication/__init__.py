"""Leader and follower state of a partition: in-sync replicas, the high watermark, and what to fetch.

Pure: offsets, replica ids, epochs and times in; the high watermark, ISR proposals and log operations out. No log, no
network, no clock.

Theory of operation. A partition has a leader and followers. Followers pull. The offset that a follower requests is the
end of its stable log (the durable end if `flush.*` requires syncs, else the log end), so a fetch is also an
acknowledgement. The in-sync replicas (ISR) are those that keep up, as recorded by the controller.

The high watermark is the smallest stable end in the *maximal ISR*: the recorded ISR together with a proposed one that
is not yet answered. The controller may already have recorded the proposal, and then any of its members may become
leader. Counting them all ensures that the next leader has every record below the high watermark. A proposal that only
removes members does not let the high watermark pass them until the controller has agreed. Below `min.insync.replicas`
the high watermark stands still (KIP-966), so a record acknowledged with acks=all survives the loss of all but one of
that many replicas. It never moves back while a leader leads.

A follower's fetch includes the epoch of its last record (KIP-320). If that epoch ended earlier in the leader's log, or
is not in it, the logs diverge, and the leader says where. The follower truncates its log there, perhaps in several
steps (KIP-101, KIP-279), and fetches again. Only a fetch that passed this comparison counts as an acknowledgement:
until then its offset tells the length of the follower's log, not that it is a prefix of the leader's.

`Leader` is given every event and keeps no timers: `tick` is called periodically with the time. `Follower` decides what
to fetch and what a response means for the log; the shell carries that out. `ReplicationQuota` decides whether copying
may continue when the operator has limited its rate.
"""

from penstock.replication.divergence import diverges_at
from penstock.replication.follower import (
    Append,
    Fetched,
    Follower,
    Ignore,
    Later,
    LogEnds,
    Outcome,
    Position,
    StartAt,
    Truncate,
)
from penstock.replication.leader import FollowerProgress, IsrProposal, Leader
from penstock.replication.quota import ReplicationQuota

__all__ = [
    "Append",
    "Fetched",
    "Follower",
    "FollowerProgress",
    "Ignore",
    "IsrProposal",
    "Later",
    "Leader",
    "LogEnds",
    "Outcome",
    "Position",
    "ReplicationQuota",
    "StartAt",
    "Truncate",
    "diverges_at",
]
