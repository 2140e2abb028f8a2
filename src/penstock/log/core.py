"""The state of one log: its segments, its offsets, its epochs, and how it is flushed.

`Log` (`penstock.log.log`) is this state and the parts that work on it: `Writer` (`appending`), `Reader` (`reading`),
`Trimmer` (`trimming`) and `ProducerSnapshots` (`snapshots`). Each part keeps to itself what only it needs, and is given
the other parts that it uses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

from penstock.log.config import LogConfig
from penstock.log.cutting import Cut
from penstock.log.epochs import EpochCache
from penstock.log.flush import Flusher
from penstock.log.index_entries import IndexDamaged
from penstock.log.indexes import IndexCache
from penstock.log.scan import rebuild_index
from penstock.log.segment import Segment
from penstock.log.transactions import Transactions
from penstock.runtime import Future, Runtime
from penstock.wire.errors import ErrorCode, KafkaError

INDEX_GAP_BYTES_MIN = 2 << 20
"""If an index ends further than this before the end of its segment, it is considered truncated."""


class LogCore:
    __slots__ = (
        "_config",
        "_flusher",
        "active",
        "cache",
        "checkpoint",
        "clean_end",
        "cut_bytes",
        "cut_whole",
        "cuts",
        "damage",
        "directory",
        "durable_end",
        "end_offset",
        "epoch",
        "epochs",
        "is_closed",
        "is_compacting",
        "is_frozen",
        "is_rewritten",
        "names_in_doubt",
        "on_durable",
        "opens_batches",
        "runtime",
        "scanned_bytes",
        "segments",
        "stable_end",
        "start_offset",
        "transactions",
        "version",
    )

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        config: LogConfig,
        *,
        segments: list[Segment],
        start_offset: int,
        end_offset: int,
        durable_end: int,
        epochs: EpochCache,
        cache: IndexCache,
        checkpoint: Callable[[], Awaitable[None]] | None,
    ) -> None:
        assert segments
        assert start_offset <= end_offset
        self.runtime = runtime
        self.directory = directory
        self._config = config
        self.opens_batches = config.opens_batches
        """Compressed batches are decompressed and checked before they are appended."""
        self.segments = segments
        self.active = segments[-1]
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.durable_end = min(durable_end, end_offset)
        self.stable_end = end_offset
        self.epochs = epochs
        self.epoch = epochs.latest_epoch
        self.cache = cache
        self.checkpoint = checkpoint
        """Makes this log's recovery point and start offset durable. Must be called before either is lowered."""
        self.on_durable: Callable[..., None] | None = None
        self.damage: tuple[str, ...] = ()
        """Descriptions of damage found below the recovery point; the bytes are left as they are."""
        self.scanned_bytes = 0
        """Bytes read to open the log."""
        self.cut_bytes = 0
        """Bytes cut off at the end because a batch was incomplete or corrupt."""
        self.cut_whole = False
        """Valid batches followed a corrupt one, so it may have been synced: bit rot, not a torn write."""
        self.cuts: tuple[Cut, ...] = ()
        """Copies of the bytes that were cut off."""
        self.transactions: Transactions | None = None
        """The transactions that readers of committed records may have to wait for; None if there were none."""
        self.version = 0
        """Incremented by every truncation and removal of segments; positions found under an older version are
        invalid."""
        self.clean_end = 0
        """Everything below was compacted; the next compaction starts here."""
        self.is_compacting = False
        self.is_rewritten = False
        """Compaction has replaced segments since the log was opened."""
        self.is_closed = False
        self.is_frozen = False
        """A truncation is running: nothing may be appended or removed."""
        self.names_in_doubt = True
        """The directory may not be synced: a killed process may have created files without syncing it."""
        self._flusher: Flusher | None = None

    def __repr__(self) -> str:
        return f"<Log {self.directory} {self.start_offset}..{self.end_offset}>"

    @property
    def name(self) -> str:
        return self.directory.rpartition("/")[2]

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def recovery_point(self) -> int:
        """The offset below which an unclean start trusts the log without checking it."""
        return self.durable_end if self._flusher is None else min(self.durable_end, self._flusher.proved_end)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def latest_epoch(self) -> int:
        return self.epoch

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is <= `epoch`, and its end offset; (-1, -1) if unknown."""
        found, end_offset = self.epochs.end_offset(epoch, self.end_offset)
        if 0 <= end_offset < self.start_offset:
            # The epoch ended before the first record that is left, so a follower in that epoch must continue at the
            # log's start.
            return epoch, self.start_offset
        return found, end_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end of what a reader of committed records may see."""
        transactions = self.transactions
        if transactions is None:
            return high_watermark
        return transactions.last_stable_offset(high_watermark, self.start_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; -1 if unknown."""
        return self.epochs.epoch_of(offset)

    def assign_epoch(self, epoch: int) -> None:
        """Record that leader epoch `epoch` begins at the end of the log, even if it never writes. Kafka does the same
        when a replica becomes leader."""
        if epoch < self.epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"epoch {epoch} is older than epoch {self.epoch}, which has begun"
            )
        if epoch != self.epoch:
            self.epochs.assign(epoch, self.end_offset)
            self.epoch = epoch

    @property
    def last_record_epoch(self) -> int:
        """The leader epoch of the last record; -1 if there is none or it is unknown."""
        return self.epochs.epoch_of(self.end_offset - 1)

    def forget_empty_epochs(self) -> None:
        """Remove epochs in which this replica led but wrote nothing. A new follower must: the leader's log has other
        epochs at those offsets."""
        self.epochs.truncate_end(self.end_offset)
        self.epoch = self.epochs.latest_epoch

    @property
    def flusher(self) -> Flusher:
        if self._flusher is None:
            self._flusher = Flusher(self)
        return self._flusher

    def flush(self) -> Future[None]:
        """The future resolves when everything now in the log is durable."""
        return self.flusher.flush()

    def fail(self, what: str, error: BaseException) -> NoReturn:
        """End the process after a disk failure, so that nothing is acknowledged that may not be on disk."""
        reason = f"{what} failed in {self.runtime.disk.root}/{self.directory}: {error}"
        self.runtime.fatal(reason, error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    async def load_index(self, segment: Segment) -> None:
        """Load a segment's index into memory; rebuild it if the files are damaged."""
        try:
            await segment.index.load(segment.size_bytes, self.index_gap_bytes_max)
        except IndexDamaged:
            await rebuild_index(self.runtime, segment, self._config.index_interval_bytes)

    @property
    def index_gap_bytes_max(self) -> int:
        return max(INDEX_GAP_BYTES_MIN, 2 * self._config.max_message_bytes) + self._config.index_interval_bytes
