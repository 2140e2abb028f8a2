"""One partition's log: the records on disk, which is all that survives a broker restart.

Theory of operation
-------------------
A log is a sequence of *batches*, stored as the producers sent them, in *segments*: files named after their first
offset. The last segment is *active*; all others are closed and never change. Each segment has two sparse indexes
(`indexes`): one maps an offset to a file position, the other a time to an offset. The *epoch cache* (`epochs`) records
which leader epoch wrote which offsets. The *producer state* (`producers`) holds the last batches of every idempotent
producer and its open transaction (`transactions`). The *index of aborted transactions* (`aborted`) lists what readers
of committed records must skip. All are derived from the batches and truncated with them. File names and formats are
Kafka's.

`Log` combines the state of a log (`core`) with four parts that work on it: `writer`, `reader`, `trimmer` and
`snapshots`.

Appending (`appending`) checks a batch, stamps offset and epoch into the receive buffer, and makes one `pwrite`. Reading
(`reading`) turns an offset into a `Slice` of a file; the bytes are read when they are sent. Neither waits for a
device: if data is not in memory, the caller awaits the `async` variant of the method.

Offsets, in ascending order:

    durable_end <= stable_end <= end_offset

`end_offset` is the next offset to assign. Records below `durable_end` survive a power loss. Records below `stable_end`
may be acknowledged under the topic's `flush.*` settings (`flush`). The log does not know the high watermark: callers
pass it as `upto`. The last stable offset follows from it (`LogCore.last_stable_offset`).

After a crash: a killed process loses nothing that was written. A power loss keeps everything that was synced, and any
part of the rest. `recovery` checks the log from the *recovery point* on, keeps every batch up to the first incomplete
or corrupt one, and sets aside what it cuts off (`cutting`). Everything below the recovery point was synced and is
trusted. `trimming` describes which syncs keep that true when a log is truncated. A failed write or sync ends the
process.

Cost: an idle log takes about a kilobyte of memory and no file descriptor. Files are opened, indexes loaded and
snapshots read on demand, and dropped again (`indexes.IndexCache`). A clean start reads one file for all logs
(`checkpoints`).

Callers: the partition manager opens, checkpoints and closes the logs of a data directory through `LogDirectory`;
leaders call `writer.append_leader`, followers and the metadata log `writer.append_follower`, fetches `reader.try_read`
and `reader.read`; the command line reads files offline through `tools`.
"""

from penstock.log.appending import Appended
from penstock.log.checkpoints import CheckpointDamaged, LogState
from penstock.log.config import NEVER, LogConfig
from penstock.log.cutting import Cut
from penstock.log.directory import LogDirectory
from penstock.log.indexes import INDEX_CACHE_BYTES_MAX, IndexCache
from penstock.log.log import Log
from penstock.log.opening_many import Progress, open_many
from penstock.log.producers import UNCHECKED, Verification
from penstock.log.reading import Slice
from penstock.log.recovery import CorruptLog
from penstock.log.segment import DamagedSegment
from penstock.log.strays import FOR_EVER, Stray, StrayError, Strays, strays_in
from penstock.log.timestamps import TimeSearch, TimestampOffset
from penstock.log.transactions import AbortedTransaction
from penstock.log.validation import AppendOrigin, TooLargeForLoop

__all__ = [
    "FOR_EVER",
    "INDEX_CACHE_BYTES_MAX",
    "NEVER",
    "UNCHECKED",
    "AbortedTransaction",
    "AppendOrigin",
    "Appended",
    "CheckpointDamaged",
    "CorruptLog",
    "Cut",
    "DamagedSegment",
    "IndexCache",
    "Log",
    "LogConfig",
    "LogDirectory",
    "LogState",
    "Progress",
    "Slice",
    "Stray",
    "StrayError",
    "Strays",
    "TimeSearch",
    "TimestampOffset",
    "TooLargeForLoop",
    "Verification",
    "open_many",
    "strays_in",
]
