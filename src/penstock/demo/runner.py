"""The order of things: broker, topics, pipeline, events; then the last event, the balance, and the exit."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from penstock.demo.accounts import Outcome
from penstock.demo.broker import BrokerFailed, BrokerProcess
from penstock.demo.directory import DirectoryRefused, Leftovers, find_leftovers, prepare
from penstock.demo.feed import Feed
from penstock.demo.generator import RATE_DEFAULT, SEED_DEFAULT, Generator
from penstock.demo.pipelines import PipelineFailed, ShopPipeline, TableCounts
from penstock.demo.results import ResultReader
from penstock.demo.screens import Screen
from penstock.demo.seasons import DAY_S, ShopClock
from penstock.demo.snapshot import History, Snapshot
from penstock.demo.starting import start_notice
from penstock.demo.summary import Summary
from penstock.demo.topics import TopicsRefused, replace_topics
from penstock.monitor.process import MonitorProcess
from penstock.stop_flag import StopFlag

SHOW_EVERY_S: Final = 0.25
FIRST_RESULTS_TIMEOUT_S: Final = 300.0
FINISH_TIMEOUT_S: Final = 180.0
RESULTS_TIMEOUT_S: Final = 10.0


class DemoFailed(Exception):
    """The demo cannot run here; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    data: Path
    port: int = 9092
    seconds: float | None = None
    rate: float = RATE_DEFAULT
    seed: int = SEED_DEFAULT


def run(
    options: Options,
    pipeline: ShopPipeline,
    *,
    make_screen: Callable[[], Screen],
    announce: Callable[[str], None],
    confirm: Callable[[Leftovers], None],
    notice: str = "",
) -> Summary:
    """Runs the demo until its time is over or it is interrupted, and says how it went.

    `announce` is called with the broker's address once clients can use it. `confirm` is called before anything of an
    earlier demo is removed, and raises an exception of the caller's if that must stay.
    """
    check_port(options.port)
    try:
        leftovers = find_leftovers(options.data)
    except DirectoryRefused as error:
        raise DemoFailed(str(error), "name another directory with --data DIR") from None
    if leftovers:
        confirm(leftovers)
    leftovers.remove_files()
    prepare(options.data)
    with ExitStack() as stack, _interrupts() as interrupted:
        logs = options.data / "logs"
        stack.enter_context(_logging_to(logs / "demo.log"))
        broker = stack.enter_context(BrokerProcess(options.data / "broker", options.port, logs / "broker.log"))
        # The JVM needs seconds to start, so it starts first.
        stack.callback(pipeline.stop)
        pipeline.prepare()
        try:
            address = broker.wait_until_ready()
            replace_topics(address)
        except (BrokerFailed, TopicsRefused) as error:
            raise DemoFailed(f"the broker cannot start: {error}", "choose another port with --port P") from None
        stack.enter_context(MonitorProcess(address, log_path=logs / "monitor.log"))
        announce(address)
        started_s = time.monotonic()
        clock = ShopClock.for_run(options.seconds)
        events = Generator(clock, options.rate, options.seed, closes_after_s=pipeline.closes_after_s)
        feed = Feed(address, events)
        reader = ResultReader(address)
        reader.start()
        stack.callback(reader.stop)
        pipeline.start(address)
        feed.start()
        stack.callback(feed.stop)
        demo = _Demo(options, address, clock, broker, feed, pipeline, reader, notice)
        with make_screen() as screen:
            demo.follow(screen, interrupted)
            complete = demo.finish(screen, interrupted)
        return demo.summary(complete, started_s)


def check_port(port: int) -> None:
    """Raises DemoFailed if the broker could not listen on this port; called before anything is removed."""
    if port == 0:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise DemoFailed(
                f"port {port} cannot be used: {error.strerror}. Is another broker running?",
                "choose another one with --port P; 0 takes one that is free",
            ) from None


class _Demo:
    """The parts of a run that is under way."""

    def __init__(
        self,
        options: Options,
        address: str,
        clock: ShopClock,
        broker: BrokerProcess,
        feed: Feed,
        pipeline: ShopPipeline,
        reader: ResultReader,
        notice: str,
    ) -> None:
        self._options = options
        self._address = address
        self._clock = clock
        self._broker = broker
        self._feed = feed
        self._pipeline = pipeline
        self._reader = reader
        self._notice = notice
        self._history = History()
        self._problems: list[str] = []

    def follow(self, screen: Screen, interrupted: StopFlag) -> None:
        """Shows what happens until the events end."""
        while not interrupted.is_set() and not self._feed.finished:
            screen.show(self._snapshot(self._pipeline.doing))
            if not self._broker.alive():
                self._problems.append(f"the broker ended by itself: {self._broker.last_words()}")
                return
            if not self._problems:
                self._check()
            if self._options.seconds is not None:
                if self._problems:
                    return
                self._set_end(self._options.seconds)
            interrupted.wait(SHOW_EVERY_S)

    def _set_end(self, seconds: float) -> None:
        """A run's time begins when all of the pipeline runs: what Spark needs to start is not what one came to see, and
        late events are late only behind a batch."""
        if self._feed.ends_s is None and self._pipeline.committed_s is not None and self._pipeline.doing == "running":
            self._feed.end_in(seconds)
        elif self._feed.ends_s is None and self._feed.elapsed_s > FIRST_RESULTS_TIMEOUT_S:
            self._problems.append(f"no results after {FIRST_RESULTS_TIMEOUT_S:.0f} s")

    def finish(self, screen: Screen, interrupted: StopFlag) -> bool:
        """Lets the pipeline reach the end of the topics; whether it did."""
        self._feed.stop()
        if self._problems:
            return False
        self._feed.close_windows()
        if interrupted.is_set():
            self._notice = "finishing what was sent; Ctrl-C again ends at once"
        interrupted.clear()
        reached = threading.Event()
        waiting = threading.Thread(target=self._reach_the_end, args=(reached,), name="demo-finish", daemon=True)
        waiting.start()
        while waiting.is_alive() and not interrupted.is_set():
            screen.show(self._snapshot("finishing" if self._pipeline.doing == "running" else self._pipeline.doing))
            waiting.join(SHOW_EVERY_S)
        screen.show(self._snapshot("done"))
        return reached.is_set()

    def summary(self, complete: bool, started_s: float) -> Summary:
        results = self._reader.results()
        tables = self._count_tables() if complete else None
        dropped = self._pipeline.dropped()
        committed_s = self._pipeline.committed_s
        if self._feed.error is not None:
            self._problems.append(f"the events stopped: {self._feed.error}")
        return Summary(
            address=self._address,
            data=self._options.data,
            engine=self._pipeline.title,
            seconds=self._feed.elapsed_s,
            shop_days=self._clock.shop_s(self._feed.elapsed_s) / DAY_S,
            sent=self._feed.sent(),
            outcome=Outcome(
                processed=results.events if tables is None else tables.processed,
                dead_lettered=results.dead_letters,
                late=dropped.late,
                duplicates=dropped.duplicates,
                archived=None if tables is None else tables.archived,
                archived_revenue_cents=None if tables is None else tables.archived_revenue_cents,
            ),
            results=results,
            batches=sum(stage.batch + 1 for stage in self._pipeline.stages()),
            first_batch_s=None if committed_s is None else committed_s - started_s,
            start_times=self._pipeline.start_times,
            complete=complete,
            problems=tuple(self._problems),
        )

    def _count_tables(self) -> TableCounts | None:
        try:
            return self._pipeline.count_tables()
        except Exception as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            self._problems.append(f"the tables cannot be counted: {reason}")
            return None

    def _reach_the_end(self, reached: threading.Event) -> None:
        try:
            if self._pipeline.finish(FINISH_TIMEOUT_S):
                self._reader.finish(RESULTS_TIMEOUT_S)
                reached.set()
        except PipelineFailed as error:
            self._problems.append(str(error))

    def _check(self) -> None:
        try:
            self._pipeline.check()
        except PipelineFailed as error:
            self._problems.append(str(error))
            self._notice = f"{error} – the broker and the shop go on"

    def _snapshot(self, doing: str) -> Snapshot:
        feed, sent, stages = self._feed, self._feed.sent(), self._pipeline.stages()
        elapsed_s = feed.elapsed_s
        self._history.add(elapsed_s, sent, stages)
        results, dropped = self._reader.results(), self._pipeline.dropped()
        return Snapshot(
            address=self._address,
            elapsed_s=elapsed_s,
            seconds=self._feed.ends_s,
            shop_time=self._clock.at(elapsed_s),
            engine=self._pipeline.title,
            doing=doing,
            topics=self._history.topics(sent),
            stages=stages,
            lag_history=self._history.lags,
            sent=sent,
            outcome=Outcome(
                processed=results.events,
                dead_lettered=results.dead_letters,
                late=dropped.late,
                duplicates=dropped.duplicates,
            ),
            results=results,
            notice=self._notice or self._start_notice(elapsed_s),
        )

    def _start_notice(self, elapsed_s: float) -> str:
        if self._pipeline.committed_s is not None:
            return ""
        return start_notice(elapsed_s, os.getloadavg()[0], len(os.sched_getaffinity(0)))


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Warnings of this process go to a file: on the terminal they would stand in the view."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    loggers = [logging.getLogger(name) for name in ("penstock", "py4j", "pyspark")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()


@contextmanager
def _interrupts() -> Iterator[StopFlag]:
    """An event that Ctrl-C and SIGTERM set: the first ends the events, the second ends the waiting."""
    interrupted = StopFlag()

    def on_signal(number: int, frame: FrameType | None) -> None:
        interrupted.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
