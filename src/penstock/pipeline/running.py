"""A pipeline at work: its queries started, watched, and stopped together."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline.checking import check_checkpoint, check_cluster, check_declarations, check_plan
from penstock.pipeline.checkpoints import held, open_directory, query_location
from penstock.pipeline.claiming import claim
from penstock.pipeline.failures import LATE_WORKER, reason_of, sentence
from penstock.pipeline.identity import dead_letter_query, dead_letter_sources, identity_of
from penstock.pipeline.model import OutputMode, Pipeline, PipelineError, Place, Problem
from penstock.pipeline.planning import Plan, own_session, plan
from penstock.pipeline.progress import QueryFigures
from penstock.pipeline.reports import Reports
from penstock.pipeline.sinks import Gate, open_gate, start_query, topic_writer
from penstock.pipeline.spark_errors import quietly
from penstock.pipeline.status import RunStatus, now_text, status_path, write_status
from penstock.spark.class_archive import make_in_background
from penstock.spark.session import is_local
from penstock.spark.slow_start import EXPECTED
from penstock.stop_flag import Stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.25
STATUS_EVERY_S = 1.0
STOP_TIMEOUT_S = 60.0
"""How long a write that goes on may take to finish when a run is stopped."""
RESTARTS_MAX = 8
BEGIN_TIMEOUT_S = 120.0
BEGIN_POLL_S = 0.05
STARTING_SPARK = f"starting Spark, which {EXPECTED}"
_BEFORE_THE_FIRST_BATCH = ("Initializing", "Starting")


class QueryFailed(PipelineError):
    """A query of a running pipeline failed; the others were stopped, and all go on from there when started again."""


def run_pipeline(
    pipeline: Pipeline,
    *,
    master: str | None = None,
    spark: SparkSession | None = None,
    stop: Stop | None = None,
    metrics: tuple[str, int] | None = None,
    on_status: Callable[[RunStatus], None] | None = None,
    log: Path | None = None,
) -> RunStatus:
    """Checks a pipeline, runs it until it is done (trigger `once`), fails, or `stop` is set, and says how it went.

    PipelineError has what the check found, or which query failed and why; what was written before is whole, and the
    next run goes on after it. With a session of the caller's, `master` has no meaning, and the session is left open;
    otherwise `log` is a file for what Spark's processes write to standard error.
    """
    run = _Run(pipeline, master or "", stop or threading.Event(), on_status)
    with ExitStack() as stack:
        _raise_for(check_declarations(pipeline), pipeline)
        # Before anything is written there: neither the status nor the lock of another's directory is this run's.
        _raise_for(check_checkpoint(pipeline, None), pipeline)
        stack.enter_context(held(pipeline))
        stack.callback(run.save)
        if metrics is not None:
            run.serve_metrics(*metrics, stack)
        run.tell("starting", "checking the topics")
        try:
            _raise_for(check_cluster(pipeline), pipeline)
            if spark is None:
                from penstock.spark import build_session

                run.tell("starting", STARTING_SPARK)
                spark = build_session(f"penstock: {pipeline.name}", master=master, config=pipeline.spark, log=log)
                if master is None or is_local(master):
                    stack.callback(make_in_background)
                stack.callback(spark.stop)
            run.status.master = master or _master_of(spark)
            with quietly(), run.ended():
                run.start(spark)
                run.watch()
        except PipelineError as error:
            run.fail(error.problems[0].message)
            raise
        except BaseException as error:
            run.fail(f"{type(error).__name__}: {error}".removesuffix(": "))
            raise
    return run.status


@dataclass
class _Running:
    query: StreamingQuery
    gate: Gate | None
    place: Place
    start: Callable[[], StreamingQuery]
    restarts: int = 0


@dataclass
class _Run:
    pipeline: Pipeline
    master: str
    stop: Stop
    on_status: Callable[[RunStatus], None] | None
    status: RunStatus = field(init=False)
    queries: dict[str, _Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pipeline = self.pipeline
        self.status = RunStatus(
            pipeline=pipeline.name,
            checkpoint=pipeline.checkpoint,
            trigger=str(pipeline.trigger),
            master=self.master,
            started=now_text(),
            host=socket.gethostname(),
            pid=os.getpid(),
            file=str(pipeline.path or ""),
        )
        for name, query in identity_of(pipeline).queries.items():
            self.status.queries[name] = QueryFigures(name, query.writes)
        self._reports = Reports(self.status)
        self._session: SparkSession | None = None
        self._saved_s = 0.0
        self._is_stopped = False

    def serve_metrics(self, host: str, port: int, stack: ExitStack) -> None:
        from penstock.pipeline.metrics import serve_metrics

        server = serve_metrics(host, port, self.status)
        self.status.metrics = server.address
        stack.callback(server.close)

    def start(self, spark: SparkSession) -> None:
        """Starts all queries, or none: what can be known before the first one starts is known then.

        A run that is stopped meanwhile starts no further query.
        """
        if self.stop.is_set():
            return
        self.tell("starting", "checking the queries")
        pipeline = self.pipeline
        session = own_session(spark, pipeline)
        _raise_for(check_checkpoint(pipeline, session), pipeline)
        directory = open_directory(pipeline.checkpoint, session)
        starting = claim(pipeline, directory) if directory is not None else {}
        planned = plan(pipeline, session, starting=starting)
        _raise_for(check_plan(pipeline, planned), pipeline)
        if self.stop.is_set():
            return
        self._session = session
        self._reports.listen(session)
        self._start_queries(planned)
        self.tell("running")

    def watch(self) -> None:
        """Returns when all queries are done or the run was stopped; raises when one failed."""
        while not self.stop.wait(POLL_S):
            ended = not self._is_active()
            self._raise_failure(restart=True)
            if ended and not self._is_active():
                break
            self.tell("running")
        if self.stop.is_set():
            self.tell("stopping")
        self._stop_queries()
        self._raise_failure()
        self._reports.wait_for_ends(len(self.queries))
        state = "stopped" if self.stop.is_set() else "finished"
        for figures in self.status.queries.values():
            figures.state = state
        self.tell(state)

    @contextmanager
    def ended(self) -> Iterator[None]:
        """However the run goes, nothing of it goes on after it: the session may be the caller's, and stay."""
        try:
            yield
        finally:
            try:
                self._stop_queries()
            finally:
                self._stop_whatever_runs()

    def _is_active(self) -> bool:
        return any(one.query.isActive for one in self.queries.values())

    def tell(self, state: str, doing: str = "") -> None:
        """The status, to whoever watches; to the file less often."""
        changed = (self.status.state, self.status.doing) != (state, doing)
        self.status.state, self.status.doing = state, doing
        if changed or time.monotonic() - self._saved_s > STATUS_EVERY_S:
            self.save()
        if self.on_status is not None:
            self.on_status(self.status)

    def save(self) -> None:
        self._saved_s = time.monotonic()
        path = status_path(self.pipeline.checkpoint)
        if path is not None:
            with suppress(OSError):  # a full disk is told by what needs it more
                write_status(path, self.status)

    def fail(self, message: str) -> None:
        self.status.error = message
        for figures in self.status.queries.values():
            if figures.state in ("starting", "running"):
                figures.state = "stopped"
        with suppress(Exception):  # it may be what failed
            self.tell("failed")

    def _start_queries(self, planned: Plan) -> None:
        pipeline = self.pipeline
        for sink in pipeline.sinks:
            gate = open_gate(pipeline, sink)
            self._start(sink.name, planned.sinks[sink.name], sink.mode, gate, sink.place)
        for source in dead_letter_sources(pipeline):
            gate = Gate(topic_writer(pipeline, source.dead_letters, source.delivery))
            rows = planned.dead_letters[source.name]
            self._start(dead_letter_query(source), rows, OutputMode.APPEND, gate, source.place)

    def _start(self, name: str, rows: DataFrame, mode: OutputMode, gate: Gate | None, place: Place) -> None:
        def start() -> StreamingQuery:
            return start_query(
                rows,
                name=name,
                mode=mode,
                trigger=self.pipeline.trigger,
                location=query_location(self.pipeline.checkpoint, name),
                gate=gate,
            )

        self.tell("starting", f"starting the query {name}")
        if self.stop.is_set():
            return
        try:
            query = start()
        except Exception as error:
            raise PipelineError(
                Problem(f"query {name} cannot start: {sentence(str(error))}", "", place), path=self.pipeline.path
            ) from error
        self.queries[name] = _Running(query, gate, place, start)
        self._await_beginning(query)

    def _await_beginning(self, query: StreamingQuery) -> None:
        """Waits until a query's own process of Python is there, so that they start one after the other.

        Spark gives such a process ten seconds, which several of them at once on a busy machine can miss.
        """
        deadline_s = time.monotonic() + BEGIN_TIMEOUT_S
        while query.isActive and time.monotonic() < deadline_s and not self.stop.is_set():
            if not str(query.status.get("message", "")).startswith(_BEFORE_THE_FIRST_BATCH):
                return
            time.sleep(BEGIN_POLL_S)

    def _raise_failure(self, *, restart: bool = False) -> None:
        for name, one in self.queries.items():
            if one.query.isActive:
                continue
            error = one.query.exception()
            if error is None or _is_our_stop(error, self.stop):
                continue
            if restart and LATE_WORKER in str(error) and one.restarts < RESTARTS_MAX:
                # Nothing is wrong but the time it took: the query goes on from its checkpoint, as after any stop.
                one.restarts += 1
                one.query = one.start()
                self._reports.forget_end()
                continue
            figures = self.status.queries[name]
            figures.state = "failed"
            figures.error = reason_of(str(error))
            self._stop_queries()
            self._reports.wait_for_ends(len(self.queries))
            raise QueryFailed(
                Problem(
                    f"query {name} failed: {figures.error}",
                    "once that is set right, run it again: it goes on where it stopped",
                    one.place,
                ),
                path=self.pipeline.path,
            )

    def _stop_queries(self) -> None:
        if self._is_stopped:
            return
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        for one in self.queries.values():
            if one.gate is not None:
                one.gate.close(max(0.0, deadline_s - time.monotonic()))
        for one in self.queries.values():
            with suppress(Exception):  # it ended by itself, or Spark is gone
                one.query.stop()
        self._is_stopped = True

    def _stop_whatever_runs(self) -> None:
        """Also a query that was interrupted while it started, and one whose write did not end in time."""
        if self._session is None:
            return
        self._reports.leave(self._session)
        with suppress(Exception):  # Spark is gone
            for query in self._session.streams.active:
                if query.name in self.status.queries:
                    query.stop()


def _raise_for(problems: list[Problem], pipeline: Pipeline) -> None:
    if problems:
        raise PipelineError(sorted(problems, key=lambda problem: problem.place), path=pipeline.path)


def _is_our_stop(error: Exception, stop: Stop) -> bool:
    return stop.is_set() and "Stopped: the run is being stopped" in str(error)


def _master_of(spark: SparkSession) -> str:
    try:
        return str(spark.conf.get("spark.master", ""))
    except Exception:
        return ""
