"""The shell of the metadata quorum: it writes, syncs, sends and applies what the pure cores decide.

A decision of the controller becomes one batch of the metadata log (`__cluster_metadata-0`), proposed to the Raft core.
What the core says is done in the order that `raft.Ready` prescribes. Once a batch is below the high watermark it is
replayed into the image, the change is published (to the partition manager and whoever else listens), and only then
is whoever asked for it answered. So an answer means: decided, durable, and in force on this node.

One event at a time. A step that changes what must be durable before anything else happens (epoch and vote, a cut of
the log, an installed snapshot) takes time; what arrives meanwhile waits (`_inbox`, `_idle`). All other steps, which is
nearly all there are, are carried out at once.

With one voter there is nobody to send to; everything else is as in a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.broker import quorum_wire as translate
from penstock.broker.layout import METADATA_DIRECTORY, QUORUM_STATE_PATH
from penstock.broker.peers import Address, ControllerLocation, Peers, PeerUnavailable
from penstock.broker.synced_end import SyncedEnd
from penstock.log import CorruptLog, Log, LogConfig, LogDirectory
from penstock.metadata import (
    Controller,
    Decision,
    MetadataDelta,
    MetadataError,
    MetadataImage,
    MetadataLoader,
    Step,
    difference,
    snapshot_values,
)
from penstock.raft import (
    ANY_BOOTSTRAP_SERVER,
    BOOTSTRAP_SNAPSHOT,
    NO_NODE,
    Event,
    HardState,
    LeaderGone,
    LogBatch,
    LogView,
    OffsetAndEpoch,
    Persisted,
    Propose,
    RaftConfig,
    RaftCore,
    Ready,
    ReplicaKey,
    RequestFailed,
    Resign,
    Role,
    Snapshot,
    SnapshotError,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotTaken,
    Tick,
    VoterChangeResult,
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
from penstock.raft import messages as m
from penstock.runtime import Future, Runtime, Timer
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.messages.metadata_records import AbortTransactionRecord, encode_metadata_record
from penstock.wire.records import check_batch

READ_BYTES = 1 << 20
SNAPSHOT_SLICE_MS = 5.0
METADATA_LOG = LogConfig(retention_ms=-1, max_message_bytes=1 << 30)
FETCH_CHANNEL = "metadata"
"""Fetches are parked: they have a connection of their own, so that votes do not wait behind them."""
QUORUM_CHANNEL = "quorum"
RESIGN_MS = 500
RESIGN_POLL_MS = 5
"""How long a node that stops waits until the others know that it leads no longer."""
ENDPOINTS_MAX = 1_000
"""Of nodes that are not voters, or listen elsewhere now: the oldest news is forgotten first."""
ANSWERS_MAX = 10_000
"""Requests of other nodes that are under way at once, parked fetches among them."""
LOG_FILE_SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")

_RESPONSES = (
    m.VoteResponse,
    m.BeginQuorumEpochResponse,
    m.EndQuorumEpochResponse,
    m.FetchResponse,
    m.FetchSnapshotResponse,
)

R = TypeVar("R")

Publisher = Callable[[MetadataDelta, MetadataImage], Awaitable[None]]


def _check_follows(before: LogBatch, batch: LogBatch) -> None:
    """A batch's checksum covers neither its offset nor its epoch. But this log has no gaps, and epochs begin with their
    leader's own record: a bit that flipped in either shows."""
    begins = any(isinstance(record, m.LeaderChange) for record in batch.control)
    if batch.base_offset != before.end_offset:
        raise CorruptLog(f"a batch at {batch.base_offset} follows one that ends at {before.end_offset}")
    if batch.epoch < before.epoch or (batch.epoch > before.epoch and not begins):
        raise CorruptLog(f"the batch at {batch.base_offset} is of epoch {batch.epoch}, after epoch {before.epoch}")


class WrongRole(Exception):
    """The data directory does not fit the node's roles; the message says what to do."""


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
        cluster_id: str,
        peers: Peers,
        servers: tuple[Address, ...] = (),
        own_endpoint: tuple[str, str, int] | None = None,
        may_vote: bool = True,
    ) -> None:
        """`servers`: where to ask for the quorum while its voters are not known. `own_endpoint`: name, host, port."""
        self._runtime = runtime
        self._events = events
        self._key = key
        self._config = config
        self._new_controller = new_controller
        self._snapshot_after_bytes = snapshot_after_bytes
        self._cluster_id = cluster_id
        self._peers = peers
        self._servers = servers
        self._own_endpoint = own_endpoint
        self._may_vote = may_vote
        self._learned: dict[int, Address] = {}
        self._publishers: list[Publisher] = []
        self._loader = MetadataLoader()
        self._synced_end = SyncedEnd(runtime)
        self._unapplied: deque[LogBatch] = deque()
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._inbox: deque[Event] = deque()
        self._busy = False
        self._idle: deque[Future[None]] = deque()
        self._answers: dict[int, Future[m.Response]] = {}
        self._changes: dict[int, Future[VoterChangeResult]] = {}
        self._numbers = 0
        self._download = bytearray()
        self._syncing = False
        self._applying = False
        self._closed = False
        self._bytes_since_snapshot = 0
        self._timer: Timer | None = None
        self._target: int | None = None
        self._current: Future[None] = runtime.future()
        self._image_watchers: list[tuple[Callable[[MetadataImage], bool], Future[bool]]] = []
        self._controller_epoch = -1
        self._aborted_epoch = -1
        self._seen_leader = (NO_NODE, -1)
        self._features_logged = False
        self._resigning = 0
        self.controller: Controller | None = None
        """Set while this node is the active controller: it leads, and its image holds all that was decided before."""
        self.on_leader: list[Callable[[], None]] = []
        """Called when another node, or none, leads; and when this node becomes the active controller, or ceases to."""

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

    @property
    def key(self) -> ReplicaKey:
        return self._key

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def is_alone(self) -> bool:
        """Whether this node is all the quorum there is."""
        return self._core.voter_set.keys == (self._key,)

    def add_publisher(self, publisher: Publisher) -> None:
        self._publishers.append(publisher)

    # ---- start

    async def open(self, directory: LogDirectory) -> None:
        """Read what the disk holds and take up a role. `caught_up` tells when the image may be relied on."""
        disk = self._runtime.disk
        state = HardState()
        if disk.exists(QUORUM_STATE_PATH):
            state = parse_quorum_state(disk.read_bytes(QUORUM_STATE_PATH))
        try:
            snapshot_id = max(self._snapshots())
            snapshot = read_snapshot(disk.read_bytes(f"{METADATA_DIRECTORY}/{snapshot_name(snapshot_id)}"))
            self._loader.load_snapshot(snapshot_id, snapshot.values)
            batches = await self._open_log(directory, snapshot_id)
        except (CorruptLog, WireError, SnapshotError) as error:
            if not self._servers:
                raise
            # Others hold what this node lost. Until it has all of that again it must not help to elect anyone.
            self._events.error("metadata log damaged", what=str(error), then="it is fetched again from the leader")
            state = HardState(state.epoch, state.leader_id, state.voted, suspect=True)
            await disk.replace_bytes(QUORUM_STATE_PATH, format_quorum_state(state))
            await self._discard_log(directory)
            if isinstance(error, SnapshotError):
                snapshot_id, snapshot = await self._discard_snapshots()
                self._loader.load_snapshot(snapshot_id, snapshot.values)
            batches = await self._open_log(directory, snapshot_id)
        end, once = max(self._log.end_offset, snapshot_id.offset), self._synced_end.read()
        if once > end and not state.suspect:
            self._events.error(
                "metadata log damaged",
                what=f"it ends at {end}, and was synced up to {once}",
                then="what is missing is fetched again from the leader",
            )
            # Without others there is nobody who could have it.
            state = HardState(state.epoch, state.leader_id, state.voted, suspect=bool(self._servers))
            await disk.replace_bytes(QUORUM_STATE_PATH, format_quorum_state(state))
        await self._synced_end.lower(end)
        view = LogView.recover(self._log.start_offset, batches, snapshot_id, snapshot.voter_set)
        if self._key in view.voter_set and not self._may_vote:
            raise WrongRole(
                "this node is a voter of the metadata quorum, which needs the controller role: add controller to "
                "process.roles, or let another node remove it from the voters first (RemoveRaftVoter)"
            )
        self._unapplied.extend(batch for batch in batches if batch.end_offset > snapshot_id.offset)
        self._core = RaftCore(self._key, state, view, self._runtime.rng, self._config)
        self._take(self._core.start(self._runtime.now_ms()))

    async def caught_up(self) -> None:
        """Until the image holds everything that was committed when the leader was first heard of."""
        await self._current

    async def _open_log(self, directory: LogDirectory, snapshot_id: OffsetAndEpoch) -> list[LogBatch]:
        self._log = await directory.open(METADATA_DIRECTORY, METADATA_LOG)
        if self._log.damage and self._servers:
            raise CorruptLog("; ".join(self._log.damage))
        if self._log.cut_whole and self._servers:
            # A torn write has nothing whole behind it, but for another write that was not synced either. The first
            # batches may name this node as the only voter: it must not go on from there as if that were all.
            raise CorruptLog(f"whole batches follow one that is damaged, behind offset {self._log.end_offset}")
        if self._log.end_offset < snapshot_id.offset:
            # A crash came between the snapshot and what it replaced: the log goes on after the snapshot.
            await self._log.truncate_fully_and_start_at(snapshot_id.offset)
        # What we found may be in the page cache only, and the core counts it as synced from here on.
        await self._log.flush()
        return await self._read_log()

    def _snapshots(self) -> list[OffsetAndEpoch]:
        names = self._runtime.disk.list(METADATA_DIRECTORY)
        return [found for name in names if (found := parse_snapshot_name(name)) is not None]

    async def _discard_snapshots(self) -> tuple[OffsetAndEpoch, Snapshot]:
        """Begin with nothing, as a node does that has just joined."""
        disk = self._runtime.disk
        wall_ms = self._runtime.wall_ms()
        data = b"".join(snapshot_batches(BOOTSTRAP_SNAPSHOT, VoterSet(), [], timestamp_ms=wall_ms))
        await disk.replace_bytes(f"{METADATA_DIRECTORY}/{snapshot_name(BOOTSTRAP_SNAPSHOT)}", data)
        for snapshot_id in self._snapshots():
            if snapshot_id != BOOTSTRAP_SNAPSHOT:
                disk.unlink(f"{METADATA_DIRECTORY}/{snapshot_name(snapshot_id)}")
        await disk.sync_dir(METADATA_DIRECTORY)
        return BOOTSTRAP_SNAPSHOT, read_snapshot(data)

    async def _discard_log(self, directory: LogDirectory) -> None:
        """Remove the log, but neither snapshots nor what this node voted for."""
        disk = self._runtime.disk
        log = directory.logs.pop(METADATA_DIRECTORY, None)
        if log is not None:
            await log.close(clean=False)
        for name in disk.list(METADATA_DIRECTORY):
            if name.endswith(LOG_FILE_SUFFIXES) or name.startswith("leader-epoch-checkpoint"):
                disk.unlink(f"{METADATA_DIRECTORY}/{name}")
        await disk.sync_dir(METADATA_DIRECTORY)
        directory.forget_checkpoints(METADATA_DIRECTORY)

    async def _read_log(self) -> list[LogBatch]:
        log = self._log
        offset = log.start_offset
        batches: list[LogBatch] = []
        while offset < log.end_offset:
            found = await log.read(offset, READ_BYTES, log.end_offset)
            data = await found.file.pread(found.size, found.position)
            for batch in decode_batches(data):
                if batch.end_offset > offset:
                    check_batch(batch.data)
                    if batches:
                        _check_follows(batches[-1], batch)
                    batches.append(batch)
                    offset = batch.end_offset
        return batches

    # ---- decisions

    async def submit(self, decide: Callable[[Controller], Decision[R]]) -> R:
        """Let the controller decide, and return its reply once the decision is committed and in force here."""
        while self._busy:
            await self._when_idle()
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
            self._take(ready)
            if self.controller is not controller:
                raise _lost_leadership()
        if end > self.image.offset + 1:
            # Without records of its own the reply may still rest on decisions that are not committed yet.
            committed: Future[None] = self._runtime.future()
            self._waiting.append((end, committed))
            await committed
        return decision.reply

    @property
    def next_offset(self) -> int:
        """Where the next decision's first record will stand."""
        return self._core.log.end_offset

    async def change_voters(self, change: Callable[[int], m.AddVoter | m.RemoveVoter]) -> VoterChangeResult:
        """Ask the core to change the voter set; `change` makes the event from the number of the operation."""
        while self._busy:
            await self._when_idle()
        self._numbers += 1
        done: Future[VoterChangeResult] = self._runtime.future()
        self._changes[self._numbers] = done
        self._step(change(self._numbers))
        return await done

    async def resign(self) -> None:
        """Before a clean stop: let the others choose a leader now, and not when this one has been silent for long."""
        if self._core.role is Role.LEADER and not self.is_alone:
            self._step(Resign())
            while self._busy:
                await self._when_idle()
            deadline_ms = self._runtime.now_ms() + RESIGN_MS
            while self._resigning and self._runtime.now_ms() < deadline_ms:
                await self._runtime.sleep(RESIGN_POLL_MS)

    # ---- what others ask

    def controller_location(self) -> ControllerLocation | None:
        """Where the leader of the quorum, which is or will be the active controller, listens."""
        leader_id = self._core.leader_id
        if leader_id == self._key.id:
            return ControllerLocation(leader_id, ("", 0))
        address = self.address_of(leader_id)
        return None if address is None else ControllerLocation(leader_id, address)

    def address_of(self, node_id: int) -> Address | None:
        """Where the controller of a node listens."""
        if node_id == NO_NODE:
            return None
        return self.endpoints().get(node_id)

    def endpoints(self) -> dict[int, Address]:
        own = {} if self._own_endpoint is None else {self._key.id: self._own_endpoint[1:]}
        return {**translate.voter_endpoints(self._core.voter_set), **self._learned, **own}

    def learn_endpoint(self, node_id: int, address: Address) -> None:
        if node_id != self._key.id and node_id >= 0 and address[0]:
            self._learned.pop(node_id, None)
            self._learned[node_id] = address
            if len(self._learned) > ENDPOINTS_MAX:
                del self._learned[next(iter(self._learned))]

    def may_lead(self, node_id: int, epoch: int) -> bool:
        """Whether what this node knows allows that another one leads this epoch."""
        core = self._core
        return epoch > core.epoch or (epoch == core.epoch and core.leader_id in (NO_NODE, node_id))

    def next_number(self) -> int:
        """For the next request of another node."""
        self._numbers += 1
        return self._numbers

    async def ask(self, request: m.Request) -> m.Response:
        """The core's answer to a request of another node, which has the `next_number`."""
        if self._closed or len(self._answers) >= ANSWERS_MAX:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node has too much to answer, or is stopping")
        answer: Future[m.Response] = self._runtime.future()
        self._answers[request.request_id] = answer
        self._step(request)
        return await answer

    async def read_for(self, response: m.FetchResponse) -> bytes:
        """The batches that a leader's answer is to bring. KafkaError(NOT_LEADER_OR_FOLLOWER) if it leads no longer."""
        log = self._log
        if response.read_from < 0 or response.read_from >= log.end_offset:
            return b""
        found = log.try_read(response.read_from, translate.FETCH_BYTES_MAX, log.end_offset)
        if found is None:
            found = await log.read(response.read_from, translate.FETCH_BYTES_MAX, log.end_offset)
        data = bytearray(found.size)
        if found.file.try_pread_into(memoryview(data), found.position) < found.size:
            data = bytearray(await found.file.pread(found.size, found.position))
        if self._core.leading is None or self._core.epoch != response.epoch:
            # While it was read the log may have been cut to what another leader has.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return bytes(data)

    async def read_snapshot_for(self, response: m.FetchSnapshotResponse) -> tuple[bytes, int]:
        """A piece of the newest snapshot, and the size of the whole."""
        disk = self._runtime.disk
        path = f"{METADATA_DIRECTORY}/{snapshot_name(response.snapshot)}"
        if not disk.exists(path):
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND)
        file = disk.open(path)
        size = disk.size(path)
        if not 0 <= response.position < size:
            raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE)
        return bytes(await file.pread(min(response.bytes_max, size - response.position), response.position)), size

    async def image_where(self, condition: Callable[[MetadataImage], bool], timeout_ms: float) -> bool:
        """Until the image is like this; False when time is up."""
        if condition(self.image):
            return True
        found: Future[bool] = self._runtime.future()
        self._image_watchers.append((condition, found))
        timer = self._runtime.call_later(timeout_ms, _conclude, found, False)
        try:
            return await found
        finally:
            timer.cancel()
            self._image_watchers = [watcher for watcher in self._image_watchers if watcher[1] is not found]

    # ---- steps

    def _step(self, event: Event) -> None:
        if self._closed:
            return
        if self._busy:
            self._inbox.append(event)
            return
        try:
            ready = self._core.step(event, self._runtime.now_ms())
        except Exception as error:
            # Whatever it is that the core cannot go on with, committed records are at stake.
            self._runtime.fatal(f"the metadata quorum cannot go on: {error}", error)
            raise
        self._take(ready)

    def _take(self, ready: Ready) -> None:
        """In the order that `raft.Ready` prescribes."""
        self._look_at_leader()
        if ready.hard_state is not None or ready.truncate_to is not None or ready.install is not None:
            self._busy = True
            self._runtime.spawn(self._take_slowly(ready), "quorum")
        else:
            self._carry_out(ready)

    async def _take_slowly(self, ready: Ready) -> None:
        if ready.hard_state is not None:
            await self._runtime.disk.replace_bytes(QUORUM_STATE_PATH, format_quorum_state(ready.hard_state))
        if ready.truncate_to is not None:
            self._events.info("metadata log cut", offset=ready.truncate_to, reason="the leader has it otherwise")
            while self._unapplied and self._unapplied[-1].base_offset >= ready.truncate_to:
                self._unapplied.pop()
            await self._synced_end.lower(ready.truncate_to)
            await self._log.truncate_to(ready.truncate_to)
        self._carry_out(ready)
        if ready.install is not None:
            self._inbox.appendleft(await self._install(ready.install))
        self._busy = False
        while self._inbox and not self._busy:
            self._step(self._inbox.popleft())
        if not self._busy:
            idle, self._idle = self._idle, deque()
            for waiting in idle:
                _conclude(waiting, None)

    async def _when_idle(self) -> None:
        waiting: Future[None] = self._runtime.future()
        self._idle.append(waiting)
        await waiting

    def _carry_out(self, ready: Ready) -> None:
        if self._closed:
            return
        for contradiction in ready.contradictions:
            self._events.limited("contradiction in the quorum", what=contradiction, then="it is left aside")
        for batch in ready.append:
            data = encode_batch(batch, self._runtime.wall_ms())
            self._log.append_follower(memoryview(bytearray(data)))
            self._unapplied.append(batch)
            self._bytes_since_snapshot += len(data)
        for message in ready.messages:
            self._send(message)
        if ready.snapshot_chunk is not None:
            if ready.snapshot_chunk.position == 0:
                self._download = bytearray()
            self._download += ready.snapshot_chunk.data
        if (ready.append or ready.truncate_to is not None) and not self._syncing:
            self._syncing = True
            self._runtime.spawn(self._sync(), "metadata sync")
        if ready.leadership is not None:
            self._events.info(
                "quorum",
                role=ready.leadership.role.value,
                epoch=ready.leadership.epoch,
                leader=ready.leadership.leader_id,
            )
        for result in ready.results:
            waiting = self._changes.pop(result.operation_id, None)
            if waiting is not None:
                waiting.set_result(result)
        self._schedule(ready.deadline_ms)
        if ready.high_watermark is not None and not self._applying:
            self._applying = True
            self._runtime.spawn(self._apply(), "metadata")

    async def _sync(self) -> None:
        """Sync what was appended; what is appended meanwhile goes into the next round."""
        end = -1
        while end != self._log.end_offset:
            end = self._log.end_offset
            await self._log.flush()
            self._synced_end.moved(end)
            self._step(Persisted(end))
        self._syncing = False

    def _schedule(self, deadline_ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms != float("inf"):
            delay_ms = max(0.0, deadline_ms - self._runtime.now_ms())
            self._timer = self._runtime.call_later(delay_ms, self._step, Tick())

    def _look_at_leader(self) -> None:
        core = self._core
        changed = False
        if self.controller is not None and (core.leading is None or core.epoch != self._controller_epoch):
            self.controller = None
            self._events.info("controller", active=False, epoch=self._controller_epoch)
            waiting, self._waiting = self._waiting, deque()
            for _, future in waiting:
                future.set_exception(_lost_leadership())
            changed = True
        if (core.leader_id, core.epoch) != self._seen_leader:
            self._seen_leader = (core.leader_id, core.epoch)
            changed = True
        if changed:
            self._tell_leader()

    def _tell_leader(self) -> None:
        for callback in self.on_leader:
            callback()

    # ---- messages

    def _send(self, message: m.Message) -> None:
        if isinstance(message, _RESPONSES):
            answer = self._answers.pop(message.request_id, None)
            if answer is not None and not answer.done():
                answer.set_result(message)
            return
        self._resigning += isinstance(message, m.EndQuorumEpochRequest)
        self._runtime.spawn(self._request(message), "quorum request")

    async def _request(self, request: m.Request) -> None:
        """Send a request of the core, and tell it the answer, or that there was none."""
        target: Address | None
        if request.target == ANY_BOOTSTRAP_SERVER:
            target = self._servers[self._runtime.rng.randrange(len(self._servers))] if self._servers else None
        else:
            target = self.address_of(request.target)
        if target is None:
            self._resigning -= isinstance(request, m.EndQuorumEpochRequest)
            self._step(RequestFailed(request.request_id))
            return
        fetches = isinstance(request, m.FetchRequest | m.FetchSnapshotRequest)
        try:
            response = await self._peers.call(
                target,
                translate.to_request(request, self._cluster_id, self._own_endpoint),
                timeout_ms=self._config.request_timeout_ms,
                channel=FETCH_CHANNEL if fetches else QUORUM_CHANNEL,
            )
            for node_id, address in translate.endpoints_in(response).items():
                self.learn_endpoint(node_id, address)
            event: Event = translate.from_response(request, response)
        except PeerUnavailable as error:
            if error.refused and isinstance(request, m.FetchRequest) and request.target == self._core.leader_id:
                self._step(LeaderGone(request.target, request.epoch))
            event = RequestFailed(request.request_id)
        except (translate.Inconsistent, KafkaError, WireError) as error:
            self._events.limited("quorum request refused", node=request.target, reason=str(error))
            event = RequestFailed(request.request_id)
        self._resigning -= isinstance(request, m.EndQuorumEpochRequest)
        if isinstance(event, m.FetchResponse) and self._leads_no_longer(event):
            self._step(LeaderGone(event.source, event.epoch))
        self._step(event)
        if isinstance(event, m.FetchResponse):
            self._note_progress(event)

    def _leads_no_longer(self, response: m.FetchResponse) -> bool:
        """The leader itself says so: it was started anew, and never leads twice in one epoch."""
        resigned = response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and response.source == self._core.leader_id
        return resigned and response.epoch == self._core.epoch and response.leader_id == NO_NODE

    def _note_progress(self, response: m.FetchResponse) -> None:
        """The first whole answer of a leader tells how far there is to go before the image may be relied on."""
        whole = response.error == ErrorCode.NONE and response.snapshot is None and response.diverging is None
        if self._target is None and whole and response.high_watermark >= 0 and response.source == self._core.leader_id:
            self._target = response.high_watermark
            self._check_current()

    def _check_current(self) -> None:
        reached = self._target is not None and self.image.offset + 1 >= self._target
        if reached or self.controller is not None:
            _conclude(self._current, None)

    # ---- the state machine

    async def _apply(self) -> None:
        """Replay what is committed, publish the change, then answer those who waited for it."""
        while self._unapplied and self._unapplied[0].end_offset <= self._core.high_watermark:
            committed = []
            while self._unapplied and self._unapplied[0].end_offset <= self._core.high_watermark:
                committed.append(self._unapplied.popleft())
            step = self._loader.load(committed)
            self._features_logged = self._features_logged or bool(step.delta.features_changed)
            await self._publish(step)
        self._applying = False
        self._activate()
        self._check_current()
        if self._bytes_since_snapshot > self._snapshot_after_bytes:
            self._bytes_since_snapshot = 0
            self._runtime.spawn(self.take_snapshot(), "metadata snapshot")

    async def _publish(self, step: Step) -> None:
        for publisher in self._publishers:
            await publisher(step.delta, step.image)
        while self._waiting and self._waiting[0][0] <= step.image.offset + 1:
            self._waiting.popleft()[1].set_result(None)
        for condition, found in list(self._image_watchers):
            if condition(step.image):
                _conclude(found, True)

    def _activate(self) -> None:
        """Become the active controller: this node leads, and its image holds all that was decided before."""
        leading = self._core.leading
        if self.controller is not None or leading is None or self._closed:
            return
        if not leading.established or self._unapplied_end() < self._core.high_watermark:
            return
        if self._loader.in_transaction:
            # The leader before decided it in several batches, and not all of them got here: it never was (KIP-868).
            self._abort_transaction()
            return
        self._controller_epoch = self._core.epoch
        self.controller = self._new_controller(self.image)
        self._events.info("controller", active=True, epoch=self._controller_epoch)
        self._tell_leader()
        snapshot = self._core.log.snapshot
        if not self._features_logged and (snapshot is None or snapshot.offset == 0):
            self._features_logged = True
            self._runtime.spawn(self._state_features(), "feature levels")

    def _unapplied_end(self) -> int:
        """Where what is committed and not replayed yet begins."""
        return self._unapplied[0].base_offset if self._unapplied else self._core.log.end_offset

    def _abort_transaction(self) -> None:
        core = self._core
        if self._aborted_epoch == core.epoch:
            return
        self._aborted_epoch = core.epoch
        self._events.warning("metadata transaction aborted", epoch=core.epoch)
        self._step(Propose(core.epoch, (encode_metadata_record(AbortTransactionRecord(reason="a new controller")),)))

    async def _state_features(self) -> None:
        try:
            await self.submit(lambda controller: controller.decide_state_features())
        except KafkaError:
            self._features_logged = False  # the next controller does it

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
        while self._busy:
            await self._when_idle()
        newest = self._core.log.snapshot
        if self._closed or (newest is not None and newest.offset >= image.snapshot_id.offset):
            return  # a newer one was installed meanwhile
        self._log.advance_start_offset(image.snapshot_id.offset)
        await self._log.retain(self._runtime.wall_ms(), image.snapshot_id.offset)
        while self._busy:
            await self._when_idle()
        newest = self._core.log.snapshot
        if self._closed or (newest is not None and newest.offset >= image.snapshot_id.offset):
            return
        self._step(SnapshotTaken(image.snapshot_id, self._log.start_offset))
        self._remove_snapshots_before(image.snapshot_id)
        self._events.info("metadata snapshot", offset=image.snapshot_id.offset, size_bytes=len(data))

    def _remove_snapshots_before(self, snapshot_id: OffsetAndEpoch) -> None:
        disk = self._runtime.disk
        for name in disk.list(METADATA_DIRECTORY):
            older = parse_snapshot_name(name)
            if older is not None and older < snapshot_id:
                disk.unlink(f"{METADATA_DIRECTORY}/{name}")

    async def _install(self, snapshot_id: OffsetAndEpoch) -> SnapshotInstalled | SnapshotRefused:
        """Let the snapshot that was fetched take the place of the log and of the image."""
        data, self._download = bytes(self._download), bytearray()
        loader = MetadataLoader()
        try:
            snapshot = read_snapshot(data)
            step = loader.load_snapshot(snapshot_id, snapshot.values)
        except (SnapshotError, MetadataError, WireError, ValueError) as error:
            self._events.error("metadata snapshot refused", offset=snapshot_id.offset, reason=str(error))
            return SnapshotRefused(snapshot_id)
        await self._runtime.disk.replace_bytes(f"{METADATA_DIRECTORY}/{snapshot_name(snapshot_id)}", data)
        await self._synced_end.lower(snapshot_id.offset)
        await self._log.truncate_fully_and_start_at(snapshot_id.offset)
        await self._log.flush()
        while self._applying:
            await self._runtime.sleep(1)
        self._unapplied.clear()
        before, self._loader = self.image, loader
        self._remove_snapshots_before(snapshot_id)
        self._events.info("metadata snapshot installed", offset=snapshot_id.offset, size_bytes=len(data))
        await self._publish(Step(difference(before, step.image), step.image))
        self._check_current()
        return SnapshotInstalled(snapshot_id, snapshot.voter_set)

    def close(self) -> None:
        """No more timers; the log is closed by its directory."""
        self._closed = True
        self._synced_end.close()
        if self._timer is not None:
            self._timer.cancel()


def _lost_leadership() -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_CONTROLLER, "Another node became the controller before the decision was committed: try again."
    )


def _conclude(future: Future[R], result: R) -> None:
    if not future.done():
        future.set_result(result)
