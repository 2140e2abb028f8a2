"""What the demo asks of a pipeline, whoever computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One query of a pipeline, as it stands."""

    name: str
    batch: int = -1
    """The last batch that was committed; −1 before the first."""
    rows: int = 0
    """Records read until now."""
    rows_per_s: float = 0.0
    lag: int | None = None
    """Records that are in the topics and not yet in a committed batch; None while that is not known."""
    took_ms: int = 0
    """How long the last batch took."""
    state_rows: int = 0


class PipelineFailed(Exception):
    """A pipeline ended by itself; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a pipeline left out of its results, and says so."""

    late: int = 0
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class TableCounts:
    """What the tables hold, counted from the tables themselves."""

    processed: int
    archived: int
    archived_revenue_cents: int


@dataclass(frozen=True, slots=True)
class StartTimes:
    """How long the three parts of a start took, one after the other."""

    session_s: float
    """Until Spark's JVM and its session were there."""
    query_s: float
    """Until the first query was started."""
    first_batch_s: float
    """Until the first results were committed."""

    @property
    def total_s(self) -> float:
        return self.session_s + self.query_s + self.first_batch_s


class ShopPipeline(Protocol):
    """Reads the topics of events, writes those of results; everything in the background."""

    @property
    def title(self) -> str:
        """Who computes, for the head of the view."""

    @property
    def doing(self) -> str:
        """What it is doing now, in a few words; `running` when all is well."""

    @property
    def committed_s(self) -> float | None:
        """When the first results were committed, by the monotonic clock."""

    @property
    def start_times(self) -> StartTimes | None:
        """How long the start took; None before the first results, and for a pipeline that has no such parts."""

    @property
    def closes_after_s(self) -> float:
        """How long it may take to close an hour whose time has come: what is later than that is late."""

    def prepare(self) -> None:
        """Begins what needs no broker, and returns at once."""

    def start(self, address: str) -> None:
        """Begins to read, and returns at once. The topics are there."""

    def stages(self) -> list[Stage]: ...

    def dropped(self) -> Dropped: ...

    def check(self) -> None:
        """Raises PipelineFailed if it ended by itself."""

    def finish(self, timeout_s: float) -> bool:
        """Waits until everything in the topics is in the results; whether that was reached in time."""

    def count_tables(self) -> TableCounts | None:
        """After `finish`: what the tables hold, if this pipeline writes tables."""

    def stop(self) -> None:
        """Ends it. May be called more than once."""
