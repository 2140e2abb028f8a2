"""Balances a cluster by goals, one after another.

For each goal in order, brokers outside its band are relieved (or filled) by single changes: leadership passed to
another replica (which moves no data), a replica moved, two replicas exchanged. A change is made only if it improves its
goal and worsens no earlier one. So the list of violations, in the order of the goals, decreases with every change:
the search ends and cannot cycle.

One pass goes through all goals from the assignment it is given, and tries candidates in an order that depends on
nothing else. Passes repeat until one changes nothing. That makes planning idempotent: planning again from the result
changes nothing.

The search is greedy and tries a bounded number of candidates per change (the limits below). It finds a good balance,
not the best one. With goals that contradict each other it may leave a broker outside a band, and then reports that.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from penstock.balance.goals import Band, Goal, Rules, band_of, check_groups
from penstock.balance.model import ClusterModel, traffic_of
from penstock.balance.plan import Plan, plan_of
from penstock.balance.spread import scattered

PASSES_MAX = 8
TARGETS_MAX = 8
CANDIDATES_MAX = 400
SWAPS_TRIED_MAX = 24
EPSILON = 1e-6

_ORDER = (Goal.REPLICAS, Goal.LEADERS, Goal.SIZE, Goal.TRAFFIC)
_INDEX = {goal: number for number, goal in enumerate(_ORDER)}
_UNITS = {
    Goal.REPLICAS: "holds {:,.0f} replicas",
    Goal.LEADERS: "leads {:,.0f} partitions",
    Goal.SIZE: "stores {:,.0f} bytes",
    Goal.TRAFFIC: "carries {:,.0f} bytes/s",
}

Weights = tuple[float, float, float, float]
"""Replicas, leaders, bytes, bytes per second: a broker's totals, or the difference a change makes."""


def balance(model: ClusterModel, rules: Rules | None = None) -> Plan:
    """The moves that bring a cluster nearer to its goals, each with its reason; empty if it is balanced."""
    rules = rules or Rules()
    check_groups(model, rules)
    assignment = [one.target for one in model.partitions]
    reasons: dict[int, str] = {}
    done = _Pass(model, rules, assignment)
    for _ in range(PASSES_MAX):
        changes = done.run()
        reasons = {**changes, **reasons}
        if not changes:
            break
        done = _Pass(model, rules, done.replicas)
    changed = {
        position: after for position, after in enumerate(done.replicas) if after != model.partitions[position].target
    }
    return plan_of(model, changed, reasons, done.shortfalls())


class Shortfall(msgspec.Struct, frozen=True):
    """A broker outside the band of a goal, and how far."""

    goal: Goal
    broker: int
    value: float
    band: Band


def shortfalls(model: ClusterModel, rules: Rules | None = None) -> list[Shortfall]:
    """All brokers outside the bands of the soft goals."""
    return _Pass(model, rules or Rules(), [one.target for one in model.partitions]).outside()


class _Pass:
    """One pass through all goals."""

    def __init__(self, model: ClusterModel, rules: Rules, assignment: list[tuple[int, ...]]) -> None:
        self.model = model
        self.rules = rules
        self.replicas = list(assignment)
        self.brokers = model.serving
        self._serving = frozenset(self.brokers)
        self._groups = bool(rules.groups)
        self._rack_total = len({model.rack_of(broker) for broker in self.brokers})
        self.loads: dict[int, list[float]] = {broker: [0.0, 0.0, 0.0, 0.0] for broker in model.brokers}
        self.holding: dict[int, dict[int, None]] = {broker: {} for broker in model.brokers}
        for position, replicas in enumerate(self.replicas):
            for place, broker in enumerate(replicas):
                load = self.loads.setdefault(broker, [0.0, 0.0, 0.0, 0.0])
                for number, weight in enumerate(self._weights(position, len(replicas), leads=place == 0)):
                    load[number] += weight
                self.holding.setdefault(broker, {})[position] = None
        self.bands = [self._band(goal) for goal in _ORDER]
        self.capacity = {
            broker.id: rules.disk_share_max * broker.total_bytes
            for broker in model.brokers.values()
            if broker.total_bytes
        }
        self._reasons: dict[int, str] = {}

    def run(self) -> dict[int, str]:
        """Makes the changes; returns the reason for the first change of each partition."""
        self._fix_groups_and_racks()
        self._fix_capacity()
        before: list[Goal] = []
        for goal in self.rules.goals:
            self._improve(goal, before)
            before.append(goal)
        return self._reasons

    def outside(self) -> list[Shortfall]:
        found = []
        for goal in self.rules.goals:
            number = _INDEX[goal]
            band = self.bands[number]
            for broker in self.brokers:
                value = self.loads[broker][number]
                if band.violation(value) > EPSILON:
                    found.append(Shortfall(goal, broker, value, band))
        return found

    def shortfalls(self) -> list[str]:
        """The unmet goals as text for the user."""
        notes = []
        for one in self.outside():
            side = "above" if one.value > one.band.upper else "below"
            limit = one.band.upper if side == "above" else one.band.lower
            what = _UNITS[one.goal]
            notes.append(f"broker {one.broker} {what.format(one.value)}, still {side} the target of {limit:,.0f}")
        return notes

    # ---- hard goals

    def _fix_groups_and_racks(self) -> None:
        if not self._groups and not self.model.has_racks:
            return
        for position in range(len(self.replicas)):
            self._fix_group(position)
            self._fix_racks(position)

    def _fix_group(self, position: int) -> None:
        if not self._groups:
            return
        allowed = self._allowed(position)
        for leaving in self.replicas[position]:
            if leaving in allowed:
                continue
            replicas = self.replicas[position]
            rest = [self.model.rack_of(other) for other in replicas if other != leaving]
            coming = min(
                (other for other in allowed if other not in replicas),
                key=lambda other: (self.model.rack_of(other) in rest, self.loads[other][0], other),
            )
            self._move(position, leaving, coming, f"broker {leaving} is not in the topic's group")

    def _fix_racks(self, position: int) -> None:
        while True:
            replicas = self.replicas[position]
            allowed = self._allowed(position)
            possible = len({self.model.rack_of(broker) for broker in allowed}) if self._groups else self._rack_total
            used = [self.model.rack_of(broker) for broker in replicas]
            if len(set(used)) >= min(len(replicas), possible):
                return
            free = [other for other in allowed if self.model.rack_of(other) not in used]
            doubled = [broker for broker, rack in zip(replicas, used, strict=True) if used.count(rack) > 1]
            if not free or not doubled:
                return
            leaving = max(doubled, key=lambda broker: (self.loads[broker][0], broker))
            coming = min(free, key=lambda broker: (self.loads[broker][0], broker))
            rack = self.model.rack_of(leaving)
            self._move(position, leaving, coming, f"two of its replicas were in rack {rack}")

    def _fix_capacity(self) -> None:
        for broker, limit in self.capacity.items():
            if broker not in self._serving:
                continue
            heaviest = sorted(self.holding[broker], key=lambda one: (-self.model.partitions[one].size_bytes, one))
            for position in heaviest:
                if self.loads[broker][2] <= limit:
                    break
                size = self.model.partitions[position].size_bytes
                room = [
                    other
                    for other in self.brokers
                    if self.loads[other][2] + size <= self.capacity.get(other, float("inf"))
                    and self._may_move(position, broker, other)
                ]
                if room and size:
                    coming = min(room, key=lambda other: (self.loads[other][2], other))
                    why = f"broker {broker}'s disk is fuller than {self.rules.disk_share_max:.0%}"
                    self._move(position, broker, coming, why)

    # ---- soft goals

    def _improve(self, goal: Goal, earlier: list[Goal]) -> None:
        number = _INDEX[goal]
        band = self.bands[number]
        for broker in sorted(self.brokers, key=lambda one: (-self.loads[one][number], one)):
            if self.loads[broker][number] > band.upper + EPSILON:
                self._relieve(broker, goal, earlier)
        for broker in sorted(self.brokers, key=lambda one: (self.loads[one][number], one)):
            if self.loads[broker][number] < band.lower - EPSILON:
                self._feed(broker, goal, earlier)

    def _relieve(self, broker: int, goal: Goal, earlier: list[Goal]) -> None:
        number = _INDEX[goal]
        band = self.bands[number]
        why = self._excess(broker, goal)
        offers = self._offers(broker, goal)
        while self.loads[broker][number] > band.upper + EPSILON:
            targets = sorted(self.brokers, key=lambda one: (self.loads[one][number], one))
            if goal in (Goal.LEADERS, Goal.TRAFFIC) and self._pass_lead(broker, None, goal, earlier, why):
                continue
            if self._move_one(offers, broker, targets, goal, earlier, why):
                continue
            if goal in (Goal.SIZE, Goal.TRAFFIC) and self._swap_one(broker, targets, goal, earlier, why):
                continue
            return

    def _feed(self, broker: int, goal: Goal, earlier: list[Goal]) -> None:
        number = _INDEX[goal]
        band = self.bands[number]
        why = self._lack(broker, goal)
        givers = sorted(self.brokers, key=lambda one: (-self.loads[one][number], one))[:TARGETS_MAX]
        offers = {giver: self._offers(giver, goal) for giver in givers if giver != broker}
        while self.loads[broker][number] < band.lower - EPSILON:
            for giver in sorted(offers, key=lambda one: (-self.loads[one][number], one)):
                if goal in (Goal.LEADERS, Goal.TRAFFIC) and self._pass_lead(giver, broker, goal, earlier, why):
                    break
                if self._move_one(offers[giver], giver, [broker], goal, earlier, why):
                    break
                if goal in (Goal.SIZE, Goal.TRAFFIC) and self._swap_one(giver, [broker], goal, earlier, why):
                    break
            else:
                return

    def _pass_lead(self, broker: int, to: int | None, goal: Goal, earlier: list[Goal], why: str) -> bool:
        """Makes another replica of a partition the preferred leader, which moves no data."""
        led = (one for one in self.holding[broker] if self.replicas[one][0] == broker and len(self.replicas[one]) > 1)
        for position in islice(led, CANDIDATES_MAX):
            followers = [other for other in self.replicas[position][1:] if to is None or other == to]
            followers = [other for other in followers if other in self._serving]
            for other in sorted(followers, key=lambda one: (self.loads[one][_INDEX[goal]], one)):
                first, second = self._lead_change(position)
                if self._helps({broker: first, other: second}, goal, earlier):
                    rest = tuple(one for one in self.replicas[position] if one != other)
                    self._set(position, (other, *rest), why)
                    return True
        return False

    def _move_one(
        self, offers: Iterator[int], broker: int, targets: list[int], goal: Goal, earlier: list[Goal], why: str
    ) -> bool:
        for position in islice(offers, CANDIDATES_MAX):
            if position not in self.holding[broker]:
                continue
            weights = self._weights(position, len(self.replicas[position]), leads=self.replicas[position][0] == broker)
            for other in targets[:TARGETS_MAX]:
                change = {broker: _negative(weights), other: weights}
                if self._may_move(position, broker, other) and self._helps(change, goal, earlier):
                    self._move(position, broker, other, why)
                    return True
        return False

    def _swap_one(self, broker: int, targets: list[int], goal: Goal, earlier: list[Goal], why: str) -> bool:
        """Exchanges a heavy replica for a lighter one, where moving one alone would violate an earlier goal."""
        heavy = self._by_weight(broker, goal)[:SWAPS_TRIED_MAX]
        for other in targets[:TARGETS_MAX]:
            if other == broker:
                continue
            light = self._by_weight(other, goal)[-SWAPS_TRIED_MAX:]
            for ours in heavy:
                for theirs in reversed(light):
                    if ours == theirs or not self._may_swap(ours, broker, theirs, other):
                        continue
                    given = self._weights(ours, len(self.replicas[ours]), leads=self.replicas[ours][0] == broker)
                    taken = self._weights(theirs, len(self.replicas[theirs]), leads=self.replicas[theirs][0] == other)
                    net = (taken[0] - given[0], taken[1] - given[1], taken[2] - given[2], taken[3] - given[3])
                    if self._helps({broker: net, other: _negative(net)}, goal, earlier):
                        self._move(ours, broker, other, why)
                        self._move(theirs, other, broker, why + " (exchanged)")
                        return True
        return False

    # ---- whether a change is good

    def _helps(self, change: dict[int, Weights], goal: Goal, earlier: list[Goal]) -> bool:
        """Whether the change improves the goal and worsens no earlier one."""
        if self._gain(change, _INDEX[goal]) <= EPSILON:
            return False
        if any(self._gain(change, _INDEX[other]) < -EPSILON for other in earlier):
            return False
        return all(
            weights[2] <= 0 or self.loads[broker][2] + weights[2] <= self.capacity.get(broker, float("inf"))
            for broker, weights in change.items()
        )

    def _gain(self, change: dict[int, Weights], number: int) -> float:
        band = self.bands[number]
        gain = 0.0
        for broker, weights in change.items():
            value = self.loads[broker][number]
            gain += band.violation(value) - band.violation(value + weights[number])
        return gain

    def _may_move(self, position: int, leaving: int, coming: int) -> bool:
        replicas = self.replicas[position]
        if coming in replicas or coming not in self._serving:
            return False
        if self._groups and coming not in self._allowed(position):
            return False
        if not self.model.has_racks:
            return True
        rest = [self.model.rack_of(other) for other in replicas if other != leaving]
        return self.model.rack_of(coming) not in rest or self.model.rack_of(leaving) in rest

    def _may_swap(self, ours: int, broker: int, theirs: int, other: int) -> bool:
        return self._may_move(ours, broker, other) and self._may_move(theirs, other, broker)

    # ---- bookkeeping

    def _move(self, position: int, leaving: int, coming: int, why: str) -> None:
        after = tuple(coming if other == leaving else other for other in self.replicas[position])
        self._set(position, after, f"{why} → broker {coming}")

    def _set(self, position: int, after: tuple[int, ...], why: str) -> None:
        before = self.replicas[position]
        for sign, replicas in ((-1, before), (1, after)):
            for place, broker in enumerate(replicas):
                load = self.loads[broker]
                for number, weight in enumerate(self._weights(position, len(replicas), leads=place == 0)):
                    load[number] += sign * weight
        for broker in before:
            if broker not in after:
                del self.holding[broker][position]
        for broker in after:
            if broker not in before:
                self.holding[broker][position] = None
        self.replicas[position] = after
        self._reasons.setdefault(position, why)

    def _weights(self, position: int, count: int, *, leads: bool) -> Weights:
        one = self.model.partitions[position]
        return 1.0, float(leads), float(one.size_bytes), traffic_of(one.rate, count, leads=leads)

    def _lead_change(self, position: int) -> tuple[Weights, Weights]:
        more = self.model.partitions[position].rate * (len(self.replicas[position]) - 1)
        return (0.0, -1.0, 0.0, -more), (0.0, 1.0, 0.0, more)

    def _allowed(self, position: int) -> tuple[int, ...]:
        return self.rules.brokers_for(self.model.partitions[position].topic, self.brokers)

    def _offers(self, broker: int, goal: Goal) -> Iterator[int]:
        if goal in (Goal.SIZE, Goal.TRAFFIC):
            return iter(self._by_weight(broker, goal))
        held = list(self.holding[broker])
        if goal is Goal.LEADERS:
            held = [position for position in held if self.replicas[position][0] == broker]
        elif goal is Goal.REPLICAS:
            # Moving a leader moves its role too, so followers go first.
            firsts = [position for position in held if self.replicas[position][0] == broker]
            others = [position for position in held if self.replicas[position][0] != broker]
            return iter([*scattered(others), *scattered(firsts)])
        return scattered(held)

    def _by_weight(self, broker: int, goal: Goal) -> list[int]:
        """The broker's partitions, heaviest first."""
        number = _INDEX[goal]

        def weight(position: int) -> float:
            replicas = self.replicas[position]
            return self._weights(position, len(replicas), leads=replicas[0] == broker)[number]

        return sorted(self.holding[broker], key=lambda position: (-weight(position), position))

    def _band(self, goal: Goal) -> Band:
        number = _INDEX[goal]
        return band_of(
            (self.loads[broker][number] for broker in self.brokers),
            self.rules.tolerance,
            whole=goal in (Goal.REPLICAS, Goal.LEADERS),
        )

    def _excess(self, broker: int, goal: Goal) -> str:
        return self._told(broker, goal, "above")

    def _lack(self, broker: int, goal: Goal) -> str:
        return self._told(broker, goal, "below")

    def _told(self, broker: int, goal: Goal, side: str) -> str:
        value, mean = self.loads[broker][_INDEX[goal]], self.bands[_INDEX[goal]].mean
        share = abs(value / mean - 1) if mean else 0.0
        return f"{goal}: broker {broker} {_UNITS[goal].format(value)}, {share:.0%} {side} the mean"


def _negative(weights: Weights) -> Weights:
    return (-weights[0], -weights[1], -weights[2], -weights[3])
