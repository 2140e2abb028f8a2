"""Forged messages against the pure Raft core, through the same checks as in a node: it never raises, and stays valid.

The forger knows everything that DescribeQuorum returns, and guesses request ids correctly. Requests reach the core in
any role; responses belong to requests that the core really sent, as from a node that it was made to ask.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.broker.quorum import wire as quorum_wire
from penstock.raft import (
    Endpoint,
    HardState,
    LogBatch,
    LogView,
    OffsetAndEpoch,
    Persisted,
    Propose,
    RaftCore,
    Ready,
    ReplicaKey,
    RequestFailed,
    Role,
    SnapshotInstalled,
    SnapshotRefused,
    Tick,
    Voter,
    VoterSet,
    encode_batch,
)
from penstock.raft import messages as m
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import NoOpRecord, encode_metadata_record

OWN = 1
STEPS = 400
NO_OP = encode_metadata_record(NoOpRecord())
NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 1000, 2**31 - 1, 2**40, 2**63 - 1)
NAMES = ("node-2", "", "a" * 64, "a\0", "..", "\u00fc" * 70)


def key_of(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id % 256]) * 16)


def voter(node_id: int) -> Voter:
    return Voter(node_id, key_of(node_id).directory_id, (Endpoint("CONTROLLER", f"node-{node_id}", 9093),))


class Victim:
    """A core with a shell that carries out `Ready` immediately, and checks the invariants."""

    def __init__(self, rng: Random, voters: int) -> None:
        self.rng = rng
        self.now_ms = 0.0
        self.asked: list[m.Request] = []
        log = LogView(0, OffsetAndEpoch(0, 0), VoterSet.of(voter(n) for n in range(1, voters + 1)))
        self.core = RaftCore(key_of(OWN), HardState(), log, rng)
        self.seen = (0, 0)
        self.roles: set[Role] = set()
        self.do(self.core.start(0.0))

    def step(self, event: m.Event) -> None:
        self.do(self.core.step(event, self.now_ms))

    def do(self, ready: Ready) -> None:
        core = self.core
        self.roles.add(core.role)
        assert (core.epoch, core.high_watermark) >= self.seen, "epoch and high watermark never go back"
        assert core.high_watermark >= self.seen[1]
        self.seen = (core.epoch, core.high_watermark)
        assert core.high_watermark <= core.log.end_offset
        assert (core.role is Role.LEADER) == (core.leading is not None) == (core.leader_id == OWN)
        for message in ready.messages:
            if isinstance(message, m.Request):
                self.asked.append(message)
        del self.asked[:-5]
        for batch in ready.append:
            encode_batch(batch, 1)
        if ready.install is not None:
            refused = self.rng.random() < 0.5
            installed = SnapshotInstalled(ready.install, VoterSet.of([voter(OWN), voter(2), voter(3)]))
            self.step(SnapshotRefused(ready.install) if refused else installed)
        elif ready.append or ready.truncate_to is not None:
            self.step(Persisted(core.log.end_offset))


class Forger:
    def __init__(self, rng: Random, victim: Victim) -> None:
        self.rng = rng
        self.victim = victim

    def send(self) -> None:
        """Send one forged message, if the checks accept it."""
        victim, rng = self.victim, self.rng
        if victim.asked and rng.random() < 0.5:
            asked = victim.asked[-1] if rng.random() < 0.7 else rng.choice(victim.asked)
            if rng.random() < 0.1:
                victim.step(RequestFailed(asked.request_id))
                return
            try:
                answer = self.answer(asked)
                victim.step(quorum_wire.from_response(asked, answer, victim.core.epoch))
            except (quorum_wire.Inconsistent, KafkaError):
                return
        else:
            request: Any = quorum_wire.to_request(self.request(), "cluster", ("C", rng.choice(NAMES), 1))
            try:
                victim.step(quorum_wire.to_core(request, OWN, rng.randrange(1 << 30), victim.core.epoch))
            except KafkaError:
                return

    # ---- what it makes up

    def epoch(self) -> int:
        return self.victim.core.epoch + self.rng.choice((-1, 0, 0, 0, 1, 2, 900, 2**20))

    def offset(self) -> int:
        log = self.victim.core.log
        near = (log.end_offset, log.end_offset, log.end_offset + 1, log.end_offset - 1, self.victim.core.high_watermark)
        return self.rng.choice((*near, *near, *NUMBERS))

    def key(self) -> ReplicaKey:
        strangers = (key_of(9), ReplicaKey(2, b"other directory."), ReplicaKey(-1, bytes(16)))
        keys = [*self.victim.core.voter_set.keys, *strangers]
        return self.rng.choice(keys)

    def place(self) -> OffsetAndEpoch:
        epoch = self.rng.choice((self.epoch(), self.victim.core.log.last_epoch, self.rng.randrange(9)))
        return OffsetAndEpoch(max(-1, self.offset()), max(-1, epoch))

    def node(self) -> int:
        return self.rng.choice((-1, -1, 1, 2, 3, 9, self.victim.core.leader_id, -2, 2**31 - 1))

    def request(self) -> m.Request:
        rng, key, epoch = self.rng, self.key(), self.epoch()
        number = rng.randrange(1 << 30)
        match rng.randrange(5):
            case 0:
                last = (rng.choice((epoch, 0, -1)), self.offset())
                return m.VoteRequest(key.id, OWN, number, epoch, key, self.key(), *last, rng.random() < 0.5)
            case 1:
                return m.BeginQuorumEpochRequest(key.id, OWN, number, epoch, self.key())
            case 2:
                return m.EndQuorumEpochRequest(key.id, OWN, number, epoch, tuple(self.key() for _ in range(4)))
            case 3:
                wait_ms = rng.choice((-(2**31), 0, 10, 2**31 - 1))
                return m.FetchRequest(key.id, OWN, number, key, epoch, self.offset(), epoch - 1, self.offset(), wait_ms)
            case _:
                position, most = rng.choice(NUMBERS), rng.choice((-1, 0, 2**31 - 1))
                return m.FetchSnapshotRequest(key.id, OWN, number, key, epoch, self.place(), position, most)

    def answer(self, asked: m.Request) -> Any:
        rng, epoch, leader = self.rng, self.epoch(), self.node()
        error = rng.choice((ErrorCode.NONE, ErrorCode.NONE, *ErrorCode))
        if rng.random() < 0.7:
            # Only what follows is a lie.
            error, leader, epoch = ErrorCode.NONE, self.victim.core.leader_id, self.victim.core.epoch
        head = (asked.target, OWN, asked.request_id, error, leader, epoch)
        nodes = {leader: (rng.choice(NAMES), rng.choice((0, 1, 65535)))}
        match asked:
            case m.VoteRequest():
                return quorum_wire.to_response(m.VoteResponse(*head, rng.random() < 0.7), nodes)
            case m.BeginQuorumEpochRequest():
                return quorum_wire.to_response(m.BeginQuorumEpochResponse(*head), nodes)
            case m.EndQuorumEpochRequest():
                return quorum_wire.to_response(m.EndQuorumEpochResponse(*head), nodes)
            case m.FetchRequest():
                told = m.FetchResponse(*head, self.offset())
                kind = rng.randrange(4)
                if kind == 0:
                    return quorum_wire.to_response(replace(told, diverging=self.place()), nodes)
                if kind == 1:
                    return quorum_wire.to_response(replace(told, snapshot=self.place()), nodes)
                return quorum_wire.to_response(told, nodes, b"".join(self.batch(n) for n in range(rng.randrange(4))))
            case m.FetchSnapshotRequest():
                position = rng.choice((asked.position, asked.position, *NUMBERS))
                place = asked.snapshot if rng.random() < 0.7 else self.place()
                piece = m.FetchSnapshotResponse(*head, place, position)
                return quorum_wire.to_response(piece, nodes, rng.choice((b"", b"piece")), rng.choice((0, 5, 10, 2**40)))

    def batch(self, number: int) -> bytes:
        rng = self.rng
        at = max(0, min(2**62, rng.choice((self.victim.core.log.end_offset + number, self.offset()))))
        epoch = max(0, rng.choice((self.victim.core.epoch, self.epoch())))
        if rng.random() < 0.3:
            voters = VoterSet.of(voter(n) for n in rng.sample((1, 2, 3, 9), rng.randrange(4)))
            control = (m.LeaderChange(self.node(), (1, 2), (9,)), m.Voters(voters))
            return encode_batch(LogBatch(at, len(control), epoch, control=control), 1)
        return encode_batch(
            LogBatch(
                at,
                2,
                epoch,
                values=(NO_OP, rng.choice((NO_OP, NO_OP, b"nothing"))),
            ),
            1,
        )


@pytest.mark.parametrize("voters", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_no_forged_message_makes_the_core_raise_or_go_back(seed: int, voters: int) -> None:
    rng = Random(f"{seed}-{voters}")
    victim = Victim(rng, voters)
    forger = Forger(rng, victim)
    for _ in range(STEPS):
        victim.now_ms += rng.choice((0, 1, 20, 300, 3_000))
        match rng.randrange(6):
            case 0:
                victim.step(Tick())
            case 1 if victim.core.leading is not None:
                victim.step(Propose(victim.core.epoch, (NO_OP,)))
            case _:
                forger.send()
    assert victim.core.epoch < 2**31
    if voters == 3:
        assert {Role.FOLLOWER, Role.UNATTACHED} <= victim.roles
