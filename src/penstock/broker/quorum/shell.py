"""The shell of the metadata quorum: it persists, syncs, sends and applies what the pure cores decide.

A decision of the controller becomes one batch of the metadata log (`__cluster_metadata-0`), proposed to the Raft core.
The shell carries out the core's output in the order that `raft.Ready` prescribes. Once a batch is below the high
watermark, it is replayed into the image, the change is published (to the partition manager and other listeners), and
only then is the request answered. So a response means: decided, durable, and in force on this node.

    RaftCore              decides; event in, `Ready` out
    MetadataStore         the log, the snapshots and the vote on disk
    QuorumPeers           the other replicas: their addresses, requests and responses
    AppliedMetadata       the committed records as an image; its publishers, and the requests that wait for it

Events are processed one at a time. A step whose result must be durable before anything else happens (epoch and vote, a
truncation of the log, an installed snapshot) takes time, and events that arrive meanwhile wait (`_inbox`, `_idle`). All
other steps, which are nearly all, are carried out at once.

With one voter there is no peer to send to; everything else is as in a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from penstock.broker.net.peers import Address, ControllerLocation, Peers
from penstock.broker.net.slices import Slices
from penstock.broker.quorum.applied_metadata import AppliedMetadata, Publisher
from penstock.broker.quorum.metadata_store import MetadataStore
from penstock.broker.quorum.peers import QuorumPeers
from penstock.broker.quorum.wire import FETCH_BYTES_MAX
from penstock.log import LogDirectory
from penstock.metadata import (
    Controller,
    Decision,
    MetadataImage,
    MetadataLoader,
    check_voters,
    checked_values,
    snapshot_values,
)
from penstock.raft import (
    BOOTSTRAP_SNAPSHOT,
    NO_NODE,
    Event,
    OffsetAndEpoch,
    Persisted,
    Propose,
    RaftConfig,
    RaftCore,
    Ready,
    ReplicaKey,
    Resign,
    Role,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotTaken,
    Tick,
    VoterChangeResult,
    VoterSet,
    read_snapshot,
    snapshot_batches,
)
from penstock.raft import messages as m
from penstock.runtime import Future, Runtime, Timer
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import AbortTransactionRecord, encode_metadata_record
from penstock.wire.uuids import format_uuid

CHANGE_MS = 30_000
"""How long a voter change may take before its requester is told that it is not done yet."""
RESIGN_MS = 500
RESIGN_POLL_MS = 5
"""How long a stopping node waits until the others know that it has resigned."""
ANSWERS_MAX = 10_000
"""The maximum number of requests from other nodes in progress, including parked fetches."""

_RESPONSES = (
    m.VoteResponse,
    m.BeginQuorumEpochResponse,
    m.EndQuorumEpochResponse,
    m.FetchResponse,
    m.FetchSnapshotResponse,
)

R = TypeVar("R")


class WrongRole(Exception):
    """The data directory does not fit the node's roles; the message says what to do."""


class WrongDirectory(Exception):
    """The data directory is not the one that this node's vote belongs to; the message says what to do."""


class MetadataQuorum:
    """This node's replica of the metadata log, and the image built from it."""

    core: RaftCore

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
        """`servers`: where to ask for the quorum while its voters are unknown. `own_endpoint`: name, host, port."""
        self._runtime = runtime
        self._events = events
        self._config = config
        self._new_controller = new_controller
        self._snapshot_after_bytes = snapshot_after_bytes
        self._may_vote = may_vote
        self._applied = AppliedMetadata(runtime)
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
        self._controller_epoch = -1
        self._aborted_epoch = -1
        self._seen_leader = (NO_NODE, -1)
        self.key = key
        self.cluster_id = cluster_id
        self.store = MetadataStore(runtime, events, has_others=bool(servers))
        self.peers = QuorumPeers(
            runtime,
            events,
            peers,
            key.id,
            cluster_id=cluster_id,
            request_timeout_ms=config.request_timeout_ms,
            servers=servers,
            own_endpoint=own_endpoint,
            on_event=self._step,
            on_fetched=self._note_progress,
        )
        self.controller: Controller | None = None
        """Set while this node is the active controller: it leads, and its image includes all earlier decisions."""
        self.on_leader: list[Callable[[], None]] = []
        """Called when the leader changes, and when this node becomes the active controller or ceases to be."""
        self.last_leader_heard: tuple[int, float] = (NO_NODE, 0.0)
        """The last other node that led, and the time of its last response."""

    @property
    def image(self) -> MetadataImage:
        return self._applied.image

    @property
    def is_writing(self) -> bool:
        """Whether the core has decided something that is not durable yet and not sent to any peer."""
        return self._busy

    @property
    def leader_id(self) -> int:
        return self.core.leader_id

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter."""
        return self.core.voter_set.keys == (self.key,)

    @property
    def is_sound(self) -> bool:
        """Whether the image can be trusted: there is a leader, and this log has lost nothing."""
        return self.core.leader_id != NO_NODE and not self.core.hard.suspect

    def add_publisher(self, publisher: Publisher) -> None:
        self._applied.add_publisher(publisher)

    async def image_where(self, condition: Callable[[MetadataImage], bool], timeout_ms: float) -> bool:
        """Wait until the image satisfies the condition; False after the timeout."""
        return await self._applied.image_where(condition, timeout_ms)

    # ---- start

    async def open(self, directory: LogDirectory) -> None:
        """Read the files and take a role. `caught_up` tells when the image can be relied on."""
        found = await self.store.open(directory, self._applied.loader)
        view = found.log_view()
        if self.key in view.voter_set and not self._may_vote:
            raise WrongRole(
                "this node is a voter of the metadata quorum, which needs the controller role: add controller to "
                "process.roles, or first remove it from the voters through another node (RemoveRaftVoter)"
            )
        self._check_directory_id(view.voter_set)
        self._applied.extend(found.after_snapshot())
        self.core = self.peers.core = RaftCore(self.key, found.state, view, self._runtime.rng, self._config)
        self._take(self.core.start(self._runtime.now_ms()))

    def _check_directory_id(self, voters: VoterSet) -> None:
        """A voter is identified by node id and directory id. With another directory id this node has no vote."""
        named = voters.get(self.key.id)
        if named is None or named.directory_id == self.key.directory_id:
            return
        difference = (
            f"meta.properties says directory.id={format_uuid(self.key.directory_id)}, but the metadata log lists node "
            f"{self.key.id} as a voter with directory.id={format_uuid(named.directory_id)}"
        )
        if len(voters) == 1:
            raise WrongDirectory(
                f"{difference}. There is no other voter that could elect a leader or add this one. If this is the "
                f"directory of that voter, set directory.id={format_uuid(named.directory_id)} in meta.properties and "
                "remove its first line"
            )
        self._events.warning(
            "not a voter", what=difference, then="remove the old voter and add this one, or restore meta.properties"
        )

    async def caught_up(self) -> None:
        """Wait until the image includes everything that was committed when the leader was first heard of."""
        await self._current

    async def removed_topics(self) -> dict[str, str]:
        """The topics deleted since the newest snapshot: names by id."""
        return await self.store.removed_topics(self.core.log.snapshot or BOOTSTRAP_SNAPSHOT)

    # ---- decisions

    async def submit(self, decide: Callable[[Controller], Decision[R]]) -> R:
        """Let the controller decide; return its reply once the decision is committed and in force here."""
        await self._until_idle()
        controller = self.controller
        if controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        before = controller.image
        decision = decide(controller)
        try:
            # Encode all of them first: a decision that cannot be encoded must not be partly in the log.
            batches = [tuple(map(encode_metadata_record, records)) for records in decision.batches()]
        except Exception:
            controller.reset(before)
            raise
        # Even without records of its own, the reply may depend on decisions that are not committed yet.
        end = self._applied.awaited_end
        for values in batches:
            ready = self._step_now(Propose(self.core.epoch, values))
            assert ready.proposed is not None, "a controller exists only while its node leads"
            end = ready.proposed.end_offset
            if self.controller is not controller:
                raise _lost_leadership()
        await self._applied.until(end)
        return decision.reply

    @property
    def next_offset(self) -> int:
        """The offset of the next decision's first record."""
        return self.core.log.end_offset

    async def change_voters(self, change: Callable[[int], m.AddVoter | m.RemoveVoter]) -> VoterChangeResult:
        """Ask the core to change the voter set; `change` creates the event from the operation's number."""
        await self._until_idle()
        self._numbers += 1
        number = self._numbers
        done: Future[VoterChangeResult] = self._runtime.future()
        self._changes[number] = done
        timer = self._runtime.call_later(CHANGE_MS, self._give_up_change, number)
        self._step(change(number))
        try:
            return await done
        finally:
            timer.cancel()

    def _give_up_change(self, number: int) -> None:
        """Stop waiting; the change itself continues."""
        done = self._changes.pop(number, None)
        if done is not None and not done.done():
            text = "The voter change is not committed yet; describe the quorum to see its progress."
            done.set_result(VoterChangeResult(number, ErrorCode.REQUEST_TIMED_OUT, text))

    async def resign(self) -> None:
        """Before a clean stop: make the others elect a leader now, instead of after a timeout."""
        if self.core.role is Role.LEADER and not self.is_alone:
            self._step(Resign())
            await self._until_idle()
            deadline_ms = self._runtime.now_ms() + RESIGN_MS
            while self.peers.resigning and self._runtime.now_ms() < deadline_ms:
                await self._runtime.sleep(RESIGN_POLL_MS)

    # ---- requests of other nodes

    def controller_location(self) -> ControllerLocation | None:
        """The address of the quorum's leader, which is or will become the active controller."""
        leader_id = self.core.leader_id
        if leader_id == self.key.id:
            return ControllerLocation(leader_id, ("", 0))
        address = self.peers.address_of(leader_id)
        return None if address is None else ControllerLocation(leader_id, address)

    def may_lead(self, node_id: int, epoch: int) -> bool:
        """Whether this node's knowledge is consistent with another node leading this epoch."""
        core = self.core
        return epoch > core.epoch or (epoch == core.epoch and core.leader_id in (NO_NODE, node_id))

    def next_number(self) -> int:
        """The number of the next request from another node."""
        self._numbers += 1
        return self._numbers

    async def ask(self, request: m.Request) -> m.Response:
        """The core's response to a request from another node, numbered by `next_number`."""
        if self._closed or len(self._answers) >= ANSWERS_MAX:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node is overloaded or stopping")
        answer: Future[m.Response] = self._runtime.future()
        self._answers[request.request_id] = answer
        self._step(request)
        return await answer

    async def read_for(self, response: m.FetchResponse) -> bytes:
        """The batches for a fetch response. Raises KafkaError(NOT_LEADER_OR_FOLLOWER) if this node no longer leads."""
        if response.read_from < 0 or response.read_from >= self.store.log.end_offset:
            return b""
        data = await self.store.read(response.read_from, FETCH_BYTES_MAX)
        if self.core.leading is None or self.core.epoch != response.epoch:
            # The log may have been truncated to another leader's during the read.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return data

    # ---- steps

    def _step(self, event: Event) -> None:
        if self._closed:
            return
        if self._busy:
            self._inbox.append(event)
        else:
            self._step_now(event)

    def _step_now(self, event: Event) -> Ready:
        try:
            ready = self.core.step(event, self._runtime.now_ms())
            self._take(ready)
            return ready
        except Exception as error:
            # Messages from other nodes are validated before they become events (`quorum_wire`), so this is a broken
            # invariant. Committed records are at stake, so the process ends.
            self._runtime.fatal(f"the metadata quorum cannot continue: {error!r}", error)
            raise

    def _take(self, ready: Ready) -> None:
        """Carry out the output in the order that `raft.Ready` prescribes."""
        self._look_at_leader()
        if ready.hard_state is not None or ready.truncate_to is not None or ready.install is not None:
            self._busy = True
            self._runtime.spawn_essential(self._take_slowly(ready), "quorum")
        else:
            self._carry_out(ready)

    async def _take_slowly(self, ready: Ready) -> None:
        if ready.hard_state is not None:
            await self.store.write_state(ready.hard_state)
        if ready.truncate_to is not None:
            self._events.info("metadata log cut", offset=ready.truncate_to, reason="it differs from the leader's log")
            self._applied.cut(ready.truncate_to)
            await self.store.truncate_to(ready.truncate_to)
        self._carry_out(ready)
        if ready.install is not None:
            self._inbox.appendleft(await self._install(ready.install))
        self._busy = False
        while self._inbox and not self._busy:
            self._step(self._inbox.popleft())
        if not self._busy:
            idle, self._idle = self._idle, deque()
            for waiting in idle:
                _conclude(waiting)

    async def _until_idle(self) -> None:
        while self._busy:
            waiting: Future[None] = self._runtime.future()
            self._idle.append(waiting)
            await waiting

    def _carry_out(self, ready: Ready) -> None:
        if self._closed:
            return
        for contradiction in ready.contradictions:
            self._events.limited("contradiction in the quorum", what=contradiction, then="it is ignored")
        for batch in ready.append:
            self._bytes_since_snapshot += self.store.append(batch)
        self._applied.extend(ready.append)
        for message in ready.messages:
            self._send(message)
        if ready.snapshot_chunk is not None:
            if ready.snapshot_chunk.position == 0:
                self._download = bytearray()
            self._download += ready.snapshot_chunk.data
        if (ready.append or ready.truncate_to is not None) and not self._syncing:
            self._syncing = True
            self._runtime.spawn_essential(self._sync(), "metadata sync")
        if ready.leadership is not None:
            self._events.info(
                "quorum",
                role=ready.leadership.role.value,
                epoch=ready.leadership.epoch,
                leader=ready.leadership.leader_id,
            )
        for result in ready.results:
            waiting = self._changes.pop(result.operation_id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(result)
        self._schedule(ready.deadline_ms)
        if ready.high_watermark is not None and not self._applying:
            self._applying = True
            self._runtime.spawn_essential(self._apply(), "metadata")

    def _send(self, message: m.Message) -> None:
        if not isinstance(message, _RESPONSES):
            self.peers.send(message)
            return
        answer = self._answers.pop(message.request_id, None)
        if answer is not None and not answer.done():
            answer.set_result(message)

    async def _sync(self) -> None:
        """Sync appended batches; those appended meanwhile are synced in the next round."""
        end = -1
        while end != self.store.log.end_offset:
            end = await self.store.sync()
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
        core = self.core
        changed = False
        if self.controller is not None and (core.leading is None or core.epoch != self._controller_epoch):
            self.controller = None
            self._events.info("controller", active=False, epoch=self._controller_epoch)
            self._applied.give_up(_lost_leadership)
            changed = True
        if (core.leader_id, core.epoch) != self._seen_leader:
            self._seen_leader = (core.leader_id, core.epoch)
            changed = True
        if changed:
            self._tell_leader()

    def _tell_leader(self) -> None:
        for callback in self.on_leader:
            try:
                callback()
            except Exception as error:
                # The error is the listener's: the other listeners must still be notified.
                self._runtime.task_failed("leader change", error)

    # ---- the image

    async def _apply(self) -> None:
        await self._applied.apply(lambda: self.core.high_watermark)
        self._applying = False
        self._activate()
        self._check_current()
        if self._bytes_since_snapshot > self._snapshot_after_bytes:
            self._bytes_since_snapshot = 0
            # Use this image and not a later one: its consequences are complete. The directories of a deleted topic are
            # removed before a snapshot drops the record of its deletion.
            self._runtime.spawn(self._take_snapshot(self.image), "metadata snapshot")

    def _note_progress(self, response: m.FetchResponse) -> None:
        """The first complete response of a leader tells how far this node must read before its image can be relied
        on."""
        whole = response.error == ErrorCode.NONE and response.snapshot is None and response.diverging is None
        if response.error == ErrorCode.NONE:
            self.last_leader_heard = response.source, self._runtime.now_ms()
        if self._target is None and whole and response.high_watermark >= 0 and response.source == self.core.leader_id:
            self._target = response.high_watermark
            self._check_current()

    def _check_current(self) -> None:
        reached = self._target is not None and self.image.offset + 1 >= self._target
        if reached or self.controller is not None:
            _conclude(self._current)

    # ---- the active controller

    def _activate(self) -> None:
        """Become the active controller: this node leads, and its image includes all earlier decisions."""
        core = self.core
        if self.controller is not None or core.leading is None or self._closed:
            return
        if not core.leading.established or self._applied.upto(core.log.end_offset) < core.high_watermark:
            return
        if self._applied.in_transaction:
            # The previous leader split this decision into several batches, and not all arrived: it never took effect
            # (KIP-868).
            self._abort_transaction()
            return
        self._controller_epoch = core.epoch
        self.controller = self._new_controller(self.image)
        self._events.info("controller", active=True, epoch=self._controller_epoch)
        self._tell_leader()
        snapshot = core.log.snapshot
        if not self._applied.features_logged and (snapshot is None or snapshot.offset == 0):
            self._applied.features_logged = True
            self._runtime.spawn(self._state_features(), "feature levels")

    def _abort_transaction(self) -> None:
        core = self.core
        if self._aborted_epoch == core.epoch:
            return
        self._aborted_epoch = core.epoch
        self._events.warning("metadata transaction aborted", epoch=core.epoch)
        self._step(Propose(core.epoch, (encode_metadata_record(AbortTransactionRecord(reason="a new controller")),)))

    async def _state_features(self) -> None:
        try:
            await self.submit(lambda controller: controller.decide_state_features())
        except Exception as error:
            self._applied.features_logged = False  # the next controller does it
            if not isinstance(error, KafkaError):
                raise

    # ---- snapshots

    async def _take_snapshot(self, image: MetadataImage) -> None:
        """Write the image as a snapshot, durably, and remove the part of the log before it."""
        snapshot_id = image.snapshot_id
        voters: VoterSet = self.core.log.voter_set_at(snapshot_id.offset)
        data = bytearray()
        slices = Slices(self._runtime)
        for batch in snapshot_batches(
            snapshot_id, voters, snapshot_values(image), timestamp_ms=self._runtime.wall_ms()
        ):
            data += batch
            await slices.breathe()
        await self.store.write_snapshot(snapshot_id, bytes(data))
        await self._until_idle()
        if self._is_overtaken(snapshot_id):
            return
        await self.store.start_log_after(snapshot_id)
        await self._until_idle()
        if self._is_overtaken(snapshot_id):
            return
        self._step(SnapshotTaken(snapshot_id, self.store.log.start_offset))
        self.store.remove_snapshots_before(snapshot_id)
        self._events.info("metadata snapshot", offset=snapshot_id.offset, size_bytes=len(data))

    def _is_overtaken(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether a newer snapshot was installed meanwhile."""
        newest = self.core.log.snapshot
        return self._closed or (newest is not None and newest.offset >= snapshot_id.offset)

    async def _install(self, snapshot_id: OffsetAndEpoch) -> SnapshotInstalled | SnapshotRefused:
        """Replace the log and the image by the fetched snapshot."""
        data, self._download = bytes(self._download), bytearray()
        loader = MetadataLoader()
        try:
            snapshot = read_snapshot(data)
            check_voters(snapshot.voter_set)
            loader.load_snapshot(snapshot_id, checked_values(snapshot.values))
        except Exception as error:
            # Nothing was changed, and the leader may send a better one.
            self._events.error("metadata snapshot refused", offset=snapshot_id.offset, reason=str(error) or repr(error))
            return SnapshotRefused(snapshot_id)
        await self.store.install_snapshot(snapshot_id, data)
        while self._applying:
            await self._runtime.sleep(1)
        self.store.remove_snapshots_before(snapshot_id)
        self._events.info("metadata snapshot installed", offset=snapshot_id.offset, size_bytes=len(data))
        await self._applied.replace(loader)
        self._check_current()
        return SnapshotInstalled(snapshot_id, snapshot.voter_set)

    def close(self) -> None:
        """Stop the timers. The log is closed by its directory."""
        self._closed = True
        self.store.close()
        if self._timer is not None:
            self._timer.cancel()


def _lost_leadership() -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_CONTROLLER, "Another node became the controller before the decision was committed; retry."
    )


def _conclude(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
