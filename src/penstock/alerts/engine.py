"""From samples to alerts. Pure: the time is an argument.

An alert is one rule about one resource. Its life:

    (nothing) → pending → firing → (resolved, forgotten)

- **pending** while the condition holds, until it has held for `for_s`; one good value ends it.
- **firing** until the value has been on the good side of the clear bound for `resolve_s`. The clear bound is better
  than the bound that set it off (hysteresis), so a value that wavers around the bound does not ring again and again.
- A resource that vanishes (a group is deleted) resolves its alerts after `GONE_S`. A sample that is missing because the
  cluster does not answer changes nothing: not knowing is not being well.

Of a family, such as lag over 10,000, 50,000 and 100,000, only the worst alert that fires is visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.alerts.catalogue import RULES, UNREACHABLE, UNREACHABLE_FOR_S, Rule, Severity, worse
from penstock.monitor.samples import Kind, MetricSample
from penstock.planning.catalogue import Catalogue

GONE_S: Final = 120
GONE_ROUNDS: Final = 3
"""A resource is gone if it was missing from this many rounds, and for `GONE_S`."""
ALERTS_MAX: Final = 10_000
"""Alerts that are followed at once; of more, the rules that come first in the catalogue win."""
CLOCK_JUMP_MS: Final = 3_600_000
"""A step of the clock by more than this is no passing of time: nothing ages by it."""


class State(StrEnum):
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(slots=True, kw_only=True)
class Alert:
    """One rule about one resource."""

    rule: str
    severity: Severity
    kind: str
    name: str
    state: State
    since_ms: int
    """Since when the condition has held."""
    fired_ms: int = 0
    ended_ms: int = 0
    value: float = 0.0
    bound: float = 0.0
    unit: str = ""
    text: str = ""
    meaning: str = ""
    command: str = ""
    reason: str = ""
    """Why it was resolved."""
    family: str = ""

    @property
    def key(self) -> str:
        return f"{self.rule}/{self.kind}/{self.name}"


@dataclass(slots=True)
class _Life:
    alert: Alert
    good_since_ms: int | None = None
    seen_ms: int = 0
    missed: int = 0
    """Rounds in a row without a sample."""
    told: bool = False


@dataclass(slots=True)
class Round:
    """What changed in one round."""

    fired: list[Alert] = field(default_factory=list)
    resolved: list[Alert] = field(default_factory=list)


class Engine:
    """Follows the alerts of one cluster."""

    def __init__(self, catalogue: Catalogue | None = None, rules: Sequence[Rule] = RULES) -> None:
        self._catalogue = catalogue or Catalogue()
        self._rules = {rule.name: rule for rule in rules}
        self._by_metric: dict[tuple[Kind, str], list[Rule]] = {}
        for rule in rules:
            self._by_metric.setdefault((rule.kind, rule.metric), []).append(rule)
        self._lives: dict[str, _Life] = {}
        self._last_ms: int | None = None
        self._unreachable_since_ms: int | None = None

    # ---- reading

    def firing(self) -> list[Alert]:
        """The alerts that fire, without those that a worse one of their family hides."""
        firing = [life.alert for life in self._lives.values() if life.alert.state is State.FIRING]
        return [alert for alert in firing if not self._is_hidden(alert, firing)]

    def pending(self) -> list[Alert]:
        return [life.alert for life in self._lives.values() if life.alert.state is State.PENDING]

    # ---- following

    def resume(self, alerts: Iterable[Alert]) -> None:
        """Continues with the alerts that an earlier monitor had told."""
        for alert in alerts:
            if alert.state is State.FIRING and (alert.rule in self._rules or alert.rule == UNREACHABLE):
                self._lives[alert.key] = _Life(alert, seen_ms=alert.fired_ms, told=True)

    def take(self, samples: Iterable[MetricSample], now_ms: int) -> Round:
        """Looks at the samples of a round in which the cluster answered."""
        self._follow_clock(now_ms)
        self._unreachable_since_ms = None
        known = self._lives.get(f"{UNREACHABLE}/{Kind.CLUSTER}/")
        if known is not None:
            self._see(known, known.alert.bound, now_ms, bad=False, resolve_s=0)
        for sample in samples:
            for rule in self._by_metric.get((sample.kind, sample.metric), ()):
                self._look(rule, sample, now_ms)
        for key, life in list(self._lives.items()):
            if life.seen_ms == now_ms or life is known:
                continue
            life.missed += 1
            if life.missed >= GONE_ROUNDS and now_ms - life.seen_ms >= GONE_S * 1000:
                self._end(key, life, now_ms, "it is no longer reported")
        return self._changes()

    def unreachable(self, reason: str, now_ms: int) -> Round:
        """No broker answered: everything else stays as it is."""
        self._follow_clock(now_ms)
        for life in self._lives.values():
            life.seen_ms = now_ms
        since_ms = self._unreachable_since_ms
        if since_ms is None:
            since_ms = self._unreachable_since_ms = now_ms
        key = f"{UNREACHABLE}/{Kind.CLUSTER}/"
        if now_ms - since_ms >= UNREACHABLE_FOR_S * 1000 and key not in self._lives:
            alert = Alert(
                rule=UNREACHABLE, severity=Severity.CRITICAL, kind=Kind.CLUSTER, name="", state=State.FIRING,
                since_ms=since_ms, fired_ms=now_ms, text="no broker of the cluster answers", meaning=reason,
                command="penstock cluster describe",
            )  # fmt: skip
            self._lives[key] = _Life(alert, seen_ms=now_ms)
        return self._changes()

    def _look(self, rule: Rule, sample: MetricSample, now_ms: int) -> None:
        key = f"{rule.name}/{rule.kind}/{sample.name}"
        life = self._lives.get(key)
        bound = self._catalogue[rule.bound]
        counts = rule.clear_bound(self._catalogue) if life is not None and life.alert.state is State.FIRING else bound
        bad = rule.comparison.holds(sample.value, counts)
        if life is None:
            if not bad or len(self._lives) >= ALERTS_MAX:
                return
            alert = Alert(
                rule=rule.name, severity=rule.severity, kind=rule.kind, name=sample.name, state=State.PENDING,
                since_ms=now_ms, bound=bound, unit=rule.unit, family=rule.family,
            )  # fmt: skip
            life = self._lives[key] = _Life(alert)
        _describe(rule, life.alert, sample.value)
        self._see(life, sample.value, now_ms, bad=bad, for_s=rule.for_s, resolve_s=rule.resolve_s)

    def _see(self, life: _Life, value: float, now_ms: int, *, bad: bool, for_s: int = 0, resolve_s: int = 0) -> None:
        alert = life.alert
        life.seen_ms, life.missed = now_ms, 0
        if bad:
            life.good_since_ms = None
            if alert.state is State.PENDING and now_ms - alert.since_ms >= for_s * 1000:
                alert.state, alert.fired_ms = State.FIRING, now_ms
            return
        if alert.state is State.PENDING:
            del self._lives[alert.key]
            return
        if life.good_since_ms is None:
            life.good_since_ms = now_ms
        if now_ms - life.good_since_ms >= resolve_s * 1000:
            self._end(alert.key, life, now_ms, "the value is good again")

    def _end(self, key: str, life: _Life, now_ms: int, reason: str) -> None:
        alert = life.alert
        if alert.state is State.PENDING:
            del self._lives[key]
        elif alert.state is State.FIRING:
            alert.state, alert.ended_ms, alert.reason = State.RESOLVED, now_ms, reason

    def _changes(self) -> Round:
        """What has not been told yet. An alert that a worse one hides is told when it becomes visible."""
        changes = Round()
        firing = [life.alert for life in self._lives.values() if life.alert.state is State.FIRING]
        for key, life in list(self._lives.items()):
            alert = life.alert
            if alert.state is State.FIRING and not life.told and not self._is_hidden(alert, firing):
                life.told = True
                changes.fired.append(alert)
            elif alert.state is State.RESOLVED:
                del self._lives[key]
                if life.told:
                    changes.resolved.append(alert)
        return changes

    def _is_hidden(self, alert: Alert, firing: Sequence[Alert]) -> bool:
        if not alert.family:
            return False
        order = list(self._rules)
        return any(
            other.family == alert.family
            and other.name == alert.name
            and other is not alert
            and (worse(other.severity, alert.severity) or (
                other.severity is alert.severity and order.index(other.rule) < order.index(alert.rule)))
            for other in firing
        )  # fmt: skip

    def _follow_clock(self, now_ms: int) -> None:
        """After a jump of the clock, all times move with it: neither does everything fire, nor does anything wait."""
        last_ms, self._last_ms = self._last_ms, now_ms
        if last_ms is None or 0 <= now_ms - last_ms <= CLOCK_JUMP_MS:
            return
        jump_ms = now_ms - last_ms
        for life in self._lives.values():
            life.alert.since_ms += jump_ms
            life.seen_ms += jump_ms
            if life.good_since_ms is not None:
                life.good_since_ms += jump_ms
        if self._unreachable_since_ms is not None:
            self._unreachable_since_ms += jump_ms


def _describe(rule: Rule, alert: Alert, value: float) -> None:
    words = {"name": alert.name, "value": f"{value:,.6g}", "percent": f"{value:.0%}", "bound": f"{alert.bound:,g}"}
    alert.value = value
    alert.text = rule.text.format_map(_Words(words))
    alert.meaning = rule.meaning.format_map(_Words(words))
    alert.command = rule.command.format_map(_Words(words))


class _Words(dict[str, str]):
    """Names that a text does not know stay as they are."""

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"


def by_rule(alerts: Iterable[Alert]) -> Mapping[str, list[Alert]]:
    """Alerts grouped by their rule, for one message each."""
    found: dict[str, list[Alert]] = {}
    for alert in alerts:
        found.setdefault(alert.rule, []).append(alert)
    return found
