"""How many consumers a group should have (S6). Pure.

002's thresholds: warn beyond 10,000 unread records or 30 s, scale beyond 50,000 or 2 minutes, consumer throughput at 70
and 80 % of its benchmark. The number of consumers comes from rates:

    keep up     produce rate ÷ (rate of one consumer × 70 %)
    drain       (produce rate + lag ÷ drain time) ÷ rate of one consumer

More consumers than partitions are idle, so that is the limit; beyond it the topic needs partitions. The time to drain
is lag ÷ (consume rate − produce rate), and for ever if that is not positive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from penstock.advise.items import Item, Urgency
from penstock.advise.situation import Situation
from penstock.monitor.samples import Kind
from penstock.planning.catalogue import Catalogue

DRAIN_S: Final = 600.0
"""A backlog is to be read within this time."""
DOWN_SHARE: Final = 0.5
"""Fewer consumers are advised if half of them would keep up, with the headroom of 70 %."""
COOLDOWN_MS: Final = 300_000
"""No step down until the group has been well for this long, and none within this time after a step up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """The figures of one group; None for what is unknown."""

    name: str
    members: int
    partitions: int
    """Partitions that it reads: the most consumers that can be busy."""
    lag_records: float
    lag_s: float | None = None
    consume_per_s: float | None = None
    produce_per_s: float | None = None
    per_consumer_per_s: float | None = None
    """What one consumer can do. Without a benchmark: what each does now, if the group is behind and thus busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How many consumers, and why."""

    consumers: int
    """At most one per partition."""
    needed: int
    """What the load asks for."""
    level: str
    """`ok`, `warning` or `scale`."""
    drain_s: float
    """At the present rates."""
    reasons: tuple[str, ...]


def drain_s(lag: float, consume_per_s: float, produce_per_s: float) -> float:
    """The time until nothing is unread; infinite if the group does not gain on its producers."""
    if lag <= 0:
        return 0.0
    gain = consume_per_s - produce_per_s
    return lag / gain if gain > 0 else inf


def level_of(catalogue: Catalogue, figures: GroupFigures) -> str:
    for level in ("scale", "warning"):
        late = figures.lag_s is not None and figures.lag_s > catalogue[f"consumer.lag_s_{level}"]
        if figures.lag_records > catalogue[f"consumer.lag_records_{level}"] or (late and figures.lag_records > 0):
            return level
    return "ok"


def wanted(catalogue: Catalogue, figures: GroupFigures) -> Wanted:
    """How many consumers the group should have now."""
    level = level_of(catalogue, figures)
    produce, consume = figures.produce_per_s or 0.0, figures.consume_per_s or 0.0
    per_consumer = figures.per_consumer_per_s
    if per_consumer is None and figures.members and level != "ok" and consume > 0:
        # A group that is behind reads as fast as it can.
        per_consumer = consume / figures.members
    reasons = []
    if not per_consumer:
        needed = max(figures.members, 1)
        if level == "scale" and figures.members:
            needed = figures.members + 1
            reasons.append("the speed of one consumer is unknown: one step at a time")
    else:
        share = catalogue["consumer.throughput_warning"]
        needed = max(1, ceil(produce / (per_consumer * share)))
        reasons.append(f"{produce:,.0f} records/s ÷ ({per_consumer:,.0f} of one consumer × {share:.0%}) = {needed}")
        if level == "scale":
            draining = ceil((produce + figures.lag_records / DRAIN_S) / per_consumer)
            reasons.append(
                f"to read {figures.lag_records:,.0f} records within {DRAIN_S / 60:g} minutes beside that: {draining}"
            )
            needed = max(needed, draining)
    return Wanted(
        consumers=max(1, min(needed, figures.partitions)) if figures.partitions else needed,
        needed=needed,
        level=level,
        drain_s=drain_s(figures.lag_records, consume, produce),
        reasons=tuple(reasons),
    )


class Scaler:
    """Steps of one group over time: up at once, down only after a cooldown. Given the time, and pure otherwise."""

    def __init__(self) -> None:
        self._well_since_ms: int | None = None
        self._up_ms = -COOLDOWN_MS
        self.consumers: int | None = None

    def step(self, catalogue: Catalogue, figures: GroupFigures, now_ms: int) -> int:
        """The number of consumers to have from now on."""
        want = wanted(catalogue, figures).consumers
        have = max(1, self.consumers if self.consumers is not None else figures.members)
        is_well = level_of(catalogue, figures) == "ok"
        if not is_well:
            self._well_since_ms = None
        elif self._well_since_ms is None:
            self._well_since_ms = now_ms
        if want > have:
            self._up_ms = now_ms
            have = want
        elif want < have and self._well_since_ms is not None:
            rested = min(now_ms - self._well_since_ms, now_ms - self._up_ms)
            if rested >= COOLDOWN_MS:
                have = want
        self.consumers = have
        return have


def figures_of(situation: Situation, group: str) -> GroupFigures | None:
    view = (situation.observed.groups.value or {}).get(group)
    lag = situation.value(Kind.GROUP, group, "lag_records")
    if view is None or lag is None:
        return None
    return GroupFigures(
        name=group,
        members=view.members or 0,
        partitions=_useful(situation, group),
        lag_records=lag,
        lag_s=situation.value(Kind.GROUP, group, "lag_s"),
        consume_per_s=situation.sustained(Kind.GROUP, group, "consume_per_s"),
        produce_per_s=situation.sustained(Kind.GROUP, group, "produce_per_s"),
        per_consumer_per_s=situation.per_consumer_per_s,
    )


def _useful(situation: Situation, group: str) -> int:
    """How many consumers can be busy. The range assignor gives the partitions of each topic to the first members, so
    the largest topic is the limit; the others spread the partitions of all topics."""
    view = (situation.observed.groups.value or {})[group]
    topics = {topic for topic, _ in view.committed} | {topic for one in view.assigned for topic, _ in one}
    sizes = [
        len(situation.observed.shape.topics[name].partitions)
        for name in topics
        if name in situation.observed.shape.topics
    ]
    return max(sizes, default=0) if view.assignor == "range" else sum(sizes)


def consumers(situation: Situation) -> Iterator[Item]:
    for name in situation.names(Kind.GROUP):
        figures = figures_of(situation, name)
        if figures is not None:
            yield from _group(situation, figures)


def _group(situation: Situation, figures: GroupFigures) -> Iterator[Item]:
    catalogue, name = situation.catalogue, figures.name
    want = wanted(catalogue, figures)
    evidence = [f"{figures.lag_records:,.0f} unread records"]
    if figures.lag_s is not None:
        evidence.append(f"{figures.lag_s:,.0f} s behind")
    evidence.append(f"{figures.members} members for {figures.partitions} partitions")
    if figures.consume_per_s is not None and figures.produce_per_s is not None:
        evidence.append(f"reads {figures.consume_per_s:,.0f} records/s of {figures.produce_per_s:,.0f} written")
        evidence.append(
            "the lag is never read at this rate" if want.drain_s == inf else f"drained in {want.drain_s:,.0f} s"
        )
    evidence += want.reasons
    source = "002, Consumer Scaling Guidelines"
    urgency = Urgency.NOW if want.level == "scale" else Urgency.TODAY
    if want.level != "ok" and not figures.members:
        yield Item(
            code="consumers.start", urgency=urgency, subject=f"group {name}",
            what=f"start consumers of {name}: none runs",
            evidence=tuple(evidence), effect="the lag is read", risk="none",
            command=f"penstock groups describe {name}", source=source, weight=figures.lag_records,
        )  # fmt: skip
    elif want.level != "ok" and figures.partitions and want.needed > figures.partitions:
        yield Item(
            code="consumers.add-partitions", urgency=urgency, subject=f"group {name}",
            what=f"give the topics of {name} more partitions: {want.needed} consumers are needed, and "
            f"{figures.partitions} can be busy",
            evidence=tuple(evidence), effect=f"up to {want.needed} consumers can work",
            risk="new records of a key may go to another partition: order across the change is lost",
            command=_partition_command(situation, name, want.needed), source=source, weight=figures.lag_records,
        )  # fmt: skip
    elif want.level != "ok" and want.consumers > figures.members and want.drain_s > DRAIN_S:
        yield Item(
            code="consumers.scale-up", urgency=urgency, subject=f"group {name}",
            what=f"run {want.consumers} consumers of {name} instead of {figures.members}",
            evidence=tuple(evidence), effect=f"the lag is read within about {DRAIN_S / 60:g} minutes",
            risk="one rebalance",
            command=f"penstock groups members {name}   # start {want.consumers - figures.members} more",
            source=source, weight=figures.lag_records,
        )  # fmt: skip
    elif figures.members > figures.partitions > 0:
        yield Item(
            code="consumers.idle", urgency=Urgency.PLAN, subject=f"group {name}",
            what=f"stop {figures.members - figures.partitions} consumers of {name}: they have no partition",
            evidence=tuple(evidence), effect="the same work with fewer processes",
            risk="none, unless they stand by for a fast takeover", command=f"penstock groups members {name}",
            source="000, Consumer Scaling", weight=figures.members - figures.partitions,
        )  # fmt: skip
    elif (
        situation.per_consumer_per_s is not None and want.level == "ok" and figures.members > 1
        and want.consumers <= figures.members * DOWN_SHARE
    ):  # fmt: skip
        yield Item(
            code="consumers.scale-down", urgency=Urgency.PLAN, subject=f"group {name}",
            what=f"run {want.consumers} consumers of {name} instead of {figures.members}",
            evidence=tuple(evidence), effect="lower cost off-peak",
            risk="one rebalance; wait five minutes before the next step",
            command=f"penstock groups members {name}", source="000, Resource Right-Sizing",
            weight=figures.members - want.consumers,
        )  # fmt: skip


def _partition_command(situation: Situation, group: str, needed: int) -> str:
    from penstock.planning.partitions import round_up

    view = (situation.observed.groups.value or {})[group]
    topics = sorted({topic for topic, _ in view.committed})
    count = round_up(needed, situation.catalogue.count("partitions.multiple"))
    return f"penstock topics alter {topics[0] if topics else 'TOPIC'} --partitions {count}"
