"""A plan: the new replicas of partitions, the reasons, the steps, and how much data that moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.balance.model import ClusterModel, Key

STEP_SHARE = 0.10
"""The default share of a plan that is moved in one step."""


class PlanRefused(Exception):
    """There is no valid plan, or it must not be executed. Nothing was changed."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Move(msgspec.Struct, frozen=True, gc=False):
    """One partition's change. The same brokers in another order only change the preferred leader."""

    topic: str
    index: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int = 0
    why: str = ""

    @property
    def key(self) -> Key:
        return Key(self.topic, self.index)

    @property
    def coming(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def leaving(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.before if broker not in self.after)

    @property
    def bytes_to_move(self) -> int:
        return self.size_bytes * len(self.coming)


class Plan(msgspec.Struct, frozen=True):
    moves: tuple[Move, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the user: which goals could not be met, and why."""

    @property
    def assignment(self) -> dict[tuple[str, int], tuple[int, ...]]:
        return {(move.topic, move.index): move.after for move in self.moves}

    @property
    def bytes_to_move(self) -> int:
        return sum(move.bytes_to_move for move in self.moves)

    @property
    def replicas_to_move(self) -> int:
        return sum(len(move.coming) for move in self.moves)


def plan_of(
    model: ClusterModel,
    changed: Mapping[int, tuple[int, ...]],
    reasons: Mapping[int, str] | None = None,
    notes: Iterable[str] = (),
) -> Plan:
    """A plan that gives partitions (by position in the model) new replicas, in the order of `changed`."""
    moves = []
    for position, after in changed.items():
        one = model.partitions[position]
        assert len(set(after)) == len(after), f"{one.key}: duplicate broker in {after}"
        if after != one.target:
            why = reasons.get(position, "") if reasons else ""
            moves.append(Move(one.topic, one.index, one.target, after, one.size_bytes, why))
    return Plan(tuple(moves), tuple(notes))


def apply(model: ClusterModel, plan: Plan) -> ClusterModel:
    """The cluster after the plan, with all replicas in sync and the preferred leaders elected."""
    assignment = plan.assignment
    partitions = []
    for one in model.partitions:
        after = assignment.get((one.topic, one.index))
        if after is not None:
            one = msgspec.structs.replace(one, replicas=after, leader=after[0], in_sync=after, adding=(), removing=())
        partitions.append(one)
    return ClusterModel(model.cluster_id, model.brokers.values(), partitions)


def steps(moves: Sequence[Move], share: float = STEP_SHARE) -> list[list[Move]]:
    """Splits the moves into steps of that share of the total. Moves without data all join the first step, since they
    take only a moment."""
    assert 0 < share <= 1, f"a share must be above 0 and at most 1, not {share}"
    free = [move for move in moves if not move.coming]
    copying = [move for move in moves if move.coming]
    size = max(1, math.ceil(len(copying) * share - 1e-9))
    pieces = [copying[start : start + size] for start in range(0, len(copying), size)] or ([[]] if free else [])
    if free:
        pieces[0] = [*free, *pieces[0]]
    return pieces


class Flow(msgspec.Struct):
    """The bytes that a plan makes one broker send and receive."""

    bytes_out: int = 0
    bytes_in: int = 0


def flows(model: ClusterModel, moves: Iterable[Move]) -> dict[int, Flow]:
    """Data by broker. Every new replica copies from its partition's leader."""
    found: dict[int, Flow] = {}
    for move in moves:
        coming = move.coming
        if not coming:
            continue
        one = model.by_key.get((move.topic, move.index))
        leader = one.leader if one is not None and one.leader >= 0 else move.before[0] if move.before else -1
        found.setdefault(leader, Flow()).bytes_out += move.size_bytes * len(coming)
        for broker in coming:
            found.setdefault(broker, Flow()).bytes_in += move.size_bytes
    return found


def least_seconds(model: ClusterModel, moves: Sequence[Move], bytes_per_second: int, share: float) -> float:
    """The minimal duration if every broker sends and receives at this rate: the busiest broker decides each step."""
    total = 0
    for piece in steps(moves, share):
        total += max((max(flow.bytes_out, flow.bytes_in) for flow in flows(model, piece).values()), default=0)
    return total / bytes_per_second
