"""Leader and follower state of a partition: which replicas are in sync, up to where readers may read, what to fetch.

Pure: offsets, replica ids, epochs and times in; the high watermark, proposals and what to do with the log out. No log,
no network, no clock.

Theory of operation. A partition has a leader and followers. Followers pull; the offset a follower asks for is the
end of what it holds stably (its durable end where `flush.*` asks for sync, its log's end otherwise), so a fetch is
also an acknowledgement. The in-sync replicas (ISR) are those that keep up, as the controller recorded them.

The high watermark is the smallest stable end in the *maximal ISR*: the recorded ISR together with one that was
proposed and not yet answered. The controller may already have recorded the proposal, and then any member of it may
become leader; counting them all means that no record below the high watermark can be missing on the next leader.
A proposal that only removes members never lets the high watermark pass them before the controller has agreed.
Below `min.insync.replicas` the high watermark stands still (KIP-966), so what acks=all was promised survives the
loss of all but one of that many replicas. It never moves back while a leader leads.

A follower's fetch names the epoch of the last record it holds (KIP-320). Where the leader's log had that epoch end
earlier, or never had it, the two histories part, and the leader says where; the follower cuts its log there, perhaps in
several steps (KIP-101, KIP-279), and asks again. Only a fetch that passed this comparison counts as an acknowledgement:
until then its offset says how long the follower's log is, not that it is a prefix of the leader's.

`Leader` is told of every event and keeps no timers: `tick` is called now and then with the time. `Follower` says what
to ask for and what an answer means for the log; carrying that out is for the shell. `ReplicationQuota` says whether
copying may go on, where the operator has limited its rate.
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
