"""Moves all replicas off brokers that are to be removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.balance.model import ClusterModel
from penstock.balance.plan import Plan, PlanRefused, plan_of
from penstock.balance.spread import Assignment

NAMED_MAX = 5


def drain_brokers(model: ClusterModel, leaving: Sequence[int], topics: Iterable[str] | None = None) -> Plan:
    """Moves every replica of those brokers to another one: into an unused rack, else to the broker with the fewest."""
    for broker in leaving:
        if broker not in model.brokers:
            there = ", ".join(map(str, model.brokers))
            raise PlanRefused(f"there is no broker {broker}; there are {there}", "`penstock brokers list` shows them")
    staying = [broker for broker in model.serving if broker not in leaving]
    return move_to(model, staying, model.only(topics))


def move_to(model: ClusterModel, brokers: Sequence[int], positions: Sequence[int]) -> Plan:
    """Moves all replicas of those partitions onto those brokers; replicas already there stay."""
    require_room(model, brokers, positions)
    assignment = Assignment(model, positions, brokers)
    reasons: dict[int, str] = {}
    crowded = relocate(assignment, brokers, reasons)
    notes = []
    if crowded:
        notes.append(
            f"{crowded:,} partitions will have replicas in fewer racks than now: no broker in another rack is left"
        )
    return plan_of(model, assignment.changed, reasons, notes)


def require_room(model: ClusterModel, brokers: Sequence[int], positions: Sequence[int]) -> None:
    """Raises PlanRefused if a partition has more replicas than there are brokers left."""
    too_many = sorted({
        (model.partitions[position].topic, len(model.partitions[position].target))
        for position in positions
        if len(model.partitions[position].target) > len(brokers)
    })  # fmt: skip
    if not too_many:
        return
    names = ", ".join(f"{topic} ({count})" for topic, count in too_many[:NAMED_MAX])
    more = f" and {len(too_many) - NAMED_MAX:,} more" if len(too_many) > NAMED_MAX else ""
    left = "no broker is" if not brokers else "1 broker is" if len(brokers) == 1 else f"{len(brokers)} brokers are"
    raise PlanRefused(
        f"only {left} left for topics that have more replicas: {names}{more}"
        if brokers else f"no broker is left to take over: {names}{more}",
        "add a broker first, or give these topics fewer replicas "
        "(`penstock reassign generate --topic NAME --replication-factor N`)",
    )  # fmt: skip


def relocate(assignment: Assignment, brokers: Sequence[int], reasons: dict[int, str]) -> int:
    """Moves every replica on other brokers to one of `brokers`; returns how many partitions end in fewer racks."""
    model, held, led = assignment.model, assignment.held, assignment.led
    eligible = frozenset(brokers)
    crowded = 0
    for position, before in list(assignment.replicas.items()):
        gone = [broker for broker in before if broker not in eligible]
        if not gone:
            continue
        after = before
        for broker in gone:
            rest = [model.rack_of(other) for other in after if other != broker]
            coming = min(
                (other for other in brokers if other not in after),
                key=lambda other: (model.rack_of(other) in rest, held[other], other),
            )
            after = tuple(coming if other == broker else other for other in after)
        if before[0] not in eligible:
            # Prefer a remaining replica with the fewest leaders: a new replica would need a second election later.
            first = min(after, key=lambda other: (led[other], other not in before, other))
            after = (first, *(other for other in after if other != first))
        crowded += model.rack_count(after) < model.rack_count(before)
        assignment.set(position, after)
        names = ", ".join(map(str, gone))
        reasons[position] = f"its replicas must leave broker {names}"
    return crowded
