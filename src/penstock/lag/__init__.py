"""Consumer lag: how far a group is behind, whether it catches up, and whether something is wrong with it. Pure.

Three figures are told for each partition that a group reads, and a verdict.

**Lag in records** is the end of the log (the high watermark) minus the committed offset. It is Kafka's own number; it
counts offsets, so what compaction or aborted transactions left out counts too.

**Lag in time** is the age of the oldest unread record: now minus the timestamp of the first record at or after the
committed offset, and zero when nothing is unread. It says how long the record that waits longest has been waiting,
which is what an agreement with users is about. It is measured against now and not against the newest record's
timestamp: the last record before a quiet night would otherwise be "0 s behind" until the morning. A timestamp is what
the producer or the broker wrote (`message.timestamp.type`); one in the future counts as no age, a missing one as not
known.

**Trend** is the slope of a straight line through the lags seen in the window, in records per second (`trend.py`):
growing, shrinking or steady. A jump, when offsets are reset, is no trend.

**Verdict** is LinkedIn Burrow's: no thresholds, but rules over a sliding window of the last commits (`verdicts.py`):

- OK      up to date, or was at some point in the window, or lag falls somewhere in it.
- WARN    the consumer moves, but its lag never fell: it is too slow.
- STALL   the consumer commits, and always the same offset, while records wait: it is stuck.
- STOP    the consumer has not committed for longer than the whole window spans, while records wait: it is gone.
- REWIND  the consumer went back to an older offset and has not come back to where it was. A deliberate reset, made
          while the group has no members, is none.

A group is as bad as its worst partition: OK, WARN, or ERR for any of the other three.

How it is used
--------------
`History` holds what was seen of one partition. It is filled with `Observation`s: from the records of
`__consumer_offsets` (`commits.py` reads those; they are what Burrow reads), or by asking for the committed offset again
and again (`Source.SAMPLES`: then the time of a commit is not known, and STOP and STALL can only be told apart by
whether the partition has an owner). `Position` is where the partition stands now. `assess_partition` and `assess_group`
make reports of them. Nothing here asks a clock: the time is an argument.
"""

from penstock.lag.commits import (
    Commit,
    MembersChange,
    Memberships,
    decode_commit,
    decode_members_change,
    partition_of_group,
)
from penstock.lag.history import DEFAULT_RULES, History, Observation, Rules, Source
from penstock.lag.report import GroupLag, PartitionLag, Position, assess_group, assess_partition
from penstock.lag.trend import Direction, Trend, trend_of
from penstock.lag.verdicts import GroupVerdict, Judgement, Verdict, judge

__all__ = [
    "DEFAULT_RULES",
    "Commit",
    "Direction",
    "GroupLag",
    "GroupVerdict",
    "History",
    "Judgement",
    "MembersChange",
    "Memberships",
    "Observation",
    "PartitionLag",
    "Position",
    "Rules",
    "Source",
    "Trend",
    "Verdict",
    "assess_group",
    "assess_partition",
    "decode_commit",
    "decode_members_change",
    "judge",
    "partition_of_group",
    "trend_of",
]
