"""The shell of the metadata quorum: it writes, syncs, sends and applies what the pure cores decide.

A decision of the controller becomes one batch of the metadata log (`__cluster_metadata-0`), proposed to the Raft core.
What the core says is done in the order that `raft.Ready` prescribes. Once a batch is below the high watermark it is
replayed into the image, the change is published (to the partition manager and whoever else listens), and only then
is whoever asked for it answered. So an answer means: decided, durable, and in force on this node.

With one voter there is nobody to send to; everything else is as in a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.broker.layout import METADATA_DIRECTORY, QUORUM_STATE_PATH
from penstock.log import Log, LogConfig, LogDirectory
from penstock.metadata import Controller, Decision, MetadataDelta, MetadataImage, MetadataLoader, snapshot_values
from penstock.raft import (
    Event,
    HardState,
    LogBatch,
    LogView,
    Persisted,
    Propose,
    RaftConfig,
    RaftCore,
    Ready,
    ReplicaKey,
    SnapshotTaken,
    Tick,
    VoterSet,
    decode_batches,
    encode_batch,
    format_quorum_state,
    parse_quorum_state,
    parse_snapshot_name,
    read_snapshot,
    snapshot_batches,
    snapshot_name,
)
from penstock.runtime import Future, Runtime, Timer
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import encode_metadata_record

READ_BYTES = 1 << 20
SNAPSHOT_SLICE_MS = 5.0
METADATA_LOG = LogConfig(retention_ms=-1, max_message_bytes=1 << 30)

R = TypeVar("R")

Publisher = Callable[[MetadataDelta, MetadataImage], Awaitable[None]]


class MetadataQuorum:
    """This node's replica of the metadata log, and the image that follows from it."""

    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        key: ReplicaKey,
        config: RaftConfig,
        new_controller: Callable[[MetadataImage], Controller],
        *,
        snapshot_after_bytes: int,
    ) -> None:
        self._runtime = runtime
        self._events = events
        self._key = key
        self._config = config
        self._new_controller = new_controller
        self._snapshot_after_bytes = snapshot_after_bytes
        self._publishers: list[Publisher] = []
        self._loader = MetadataLoader()
        self._unapplied: deque[LogBatch] = deque()
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._syncing = False
        self._applying = False
        self._bytes_since_snapshot = 0
        self._timer: Timer | None = None
        self._led: Future[None] = runtime.future()
        self.controller: Controller | None = None
        """Set while this node leads the quorum."""

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    @property
    def leader_id(self) -> int:
        return self._core.leader_id

    @property
    def core(self) -> RaftCore:
        return self._core

    @property
    def log(self) -> Log:
        return self._log

    def add_publisher(self, publisher: Publisher) -> None:
        self._publishers.append(publisher)

    # ---- start

    async def open(self, directory: LogDirectory) -> None:
        """Read what the disk holds, take up a role, and return when this node leads with its image up to date."""
        disk = self._runtime.disk
        names = disk.list(METADATA_DIRECTORY)
        snapshot_id = max(found for name in names if (found := parse_snapshot_name(name)) is not None)
        snapshot = read_snapshot(disk.read_bytes(f"{METADATA_DIRECTORY}/{snapshot_name(snapshot_id)}"))
        self._loader.load_snapshot(snapshot_id, snapshot.values)
        self._log = await directory.open(METADATA_DIRECTORY, METADATA_LOG)
        if self._log.end_offset < snapshot_id.offset:
            # A crash came between the snapshot and what it replaced: the log goes on after the snapshot.
            await self._log.truncate_fully_and_start_at(snapshot_id.offset)
        # What we found may be in the page cache only, and the core counts it as synced from here on.
        await self._log.flush()
        batches = await self._read_log()
        view = LogView.recover(self._log.start_offset, batches, snapshot_id, snapshot.voter_set)
        self._unapplied.extend(batch for batch in batches if batch.end_offset > snapshot_id.offset)
        state = HardState()
        if disk.exists(QUORUM_STATE_PATH):
            state = parse_quorum_state(disk.read_bytes(QUORUM_STATE_PATH))
        self._core = RaftCore(self._key, state, view, self._runtime.rng, self._config)
        await self._do(self._core.start(self._runtime.now_ms()))
        await self._led

    async def _read_log(self) -> list[LogBatch]:
        log = self._log
        offset = log.start_offset
        batches: list[LogBatch] = []
        while offset < log.end_offset:
            found = await log.read(offset, READ_BYTES, log.end_offset)
            data = await found.file.pread(found.size, found.position)
            for batch in decode_batches(data):
                if batch.end_offset > offset:
                    batches.append(batch)
                    offset = batch.end_offset
        return batches

    # ---- decisions

    async def submit(self, decide: Callable[[Controller], Decision[R]]) -> R:
        """Let the controller decide, and return its reply once the decision is committed and in force here."""
        controller = self.controller
        if controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        decision = decide(controller)
        end = self._waiting[-1][0] if self._waiting else 0
        for records in decision.batches():
            values = tuple(encode_metadata_record(record) for record in records)
            ready = self._core.step(Propose(self._core.epoch, values), self._runtime.now_ms())
            assert ready.proposed is not None, "a controller exists only while its node leads"
            end = ready.proposed.end_offset
            self._append(ready)
        if end > self.image.offset + 1:
            # Without records of its own the reply may still rest on decisions that are not committed yet.
            committed: Future[None] = self._runtime.future()
            self._waiting.append((end, committed))
            await committed
        return decision.reply

    @property
    def next_offset(self) -> int:
        """Where the next decision's first record will stand."""
        return self._log.end_offset

    # ---- what the core asks for

    async def _step(self, event: Event) -> None:
        await self._do(self._core.step(event, self._runtime.now_ms()))

    async def _do(self, ready: Ready) -> None:
        """In the order that `raft.Ready` prescribes."""
        if ready.hard_state is not None:
            await self._runtime.disk.replace_bytes(QUORUM_STATE_PATH, format_quorum_state(ready.hard_state))
        assert not ready.messages, "there is nobody to send to: this node is the only voter"
        assert ready.truncate_to is None, "there is nobody to differ from"
        self._append(ready)
        if ready.leadership is not None:
            self._events.info("quorum", role=ready.leadership.role.value, epoch=ready.leadership.epoch)
        if ready.high_watermark is not None and not self._applying:
            await self._apply()

    def _append(self, ready: Ready) -> None:
        for batch in ready.append:
            data = encode_batch(batch, self._runtime.wall_ms())
            self._log.append_follower(memoryview(bytearray(data)))
            self._unapplied.append(batch)
            self._bytes_since_snapshot += len(data)
        self._schedule(ready.deadline_ms)
        if ready.append and not self._syncing:
            self._syncing = True
            self._runtime.spawn(self._sync(), "metadata sync")

    async def _sync(self) -> None:
        """Sync what was appended; what is appended meanwhile goes into the next round."""
        end = -1
        while end != self._log.end_offset:
            end = self._log.end_offset
            await self._log.flush()
            await self._step(Persisted(end))
        self._syncing = False

    def _schedule(self, deadline_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms != float("inf"):
            delay_ms = max(0.0, deadline_ms - self._runtime.now_ms())
            self._timer = self._runtime.call_later(delay_ms, self._tick)

    def _tick(self) -> None:
        self._runtime.spawn(self._step(Tick()), "raft timer")

    # ---- the state machine

    async def _apply(self) -> None:
        """Replay what is committed, publish the change, then answer those who waited for it."""
        self._applying = True
        while self._unapplied and self._unapplied[0].end_offset <= self._core.high_watermark:
            committed = []
            while self._unapplied and self._unapplied[0].end_offset <= self._core.high_watermark:
                committed.append(self._unapplied.popleft())
            step = self._loader.load(committed)
            for publisher in self._publishers:
                await publisher(step.delta, step.image)
            while self._waiting and self._waiting[0][0] <= step.image.offset + 1:
                self._waiting.popleft()[1].set_result(None)
        self._applying = False
        if self.controller is None and self._core.leading is not None and not self._unapplied:
            self.controller = self._new_controller(self.image)
            self._led.set_result(None)
        if self._bytes_since_snapshot > self._snapshot_after_bytes:
            self._bytes_since_snapshot = 0
            self._runtime.spawn(self.take_snapshot(), "metadata snapshot")

    async def take_snapshot(self) -> None:
        """Write the image as a snapshot, durably, and let the log start after it."""
        image, disk = self.image, self._runtime.disk
        voters: VoterSet = self._core.log.voter_set_at(image.snapshot_id.offset)
        data = bytearray()
        began_ms = self._runtime.now_ms()
        for batch in snapshot_batches(
            image.snapshot_id, voters, snapshot_values(image), timestamp_ms=self._runtime.wall_ms()
        ):
            data += batch
            if self._runtime.now_ms() - began_ms > SNAPSHOT_SLICE_MS:
                await self._runtime.sleep(0)
                began_ms = self._runtime.now_ms()
        await disk.replace_bytes(f"{METADATA_DIRECTORY}/{snapshot_name(image.snapshot_id)}", bytes(data))
        self._log.advance_start_offset(image.snapshot_id.offset)
        await self._log.retain(self._runtime.wall_ms(), image.snapshot_id.offset)
        await self._step(SnapshotTaken(image.snapshot_id, self._log.start_offset))
        for name in disk.list(METADATA_DIRECTORY):
            older = parse_snapshot_name(name)
            if older is not None and older < image.snapshot_id:
                disk.unlink(f"{METADATA_DIRECTORY}/{name}")
        self._events.info("metadata snapshot", offset=image.snapshot_id.offset, size_bytes=len(data))

    def close(self) -> None:
        """No more timers; the log is closed by its directory."""
        if self._timer is not None:
            self._timer.cancel()
