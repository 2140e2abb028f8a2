"""Leader state of a partition: which replicas are in sync, and up to where readers may read.

Pure: offsets, replica ids and times in; the high watermark and proposals out. No log, no network, no clock.

Theory of operation. A partition has a leader and followers. Followers pull; the offset a follower asks for is the
end of what it holds stably (its durable end where `flush.*` asks for sync, its log's end otherwise), so a fetch is
also an acknowledgement. The in-sync replicas (ISR) are those that keep up, as the controller recorded them.

The high watermark is the smallest stable end in the *maximal ISR*: the recorded ISR together with one that was
proposed and not yet answered. The controller may already have recorded the proposal, and then any member of it may
become leader; counting them all means that no record below the high watermark can be missing on the next leader.
A proposal that only removes members never lets the high watermark pass them before the controller has agreed.
Below `min.insync.replicas` the high watermark stands still (KIP-966), so what acks=all was promised survives the
loss of all but one of that many replicas. It never moves back while a leader leads.

`Leader` is told of every event and keeps no timers: `tick` is called now and then with the time.
"""

from penstock.replication.leader import IsrProposal, Leader

__all__ = ["IsrProposal", "Leader"]
