"""Chosen topics on chosen brokers, with a chosen number of replicas: what `penstock reassign generate` makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.balance.grow import require_serving
from penstock.balance.model import ClusterModel
from penstock.balance.plan import Plan, PlanRefused, plan_of
from penstock.balance.shrink import relocate, require_room
from penstock.balance.spread import Assignment, fill


def place(
    model: ClusterModel,
    topics: Iterable[str] | None,
    brokers: Sequence[int],
    replication_factor: int | None = None,
) -> Plan:
    """Distributes those topics evenly over those brokers. Replicas that are already well placed stay."""
    require_serving(model, brokers)
    if not brokers:
        raise PlanRefused("no brokers to place the topics on")
    if replication_factor is not None and replication_factor > len(brokers):
        raise PlanRefused(
            f"{replication_factor} replicas cannot be on {len(brokers)} brokers: each replica needs its own broker",
            "name more brokers, or ask for fewer replicas",
        )
    positions = model.only(topics)
    if topics is not None and not positions:
        raise PlanRefused("none of those topics exists", "`penstock topics list` shows the existing topics")
    assignment = Assignment(model, positions, brokers)
    reasons: dict[int, str] = {}
    if replication_factor is not None:
        _resize(assignment, brokers, replication_factor, reasons)
    else:
        require_room(model, brokers, positions)
    relocate(assignment, brokers, reasons)
    share = sum(assignment.held.values()) // len(brokers)
    lead_share = sum(assignment.led.values()) // len(brokers)
    for broker in sorted(brokers, key=lambda one: assignment.held[one]):
        if assignment.held[broker] < share:
            others = [other for other in brokers if other != broker]
            fill(assignment, broker, others, share, lead_share)
    for position in assignment.changed:
        reasons.setdefault(position, "to even out the brokers")
    return plan_of(model, assignment.changed, reasons)


def _resize(assignment: Assignment, brokers: Sequence[int], count: int, reasons: dict[int, str]) -> None:
    model, held = assignment.model, assignment.held
    for position, before in list(assignment.replicas.items()):
        after = before
        while len(after) > count:
            # Remove replicas on unwanted brokers first, then one whose rack has another; never the first, which leads.
            gone = max(
                after[1:],
                key=lambda one, now=after: (  # type: ignore[misc]
                    one not in brokers,
                    model.rack_count(other for other in now if other != one) == model.rack_count(now),
                    held[one],
                    one,
                ),
            )
            after = tuple(other for other in after if other != gone)
        while len(after) < count:
            racks = [model.rack_of(other) for other in after]
            coming = min(
                (other for other in brokers if other not in after),
                key=lambda other, used=racks: (model.rack_of(other) in used, held[other], other),  # type: ignore[misc]
            )
            after = (*after, coming)
        if after != before:
            assignment.set(position, after)
            reasons[position] = f"{len(before)} replicas become {count}"
