"""Readable scenarios: commands for a cluster of cores, and every state transition they cause, checked verbatim.

How to read and extend the files in `scenarios/` is in `support.transcripts`. Time stands still unless a command moves
it, and nothing is random: random delays grow with the number of the node, so node 1 is always first.

    cluster voters=3 [observers=1]   make the nodes 1, 2, 3, …
    start 1 2 3                      start them, or start them again
    kill 1 / power-loss 1            stop a node, keeping or losing what was not synced
    wipe 1 / rot 1 OFFSET            an empty disk (a new directory id), or a log that lost all from OFFSET on
    tick 1                           let time pass until node 1's next deadline
    late-tick 1 MS                   the same, but the node stood still MS longer
    deliver [1->2]                   deliver what is under way, all or on one link, as long as there is any
    drop [1->2]                      lose it instead
    cut 1 / heal                     lose what is sent to and from node 1 from now on; until healed
    sync 1                           node 1's disk is done
    settle                           deliver and sync until nothing moves
    wait MS                          let time pass: every deadline in its turn, and settle after each
    hide-fetches / show-fetches      leave them out of the transcript, or not
    batches-per-fetch 1              how many batches an answer holds at most (4)
    propose 1 value                  node 1 is to append a value
    snapshot 1                       node 1 takes one of all it has applied and trims its log
    add-voter 1 4 / remove-voter 1 4 ask node 1 to add or remove node 4 (as it is now)
    resign 1
    status                           one line per node
"""

from __future__ import annotations

from penstock.raft import messages as m
from penstock.raft.types import ANY_BOOTSTRAP_SERVER, HardState, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from penstock.sim.raft.cluster import Cluster, Disk, Node, directory
from penstock.wire.errors import ErrorCode


class Rank:
    """No randomness: a node's delays are the longer, the higher its number."""

    def __init__(self, node_id: int) -> None:
        self.rank = node_id - 1

    def randrange(self, stop: int, /) -> int:
        return self.rank * stop // 10


class ScriptedNode(Node):
    """Waits for a command where the simulator's node waits for time."""

    installing: OffsetAndEpoch | None = None
    deadline_ms = float("inf")

    def do(self, ready: m.Ready) -> None:
        self.deadline_ms = ready.deadline_ms
        super().do(ready)

    def later(self, delay: float, callback: object, *args: object) -> None:
        if callback == self.install:
            self.installing = args[0]  # type: ignore[assignment]

    def sync(self) -> None:
        self.dirty = True

    def finish_sync(self) -> None:
        if self.dirty and self.up:
            self.dirty = False
            self.disk.durable = list(self.disk.log)
            self.step(m.Persisted(self.disk.end))
        if self.installing is not None and self.up:
            snapshot, self.installing = self.installing, None
            self.install(snapshot)


class Scenario(Cluster):
    """Runs the commands of one file."""

    def __init__(self) -> None:
        super().__init__(0, 0)
        self.transcript = []
        self.queue: list[tuple[int, m.Message]] = []
        self.operations = 0
        self.fetches = True
        self.batches = 4

    def execute(self, line: str) -> str:
        self.transcript = []
        name, *arguments = line.split()
        getattr(self, "do_" + name.replace("-", "_"))(*arguments)
        return "".join(text + "\n" for text in self.transcript)

    # -- commands ----------------------------------------------------------------------------------------------------

    def do_cluster(self, *options: str) -> None:
        counts = {name: int(value) for name, _, value in (option.partition("=") for option in options)}
        voters = counts["voters"]
        bootstrap = VoterSet.of(Voter(i, directory(i)) for i in range(1, voters + 1))
        for i in range(1, voters + counts.get("observers", 0) + 1):
            disk = Disk(ReplicaKey(i, directory(i)), bootstrap if i <= voters else VoterSet())
            self.nodes[i] = ScriptedNode(self, i, disk)

    def do_start(self, *nodes: str) -> None:
        for node in nodes:
            self.nodes[int(node)].start()

    def do_kill(self, node: str) -> None:
        self._stop(int(node))

    def do_power_loss(self, node: str) -> None:
        self._stop(int(node))
        disk = self.nodes[int(node)].disk
        disk.log = list(disk.durable)

    def do_wipe(self, node: str) -> None:
        self._stop(int(node))
        old = self.nodes[int(node)].disk.key.directory_id
        self.nodes[int(node)].disk = Disk(ReplicaKey(int(node), directory(int(node), old[1] + 1)), VoterSet())
        self.epochs[int(node)] = 0

    def do_rot(self, node: str, offset: str) -> None:
        self._stop(int(node))
        disk = self.nodes[int(node)].disk
        disk.truncate(int(offset))
        disk.durable = list(disk.log)
        disk.hard = HardState(disk.hard.epoch, disk.hard.leader_id, disk.hard.voted, suspect=True)

    def _stop(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.up:
            node.stop()
        # Connections die with the node, and with them the answers; a request of somebody else may come just after.
        self.queue = [
            (target, message)
            for target, message in self.queue
            if message.source != node_id and not (target == node_id and isinstance(message, m.Response))
        ]

    def do_tick(self, node: str) -> None:
        self.do_late_tick(node, "0")

    def do_late_tick(self, node: str, late_ms: str) -> None:
        scripted = self.nodes[int(node)]
        assert isinstance(scripted, ScriptedNode)
        assert scripted.deadline_ms < float("inf"), f"node {node} waits for nothing"
        self.now = max(self.now, scripted.deadline_ms + int(late_ms))
        self.note(f"now {self.now:g} ms")
        scripted.step(m.Tick())

    def do_deliver(self, link: str = "") -> None:
        while self._deliver_one(link):
            pass

    def do_drop(self, link: str = "") -> None:
        self.queue = [(target, message) for target, message in self.queue if not _on(link, message.source, target)]

    def do_cut(self, node: str) -> None:
        self.do_drop()
        self.isolate(int(node))

    def do_heal(self) -> None:
        self.heal()

    def do_sync(self, node: str) -> None:
        scripted = self.nodes[int(node)]
        assert isinstance(scripted, ScriptedNode)
        scripted.finish_sync()

    def do_settle(self) -> None:
        for _ in range(1000):
            if self._deliver_one(""):
                continue
            before = len(self.transcript or ())
            for node in sorted(self.nodes):
                self.do_sync(str(node))
            if not self.queue and len(self.transcript or ()) == before:
                return
        raise AssertionError("it never settles")

    def do_wait(self, duration_ms: str) -> None:
        end = self.now + int(duration_ms)
        while True:
            waiting = [node for node in self.nodes.values() if isinstance(node, ScriptedNode) and node.up]
            node = min(waiting, key=lambda node: (node.deadline_ms, node.id))
            if node.deadline_ms > end:
                self.now = end
                return
            self.now = max(self.now, node.deadline_ms)
            mark = len(self.transcript or ())
            node.step(m.Tick())
            self.do_settle()
            if self.transcript is not None and len(self.transcript) > mark:
                self.transcript.insert(mark, f"now {self.now:g} ms")

    def do_hide_fetches(self) -> None:
        self.fetches = False

    def do_show_fetches(self) -> None:
        self.fetches = True

    def do_batches_per_fetch(self, count: str) -> None:
        self.batches = int(count)

    def do_propose(self, node: str, value: str) -> None:
        core = self.nodes[int(node)].core
        assert core is not None
        ready = self.nodes[int(node)].step(m.Propose(core.epoch, (value.encode(),)))
        assert ready is not None
        if ready.proposed is None:
            self.note(f"{node} refuses")

    def do_snapshot(self, node: str) -> None:
        scripted = self.nodes[int(node)]
        assert scripted.take_snapshot()
        self.note(f"{node} has snapshot {_place(scripted.disk.snapshot[0])}, its log starts at {scripted.disk.start}")

    def do_add_voter(self, leader: str, node: str) -> None:
        self.operations += 1
        voter = Voter(int(node), self.nodes[int(node)].disk.key.directory_id)
        self.nodes[int(leader)].step(m.AddVoter(self.operations, voter))

    def do_remove_voter(self, leader: str, node: str) -> None:
        self.operations += 1
        core = self.nodes[int(leader)].core
        assert core is not None
        voter = core.voter_set.get(int(node))
        key = voter.key if voter else self.nodes[int(node)].disk.key
        self.nodes[int(leader)].step(m.RemoveVoter(self.operations, key))

    def do_resign(self, node: str) -> None:
        self.nodes[int(node)].step(m.Resign())

    def do_status(self) -> None:
        for node in self.nodes.values():
            core = node.core
            if core is None:
                self.note(f"{node.id} down, log ends at {node.disk.end}")
                continue
            suspect = ", suspect" if core.hard.suspect else ""
            voters = ",".join(str(voter) for voter in core.voter_set.ids) or "none"
            self.note(
                f"{node.id} {core.role.value} epoch={core.epoch} leader={_node(core.leader_id)} "
                f"log={core.log.start_offset}..{core.log.end_offset} committed={core.high_watermark} "
                f"voters={voters}{suspect}"
            )

    # -- the network -------------------------------------------------------------------------------------------------

    def randomness(self, node_id: int) -> Rank:
        return Rank(node_id)

    def batches_per_fetch(self) -> int:
        return self.batches

    def log_start(self, offsets: list[int]) -> int:
        return offsets[-1]

    def send(self, source: Node, message: m.Message) -> None:
        target = message.target
        if (source.id, target) in self.cut:
            return
        if target == ANY_BOOTSTRAP_SERVER:
            target = min(node.id for node in self.nodes.values() if node.up and node.id != source.id)
        self.queue.append((target, message))

    def _deliver_one(self, link: str) -> bool:
        for index, (target, message) in enumerate(self.queue):
            if _on(link, message.source, target):
                del self.queue[index]
                self.nodes[target].step(message)
                return True
        return False

    # -- what happened -----------------------------------------------------------------------------------------------

    def narrate(self, node: Node, ready: m.Ready) -> None:
        core = node.core
        assert core is not None
        if ready.hard_state is not None:
            hard = ready.hard_state
            voted = hard.voted.id if hard.voted else -1
            state = f"epoch={hard.epoch} leader={_node(hard.leader_id)} voted={_node(voted)}"
            self.note(f"{node.id} writes {state}{' suspect' if hard.suspect else ''}")
        if ready.leadership is not None:
            self.note(f"{node.id} is {ready.leadership.role.value}, epoch {ready.leadership.epoch}")
        if ready.truncate_to is not None:
            self.note(f"{node.id} truncates to {ready.truncate_to}")
        for batch in ready.append:
            self.note(f"{node.id} appends {_batch(batch)}")
        if ready.high_watermark is not None:
            self.note(f"{node.id} commits {ready.high_watermark}")
        for message in ready.messages:
            if not self.fetches and isinstance(message, m.FetchRequest | m.FetchResponse):
                continue
            self.note(f"{node.id} -> {_node(message.target)} {_describe(message)}")
        if ready.install is not None:
            self.note(f"{node.id} has all of snapshot {_place(ready.install)}")
        for result in ready.results:
            self.note(f"{node.id} answers change {result.operation_id}: {result.error.name} {result.message}".rstrip())


def _on(link: str, source: int, target: int) -> bool:
    return not link or link == f"{source}->{target}"


def _node(node_id: int) -> str:
    return {ANY_BOOTSTRAP_SERVER: "anyone", -1: "-"}.get(node_id, str(node_id))


def _place(place: OffsetAndEpoch) -> str:
    return f"{place.offset}@{place.epoch}"


def _offset(offset: int) -> str:
    return "-" if offset < 0 else str(offset)


def _batch(batch: m.LogBatch) -> str:
    records = [_control(record) for record in batch.control] or [value.decode() for value in batch.values]
    return f"{batch.base_offset}@{batch.epoch} {' '.join(records)}"


def _control(record: m.ControlRecord) -> str:
    match record:
        case m.LeaderChange():
            return f"leader({record.leader_id})"
        case m.KRaftVersion():
            return f"kraft-version({record.level})"
        case m.Voters():
            return f"voters({','.join(str(voter) for voter in record.voter_set.ids)})"
        case _:
            raise AssertionError(record)


def _describe(message: m.Message) -> str:
    error = message.error if isinstance(message, m.Response) else ErrorCode.NONE
    suffix = f" {error.name}" if error else ""
    epoch = f"epoch={message.epoch}"
    match message:
        case m.VoteRequest():
            kind = "pre-vote?" if message.pre_vote else "vote?"
            return f"{kind} {epoch} log={message.last_offset}@{message.last_epoch}"
        case m.VoteResponse():
            answer = "granted" if message.granted else "refused"
            return f"{answer} {epoch} leader={_node(message.leader_id)}{suffix}"
        case m.BeginQuorumEpochRequest():
            return f"begin-epoch? {epoch}"
        case m.BeginQuorumEpochResponse():
            return f"begin-epoch {epoch} leader={_node(message.leader_id)}{suffix}"
        case m.EndQuorumEpochRequest():
            return f"end-epoch? {epoch} next={','.join(str(key.id) for key in message.preferred)}"
        case m.EndQuorumEpochResponse():
            return f"end-epoch {epoch}{suffix}"
        case m.FetchRequest():
            return f"fetch? {epoch} log={message.offset}@{message.last_epoch} committed={message.high_watermark}"
        case m.FetchResponse():
            if error:
                return f"fetch {epoch} leader={_node(message.leader_id)}{suffix}"
            if message.diverging is not None:
                return f"fetch {epoch} diverging={_place(message.diverging)}"
            if message.snapshot is not None:
                return f"fetch {epoch} snapshot={_place(message.snapshot)}"
            return f"fetch {epoch} from={message.read_from} committed={_offset(message.high_watermark)}"
        case m.FetchSnapshotRequest():
            return f"fetch-snapshot? {epoch} {_place(message.snapshot)} position={message.position}"
        case m.FetchSnapshotResponse():
            return f"fetch-snapshot {epoch} {_place(message.snapshot)} position={message.position}{suffix}"


# -- files -----------------------------------------------------------------------------------------------------------
