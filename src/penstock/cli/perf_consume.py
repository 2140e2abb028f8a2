"""`penstock perf consume`: how fast records can be read, with the options and lines of kafka-consumer-perf-test."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, examples
from penstock.cli.output import note, print_json, print_line
from penstock.cli.perf_dates import DATE_FORMAT, date_text
from penstock.cli.perf_live import TICK_S, Screen
from penstock.cli.perf_options import (
    DEFAULT_REPORTING_INTERVAL_MS,
    Chart,
    CommandConfig,
    CommandProperty,
    MoreProperties,
    PrintMetrics,
    ReportingInterval,
    Statistics,
    check_reachable,
    client_settings,
    cluster_of,
)
from penstock.cli.plan_presets import PresetName, client_preset
from penstock.perf.lines import MEBIBYTE, consumer_head, consumer_progress, consumer_total

if TYPE_CHECKING:
    from penstock.cli.library import Consumer, Message

FETCH_RECORDS = 10_000
"""How many records one call may bring: a call for each would cost more than the records do."""
POLL_S = 0.1
FETCH_PAUSE_MS = 2

EXAMPLES = examples(
    ("penstock perf consume --topic t --num-records 1000000", "read from the beginning, as fast as it goes"),
    ("penstock perf consume --topic t --num-records 1000000 --show-detailed-stats", "a line per interval"),
    ("penstock perf consume --topic t --num-records 1000000 --from-latest --timeout 60000 --json", "what comes now"),
)


def consume(
    num_records: Annotated[
        int, typer.Option("--num-records", "--messages", min=1, help="How many records to read.", show_default=False)
    ],
    topic: Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic to read.")] = None,
    include: Annotated[
        str | None, typer.Option("--include", metavar="REGEX", help="Read all topics whose names match.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="The consumer group; a new one if not given.")] = None,
    fetch_size: Annotated[
        int, typer.Option("--fetch-size", min=1, help="Fetch at most this many bytes of a partition per request.")
    ] = MEBIBYTE,
    from_latest: Annotated[
        bool, typer.Option("--from-latest", help="A group without offsets starts at the end, not at the beginning.")
    ] = False,
    socket_buffer_size: Annotated[
        int, typer.Option("--socket-buffer-size", min=0, help="The socket's receive buffer, in bytes.")
    ] = 2 * MEBIBYTE,
    show_detailed_stats: Annotated[
        bool, typer.Option("--show-detailed-stats", help="A line per interval instead of one for the whole.")
    ] = False,
    reporting_interval: ReportingInterval = DEFAULT_REPORTING_INTERVAL_MS,
    timeout: Annotated[
        int, typer.Option("--timeout", metavar="MS", min=1, help="How long to wait for another record.")
    ] = 10_000,
    date_format: Annotated[str, typer.Option("--date-format", help="How times are written, in Java's letters.")] = (
        DATE_FORMAT
    ),
    hide_header: Annotated[bool, typer.Option("--hide-header", help="No head above the columns.")] = False,
    preset: PresetName = None,
    command_property: CommandProperty = None,
    more_properties: MoreProperties = None,
    command_config: CommandConfig = None,
    print_metrics: PrintMetrics = False,
    chart: Chart = True,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Measure consume throughput."""
    if (topic is None) == (include is None):
        raise CliError("give either --topic or --include", exit_codes.USAGE)
    try:
        date_text(datetime.now(), date_format)
    except ValueError as error:
        raise CliError(f"--date-format: {error}", exit_codes.USAGE) from None
    given = client_settings(command_property, more_properties, "--command-property")
    settings = {**client_preset(preset, "consumer"), **given}
    cluster = cluster_of(bootstrap_server, command_config, settings, DEFAULT_TIMEOUT_S)
    statistics = Statistics(wanted=print_metrics)
    if topic is not None:
        check_reachable(cluster, topic)
    consumer = cluster.consumer(
        {
            "client.id": "perf-consumer-client",
            "group.id": group or f"perf-consumer-{random.randrange(100_000)}",
            "enable.auto.commit": True,
            "enable.auto.offset.store": True,
            "auto.offset.reset": "latest" if from_latest else "earliest",
            "fetch.message.max.bytes": fetch_size,
            "socket.receive.buffer.bytes": socket_buffer_size,
            # When it is far ahead of its reader librdkafka stops fetching for a second: that would be measured.
            "fetch.queue.backoff.ms": FETCH_PAUSE_MS,
            **statistics.settings,
            **settings,
        }
    )
    quiet = json or not show_detailed_stats
    if not json and not hide_header:
        print_line(consumer_head(detailed=show_detailed_stats))
    with Screen(f"consume {topic or include}", chart=chart and not json, latency=False) as screen:
        run = _Run(cluster, consumer, settings, screen, date_format, reporting_interval, statistics, quiet=quiet)
        run.read(topic if topic is not None else _pattern(include or ""), num_records, timeout / 1000)
    if run.records < num_records:
        # Beside the result, so that it does not end up in the columns; Kafka's tool writes it among them.
        note(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout} ms) exceeded. "
            "You can use the --timeout option to increase the timeout."
        )
    if json:
        print_json(run.result())
    elif not show_detailed_stats:
        print_line(run.total_line())
    statistics.print()
    if not run.records:
        raise typer.Exit(exit_codes.FAILED)


def _pattern(include: str) -> str:
    """librdkafka takes a name that begins with ^ for a regular expression."""
    return include if include.startswith("^") else f"^{include}"


class _Run:
    """A reader and what it counted."""

    def __init__(
        self,
        cluster: Cluster,
        consumer: Consumer,
        settings: Mapping[str, object],
        screen: Screen,
        date_format: str,
        interval_ms: int,
        statistics: Statistics,
        *,
        quiet: bool,
    ) -> None:
        self._statistics = statistics
        self._cluster = cluster
        self._consumer = consumer
        self._settings = settings
        self._screen = screen
        self._date_format = date_format
        self._interval_ms = interval_ms
        self._quiet = quiet
        self.records = 0
        self.size_bytes = 0
        self.rebalance_ms = 0
        self.windows: list[dict[str, float]] = []
        self._window_rebalance_ms = 0
        self._joining_ms: int | None = None
        self._started = self._ended = datetime.now()
        self._started_ms = self._ended_ms = _now_ms()

    def read(self, topic: str, count: int, timeout_s: float) -> None:
        from penstock.client.closing import close_member

        self._started, self._started_ms = datetime.now(), _now_ms()
        self._joining_ms = self._started_ms
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        last_s = tick_s = time.monotonic()
        window_ms, window = self._started_ms, (0, 0)
        tick_records = 0
        try:
            while self.records < count:
                messages = self._consumer.consume(min(FETCH_RECORDS, count - self.records), POLL_S)
                now_s = time.monotonic()
                if messages and self._take(messages):
                    last_s = now_s
                elif now_s - last_s > timeout_s:
                    break
                if not self.records:
                    self._cluster.fail_fast()
                if now_s - tick_s >= TICK_S:
                    self._screen.point((self.records - tick_records) / (now_s - tick_s))
                    tick_records, tick_s = self.records, now_s
                now_ms = _now_ms()
                if now_ms - window_ms >= self._interval_ms and self.records > window[0]:
                    self._tell(now_ms - window_ms, window)
                    window_ms, window = now_ms, (self.records, self.size_bytes)
            self._ended, self._ended_ms = datetime.now(), _now_ms()
            self._statistics.await_first(self._consumer.poll)
        finally:
            close_member(self._consumer, self._settings)

    def _take(self, messages: list[Message]) -> int:
        """How many of them were records."""
        failed = [message for message in messages if message.error() is not None]
        if failed:
            messages = [message for message in messages if message.error() is None]
            for message in failed:
                error: Any = message.error()
                if error.fatal() or error.name() in ("TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART"):
                    raise self._cluster.failure(error, "read")
        self.records += len(messages)
        self.size_bytes += sum(map(len, messages)) + sum(len(key) for one in messages if (key := one.key()))
        return len(messages)

    def _tell(self, elapsed_ms: int, before: tuple[int, int]) -> None:
        window = (self.records - before[0], self.size_bytes - before[1])
        if not self._quiet:
            time_text = date_text(datetime.now(), self._date_format)
            total = (self.records, self.size_bytes)
            self._screen.say(consumer_progress(time_text, total, window, elapsed_ms, self._window_rebalance_ms))
        self._window_rebalance_ms = 0

    def _assigned(self, _consumer: Consumer, _partitions: object) -> None:
        if self._joining_ms is not None:
            took_ms = _now_ms() - self._joining_ms
            self.rebalance_ms += took_ms
            self._window_rebalance_ms += took_ms
            self._joining_ms = None

    def _revoked(self, _consumer: Consumer, _partitions: object) -> None:
        self._joining_ms = _now_ms()

    # ---- what is told

    def total_line(self) -> str:
        start, end = (date_text(when, self._date_format) for when in (self._started, self._ended))
        elapsed_ms = max(1, self._ended_ms - self._started_ms)
        return consumer_total(start, end, self.records, self.size_bytes, elapsed_ms, self.rebalance_ms)

    def result(self) -> dict[str, object]:
        elapsed_s = max(1, self._ended_ms - self._started_ms) / 1000
        fetch_s = max(1, self._ended_ms - self._started_ms - self.rebalance_ms) / 1000
        return {
            "start": self._started.isoformat(timespec="milliseconds"),
            "end": self._ended.isoformat(timespec="milliseconds"),
            "records": self.records,
            "bytes": self.size_bytes,
            "seconds": elapsed_s,
            "rebalance_ms": self.rebalance_ms,
            "records_per_second": round(self.records / elapsed_s, 3),
            "mb_per_second": round(self.size_bytes / elapsed_s / MEBIBYTE, 4),
            "fetch_records_per_second": round(self.records / fetch_s, 3),
            "fetch_mb_per_second": round(self.size_bytes / fetch_s / MEBIBYTE, 4),
        }


def _now_ms() -> int:
    return round(time.monotonic() * 1000)
