"""`penstock perf produce`: how fast a cluster takes records, with the options and lines of kafka-producer-perf-test."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.formats import unescape
from penstock.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, examples
from penstock.cli.output import plural, print_json, print_line
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
    Topic,
    check_reachable,
    client_settings,
    cluster_of,
)
from penstock.cli.plan_presets import PresetName, client_preset
from penstock.perf import Histogram
from penstock.perf.lines import MEBIBYTE, PERCENTS, producer_total, producer_window
from penstock.perf.payloads import Payloads, of_list, of_numbers, of_size, split_payloads
from penstock.perf.throttle import Throttle

if TYPE_CHECKING:
    from penstock.cli.library import KafkaError, Message, Producer

BATCH_RECORDS = 500
"""How many records are handed over in one call: a call for each would cost more than the records do."""
POLL_S = 0.01
PAYLOAD_BYTES_MAX = 512 * MEBIBYTE
WINDOWS_MAX = 10_000
DEFAULTS = {
    "client.id": "perf-producer-client",
    # Java's clients gather up to 16 KB before they send, librdkafka up to a megabyte: as comparable as can be.
    "linger.ms": 5,
    "queue.buffering.max.messages": 1_000_000,
}

EXAMPLES = examples(
    ("penstock perf produce --topic t --num-records 1000000 --record-size 100 --throughput -1", "as fast as it goes"),
    ("penstock perf produce -t t --num-records 60000 --record-size 1024 --throughput 1000 --command-property acks=1",
     "a minute at a given rate"),
    ("penstock perf produce -t t --num-records 100000 --payload-file events.txt --throughput -1 --json",
     "your own records; JSON"),
)  # fmt: skip


def produce(
    topic: Topic,
    num_records: Annotated[int, typer.Option("--num-records", min=1, help="How many records.", show_default=False)],
    throughput: Annotated[
        float, typer.Option("--throughput", help="Send at most this many records per second; -1 for no limit.")
    ] = -1,
    record_size: Annotated[int | None, typer.Option("--record-size", min=1, help="The size of each, in bytes.")] = None,
    payload_file: Annotated[
        Path | None, typer.Option("--payload-file", metavar="FILE", help="A file of payloads, taken at random.")
    ] = None,
    payload_delimiter: Annotated[
        str, typer.Option("--payload-delimiter", metavar="TEXT", help="Text between the payloads in the file.")
    ] = r"\n",
    payload_monotonic: Annotated[
        bool, typer.Option("--payload-monotonic", help="Payloads are the numbers 0, 1, 2 …")
    ] = False,
    warmup_records: Annotated[
        int, typer.Option("--warmup-records", min=0, help="Leave the first records out of a second summary.")
    ] = 0,
    transactional_id: Annotated[str | None, typer.Option("--transactional-id", help="Send in transactions.")] = None,
    transaction_duration_ms: Annotated[
        int | None, typer.Option("--transaction-duration-ms", min=1, help="How long a transaction is open.")
    ] = None,
    reporting_interval: ReportingInterval = DEFAULT_REPORTING_INTERVAL_MS,
    preset: PresetName = None,
    command_property: CommandProperty = None,
    more_properties: MoreProperties = None,
    command_config: CommandConfig = None,
    print_metrics: PrintMetrics = False,
    chart: Chart = True,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
) -> None:
    """Measure produce throughput and the latency of acknowledgements."""
    from penstock.cli.library import KafkaException

    if warmup_records >= num_records:
        raise CliError("--warmup-records must be fewer than --num-records", exit_codes.USAGE)
    given = client_settings(command_property, more_properties, "--command-property")
    settings = {**client_preset(preset, "producer"), **given}
    cluster = cluster_of(bootstrap_server, command_config, settings, DEFAULT_TIMEOUT_S)
    payloads = _payloads(record_size, payload_file, unescape(payload_delimiter), payload_monotonic, quiet=json)
    statistics = Statistics(wanted=print_metrics)
    transactions = _Transactions(transactional_id or settings.get("transactional.id"), transaction_duration_ms)
    settings = {**settings, **transactions.settings}
    check_reachable(cluster, topic)
    transactions.check_served(cluster)
    producer = cluster.producer({**DEFAULTS, **statistics.settings, **settings})
    if warmup_records and not json:
        print_line(
            f"Warmup first {warmup_records} records. Steady state results will print after the complete test summary."
        )
    with Screen(f"produce to {topic}", chart=chart and not json) as screen:
        run = _Run(cluster, producer, topic, screen, warmup_records, reporting_interval / 1000, quiet=json)
        try:
            transactions.begin_first(producer)
            run.send(num_records, payloads, Throttle(throughput), transactions)
            transactions.commit(producer)
        except KafkaException as error:
            raise cluster.failure(error.args[0], f"write to {topic}") from None
        run.finish()
    statistics.await_first(producer.poll)
    if json:
        print_json(run.result())
    else:
        for line in run.summary():
            print_line(line)
        statistics.print()
    run.raise_failures()


class _Run:
    """The records under way and what was counted."""

    def __init__(
        self,
        cluster: Cluster,
        producer: Producer,
        topic: str,
        screen: Screen,
        warmup: int,
        interval_s: float,
        *,
        quiet: bool,
    ) -> None:
        self._cluster = cluster
        self._producer = producer
        self._topic = topic
        self._screen = screen
        self._warmup = warmup
        self._interval_s = interval_s
        self._quiet = quiet
        self._fresh_s: list[float] = []
        self._fresh_bytes = 0
        self._failures: Counter[str] = Counter()
        self._first_error: KafkaError | None = None
        self.total, self.steady, self._window = Histogram(), Histogram(), Histogram()
        self.total_bytes = self.steady_bytes = self._window_bytes = 0
        self.windows: list[dict[str, float]] = []
        now_s = time.monotonic()
        self._started_s = self._window_s = self._tick_s = now_s
        self._steady_s = now_s
        self._ended_s = now_s

    def send(self, count: int, payloads: Payloads, throttle: Throttle, transactions: _Transactions) -> None:
        producer, topic = self._producer, self._topic
        sent = 0
        self._started_s = self._window_s = self._tick_s = time.monotonic()
        while sent < count:
            elapsed_s = time.monotonic() - self._started_s
            allowed = throttle.allowed(elapsed_s, sent, min(BATCH_RECORDS, count - sent))
            if allowed:
                messages: list[dict[str, Any]] = [{"value": value} for value in payloads(sent, allowed)]
                while producer.produce_batch(topic, messages, on_delivery=self._delivered) < len(messages):
                    messages = self._refused(messages)
                    producer.poll(POLL_S)
                    self._look()
                sent += allowed
                producer.poll(0)
            else:
                producer.poll(min(POLL_S, throttle.wait_s(elapsed_s, sent)))
            transactions.commit_if_due(producer)
            self._look()

    def finish(self) -> None:
        """Until every record has its answer."""
        while self._producer.flush(TICK_S / 2):
            self._look()
        self._ended_s = time.monotonic()
        self._count()

    def _refused(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those to try again: the queue is full, some must be delivered first. What cannot be sent has failed."""
        again = []
        for one in messages:
            error: KafkaError | None = one.get("_error")
            if error is not None and error.name() == "_QUEUE_FULL":
                again.append({"value": one["value"]})
            elif error is not None:
                self._fail(error)
        return again

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._fresh_s.append(message.latency())  # type: ignore[arg-type]
            self._fresh_bytes += len(message)
        else:
            self._fail(error)

    def _fail(self, error: KafkaError) -> None:
        if self._first_error is None:
            self._first_error = error
        self._failures[error.str()] += 1

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s - self._tick_s >= TICK_S:
            self._tick(now_s)
            if not self.total.count:
                self._cluster.fail_fast()

    def _tick(self, now_s: float) -> None:
        fresh = self._count()
        elapsed_s = now_s - self._tick_s
        self._tick_s = now_s
        self._screen.point(fresh.count / elapsed_s, fresh.percentile_us(99) / 1000)
        if now_s - self._window_s >= self._interval_s and self._window.count:
            elapsed_s = now_s - self._window_s
            if not self._quiet:
                self._screen.say(producer_window(self._window, self._window_bytes, elapsed_s))
            if len(self.windows) < WINDOWS_MAX:
                self.windows.append({"seconds": round(now_s - self._started_s, 3), **_numbers(
                    self._window, self._window_bytes, elapsed_s
                )})  # fmt: skip
            self._window, self._window_bytes, self._window_s = Histogram(), 0, now_s

    def _count(self) -> Histogram:
        """Put what came since the last time into the counts."""
        fresh_s, self._fresh_s = self._fresh_s, []
        size_bytes, self._fresh_bytes = self._fresh_bytes, 0
        values = [int(latency_s * 1_000_000) for latency_s in fresh_s]
        fresh = Histogram(values)
        before = self.total.count
        self.total.add(fresh)
        self.total_bytes += size_bytes
        self._window.add(fresh)
        self._window_bytes += size_bytes
        if self._warmup and self.total.count > self._warmup:
            if before <= self._warmup:
                self._steady_s = self._tick_s
            steady = values[max(0, self._warmup - before) :]
            self.steady.record_all(steady)
            self.steady_bytes += size_bytes * len(steady) // max(1, len(values))
        return fresh

    # ---- what is told

    @property
    def _elapsed_s(self) -> float:
        return self._ended_s - self._started_s

    def summary(self) -> list[str]:
        lines = [producer_total(self.total, self.total_bytes, self._elapsed_s)]
        if self._warmup:
            elapsed_s = self._ended_s - self._steady_s
            lines.append(producer_total(self.steady, self.steady_bytes, elapsed_s, steady=True))
        return lines

    def result(self) -> dict[str, object]:
        steady = None
        if self._warmup:
            steady = _numbers(self.steady, self.steady_bytes, self._ended_s - self._steady_s)
        return {
            "topic": self._topic,
            **_numbers(self.total, self.total_bytes, self._elapsed_s),
            "seconds": round(self._elapsed_s, 3),
            "failed": sum(self._failures.values()),
            "errors": dict(self._failures),
            "steady_state": steady,
            "intervals": self.windows,
        }

    def raise_failures(self) -> None:
        if self._first_error is None:
            return
        failed = sum(self._failures.values())
        error = self._cluster.failure(self._first_error, f"deliver {plural(failed, 'record')} to {self._topic}")
        reasons = "".join(f"\n  {count:,} × {reason}" for reason, count in self._failures.most_common())
        raise CliError(error.message + reasons, error.code, error.hint)


class _Transactions:
    """Transactions one after the other, each open for some time; none if they were not asked for."""

    def __init__(self, transactional_id: str | None, duration_ms: int | None) -> None:
        self._wanted = transactional_id is not None or duration_ms is not None
        self._id = transactional_id or f"performance-producer-{uuid.uuid4()}"
        self._duration_s = (duration_ms or 3000) / 1000
        self._began_s = 0.0

    @property
    def settings(self) -> dict[str, str]:
        return {"transactional.id": self._id} if self._wanted else {}

    def check_served(self, cluster: Cluster) -> None:
        """Fails soon where there are no transactions: librdkafka would ask for a coordinator until its time is over."""
        from penstock.cli.protocol import CannotSpeak, connect
        from penstock.wire.apis import ApiKey

        if not self._wanted:
            return
        try:
            with connect(cluster) as connection:
                served = connection.serves(ApiKey.END_TXN)
        except CannotSpeak:
            return
        if not served:
            raise CliError(
                "this cluster has no transactions",
                exit_codes.REFUSED,
                "leave out --transactional-id and --transaction-duration-ms; Penstock's brokers do not serve them yet",
            )

    def begin_first(self, producer: Producer) -> None:
        if self._wanted:
            producer.init_transactions(DEFAULT_TIMEOUT_S)
            self._begin(producer)

    def commit_if_due(self, producer: Producer) -> None:
        if self._wanted and time.monotonic() - self._began_s >= self._duration_s:
            self.commit(producer)
            self._begin(producer)

    def commit(self, producer: Producer) -> None:
        if self._wanted:
            producer.commit_transaction()

    def _begin(self, producer: Producer) -> None:
        producer.begin_transaction()
        self._began_s = time.monotonic()


def _payloads(size: int | None, file: Path | None, delimiter: bytes, monotonic: bool, *, quiet: bool) -> Payloads:
    if (size is not None) + (file is not None) + monotonic != 1:
        raise CliError("give exactly one of --record-size, --payload-file or --payload-monotonic", exit_codes.USAGE)
    if size is not None:
        return of_size(size)
    if file is None:
        return of_numbers()
    if not delimiter:
        raise CliError("--payload-delimiter needs at least one character", exit_codes.USAGE)
    if not quiet:
        print_line(f"Reading payloads from: {file.absolute()}")
    try:
        with file.open("rb") as opened:
            data = opened.read(PAYLOAD_BYTES_MAX + 1)
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}", exit_codes.USAGE) from None
    if len(data) > PAYLOAD_BYTES_MAX:
        raise CliError(
            f"{file} has more than {PAYLOAD_BYTES_MAX // MEBIBYTE} MB: payloads are held in memory; give a part of it",
            exit_codes.USAGE,
        )
    payloads = split_payloads(data, delimiter)
    if not payloads:
        raise CliError(f"{file} is empty: there is nothing to send", exit_codes.USAGE)
    if not quiet:
        print_line(f"Number of records read: {len(payloads)}")
    return of_list(payloads)


def _numbers(latencies: Histogram, size_bytes: int, elapsed_s: float) -> dict[str, Any]:
    p50, p95, p99, p999 = latencies.percentiles_us(PERCENTS)
    elapsed_s = max(elapsed_s, 1e-9)
    return {
        "records": latencies.count,
        "bytes": size_bytes,
        "records_per_second": round(latencies.count / elapsed_s, 3),
        "mb_per_second": round(size_bytes / elapsed_s / MEBIBYTE, 4),
        "latency_ms": {
            "mean": round(latencies.mean_us / 1000, 3),
            "p50": p50 / 1000,
            "p95": p95 / 1000,
            "p99": p99 / 1000,
            "p99.9": p999 / 1000,
            "max": latencies.max_us / 1000,
        },
    }
