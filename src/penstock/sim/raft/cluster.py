"""Many cores in one loop, with a network that delays, loses, reorders and cuts, and disks that lose unsynced data.

`Cluster` runs real cores with a small shell around each. Everything is determined by one seed. After every step the
checker verifies Raft's guarantees; a violation raises `AssertionError` with the seed.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from random import Random

from penstock.raft import messages as m
from penstock.raft.core import RaftCore
from penstock.raft.log_view import LogView
from penstock.raft.types import (
    ANY_BOOTSTRAP_SERVER,
    HardState,
    OffsetAndEpoch,
    RaftConfig,
    Randomness,
    ReplicaKey,
    Role,
    Voter,
    VoterSet,
)

BOOTSTRAP = OffsetAndEpoch(0, 0)


def directory(node_id: int, generation: int = 0) -> bytes:
    return bytes((node_id, generation)) * 8


class Disk:
    """The data that a node has written, and the part that would survive a power failure."""

    def __init__(self, key: ReplicaKey, voters: VoterSet) -> None:
        self.key = key
        self.hard = HardState()
        self.snapshot: tuple[OffsetAndEpoch, VoterSet] = (BOOTSTRAP, voters)
        self.start = 0
        self.log: list[m.LogBatch] = []
        self.durable: list[m.LogBatch] = []

    @property
    def end(self) -> int:
        return self.log[-1].end_offset if self.log else max(self.start, self.snapshot[0].offset)

    def truncate(self, offset: int) -> None:
        self.log = [batch for batch in self.log if batch.end_offset <= offset]

    def trim(self, offset: int) -> None:
        self.start = offset
        self.log = [batch for batch in self.log if batch.base_offset >= offset]
        self.durable = [batch for batch in self.durable if batch.base_offset >= offset]

    def install(self, snapshot: OffsetAndEpoch, voters: VoterSet) -> None:
        self.snapshot = (snapshot, voters)
        self.start = snapshot.offset
        self.log = []
        self.durable = []

    def read(self, offset: int, count: int) -> tuple[m.LogBatch, ...]:
        index = bisect_left(self.log, offset, key=lambda batch: batch.base_offset)
        return tuple(self.log[index : index + count])

    def lose_power(self, rng: Random) -> None:
        """Unsynced appends survive up to some point; an unsynced truncation is undone."""
        survivors = list(self.durable)
        if self.log[: len(survivors)] == survivors:
            survivors = self.log[: rng.randint(len(survivors), len(self.log))]
        self.log = list(survivors)
        self.durable = list(survivors)

    def rot(self, rng: Random) -> None:
        """Loses synced records. The node notices, and marks its hard state as suspect."""
        keep = rng.randint(0, len(self.log))
        self.log = self.log[:keep]
        self.durable = list(self.log)
        self.hard = HardState(self.hard.epoch, self.hard.leader_id, self.hard.voted, suspect=True)

    def view(self) -> LogView:
        view = LogView.recover(self.start, self.log, *self.snapshot)
        if view.start_offset != self.start:
            self.install(*self.snapshot)
        return view


class Node:
    """The shell: carries out each Ready in its order."""

    def __init__(self, cluster: Cluster, node_id: int, disk: Disk) -> None:
        self.cluster = cluster
        self.id = node_id
        self.disk = disk
        self.core: RaftCore | None = None
        self.incarnation = 0
        self.paused_until = 0.0
        self.applied = 0
        self.partial = b""
        self.skew = 0.0
        self.syncing = False
        self.dirty = False

    @property
    def up(self) -> bool:
        return self.core is not None

    def start(self) -> None:
        assert self.core is None
        self.incarnation += 1
        self.disk.durable = list(self.disk.log)  # the shell syncs the log it found before trusting it
        rng = self.cluster.randomness(self.id)
        self.core = RaftCore(self.disk.key, self.disk.hard, self.disk.view(), rng, self.cluster.config)
        self.applied = self.core.high_watermark
        self.cluster.note(f"{self.id} starts")
        self.do(self.core.start(self.now))

    def stop(self) -> None:
        self.core = None
        self.incarnation += 1
        self.partial = b""
        self.syncing = self.dirty = False

    @property
    def now(self) -> float:
        return self.cluster.now + self.skew

    def step(self, event: m.Event) -> m.Ready | None:
        if self.core is None:
            return None
        ready = self.core.step(event, self.now)
        self.do(ready)
        return ready

    def do(self, ready: m.Ready) -> None:
        core = self.core
        assert core is not None
        if ready.hard_state is not None:
            self.disk.hard = ready.hard_state
        if ready.truncate_to is not None:
            self.disk.truncate(ready.truncate_to)
            self.cluster.seen["divergent truncation"] += 1
        self.disk.log += ready.append
        self.cluster.narrate(self, ready)
        for message in ready.messages:
            self.cluster.send(self, self.fill(message))
        if ready.snapshot_chunk is not None:
            self.partial = (b"" if ready.snapshot_chunk.position == 0 else self.partial) + ready.snapshot_chunk.data
        if ready.install is not None:
            self.later(self.cluster.sync_delay(), self.install, ready.install)
        if ready.append or ready.truncate_to is not None:
            self.sync()
        self.cluster.check(self, ready)
        if ready.deadline_ms < float("inf"):
            self.later(max(0.0, ready.deadline_ms - self.now), self.tick, ready.deadline_ms)

    def later(self, delay: float, callback: Callable[..., object], *args: object) -> None:
        incarnation = self.incarnation

        def run() -> None:
            if self.incarnation != incarnation:
                return
            if self.cluster.now < self.paused_until:
                self.cluster.at(self.paused_until, run)
            else:
                callback(*args)

        self.cluster.at(self.cluster.now + delay, run)

    def tick(self, deadline_ms: float) -> None:
        if self.core is not None and self.core._announced_deadline_ms <= self.now:
            self.step(m.Tick())

    def sync(self) -> None:
        """One sync at a time; later writes wait for the next."""
        self.dirty = True
        if not self.syncing:
            self.dirty = False
            self.syncing = True
            end = self.disk.end
            self.later(self.cluster.sync_delay(), self.synced, list(self.disk.log), end)

    def synced(self, log: list[m.LogBatch], end: int) -> None:
        self.syncing = False
        self.disk.durable = [batch for batch in log if batch.base_offset >= self.disk.start]
        if self.dirty:
            self.sync()
        self.step(m.Persisted(end))

    def install(self, snapshot: OffsetAndEpoch) -> None:
        data, voters, _ = self.cluster.snapshots[snapshot]
        assert self.partial == data, "the chunks of a snapshot must add up to the snapshot"
        self.disk.install(snapshot, voters)
        self.cluster.seen["snapshot install"] += 1
        self.step(m.SnapshotInstalled(snapshot, voters))

    def fill(self, message: m.Message) -> m.Message:
        """Fills in the data that the shell reads from its files for a response."""
        if isinstance(message, m.FetchResponse) and message.read_from >= 0:
            batches = self.disk.read(message.read_from, self.cluster.batches_per_fetch())
            return m.FetchResponse(
                message.source,
                message.target,
                message.request_id,
                message.error,
                message.leader_id,
                message.epoch,
                message.high_watermark,
                batches=batches,
            )
        if isinstance(message, m.FetchSnapshotResponse) and message.error == 0:
            data = self.cluster.snapshots[message.snapshot][0]
            return m.FetchSnapshotResponse(
                message.source,
                message.target,
                message.request_id,
                message.error,
                message.leader_id,
                message.epoch,
                message.snapshot,
                message.position,
                size=len(data),
                data=data[message.position : message.position + message.bytes_max],
            )
        return message

    def take_snapshot(self) -> bool:
        """Takes a snapshot of everything applied; the log keeps some of the records it covers."""
        core = self.core
        assert core is not None
        known, _ = self.disk.snapshot
        covered = [batch for batch in self.disk.log if known.offset < batch.end_offset <= self.applied]
        if not covered:
            return False
        offset = covered[-1].end_offset
        snapshot = OffsetAndEpoch(offset, core.log.epoch_at(offset))
        voters = core.log.voter_set_at(offset)
        data = f"{snapshot.offset}-{snapshot.epoch}".encode() * 7
        contents = (data, voters, self.cluster.committed_before(offset))
        assert self.cluster.snapshots.setdefault(snapshot, contents) == contents, "equal snapshot ids, equal contents"
        start = self.cluster.log_start([batch.base_offset for batch in covered] + [offset])
        self.disk.snapshot = (snapshot, voters)
        self.disk.trim(max(self.disk.start, start))
        self.step(m.SnapshotTaken(snapshot, self.disk.start))
        return True


class Cluster:
    """Nodes, network, time, and the invariants."""

    def __init__(
        self, seed: int, voters: int, observers: int = 0, *, loss: float = 0.0, config: RaftConfig | None = None
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.config = config or RaftConfig(snapshot_chunk_bytes_max=16)
        self.now = 0.0
        self.loss = loss
        self.seen: Counter[str] = Counter()
        self.transcript: list[str] | None = None
        self.cut: set[tuple[int, int]] = set()
        self.snapshots: dict[OffsetAndEpoch, tuple[bytes, VoterSet, tuple[object, ...]]] = {}
        self.committed: dict[int, m.LogBatch] = {}  # base offset → batch
        self.committed_end = 0
        self.leaders: dict[int, int] = {}
        self.epochs: Counter[int] = Counter()
        self.watermarks: dict[tuple[int, int], int] = {}
        self.acknowledged: list[m.Proposed] = []
        self.results: list[m.VoterChangeResult] = []
        self._proposals: dict[int, list[tuple[int, m.Proposed, bytes]]] = {}
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._sequence = 0
        self._values = 0
        bootstrap = VoterSet.of(Voter(i, directory(i)) for i in range(1, voters + 1))
        self.nodes: dict[int, Node] = {}
        for i in range(1, voters + observers + 1):
            key = ReplicaKey(i, directory(i))
            self.nodes[i] = Node(self, i, Disk(key, bootstrap if i <= voters else VoterSet()))

    # -- time and network --------------------------------------------------------------------------------------------

    def at(self, when: float, callback: Callable[[], object]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (when, self._sequence, callback))

    def run(self, duration_ms: float) -> None:
        end = self.now + duration_ms
        while self._queue and self._queue[0][0] <= end:
            self.now, _, callback = heapq.heappop(self._queue)
            callback()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit_ms: float = 60_000) -> None:
        end = self.now + limit_ms
        while not condition():
            assert self._queue, f"seed {self.seed}: no events left"
            assert self._queue[0][0] <= end, f"seed {self.seed}: not within {limit_ms} ms"
            self.now, _, callback = heapq.heappop(self._queue)
            callback()

    def sync_delay(self) -> float:
        return self.rng.choice((0.1, 0.5, 1.0, 1.0, 5.0, 40.0))

    def randomness(self, node_id: int) -> Randomness:
        return self.rng

    def batches_per_fetch(self) -> int:
        return self.rng.randint(1, 4)

    def log_start(self, offsets: list[int]) -> int:
        return self.rng.choice(offsets)

    def send(self, source: Node, message: m.Message) -> None:
        target = message.target
        if target == ANY_BOOTSTRAP_SERVER:
            target = self.rng.choice(sorted(self.nodes))
        if (source.id, target) in self.cut or self.rng.random() < self.loss:
            self.seen["message lost"] += 1
            return
        delay = self.rng.choice((0.2, 0.3, 0.5, 1.0, 2.0, 10.0))
        if self.loss and self.rng.random() < 0.02:
            delay += self.rng.randrange(1500)
        node = self.nodes[target]
        incarnation = source.incarnation

        def deliver() -> None:
            if self.now < node.paused_until:
                self.at(node.paused_until, deliver)
            elif source.incarnation != incarnation and isinstance(message, m.Response):
                pass  # the connection died with the node that would have sent the response
            else:
                node.step(message)

        self.at(self.now + delay, deliver)

    # -- operations --------------------------------------------------------------------------------------------------

    def start_all(self) -> None:
        for node in self.nodes.values():
            node.start()

    @property
    def leader(self) -> Node | None:
        """The leader of the newest epoch that has a live leader."""
        leaders = [node for node in self.nodes.values() if node.core and node.core.role is Role.LEADER]
        return max(leaders, key=lambda node: node.core.epoch if node.core else 0, default=None)

    def propose(self, node: Node) -> bool:
        core = node.core
        if core is None or core.role is not Role.LEADER:
            return False
        self._values += 1
        value = b"v%d" % self._values
        ready = node.step(m.Propose(core.epoch, (value,)))
        assert ready is not None
        if ready.proposed is not None:
            self._proposals.setdefault(node.id, []).append((node.incarnation, ready.proposed, value))
        return ready.proposed is not None

    def crash(self, node: Node, *, power_loss: bool) -> None:
        node.stop()
        if power_loss:
            node.disk.lose_power(self.rng)
        self._proposals.pop(node.id, None)
        self.note(f"{node.id} {'loses power' if power_loss else 'is killed'}")

    def isolate(self, node_id: int) -> None:
        for other in self.nodes:
            if other != node_id:
                self.cut |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cut.clear()

    # -- invariants --------------------------------------------------------------------------------------------------

    def committed_before(self, offset: int) -> tuple[object, ...]:
        return tuple(batch.values for base, batch in sorted(self.committed.items()) if base < offset)

    def check(self, node: Node, ready: m.Ready) -> None:
        core = node.core
        assert core is not None
        where = f"seed {self.seed}, node {node.id}, {self.now} ms"
        assert not ready.contradictions, f"{where}: {ready.contradictions}"
        assert node.disk.hard == core.hard, f"{where}: the vote or epoch was not written"
        assert core.epoch >= self.epochs[node.id], f"{where}: the epoch went back"
        self.epochs[node.id] = core.epoch
        if core.role is Role.LEADER and ready.leadership is not None:
            first = self.leaders.setdefault(core.epoch, node.id)
            assert first == node.id, f"{where}: nodes {first} and {node.id} lead epoch {core.epoch}"
            self.seen["leader change"] += 1
            if core.epoch == max(self.leaders):
                # A node that learns late that it won an older epoch leads no one: the others have moved on.
                self.check_leader_has_everything(node, where)
        if core.role is Role.LEADER:
            first_pending = bisect_left(node.disk.log, self.committed_end, key=lambda batch: batch.base_offset)
            pending = [
                batch.base_offset
                for batch in node.disk.log[first_pending:]
                if any(isinstance(c, m.Voters) for c in batch.control)
            ]
            assert len(pending) <= 1, f"{where}: voter changes pending at {pending}"
        if ready.high_watermark is not None:
            key = (node.id, node.incarnation)
            assert ready.high_watermark >= self.watermarks.get(key, 0), f"{where}: the high watermark went back"
            self.watermarks[key] = ready.high_watermark
            self.check_committed(node, ready.high_watermark, where)
            node.applied = ready.high_watermark
            self.acknowledge(node, ready.high_watermark)
        self.results += ready.results

    def check_committed(self, node: Node, high_watermark: int, where: str) -> None:
        """Checks that all nodes agree forever on what is committed."""
        first = bisect_left(node.disk.log, node.applied, key=lambda batch: batch.base_offset)
        for batch in node.disk.log[first:]:
            if batch.end_offset > high_watermark:
                break
            known = self.committed.get(batch.base_offset)
            if known is None:
                assert batch.base_offset == self.committed_end, f"{where}: {batch} is committed after a gap or overlap"
                self.committed[batch.base_offset] = batch
                self.committed_end = batch.end_offset
            else:
                assert known == batch, f"{where}: {known} was committed, now {batch}"

    def check_leader_has_everything(self, node: Node, where: str) -> None:
        assert node.disk.end >= self.committed_end, f"{where}: a leader without {self.committed_end}"
        for batch in node.disk.log:
            known = self.committed.get(batch.base_offset)
            assert known is None or known == batch, f"{where}: a leader with {batch} where {known} is committed"

    def acknowledge(self, node: Node, high_watermark: int) -> None:
        waiting = self._proposals.get(node.id, [])
        core = node.core
        assert core is not None
        for incarnation, proposed, value in list(waiting):
            if proposed.end_offset <= high_watermark:
                waiting.remove((incarnation, proposed, value))
                batch = self.committed.get(proposed.base_offset)
                if core.role is Role.LEADER and batch is not None and batch.values == (value,):
                    self.acknowledged.append(proposed)

    # -- transcripts -------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        if self.transcript is not None:
            self.transcript.append(text)

    def narrate(self, node: Node, ready: m.Ready) -> None:
        """Overridden by the transcript harness."""
