"""Consumer lag: how far a group is behind, whether it catches up, and whether something is wrong with it. Pure.

It reports three figures and a verdict for each partition that a group reads.

**Lag in records** is the end of the log (the high watermark) minus the committed offset. It is Kafka's own number. It
counts offsets, so records removed by compaction or aborted transactions count too.

**Lag in time** is the age of the oldest unread record: now minus the timestamp of the first record at or after the
committed offset, and zero when nothing is unread. It is the waiting time of the record that has waited longest, which
is what a service agreement is about. It is measured against now, not against the newest record's timestamp: otherwise
the last record before a quiet night would be "0 s behind" until the morning. Timestamps are those of the producer or
the broker (`message.timestamp.type`); one in the future counts as age zero, a missing one as unknown.

**Trend** is the slope of a straight line through the lags in the window, in records per second (`trend.py`): growing,
shrinking or steady. A jump caused by a reset of offsets is not a trend.

**Verdict** follows LinkedIn's Burrow: no thresholds, but rules over a window of the last commits (`verdicts.py`):

- OK      up to date now or at some point in the window, or lag falls somewhere in it.
- WARN    the consumer moves, but its lag never fell: it is too slow.
- STALL   the consumer keeps committing the same offset while records wait: it is stuck.
- STOP    the consumer has not committed for longer than the window spans, while records wait: it is gone.
- REWIND  the consumer went back to an older offset and has not caught up with where it was. A deliberate reset, made
          while the group has no members, does not count.

A group's verdict is that of its worst partition: OK, WARN, or ERR for any of the other three.

How it is used
--------------
`History` holds the observations of one partition. It is filled with `Observation`s: from the records of
`__consumer_offsets` (decoded by `commits.py`; Burrow reads those too), or by polling the committed offset
(`Source.SAMPLES`: then the time of a commit is unknown, and STOP and STALL can only be told apart by whether the
partition has an owner). `Position` is the current state of the partition. `assess_partition` and `assess_group` turn
them into reports. Nothing here reads a clock: the time is an argument.
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
