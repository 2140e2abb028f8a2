"""What is said in the end: the figures, the balance, and where to look next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.demo.accounts import Check, Outcome, Sent, balance
from penstock.demo.drawing import euros
from penstock.demo.generator import Fate, Kind
from penstock.demo.pipelines import StartTimes
from penstock.demo.results import Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run of the demo that is over."""

    address: str
    data: Path
    engine: str
    seconds: float
    shop_days: float
    sent: Sent
    outcome: Outcome
    results: Results
    batches: int
    first_batch_s: float | None
    start_times: StartTimes | None = None
    complete: bool
    """Whether the pipeline reached the end of the topics; without that nothing can add up."""
    problems: tuple[str, ...] = ()

    @property
    def checks(self) -> list[Check]:
        return balance(self.sent, self.outcome)

    @property
    def adds_up(self) -> bool:
        return self.complete and not self.problems and self.sent.total > 0 and all(one.holds for one in self.checks)

    def as_json(self) -> dict[str, object]:
        outcome = self.outcome
        return {
            "adds_up": self.adds_up,
            "complete": self.complete,
            "problems": list(self.problems),
            "engine": self.engine,
            "bootstrap_servers": self.address,
            "data": str(self.data),
            "seconds": round(self.seconds, 1),
            "shop_days": round(self.shop_days, 2),
            "first_batch_seconds": None if self.first_batch_s is None else round(self.first_batch_s, 1),
            "start_seconds": None
            if self.start_times is None
            else {
                "session": round(self.start_times.session_s, 1),
                "query": round(self.start_times.query_s, 1),
                "first_batch": round(self.start_times.first_batch_s, 1),
            },
            "batches": self.batches,
            "sent": {
                "events": self.sent.total,
                "bytes": self.sent.bytes,
                "failed": self.sent.failed,
                "revenue_cents": self.sent.revenue_cents,
                **{f"{kind}s": self.sent.by_kind[kind] for kind in (Kind.CLICK, Kind.ORDER, Kind.PAYMENT)},
                "on_purpose": {fate.value: self.sent.by_fate[fate] for fate in Fate},
            },
            "outcome": {
                "processed": outcome.processed,
                "dead_lettered": outcome.dead_lettered,
                "late": outcome.late,
                "duplicates": outcome.duplicates,
                "archived": outcome.archived,
                "archived_revenue_cents": outcome.archived_revenue_cents,
            },
            "results": {
                "hours": len(self.results.hours),
                "revenue_cents": self.results.revenue_cents,
                "visits": self.results.visits,
                "visits_with_order": self.results.visits_with_order,
                "reasons": dict(self.results.reasons.most_common()),
            },
            "checks": [
                {
                    "name": check.name,
                    "holds": check.holds,
                    check.left: check.left_value,
                    check.right: check.right_value,
                }
                for check in self.checks
            ],
        }


def lines(summary: Summary) -> Iterator[str]:
    """For a person."""
    sent, outcome, results = summary.sent, summary.outcome, summary.results
    yield f"{summary.seconds:.0f} s, {summary.shop_days:.1f} days in the shop, computed by {summary.engine}"
    yield ""
    kinds = " · ".join(f"{sent.by_kind[kind]:,} {kind}s" for kind in (Kind.CLICK, Kind.ORDER, Kind.PAYMENT))
    yield f"  sent           {sent.total:>9,}   {kinds}"
    money = f"{len(results.hours)} hours, {euros(results.revenue_cents)} revenue, {results.visits:,} visits"
    yield f"  processed      {outcome.processed:>9,}   {money}"
    reason, _ = next(iter(results.reasons.most_common(1)), ("", 0))
    yield f"  dead-lettered  {outcome.dead_lettered:>9,}   {_shortened(reason)}"
    yield f"  late           {outcome.late:>9,}   came after their hour was closed"
    yield f"  duplicates     {outcome.duplicates:>9,}   counted once"
    yield ""
    if not summary.complete:
        yield "  ✗ the pipeline did not reach the end of the topics: what follows cannot add up"
    for problem in summary.problems:
        yield f"  ✗ {problem}"
    for check in summary.checks:
        yield f"  {_check_line(check)}"
    if summary.first_batch_s is not None:
        yield ""
        yield f"  first results committed after {summary.first_batch_s:.1f} s, {summary.batches:,} batches in all"
    if (times := summary.start_times) is not None:
        yield (
            f"  start: {times.session_s:.1f} s for Spark's JVM, {times.query_s:.1f} s to start the first query, "
            f"{times.first_batch_s:.1f} s for its first batch"
        )


def next_steps(summary: Summary, *, has_tables: bool) -> Iterator[str]:
    """Where to look now that the broker of the demo has stopped."""
    data = summary.data
    yield "look around: the data stays"
    yield f"  penstock up --data {data / 'broker'}      # the same broker, with all topics"
    yield "  penstock topics list"
    yield "  penstock consume shop.revenue --from-beginning --until-end"
    if has_tables:
        yield f"  penstock tables list {data / 'tables'}"
    yield "  penstock pipeline init --help      # a pipeline of your own"


def _check_line(check: Check) -> str:
    if check.holds:
        return f"✓ {check.name:<12} {check.left_value:,} {check.left} = {check.right}"
    return (
        f"✗ {check.name:<12} {check.left_value:,} {check.left} but {check.right_value:,} {check.right} "
        f"({check.right_value - check.left_value:+,})"
    )


def _shortened(text: str, size_max: int = 60) -> str:
    if not text:
        return ""
    return f"mostly: {text if len(text) <= size_max else text[: size_max - 1] + '…'}"
