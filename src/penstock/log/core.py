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
from penstock.runtime import Future, Runtime
from penstock.wire.errors import ErrorCode, KafkaError

INDEX_GAP_BYTES_MIN = 2 << 20
"""An index that ends further than this before the end of its segment is taken for cut off."""


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
        """Makes this log's recovery point and start offset durable: needed before one of them goes back."""
        self.on_durable: Callable[..., None] | None = None
        self.damage: tuple[str, ...] = ()
        """Damage found below the recovery point and left as it is."""
        self.scanned_bytes = 0
        """Bytes read to open the log."""
        self.cut_bytes = 0
        """Bytes cut off at the end because a batch was not whole."""
        self.cut_whole = False
        """Valid batches followed a broken one, so it may have been synced: bit rot, not a torn write."""
        self.cuts: tuple[Cut, ...] = ()
        """Copies of the bytes that were cut off."""
        self.version = 0
        """Grows with every truncation and removal of segments: positions found under an older version are void."""
        self.clean_end = 0
        """Compaction has seen all keys below, and continues here."""
        self.is_compacting = False
        self.is_rewritten = False
        """Compaction has replaced segments since the log was opened."""
        self.is_closed = False
        self.is_frozen = False
        """A truncation is under way: nothing may be appended or removed."""
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
        """What an unclean start need not check."""
        return self.durable_end if self._flusher is None else min(self.durable_end, self._flusher.proved_end)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def latest_epoch(self) -> int:
        return self.epoch

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not beyond `epoch`, and where it ended; (-1, -1) if that is not known."""
        found, end_offset = self.epochs.end_offset(epoch, self.end_offset)
        if 0 <= end_offset < self.start_offset:
            # It ended before what is left of the log: whoever is there can only go on at its start.
            return epoch, self.start_offset
        return found, end_offset

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; -1 if that is not known."""
        return self.epochs.epoch_of(offset)

    def assign_epoch(self, epoch: int) -> None:
        """A leader of `epoch` begins here, whatever it will write. Kafka does so when a replica becomes leader."""
        if epoch < self.epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"epoch {epoch} is older than {self.epoch}, which has written already"
            )
        if epoch != self.epoch:
            self.epochs.assign(epoch, self.end_offset)
            self.epoch = epoch

    @property
    def last_record_epoch(self) -> int:
        """Of the last record; -1 if there is none, or it is not known."""
        return self.epochs.epoch_of(self.end_offset - 1)

    def forget_empty_epochs(self) -> None:
        """Whoever follows forgets the epochs in which it led and wrote nothing: its leader's log has others there."""
        self.epochs.truncate_end(self.end_offset)
        self.epoch = self.epochs.latest_epoch

    @property
    def flusher(self) -> Flusher:
        if self._flusher is None:
            self._flusher = Flusher(self)
        return self._flusher

    def flush(self) -> Future[None]:
        """Resolved when everything that is in the log now is durable."""
        return self.flusher.flush()

    def fail(self, what: str, error: BaseException) -> NoReturn:
        """The disk failed. Nothing that was not acknowledged may be, so the process ends."""
        reason = f"{what} failed in {self.runtime.disk.root}/{self.directory}: {error}"
        self.runtime.fatal(reason, error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    async def load_index(self, segment: Segment) -> None:
        """Bring a segment's index into memory; rebuild it if what is on disk cannot be it."""
        try:
            await segment.index.load(segment.size_bytes, self.index_gap_bytes_max)
        except IndexDamaged:
            await rebuild_index(self.runtime, segment, self._config.index_interval_bytes)

    @property
    def index_gap_bytes_max(self) -> int:
        return max(INDEX_GAP_BYTES_MIN, 2 * self._config.max_message_bytes) + self._config.index_interval_bytes
