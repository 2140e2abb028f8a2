"""A partition with several replicas, made of the pure cores: messages that are late, lost and doubled, nodes that crash
and lose what they had not synced, a controller whose news reaches each node when it likes.

The controller here is the smallest that keeps KIP-966's rules: a leader comes from the ISR, or from the eligible
replicas that left it while it was below the minimum; a broker that restarts uncleanly leaves both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from penstock.log.epochs import EpochCache
from penstock.replication import (
    Append,
    Fetched,
    Follower,
    IsrProposal,
    Leader,
    LogEnds,
    Position,
    StartAt,
    Truncate,
)

LAG_MS = 1000
NO_LEADER = -1
RECORDS_PER_FETCH = 4
OUT_OF_RANGE, NOT_LEADER, FENCED, UNKNOWN_EPOCH = 1, 6, 74, 76

Entry = tuple[int, int]
"""(epoch, a number of its own)"""


class Violation(AssertionError):
    pass


class ListLog:
    """What `penstock.log` is to replication, over a list."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = 0
        self.durable = 0
        self.epochs = EpochCache()

    @property
    def end(self) -> int:
        return len(self.entries)

    def ends(self, flush: bool) -> LogEnds:
        last_epoch = self.entries[-1][0] if self.end > self.start else -1
        return LogEnds(self.start, self.end, self.durable if flush else self.end, last_epoch)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        found, end = self.epochs.end_offset(epoch, self.end)
        if 0 <= end < self.start:
            return epoch, self.start
        return found, end

    def lead(self, epoch: int) -> None:
        self.epochs.assign(epoch, self.end)

    def follow(self) -> None:
        self.epochs.truncate_end(self.end)

    def append(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry[0] > self.epochs.latest_epoch:
                self.epochs.assign(entry[0], self.end)
            assert entry[0] >= self.epochs.latest_epoch, "epochs never fall within a log"
            self.entries.append(entry)

    def cut(self, offset: int) -> None:
        del self.entries[offset:]
        self.durable = min(self.durable, offset)
        self.epochs.truncate_end(offset)


@dataclass(frozen=True)
class State:
    """What the controller recorded."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    broker_epochs: dict[int, int] = field(default_factory=dict)
    fenced: tuple[int, ...] = ()


@dataclass
class Ask:
    sender: int
    to: int
    position: Position
    broker_epoch: int
    number: int


@dataclass
class Tell:
    to: int
    number: int
    follower: Follower
    answer: Fetched
    entries: list[Entry]


@dataclass
class Alter:
    sender: int
    proposal: IsrProposal
    epochs: dict[int, int]


@dataclass
class Altered:
    to: int
    leader: Leader
    refused: bool


class Replica:
    def __init__(self, node: int) -> None:
        self.node = node
        self.log = ListLog()
        self.alive = True
        self.broker_epoch = 0
        self.known = 0
        """How much of the controller's history it has seen."""
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.high_watermark = 0


class Model:
    def __init__(self, rng: Random, replicas: int = 3, *, min_isr: int = 2, flush: bool = False) -> None:
        self.rng = rng
        self.min_isr = min_isr
        self.flush = flush
        self.now_ms = 0.0
        self.nodes = tuple(range(1, replicas + 1))
        self.replicas = {node: Replica(node) for node in self.nodes}
        self.history = [State(1, 0, 0, self.nodes, broker_epochs=dict.fromkeys(self.nodes, 0))]
        self.messages: list[Ask | Tell | Alter | Altered] = []
        self.committed: list[Entry] = []
        self.lost_tail: int | None = None
        """The node that lost power and has not been back in the ISR since: only one at a time may."""
        self.numbers = 0
        self.asks = 0
        self.counts = dict.fromkeys(
            ("elected", "eligible_elected", "cut", "shrunk", "expanded", "committed", "refused", "frozen"), 0
        )
        for replica in self.replicas.values():
            self.adopt(replica)

    @property
    def state(self) -> State:
        return self.history[-1]

    # ---- steps

    def step(self) -> None:
        step = self.rng.choices(
            (
                self.some_append,
                self.some_ask,
                self.some_deliver,
                self.some_news,
                self.some_sync,
                self.some_tick,
                self.some_crash,
                self.some_restart,
                self.some_fencing,
                self.some_drop,
                self.some_doubling,
            ),
            (12, 30, 60, 20, 10, 4, 1.0, 2, 0.7, 2, 2),
        )[0]
        step()
        self.check()

    def some_append(self) -> None:
        leaders = [r for r in self.replicas.values() if r.alive and r.leader is not None]
        if leaders:
            replica = self.rng.choice(leaders)
            leader = replica.leader
            assert leader is not None
            self.numbers += 1
            replica.log.append([(leader.leader_epoch, self.numbers)])
            leader.on_append(replica.log.end, replica.log.ends(self.flush).stable_end)
            self.counts["frozen"] += leader.under_min_isr

    def some_sync(self) -> None:
        replica = self.rng.choice(list(self.replicas.values()))
        if not replica.alive:
            return
        replica.log.durable = replica.log.end
        if self.flush and replica.leader is not None:
            replica.leader.on_durable(replica.log.durable)
        if self.flush and replica.follower is not None:
            replica.follower.on_grown(replica.log.ends(True))

    def some_ask(self) -> None:
        followers = [r for r in self.replicas.values() if r.alive and r.follower is not None]
        if followers:
            replica = self.rng.choice(followers)
            follower = replica.follower
            assert follower is not None
            position = follower.position(replica.log.ends(self.flush))
            if position is not None:
                self.asks += 1
                follower.on_asked(position, self.asks)
                ask = Ask(replica.node, follower.leader_id, position, replica.broker_epoch, self.asks)
                self.messages.append(ask)

    def some_tick(self) -> None:
        self.now_ms += self.rng.uniform(0, LAG_MS)
        for replica in self.replicas.values():
            if replica.alive and replica.leader is not None:
                self.send_proposal(replica, replica.leader.tick(self.now_ms))

    def some_crash(self) -> None:
        """The process ends; the page cache survives, or does not."""
        alive = [r for r in self.replicas.values() if r.alive]
        if len(alive) < 2:
            return
        replica = self.rng.choice(alive)
        replica.alive = False
        replica.leader = replica.follower = None
        if self.rng.random() < 0.5 and self.lost_tail in (None, replica.node):
            self.lost_tail = replica.node
            replica.log.cut(max(replica.log.durable, 0))

    def some_restart(self) -> None:
        """Back under a new incarnation, without proof that nothing was lost."""
        dead = [r for r in self.replicas.values() if not r.alive]
        if not dead:
            return
        replica = self.rng.choice(dead)
        replica.alive = True
        replica.broker_epoch += 1
        replica.log.follow()
        replica.high_watermark = self.rng.randint(0, min(replica.high_watermark, replica.log.end))
        state = self.state
        epochs = {**state.broker_epochs, replica.node: replica.broker_epoch}
        fenced = tuple(node for node in state.fenced if node != replica.node)
        self.record(self.without(replace(state, broker_epochs=epochs, fenced=fenced), replica.node, unclean=True))

    def some_fencing(self) -> None:
        """The controller takes a node for dead, rightly or not."""
        node = self.rng.choice(self.nodes)
        state = self.state
        if node in state.fenced:
            if self.replicas[node].alive:
                fenced = tuple(one for one in state.fenced if one != node)
                self.record(self.elect(replace(state, fenced=fenced)))
        else:
            state = replace(state, fenced=(*state.fenced, node))
            self.record(self.without(state, node, unclean=False))

    def some_news(self) -> None:
        replica = self.rng.choice(list(self.replicas.values()))
        if replica.alive and replica.known < len(self.history):
            replica.known = self.rng.randint(replica.known + 1, len(self.history))
            self.adopt(replica)

    def some_drop(self) -> None:
        if self.messages:
            del self.messages[self.rng.randrange(len(self.messages))]

    def some_doubling(self) -> None:
        if self.messages:
            self.messages.append(self.rng.choice(self.messages))

    def some_deliver(self) -> None:
        if not self.messages:
            return
        message = self.messages.pop(self.rng.randrange(len(self.messages)))
        match message:
            case Ask():
                self.serve(message)
            case Tell():
                self.take(message)
            case Alter():
                self.alter(message)
            case Altered():
                replica = self.replicas[message.to]
                if message.refused and replica.leader is message.leader and replica.alive:
                    self.refuse(message.leader)

    # ---- nodes

    def adopt(self, replica: Replica) -> None:
        replica.known = len(self.history)
        state = self.state
        if state.leader == replica.node:
            leader = replica.leader
            if leader is not None and leader.leader_epoch == state.leader_epoch:
                leader.on_isr(self.nodes, state.isr, state.partition_epoch, self.now_ms)
                return
            known = leader.high_watermark if leader is not None else self.known_high_watermark(replica)
            ends = replica.log.ends(self.flush)
            replica.follower = None
            replica.log.lead(state.leader_epoch)
            replica.leader = self.new_leader(replica, state, ends, min(known, ends.stable_end))
            return
        replica.high_watermark = self.known_high_watermark(replica)
        replica.leader = None
        if state.leader == NO_LEADER:
            replica.follower = None
            return
        follower = replica.follower
        if follower is None or follower.leader_epoch != state.leader_epoch:
            replica.log.follow()
            replica.follower = Follower(state.leader, state.leader_epoch, replica.high_watermark)

    def new_leader(self, replica: Replica, state: State, ends: LogEnds, high_watermark: int) -> Leader:
        return Leader(
            replica.node,
            self.nodes,
            state.isr,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            end=ends.end,
            stable_end=ends.stable_end,
            high_watermark=high_watermark,
            min_isr=self.min_isr,
            lag_time_max_ms=LAG_MS,
            now_ms=self.now_ms,
        )

    def known_high_watermark(self, replica: Replica) -> int:
        if replica.leader is not None:
            return replica.leader.high_watermark
        return replica.follower.high_watermark if replica.follower is not None else replica.high_watermark

    def refuse(self, leader: Leader) -> None:
        leader.on_refused(self.now_ms + 1)
        self.counts["refused"] += 1

    def serve(self, ask: Ask) -> None:
        """What the leader's side of Fetch does."""
        replica = self.replicas[ask.to]
        asker = self.replicas[ask.sender]
        if not replica.alive or asker.follower is None:
            return
        leader, log = replica.leader, replica.log
        answer, entries = Fetched(NOT_LEADER), list[Entry]()
        if leader is not None:
            if ask.position.leader_epoch != leader.leader_epoch:
                older = ask.position.leader_epoch < leader.leader_epoch
                answer = Fetched(FENCED if older else UNKNOWN_EPOCH)
            else:
                answer, entries = self.read(replica, leader, log, ask)
        self.messages.append(Tell(ask.sender, ask.number, asker.follower, answer, entries))

    def read(self, replica: Replica, leader: Leader, log: ListLog, ask: Ask) -> tuple[Fetched, list[Entry]]:
        offset, last_epoch, _ = ask.position
        if offset < log.start:
            return Fetched(OUT_OF_RANGE, leader.high_watermark, log.start), []
        diverging = self.compare(log, offset, last_epoch)
        if diverging is not None:
            return Fetched(0, leader.high_watermark, log.start, diverging), []
        registered = self.known_state(replica)
        current = registered.broker_epochs[ask.sender] == ask.broker_epoch
        eligible = current and ask.sender not in registered.fenced
        proposal = leader.on_fetch(ask.sender, offset, self.now_ms, broker_epoch=ask.broker_epoch, eligible=eligible)
        self.send_proposal(replica, proposal)
        entries = log.entries[offset : offset + RECORDS_PER_FETCH]
        first, last = (offset, entries[-1][0]) if entries else (-1, -1)
        return Fetched(0, leader.high_watermark, log.start, None, first, last), entries

    def compare(self, log: ListLog, offset: int, last_epoch: int) -> tuple[int, int] | None:
        if last_epoch >= 0:
            epoch, end = log.epoch_end(last_epoch)
            return (epoch, end) if epoch < last_epoch or end < offset else None
        return (log.epochs.latest_epoch, log.end) if offset > log.end else None

    def known_state(self, replica: Replica) -> State:
        return self.history[replica.known - 1]

    def take(self, tell: Tell) -> None:
        """What the follower's shell does with an answer."""
        replica = self.replicas[tell.to]
        follower = replica.follower
        if not replica.alive or follower is None or follower is not tell.follower:
            return
        ends = replica.log.ends(self.flush)
        outcome = follower.on_fetched(tell.number, tell.answer, ends, replica.log.epoch_end)
        match outcome:
            case Append():
                if tell.answer.first_offset == ends.end:
                    replica.log.append(tell.entries)
                follower.on_grown(replica.log.ends(self.flush))
            case Truncate(offset, below):
                if below:
                    raise Violation(f"node {tell.to} cuts at {offset}, below its high watermark")
                self.counts["cut"] += 1
                replica.log.cut(offset)
                follower.on_grown(replica.log.ends(self.flush))
            case StartAt():
                raise AssertionError("no log here ever loses its start")

    def send_proposal(self, replica: Replica, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            assert replica.leader is not None
            followers = replica.leader.followers
            epochs = {node: followers[node].broker_epoch for node in proposal.isr if node != replica.node}
            self.messages.append(Alter(replica.node, proposal, {**epochs, replica.node: replica.broker_epoch}))

    # ---- the controller

    def alter(self, message: Alter) -> None:
        state, proposal = self.state, message.proposal
        replica = self.replicas[message.sender]
        if (
            state.leader != message.sender
            or state.leader_epoch != proposal.leader_epoch
            or state.partition_epoch != proposal.partition_epoch
        ):
            return  # it will hear of what happened
        stale = any(epoch not in (-1, state.broker_epochs[node]) for node, epoch in message.epochs.items())
        if stale or any(node in state.fenced for node in proposal.isr):
            if replica.leader is not None:
                self.messages.append(Altered(message.sender, replica.leader, True))
            return
        added = [node for node in proposal.isr if node not in state.isr]
        self.counts["expanded" if added else "shrunk"] += 1
        if self.lost_tail in added:
            self.lost_tail = None
        self.record(self.with_isr(state, proposal.isr))

    def with_isr(self, state: State, isr: tuple[int, ...]) -> State:
        elr: tuple[int, ...] = ()
        if len(isr) < self.min_isr:
            elr = tuple(node for node in (*state.isr, *state.elr) if node not in isr)
        return replace(state, isr=isr, elr=elr)

    def without(self, state: State, node: int, *, unclean: bool) -> State:
        isr = tuple(one for one in state.isr if one != node)
        if isr != state.isr:
            state = self.with_isr(state, isr)
        if unclean:
            state = replace(state, elr=tuple(one for one in state.elr if one != node))
        leader = NO_LEADER if state.leader == node else state.leader
        return self.elect(replace(state, leader=leader))

    def elect(self, state: State) -> State:
        if state.leader != NO_LEADER:
            return state
        able = [node for node in (*state.isr, *state.elr) if node not in state.fenced]
        if not able:
            return state
        leader = self.rng.choice([node for node in able if node in state.isr] or able)
        if leader not in state.isr:
            self.counts["eligible_elected"] += 1
            state = self.with_isr(state, (*state.isr, leader))
        self.counts["elected"] += 1
        return replace(state, leader=leader)

    def record(self, state: State) -> None:
        before = self.state
        epoch = state.leader_epoch + (state.leader != before.leader)
        changed = (state.leader, state.isr, state.elr) != (before.leader, before.isr, before.elr)
        self.history.append(replace(state, leader_epoch=epoch, partition_epoch=before.partition_epoch + changed))

    # ---- what must hold

    def check(self) -> None:
        state = self.state
        for replica in self.replicas.values():
            if replica.leader is not None:
                self.check_committed(replica, replica.leader.high_watermark)
            elif replica.follower is not None:
                self.check_committed(replica, replica.follower.high_watermark)
        for node in (*state.isr, *state.elr):
            held = self.replicas[node].log.entries[: len(self.committed)]
            # One that is down, whatever it lost, leaves them all when it comes back.
            if self.replicas[node].alive and held != self.committed:
                raise Violation(f"node {node} may become leader and lacks what is committed: {state}")

    def check_committed(self, replica: Replica, high_watermark: int) -> None:
        seen = replica.log.entries[:high_watermark]
        known = self.committed[:high_watermark]
        if seen[: len(known)] != known:
            raise Violation(f"node {replica.node} shows other records than were committed below {high_watermark}")
        if len(seen) > len(self.committed):
            if replica.leader is None:
                raise Violation(f"node {replica.node} takes for committed what no leader has committed")
            self.counts["committed"] += len(seen) - len(self.committed)
            self.committed = seen
