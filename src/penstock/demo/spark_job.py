"""The Spark pipeline in the background: its session, its queries, and what they say about themselves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.client import LATEST, ClientError, ClientSettings, Cluster, TopicPartition
from penstock.demo.pipelines import Dropped, PipelineFailed, Stage, StartTimes, TableCounts
from penstock.demo.topics import EVENTS
from penstock.pipeline.failures import LATE_WORKER, reason_of
from penstock.pipeline.progress import Report
from penstock.pipeline.running import RESTARTS_MAX as LATE_RESTARTS_MAX
from penstock.spark.class_archive import make_in_background

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.demo.shop_queries import ShopQuery

log = logging.getLogger(__name__)

MASTER: Final = "local[*]"
TRIGGER: Final = "1 second"
CLOSES_AFTER_S: Final = 10.0
"""Spark judges a batch by the watermark of the batch before, which follows from the events of the one before that. So
late events are late behind two batches, of a few seconds each where the cores are few."""
LOOK_EVERY_S: Final = 0.3
STOP_TIMEOUT_S: Final = 15.0

SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Batches are small, and what the compiler would gain in a long run it costs at the start, on few cores most of all.
    # Spark's classes take 200 MB, and each time they outgrow what was set aside for them the whole heap is collected.
    # With one compiler only, the JVM reserves 48 MB for compiled code instead of 240; Spark fills that in some minutes.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m -Xss4m"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "30",
    "spark.sql.streaming.noDataProgressEventInterval": "500",
}

RESTARTS_MAX: Final = 3
"""A query that fails is started again where it stopped, so often."""

HOURS: Final = "hours"
"""The query that says what was late and what came twice."""


@dataclass(slots=True)
class Followed:
    """A query, and what was seen of its progress."""

    start: Callable[[], StreamingQuery]
    query: StreamingQuery
    restarts: int = 0
    batch: int = -1
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    rows_per_s: float = 0.0
    took_ms: int = 0
    state_rows: int = 0
    late: int = 0
    duplicates: int = 0
    idle: bool = False
    """Whether it last looked for something to do and found nothing."""

    def take(self, progress: Mapping[str, object]) -> None:
        """Adds one progress report, which may have been added before."""
        report = Report.read(progress)
        self.idle = not report.ran
        if report.ran and report.batch > self.batch:
            self.batch = report.batch
            self.late += report.late
            self.duplicates += report.duplicates
            self.rows_per_s = report.rows_per_second
            self.took_ms = report.took_ms
        self.state_rows = report.state_rows
        read = {TopicPartition(*place): at for place, at in report.positions.items() if place[0] in EVENTS}
        self.positions = read or self.positions


class SparkPipeline:
    """Everything Spark does happens in threads of its own; what the view asks is answered from memory.

    It runs in the `session` that it is given, and leaves that as it was, or makes one of its own.
    """

    def __init__(self, data: Path, session: SparkSession | None = None) -> None:
        self._data = data
        self._address = ""
        self._doing = "starting Spark"
        self._error = ""
        self._lock = threading.Lock()
        self._waiting: list[ShopQuery] = []
        self._followed: dict[str, Followed] = {}
        self._has_queries = threading.Event()
        self._ends: dict[TopicPartition, int] = {}
        self._committed_s: float | None = None
        self._prepared_at_s = self._session_at_s = self._started_at_s = 0.0
        self._stopping = threading.Event()
        self._has_session = threading.Event()
        self._session = session
        self._has_own_session = session is None
        self._building = threading.Thread(target=self._build, name="demo-spark", daemon=True)
        self._running: threading.Thread | None = None

    @property
    def title(self) -> str:
        return f"Spark {MASTER}"

    @property
    def doing(self) -> str:
        return self._doing

    @property
    def committed_s(self) -> float | None:
        return self._committed_s

    @property
    def start_times(self) -> StartTimes | None:
        if self._committed_s is None:
            return None
        return StartTimes(
            self._session_at_s - self._prepared_at_s,
            self._started_at_s - self._session_at_s,
            self._committed_s - self._started_at_s,
        )

    @property
    def closes_after_s(self) -> float:
        return CLOSES_AFTER_S

    def prepare(self) -> None:
        self._prepared_at_s = time.monotonic()
        self._building.start()

    def start(self, address: str) -> None:
        self._address = address
        self._running = threading.Thread(target=self._run, args=(address,), name="demo-queries", daemon=True)
        self._running.start()

    def stages(self) -> list[Stage]:
        with self._lock:
            return [
                Stage(
                    name=name,
                    batch=one.batch,
                    rows=sum(one.positions.values()),
                    rows_per_s=one.rows_per_s,
                    lag=self._lag(one),
                    took_ms=one.took_ms,
                    state_rows=one.state_rows,
                )
                for name, one in self._followed.items()
            ]

    def dropped(self) -> Dropped:
        with self._lock:
            hours = self._followed.get(HOURS)
            return Dropped(hours.late, hours.duplicates) if hours is not None else Dropped()

    def check(self) -> None:
        if self._error:
            raise PipelineFailed(self._error)

    def finish(self, timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        with Cluster(ClientSettings.from_properties({"bootstrap.servers": self._address})) as cluster:
            ends = _ends(cluster)
        while not self._has_queries.is_set() or self._waiting or not self._processed(ends):
            self.check()
            if time.monotonic() > deadline_s:
                return False
            self._stopping.wait(LOOK_EVERY_S)
        return True

    def count_tables(self) -> TableCounts | None:
        from penstock.pipeline import read_table

        assert self._session is not None
        tables = self._data / "tables"
        events = read_table(self._session, tables / "events").selectExpr(
            "count(*)", "coalesce(sum(IF(kind = 'order', amount_cents, 0)), 0)"
        )
        archived, revenue = _only_row(events)
        (processed,) = _only_row(read_table(self._session, tables / "hours").selectExpr("coalesce(sum(events), 0)"))
        return TableCounts(processed, archived, revenue)

    def stop(self) -> None:
        self._stopping.set()
        for thread in (self._building, self._running):
            if thread is not None and thread.is_alive():
                thread.join(STOP_TIMEOUT_S)
        session, self._session = self._session, None
        if session is not None:
            for one in self._followed.values():
                with suppress(Exception):
                    one.query.stop()
            if self._has_own_session:
                with suppress(Exception):
                    session.stop()
                make_in_background()

    def _processed(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether every query is at these ends and has nothing left to close.

        A query that moved its watermark runs once more without data, so it has to be seen idle after its last batch.
        """
        with self._lock:
            return all(_behind(one.positions, ends) == 0 and one.idle for one in self._followed.values())

    # In the background

    def _build(self) -> None:
        try:
            from penstock.spark import build_session

            if self._session is None:
                log_path = self._data / "logs" / "spark.log"
                self._session = build_session("penstock-demo", master=MASTER, config=SETTINGS, log=log_path)
            self._session_at_s = time.monotonic()
            self._doing = "starting queries"
        except Exception as error:
            self._fail("Spark did not start", error)
        finally:
            self._has_session.set()

    def _run(self, address: str) -> None:
        try:
            # All that has to be imported, while the JVM starts.
            import deltalake  # noqa: F401
            import pyarrow.parquet  # noqa: F401

            from penstock.demo.shop_queries import shop_queries

            self._has_session.wait()
            if self._session is None or self._stopping.is_set():
                return
            self._waiting = shop_queries(self._session, address, self._data / "tables")
            self._start_next()
            self._started_at_s = time.monotonic()
            self._doing = "first batches"
            self._has_queries.set()
            with Cluster(ClientSettings.from_properties({"bootstrap.servers": address})) as cluster:
                while not self._stopping.wait(LOOK_EVERY_S):
                    with suppress(ClientError):
                        self._ends = _ends(cluster)
                    self._look()
                    self._start_next()
        except Exception as error:
            if not self._stopping.is_set():
                self._fail("the Spark pipeline stopped", error)

    def _start_next(self) -> None:
        """Starts the next query once the last one has committed its first batch: together they only get in each
        other's way, and first results come sooner like this."""
        if not self._waiting or any(one.batch < 0 for one in self._followed.values()):
            return
        query = self._waiting[0]
        writer = (
            query.frame.writeStream.queryName(query.name)
            .foreachBatch(query.write)
            .option("checkpointLocation", str(self._data / "checkpoints" / query.name))
            .trigger(processingTime=TRIGGER)
        )
        started = Followed(writer.start, writer.start())
        with self._lock:
            self._followed[query.name] = started
            self._waiting.pop(0)

    def _look(self) -> None:
        """Takes in what the queries say about themselves."""
        for name, one in list(self._followed.items()):
            self._listen(one)
            if one.query.isActive or self._stopping.is_set():
                continue
            # What it said last must not be lost: the next one begins with reports of its own.
            self._listen(one)
            failure = one.query.exception()
            if one.restarts >= restarts_allowed(failure):
                self._fail(f"the query {name} stopped", failure)
                return
            one.restarts += 1
            log.warning("the query %s is started again: %s", name, _reason(failure) if failure else "it stopped")
            one.query = one.start()
        if not self._waiting and not self._error and all(one.batch >= 0 for one in self._followed.values()):
            self._doing = "running"

    def _listen(self, one: Followed) -> None:
        reports = [dict(report) for report in one.query.recentProgress if report["batchId"] >= one.batch]
        with self._lock:
            for report in reports:
                one.take(report)
            if self._committed_s is None and one.batch >= 0:
                self._committed_s = time.monotonic()

    def _lag(self, one: Followed) -> int | None:
        if not self._ends:
            return None
        return _behind(one.positions, self._ends)

    def _fail(self, what: str, error: BaseException | None) -> None:
        self._error = f"{what}: {_reason(error)} (more in {self._data / 'logs'})" if error else what
        self._doing = "stopped"


def restarts_allowed(failure: BaseException | None) -> int:
    """A Python process that took too long to start is no fault of the query, only of a busy machine."""
    return LATE_RESTARTS_MAX if LATE_WORKER in str(failure) else RESTARTS_MAX


def _reason(error: BaseException) -> str:
    return reason_of(str(error)) if str(error).strip() else type(error).__name__


def _behind(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, end - positions.get(place, 0)) for place, end in ends.items())


def _ends(cluster: Cluster) -> dict[TopicPartition, int]:
    places: dict[tuple[str, int], int] = {
        (name, partition.partition): LATEST for name in EVENTS for partition in cluster.known_topic(name).partitions
    }
    return {place: listed.offset for place, listed in cluster.list_offsets(places).items()}


def _only_row(frame: Any) -> list[int]:
    (row,) = frame.collect()
    return [int(value) for value in row]
