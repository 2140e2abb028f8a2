"""Checks before a plan is executed: is the cluster healthy, and does the plan still match it?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

import msgspec

from penstock.balance.model import NO_LEADER, ClusterModel, Key
from penstock.balance.plan import Move, flows

FREE_SHARE_MIN = 0.10
"""The share of a broker's disk that must stay free; a plan that leaves less is refused."""
SMALL_MOVE_SHARE = 0.01
"""The share of the free space that a plan may always use: on a full disk, such a plan gives a warning only."""
NAMED_MAX = 5


class Finding(msgspec.Struct, frozen=True):
    """An observation about the cluster. If `stops` is set, the plan is not executed."""

    text: str
    hint: str = ""
    stops: bool = True


class State(StrEnum):
    """The state of a move."""

    PENDING = "not started"
    MOVING = "moving"
    DONE = "done"
    STALE = "changed by others"


def assess(model: ClusterModel, moves: Sequence[Move], leaving: Collection[int] = ()) -> list[Finding]:
    """Reasons not to execute these moves now. Replicas missing only on `leaving` brokers are not a reason."""
    return [
        *_offline(model),
        *_under_replicated(model, leaving),
        *_unfinished(model, moves),
        *_out_of_service(model, leaving),
        *_disks(model, moves),
    ]


def state_of(move: Move, model: ClusterModel) -> State:
    one = model.by_key.get((move.topic, move.index))
    if one is None:
        return State.STALE
    if one.moving:
        return State.MOVING if sorted(one.target) == sorted(move.after) else State.STALE
    if one.replicas == move.after:
        return State.DONE
    # Cancelling a reassignment may leave the replicas in another order.
    return State.PENDING if sorted(one.replicas) == sorted(move.before) else State.STALE


def check_moves(moves: Iterable[Move], model: ClusterModel) -> list[str]:
    """Problems that make a plan impossible on this cluster, or show that it was made for another state of it."""
    problems: list[str] = []
    for move in moves:
        for broker in move.after:
            if broker not in model.brokers:
                problems.append(f"{move.key}: there is no broker {broker}")
            elif not model.brokers[broker].in_service and broker in move.coming:
                problems.append(f"{move.key}: broker {broker} is not in service")
        if len(move.after) > len(model.brokers):
            problems.append(f"{move.key}: {len(move.after)} replicas, but there are {len(model.brokers)} brokers")
        one = model.by_key.get((move.topic, move.index))
        if one is None:
            problems.append(f"{move.key}: there is no such partition, or it was deleted")
        elif state_of(move, model) is State.STALE:
            if one.moving:
                problems.append(f"{move.key}: another reassignment is moving it to {_list(one.target)}")
            else:
                now, then = _list(one.replicas), _list(move.before)
                problems.append(f"{move.key}: it is on {now}, but was on {then} when the plan was made")
    return problems


def _offline(model: ClusterModel) -> list[Finding]:
    found = [one.key for one in model.partitions if one.leader == NO_LEADER]
    if not found:
        return []
    return [
        Finding(
            f"{_count(found)} offline, without a leader: {_names(found)}",
            "start the brokers that hold them: a partition without a leader cannot be copied",
        )
    ]


def _under_replicated(model: ClusterModel, leaving: Collection[int]) -> list[Finding]:
    found = [
        one.key
        for one in model.partitions
        if any(
            broker not in one.in_sync
            for broker in one.replicas
            if broker not in one.adding and broker not in leaving
        )
    ]  # fmt: skip
    if not found:
        return []
    return [
        Finding(
            f"{_count(found)} under-replicated: {_names(found)}",
            "wait until all replicas are in sync, or find out which broker is missing (`penstock brokers list`)",
        )
    ]


def _unfinished(model: ClusterModel, moves: Sequence[Move]) -> list[Finding]:
    ours = {(move.topic, move.index): sorted(move.after) for move in moves}
    found = [
        one.key
        for one in model.partitions
        if one.moving and ours.get((one.topic, one.index)) != sorted(one.target)
    ]  # fmt: skip
    if not found:
        return []
    return [
        Finding(
            f"{_count(found)} in a reassignment that is not finished: {_names(found)}",
            "see `penstock reassign status`; let it finish, resume its plan (`penstock reassign execute FILE`), "
            "or cancel it (`penstock reassign cancel FILE`, or `--all`)",
        )
    ]


def _out_of_service(model: ClusterModel, leaving: Collection[int]) -> list[Finding]:
    holders = {broker for one in model.partitions for broker in one.replicas}
    return [
        Finding(f"broker {broker.id} is registered, but not in service", stops=False)
        for broker in model.brokers.values()
        if not broker.in_service and broker.id not in leaving and broker.id not in holders
    ]


def _disks(model: ClusterModel, moves: Sequence[Move]) -> list[Finding]:
    found = []
    for number, flow in sorted(flows(model, moves).items()):
        broker = model.brokers.get(number)
        if broker is None or not flow.bytes_in:
            continue
        if broker.usable_bytes is None or not broker.total_bytes:
            found.append(Finding(f"broker {number} does not report the free space of its disks", stops=False))
        elif broker.usable_bytes - flow.bytes_in < FREE_SHARE_MIN * broker.total_bytes:
            found.append(
                Finding(
                    f"broker {number} would receive {flow.bytes_in:,} bytes and has {broker.usable_bytes:,} free: "
                    f"less than {FREE_SHARE_MIN:.0%} of its disk would be left",
                    "give it a larger disk, shorten the retention of large topics, or add another broker",
                    stops=flow.bytes_in > SMALL_MOVE_SHARE * broker.usable_bytes,
                )
            )
    return found


def _count(found: Sequence[Key]) -> str:
    return "1 partition is" if len(found) == 1 else f"{len(found):,} partitions are"


def _names(found: Sequence[Key]) -> str:
    shown = ", ".join(map(str, found[:NAMED_MAX]))
    return shown if len(found) <= NAMED_MAX else f"{shown} and {len(found) - NAMED_MAX:,} more"


def _list(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or "no broker"
