"""Moves replicas to brokers that hold few or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.balance.model import ClusterModel
from penstock.balance.plan import Plan, PlanRefused, plan_of
from penstock.balance.spread import Assignment, fill


def add_brokers(model: ClusterModel, new: Sequence[int], topics: Iterable[str] | None = None) -> Plan:
    """Gives each of those brokers its share of replicas, and of leaders among them, with the fewest moves."""
    require_serving(model, new)
    serving = model.serving
    if len(serving) == len(new):
        raise PlanRefused(f"there is no other broker than {_names(new)}", "there is nothing to take over")
    assignment = Assignment(model, model.only(topics), serving)
    share = sum(assignment.held.values()) // len(serving)
    lead_share = sum(assignment.led.values()) // len(serving)
    donors = [broker for broker in serving if broker not in new]
    reasons: dict[int, str] = {}
    for broker in new:
        known = len(assignment.changed)
        fill(assignment, broker, donors, share, lead_share)
        for position in list(assignment.changed)[known:]:
            reasons[position] = f"broker {broker} takes its share"
    notes = [
        f"broker {broker} gets {assignment.held[broker]:,} replicas, fewer than its share of {share:,}: "
        "with more, replicas of a partition would be in fewer racks than now"
        for broker in new
        if assignment.held[broker] < share and model.has_racks
    ]
    return plan_of(model, assignment.changed, reasons, notes)


def require_serving(model: ClusterModel, brokers: Iterable[int]) -> None:
    """Raises PlanRefused unless all of these brokers exist and are in service."""
    for broker in brokers:
        if broker not in model.brokers:
            there = ", ".join(map(str, model.brokers))
            raise PlanRefused(
                f"there is no broker {broker}; there are {there}",
                "start it and wait until `penstock brokers list` shows it in service",
            )
        if not model.brokers[broker].in_service:
            raise PlanRefused(
                f"broker {broker} is registered, but not in service",
                "start it, or check its log, and wait until `penstock brokers list` shows it in service",
            )


def _names(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
