"""What a balanced cluster is: ordered goals, each with a measure of how far from it a cluster is.

Hard goals come first and are never traded for anything:

    groups     topics that belong to certain brokers are on those only
    rack       a partition's replicas are in as many racks as they can be
    capacity   no broker's disk is fuller than it may be

Soft goals follow, in the order of their importance, which the user may choose:

    replicas   brokers hold about as many replicas
    leaders    and lead about as many partitions
    size       and store about as much
    traffic    and take in and send about as many bytes per second

"About" is a band around the mean (`tolerance`): inside it nothing is done, so that a balanced cluster is left alone.
The violation of a goal is by how much brokers are outside of its band, all together.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from penstock.balance.model import ClusterModel
from penstock.balance.plan import PlanRefused

TOLERANCE = 0.10
DISK_SHARE_MAX = 0.85
"""Of a broker's disk: above it, the capacity goal moves data away."""


class Goal(StrEnum):
    REPLICAS = "replicas"
    LEADERS = "leaders"
    SIZE = "size"
    TRAFFIC = "traffic"


SOFT_GOALS = (Goal.REPLICAS, Goal.LEADERS, Goal.SIZE, Goal.TRAFFIC)


class BrokerGroup(msgspec.Struct, frozen=True):
    """Topics that may be on certain brokers only: for much traffic, little latency, or what the law wants apart."""

    pattern: str
    """As a shell's: `payments-*`."""
    brokers: tuple[int, ...]


class Rules(msgspec.Struct, frozen=True):
    goals: tuple[Goal, ...] = SOFT_GOALS
    tolerance: float = TOLERANCE
    disk_share_max: float = DISK_SHARE_MAX
    groups: tuple[BrokerGroup, ...] = ()
    """The first one whose pattern matches a topic counts."""

    def brokers_for(self, topic: str, serving: Sequence[int]) -> tuple[int, ...]:
        """Where the topic's replicas may be."""
        for group in self.groups:
            if fnmatch.fnmatchcase(topic, group.pattern):
                return group.brokers
        return tuple(serving)


class Band(msgspec.Struct, frozen=True):
    lower: float
    upper: float
    mean: float

    def violation(self, value: float) -> float:
        if value > self.upper:
            return value - self.upper
        return self.lower - value if value < self.lower else 0.0


def band_of(values: Iterable[float], tolerance: float, *, whole: bool) -> Band:
    """Where values should be. Numbers of things always have room for the whole numbers around the mean."""
    numbers = list(values)
    mean = sum(numbers) / len(numbers) if numbers else 0.0
    lower, upper = mean * (1 - tolerance), mean * (1 + tolerance)
    if whole:
        lower, upper = min(math.floor(mean), math.ceil(lower)), max(math.ceil(mean), math.floor(upper))
    return Band(lower, upper, mean)


def check_groups(model: ClusterModel, rules: Rules) -> None:
    """The groups name brokers that are there, and enough of them for every topic."""
    for group in rules.groups:
        for broker in group.brokers:
            if broker not in model.brokers or not model.brokers[broker].in_service:
                raise PlanRefused(f"the group {group.pattern} names broker {broker}, which is not in service")
    if not rules.groups:
        return
    serving = model.serving
    for one in model.partitions:
        allowed = rules.brokers_for(one.topic, serving)
        if len(one.target) > len(allowed):
            raise PlanRefused(
                f"{one.key} has {len(one.target)} replicas, but its group has {len(allowed)} brokers only",
                "name more brokers for the group, or give the topic fewer replicas",
            )
