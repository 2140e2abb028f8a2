"""The goals of a balanced cluster, in order, each with a measure of how far a cluster is from it.

Hard goals come first and are never traded for others:

        groups     topics assigned to a broker group are only on its brokers
        rack       a partition's replicas are in as many racks as possible
        capacity   no broker's disk is fuller than its limit

Soft goals follow, in the order of their importance, which the user may choose:

        replicas   all brokers hold about the same number of replicas,
        leaders    lead about the same number of partitions,
        size       store about the same amount,
        traffic    and receive and send about the same bytes per second

"About" is a band around the mean (`tolerance`). Inside it nothing is done, so that a balanced cluster is left alone.
The violation of a goal is the sum of the brokers' distances from its band.
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
"""The share of a broker's disk above which the capacity goal moves data away."""


class Goal(StrEnum):
    REPLICAS = "replicas"
    LEADERS = "leaders"
    SIZE = "size"
    TRAFFIC = "traffic"


SOFT_GOALS = (Goal.REPLICAS, Goal.LEADERS, Goal.SIZE, Goal.TRAFFIC)


class BrokerGroup(msgspec.Struct, frozen=True):
    """Topics that are restricted to certain brokers, for example for traffic, latency or legal reasons."""

    pattern: str
    """A shell pattern such as `payments-*`."""
    brokers: tuple[int, ...]


class Rules(msgspec.Struct, frozen=True):
    goals: tuple[Goal, ...] = SOFT_GOALS
    tolerance: float = TOLERANCE
    disk_share_max: float = DISK_SHARE_MAX
    groups: tuple[BrokerGroup, ...] = ()
    """The first group whose pattern matches a topic applies."""

    def brokers_for(self, topic: str, serving: Sequence[int]) -> tuple[int, ...]:
        """The brokers that may hold the topic's replicas."""
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
    """The band for these values. For counts it always includes the whole numbers on both sides of the mean."""
    numbers = list(values)
    mean = sum(numbers) / len(numbers) if numbers else 0.0
    lower, upper = mean * (1 - tolerance), mean * (1 + tolerance)
    if whole:
        lower, upper = min(math.floor(mean), math.ceil(lower)), max(math.ceil(mean), math.floor(upper))
    return Band(lower, upper, mean)


def check_groups(model: ClusterModel, rules: Rules) -> None:
    """Raises PlanRefused unless the groups name brokers in service, and enough of them for every topic."""
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
