"""Readable scenarios of one partition with several replicas, made of the pure cores of `model.py`.

How to read and extend the files in `scenarios/` is in `support.transcripts`. Time stands still unless a command moves
it, and nothing is random: of several candidates the first is elected. `a/0 b/0` is a log with the records a and b, both
written in leader epoch 0; `|` is the high watermark.

    append 1 a b       a producer sends records to node 1, which must believe that it leads
    fetch 2            node 2 asks its leader once, and takes what it answers
    controller-fences 1  the controller takes node 1 for dead: it leaves the ISR, and another leads
    news 2 3           these nodes hear what the controller has recorded
    kill 1             its process ends, the page cache stays
    power-loss 1       the same, and what was not synced is lost
    restart 1          it is back under a new incarnation
    sync 1             what node 1 has is on its disk
    wait MS            leaders look who has not kept up
    status             what each node has, and believes
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from penstock.replication import Fetched, IsrProposal
from replication.model import Ask, Entry, Model, Replica, State, Tell


class First(Random):
    """No randomness: the first of those to choose from."""

    def choice(self, seq: Any) -> Any:
        return seq[0]


class Scenario(Model):
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        super().__init__(First(0))

    def execute(self, line: str) -> str:
        self.lines = []
        name, *arguments = line.split()
        marks = {node: self.mark(replica) for node, replica in self.replicas.items()}
        getattr(self, "do_" + name.replace("-", "_"))(*arguments)
        for node, replica in self.replicas.items():
            if replica.alive and replica.leader is not None and marks[node] not in (None, self.mark(replica)):
                self.lines.append(f"{node} commits up to {self.mark(replica)}")
        self.check()
        return "".join(text + "\n" for text in self.lines)

    @staticmethod
    def mark(replica: Replica) -> int | None:
        """The high watermark of a leader."""
        return None if replica.leader is None else replica.leader.high_watermark

    # -- commands ----------------------------------------------------------------------------------------------------

    def do_append(self, node: str, *values: str) -> None:
        replica = self.replicas[int(node)]
        leader = replica.leader
        assert leader is not None, f"{node} does not believe that it leads"
        if leader.refuses_acks_all:
            self.lines.append(f"{node} refuses acks=all: too few replicas are in sync")
            return
        for value in values:
            self.numbers += 1
            self.names[self.numbers] = value
            replica.log.append([(leader.leader_epoch, self.numbers)])
        leader.on_append(replica.log.end, replica.log.end)

    def do_fetch(self, node: str) -> None:
        replica = self.replicas[int(node)]
        follower = replica.follower
        assert follower is not None, f"{node} follows nobody"
        position = follower.position(replica.log.ends(self.flush))
        assert position is not None
        self.asks += 1
        follower.on_asked(position, self.asks)
        asked = f"fetch from {position.offset}, last epoch {position.last_epoch}"
        self.lines.append(f"{node} -> {follower.leader_id} {asked}")
        before = len(self.messages)
        self.serve(Ask(replica.node, follower.leader_id, position, replica.broker_epoch, self.asks))
        if len(self.messages) == before:
            self.lines.append(f"{follower.leader_id} does not answer")
        while len(self.messages) > before:
            message = self.messages.pop(before)
            assert isinstance(message, Tell)
            self.lines.append(f"{follower.leader_id} -> {node} {self.in_words(message.answer, message.entries)}")
            end = replica.log.end
            self.take(message)
            if replica.log.end < end:
                self.lines.append(f"{node} cuts its log at {replica.log.end}")

    def do_controller_fences(self, node: str) -> None:
        state = self.state
        fenced = replace(state, fenced=(*state.fenced, int(node)))
        self.record(self.without(fenced, int(node), unclean=False))

    def do_news(self, *nodes: str) -> None:
        for node in nodes:
            replica = self.replicas[int(node)]
            before = replica.leader is not None
            self.adopt(replica)
            state = self.state
            role = "leads" if replica.leader is not None else f"follows {state.leader}"
            if replica.leader is None and before:
                role = f"leads no longer, {role}"
            self.lines.append(f"{node} {role} in epoch {state.leader_epoch}")

    def do_kill(self, node: str) -> None:
        replica = self.replicas[int(node)]
        replica.alive = False
        replica.high_watermark = self.known_high_watermark(replica)
        replica.leader = replica.follower = None

    def do_power_loss(self, node: str) -> None:
        self.do_kill(node)
        replica = self.replicas[int(node)]
        self.lost_tail = replica.node
        replica.log.cut(replica.log.durable)

    def do_restart(self, node: str) -> None:
        replica = self.replicas[int(node)]
        replica.alive = True
        replica.broker_epoch += 1
        replica.log.follow()
        replica.high_watermark = min(replica.high_watermark, replica.log.end)
        state = self.state
        epochs = {**state.broker_epochs, replica.node: replica.broker_epoch}
        fenced = tuple(other for other in state.fenced if other != replica.node)
        self.record(self.without(replace(state, broker_epochs=epochs, fenced=fenced), replica.node, unclean=True))

    def do_sync(self, node: str) -> None:
        log = self.replicas[int(node)].log
        log.durable = log.end

    def do_wait(self, duration_ms: str) -> None:
        self.now_ms += int(duration_ms)
        for replica in self.replicas.values():
            if replica.alive and replica.leader is not None:
                self.send_proposal(replica, replica.leader.tick(self.now_ms))

    def do_status(self) -> None:
        for node, replica in self.replicas.items():
            leader, follower = replica.leader, replica.follower
            role = "is down"
            if leader is not None:
                role = f"leads in epoch {leader.leader_epoch}"
            elif follower is not None:
                role = f"follows {follower.leader_id} in epoch {follower.leader_epoch}"
            entries = [self.entry(entry) for entry in replica.log.entries]
            entries.insert(self.known_high_watermark(replica), "|")
            self.lines.append(f"{node} {role}: {' '.join(entries)}")

    # -- what the model does, told ----------------------------------------------------------------------------------

    def record(self, state: State) -> None:
        before = self.state
        super().record(state)
        after = self.state
        if (before.leader, before.isr) != (after.leader, after.isr):
            leader = f"{after.leader} leads in epoch {after.leader_epoch}" if after.leader > 0 else "nobody leads"
            self.lines.append(f"controller: {leader}, in sync are {' '.join(map(str, after.isr))}")

    def send_proposal(self, replica: Replica, proposal: IsrProposal | None) -> None:
        """It reaches the controller at once; what comes of it, when there is news."""
        if proposal is not None:
            self.lines.append(f"{replica.node} proposes that in sync are {' '.join(map(str, proposal.isr))}")
            before = len(self.messages)
            super().send_proposal(replica, proposal)
            for message in self.messages[before:]:
                self.alter(message)  # type: ignore[arg-type]
            del self.messages[before:]

    def in_words(self, answer: Fetched, entries: list[Entry]) -> str:
        if answer.error:
            return f"error {answer.error}"
        if answer.diverging is not None:
            return f"our logs part: epoch {answer.diverging[0]} ended at {answer.diverging[1]}"
        records = " ".join(map(self.entry, entries)) or "nothing new"
        return f"{records}, committed up to {answer.high_watermark}"

    def entry(self, entry: Entry) -> str:
        return f"{self.names[entry[1]]}/{entry[0]}"
