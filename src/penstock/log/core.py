"""The state of a log, and what appending, reading and trimming have in common.

`Log` is put together from four classes over one set of attributes: `LogCore` here, `Appending`, `Reading` and
`Trimming` in the modules of these names. None of them is of use alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from struct import Struct
from typing import NoReturn

from penstock.log import names
from penstock.log.config import NEVER, LogConfig
from penstock.log.cutting import Cut
from penstock.log.epochs import EpochCache
from penstock.log.flush import Flusher
from penstock.log.index_entries import OFFSET_ENTRY_BYTES, TIME_ENTRY, TIME_ENTRY_BYTES, IndexDamaged
from penstock.log.indexes import IndexCache
from penstock.log.producers import ProducerState, SnapshotDamaged, decode_snapshot
from penstock.log.scan import rebuild_index
from penstock.log.segment import NO_TIMESTAMP, UNKNOWN, Segment
from penstock.runtime import File, Future, Runtime, Timer
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import HEADER_SIZE, read_header

STAMP = Struct(">qii")
"""Base offset, batch length, leader epoch: the first 16 bytes of a batch, all that a leader changes."""

NO_SNAPSHOT = -1
INDEX_GAP_BYTES_MIN = 2 << 20
"""An index that ends further than this before the end of its segment is taken for cut off."""


class LogCore:
    __slots__ = (
        "_after_max_ms",
        "_config",
        "_file",
        "_flush_bounded",
        "_flusher",
        "_index_entries_max",
        "_index_interval_bytes",
        "_is_frozen",
        "_is_plain",
        "_marks",
        "_message_bytes_max",
        "_names_in_doubt",
        "_plain_codec_max",
        "_producers",
        "_retaining",
        "_roll_after",
        "_segment_bytes",
        "_snapshot_offset",
        "_unlinks",
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
        "is_rewritten",
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
        producers: ProducerState | None,
        snapshot_offset: int,
        cache: IndexCache,
        checkpoint: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """For `penstock.log.opening`; use `Log.open`."""
        assert segments
        assert start_offset <= end_offset
        self.runtime = runtime
        self.directory = directory
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
        """What was found rotten below the recovery point, and left alone."""
        self.scanned_bytes = 0
        """What was read to open the log."""
        self.cut_bytes = 0
        """What was cut off because it was not whole."""
        self.cut_whole = False
        """Whether whole batches were behind the first that was not: then that one may have been synced, and rotten."""
        self.cuts: tuple[Cut, ...] = ()
        """What was set aside of that."""
        self.version = 0
        """Counts what invalidates positions: truncations, removed segments."""
        self.clean_end = 0
        """Compaction has seen all keys below, so it goes on here."""
        self.is_compacting = False
        self.is_rewritten = False
        """Compaction has replaced segments since the log was opened."""
        self.is_closed = False
        self._is_frozen = False
        self._retaining: Future[None] | None = None
        """Until the segments that retention or compaction has taken out are gone."""
        self._names_in_doubt = True
        """A process that was killed may have made files and not have come to sync their directory."""
        self._producers = producers
        """None: not read yet."""
        self._snapshot_offset = snapshot_offset
        """Of the newest snapshot on disk."""
        self._file: File | None = None
        """Of the active segment, once something is appended."""
        self._roll_after = NEVER
        self._marks: dict[int, tuple[Segment, int]] | None = None
        self._flusher: Flusher | None = None
        self._unlinks: dict[str, Timer] | None = None
        self._take_config(config)
        if self._flush_bounded and self.end_offset > self.durable_end:
            # It was written and acknowledged by a process that was killed before the sync.
            self.stable_end = self.durable_end
            self.flush()

    def __repr__(self) -> str:
        return f"<Log {self.directory} {self.start_offset}..{self.end_offset}>"

    # ---- what it knows of itself

    @property
    def name(self) -> str:
        return self.directory.rpartition("/")[2]

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._take_config(config)
        if self._file is not None:
            self._set_roll_time()
        if self._flush_bounded:
            self.flusher.appended()

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

    # ---- producers

    @property
    def producers(self) -> ProducerState:
        if self._producers is None:
            # Only in logs that idempotent producers wrote to, once after a clean start: one small file.
            try:
                self._producers = decode_snapshot(self.runtime.disk.read_bytes(self._snapshot_path()))
                self._producers.expire(self.runtime.wall_ms(), self._config.producer_id_expiration_ms)
            except (OSError, SnapshotDamaged) as error:
                self.damage += (f"{self._snapshot_path()}: {error}; the producers it listed are forgotten",)
                self._producers = ProducerState()
        return self._producers

    @property
    def is_cold(self) -> bool:
        """The first idempotent append will wait for a small read."""
        return self._producers is None

    def first_unstable_offset(self) -> int:
        """Where the first transaction begins that is not decided; the end of the log if there is none."""
        open_ones = (entry.transaction_first_offset for _, entry in self.producers.entries())
        return min((offset for offset in open_ones if offset >= 0), default=self.end_offset)

    def expire_producers(self, wall_ms: int) -> int:
        """Forget producers that have not written for `producer.id.expiration.ms`. Returns how many."""
        if self._producers is None:
            return 0
        return self._producers.expire(wall_ms, self._config.producer_id_expiration_ms)

    def write_snapshot(self) -> None:
        """Write the state of the producers at the end of the log, if it is not on disk already."""
        previous = self._snapshot_offset
        if previous == self.end_offset or self.end_offset == self.segments[0].base_offset:
            return
        disk = self.runtime.disk
        data = self.producers.encode()
        self._snapshot_offset = self.end_offset
        file = disk.open(self._snapshot_path(), create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        # Each segment keeps the snapshot at its base, as in Kafka; of the others only the newest is of use.
        if previous >= 0 and all(segment.base_offset != previous for segment in self.segments):
            disk.unlink(names.path_of(self.directory, previous, names.SNAPSHOT_SUFFIX))

    def _snapshot_path(self) -> str:
        return names.path_of(self.directory, self._snapshot_offset, names.SNAPSHOT_SUFFIX)

    # ---- indexes

    async def load_index(self, segment: Segment) -> None:
        """Bring a segment's index into memory; rebuild it if what is on disk cannot be it."""
        try:
            await segment.index.load(segment.size_bytes, self._index_gap_bytes_max())
        except IndexDamaged:
            await rebuild_index(self.runtime, segment, self._index_interval_bytes)

    def _index_gap_bytes_max(self) -> int:
        return max(INDEX_GAP_BYTES_MIN, 2 * self._config.max_message_bytes) + self._index_interval_bytes

    # ---- the active segment

    def roll(self) -> None:
        """Close the active segment and begin a new one, unless it is empty. The old one is synced in the background."""
        assert not self._is_frozen, f"{self.directory}: a roll while it is being truncated"
        closed = self.active
        if not closed.size_bytes:
            return
        try:
            closed.store_index()
            self.write_snapshot()
            closed.end_offset = self.end_offset
            self._begin_segment()
        except OSError as error:
            self.fail("rolling a segment", error)
        self.flusher.segment_closed(closed)

    def _begin_segment(self) -> None:
        active = Segment.create(self.runtime.disk, self.directory, self.end_offset, self.cache)
        active.create_file()
        self.flusher.names_changed()
        self.segments.append(active)
        self.active = active
        self._file = active.file
        self._roll_after = NEVER

    def _open_active(self) -> File:
        active = self.active
        try:
            if not active.has_file:
                self.runtime.disk.mkdir(self.directory)
                active.create_file()
                self.flusher.names_changed()
            if UNKNOWN in (active.max_timestamp, active.first_timestamp):
                self._read_active_timestamps()
        except OSError as error:
            self.fail("opening a segment", error)
        self._file = active.file
        self._set_roll_time()
        return self._file

    def _read_active_timestamps(self) -> None:
        """Only where no clean shutdown checkpoint told them: two small reads, once."""
        active = self.active
        active.first_timestamp = NO_TIMESTAMP
        if active.size_bytes:
            active.first_timestamp = read_header(active.file.read(HEADER_SIZE, 0)).max_timestamp
        if active.max_timestamp != UNKNOWN:
            return
        active.max_timestamp = NO_TIMESTAMP
        times = active.index_files()[1]
        entries = self.runtime.disk.size(times.path) // TIME_ENTRY_BYTES if self.runtime.disk.exists(times.path) else 0
        if entries:
            newest = times.read(TIME_ENTRY_BYTES, (entries - 1) * TIME_ENTRY_BYTES)
            active.max_timestamp, relative = TIME_ENTRY.unpack(newest)
            active.max_timestamp_offset = active.base_offset + relative
            active.index.last_timestamp = active.max_timestamp

    def _set_roll_time(self) -> None:
        """When the active segment is too old to take more: by the timestamps of its batches if they have any, as in
        Kafka, which makes a replay of old data roll as it did when it was new."""
        active = self.active
        if not active.size_bytes:
            self._roll_after = NEVER
            return
        config = self._config
        jitter_ms = 0
        if config.segment_jitter_ms:
            jitter_ms = self.runtime.rng.randrange(min(config.segment_jitter_ms, config.roll_ms) + 1)
        since = active.first_timestamp if active.first_timestamp >= 0 else self.runtime.wall_ms()
        self._roll_after = since + config.roll_ms - jitter_ms

    def _take_config(self, config: LogConfig) -> None:
        """What the hot path compares with, at hand."""
        self._config = config
        self._is_plain = (
            not config.log_append_time and config.timestamp_before_max_ms >= NEVER and not config.compacts
        )
        self.opens_batches = config.opens_batches
        # Compressed batches that must be opened take the long way.
        self._plain_codec_max = Codec.NONE if self.opens_batches else Codec.ZSTD
        self._message_bytes_max = min(config.max_message_bytes, config.segment_bytes)
        self._after_max_ms = config.timestamp_after_max_ms
        self._segment_bytes = config.segment_bytes
        self._index_interval_bytes = config.index_interval_bytes
        self._index_entries_max = config.segment_index_bytes // OFFSET_ENTRY_BYTES
        self._flush_bounded = config.flush_messages < NEVER or config.flush_ms < NEVER
