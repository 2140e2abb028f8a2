"""One partition's log: the only thing that outlives a broker.

Theory of operation
-------------------
A log is a sequence of *batches*, kept as the producers sent them, in *segments*: files named after their first offset.
The last segment is *active*, all others are closed and never change. A sparse index per segment leads from an offset
to a position (`indexes`), another from a time to an offset. The *epoch cache* (`epochs`) knows which leader wrote what;
the *producer state* (`producers`) knows the last batches of every idempotent producer. Both are derived from the
batches, and cut with them. File names and formats are Kafka's.

`Log` is the state of a log (`core`) and four parts that work on it: `writer`, `reader`, `trimmer` and `snapshots`.

Appending (`appending`) checks a batch, stamps offset and epoch into it where it lies, and makes one `pwrite`. Reading
(`reading`) turns an offset into a `Slice` of a file; the bytes are read when they are sent. Neither waits for a
device: what is not in memory is read by the `async` twin of a method.

Offsets, in their order:

    durable_end <= stable_end <= end_offset

`end_offset` is the next one to be given; `durable_end` is what survives a power loss; `stable_end` is what may be
acknowledged under the topic's `flush.*` settings (`flush`). The high watermark is not the log's business: callers pass
it as `upto`.

What a crash leaves. Killed: everything written. Power lost: what was synced, and anything of the rest. `recovery` keeps
every batch that is whole, up to the first that is not, from the *recovery point* on, and sets aside what it cuts off
(`cutting`); below it everything was synced and is believed. `trimming` tells which syncs keep that true when a log is
cut. A failed write or sync ends the process.

Cost. An idle log is about a kilobyte and no file descriptor: files are opened, indexes loaded and snapshots read when
they are needed, and dropped again (`indexes.IndexCache`). A clean start reads one file for all logs (`checkpoints`).

Who calls it: the partition manager opens, checkpoints and closes the logs of a data directory through `LogDirectory`;
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
from penstock.log.reading import Slice
from penstock.log.recovery import CorruptLog
from penstock.log.segment import DamagedSegment
from penstock.log.strays import FOR_EVER, Stray, StrayError, Strays, strays_in
from penstock.log.timestamps import TimeSearch, TimestampOffset
from penstock.log.validation import AppendOrigin, TooLargeForLoop

__all__ = [
    "FOR_EVER",
    "INDEX_CACHE_BYTES_MAX",
    "NEVER",
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
    "open_many",
    "strays_in",
]
