"""`penstock produce`: lines of standard input or a file become records."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster, parse_settings
from penstock.cli.errors import CliError
from penstock.cli.formats import InputFormat, OutgoingRecord, parse_time_ms, record_of, unescape
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    Json,
    Timeout,
    examples,
)
from penstock.cli.output import note, plural, print_json, size_of

if TYPE_CHECKING:
    from penstock.cli.library import KafkaError, Message, Producer

PROGRESS_INTERVAL_S = 0.5
QUEUE_FULL_WAIT_S = 0.1
POLL_EVERY_RECORDS = 256

# Java's clients place keys by murmur2, librdkafka's by crc32 unless told: all producers of a topic must agree.
DEFAULTS = {"partitioner": "murmur2_random", "linger.ms": "5"}

EXAMPLES = examples(
    ("seq 1000 | penstock produce numbers --create", "one record per line, in a new topic"),
    ("penstock produce orders --key-separator : < orders.txt", "the text before the first colon is the key"),
    ("penstock produce orders --key 42 --header source=cli", "the same key and header for every line typed"),
    ("penstock produce users --key-separator : --null-value NULL", "a line such as 42:NULL deletes the key 42"),
    ("penstock consume a --from-beginning --until-end --json | penstock produce b --format json", "copy a topic"),
)


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.", show_default=False)],
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The file to read; standard input if not given.")
    ] = None,
    format_: Annotated[
        InputFormat,
        typer.Option(
            "--format",
            "-f",
            help="How to read a line: as text, JSON (key, value, headers, timestamp, partition), hex or base64.",
        ),
    ] = InputFormat.LINES,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="TEXT", help=r"Text between key and value in a line, such as : or \t."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of records that have none.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Add a header to every record. Repeatable."),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The timestamp of records that have none: ISO 8601, ms since 1970, or -15m."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            min=0,
            help="Write to this partition. Without it, the key decides; records without a key are spread evenly.",
        ),
    ] = None,
    null_value: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Treat a key or value that is exactly this text as null (a tombstone)."),
    ] = None,
    compression: Annotated[
        Compression | None, typer.Option("--compression", "-z", help="Compress batches with this codec.")
    ] = None,
    acks: Annotated[
        Acks,
        typer.Option(help="Wait for no replica (0), the leader (1) or all in-sync replicas (all) to store a record."),
    ] = Acks.ALL,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="Avoid duplicates and reordering when a request is retried.")
    ] = False,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", "-X", metavar="KEY=VALUE", help="Set a client property of librdkafka. Repeatable."),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic, with the cluster's defaults, if it does not exist.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print neither progress nor a summary.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Send each line as a record.

    A topic that does not exist is an error, unless --create is given. The command fails if a record could not be
    delivered, and says how many. A line of the wrong form stops it; the lines before it are still sent.
    """
    try:
        stamp = parse_time_ms(timestamp, round(time.time() * 1000)) if timestamp is not None else None
    except ValueError as error:
        raise CliError(f"--timestamp: {error}", exit_codes.USAGE) from None
    separator = unescape(key_separator) if key_separator is not None else None
    if separator == b"":
        raise CliError("--key-separator needs at least one character", exit_codes.USAGE)
    settings: dict[str, object] = {
        **DEFAULTS,
        "acks": acks.value,
        "message.timeout.ms": max(1, round(timeout * 1000)),
        **({"enable.idempotence": True} if idempotent else {}),
        **({"compression.type": compression.value} if compression is not None else {}),
        **parse_settings(property_ or [], "--property"),
    }
    template = OutgoingRecord(
        key=key.encode() if key is not None else None,
        value=None,
        headers=[(name, value.encode()) for name, value in parse_settings(header or [], "--header").items()],
        timestamp_ms=stamp,
        partition=partition,
    )
    cluster = Cluster(bootstrap_server, command_config, timeout)
    sending = _Sending(cluster, cluster.producer(settings), topic, template)
    null = null_value.encode() if null_value is not None else None
    interrupted = False
    problem: CliError | None = None
    with _lines(file) as (lines, interactive):
        ensure_topic(cluster, topic, create=create)
        if interactive and not quiet:
            note(f"Each line you type becomes a record in {topic}. Ctrl-D ends.")
        progress = _Progress(sending, shown=not quiet and not interactive and sys.stderr.isatty())
        try:
            for number, line in enumerate(lines, start=1):
                try:
                    record = record_of(line, format_, separator, null)
                except ValueError as error:
                    problem = CliError(f"line {number} cannot be sent: {error}", exit_codes.FAILED)
                    break
                sending.send(record)
                if interactive:
                    sending.flush()
                progress.show()
        except KeyboardInterrupt:
            interrupted = True
    sending.flush()
    progress.clear()
    sending.report(quiet=quiet, json=json)
    if problem is not None:
        raise problem
    sending.raise_failures()
    if interrupted:
        raise typer.Exit(exit_codes.INTERRUPTED)


def ensure_topic(cluster: Cluster, topic: str, *, create: bool) -> None:
    """Refuses a topic that does not exist, or creates it. A cluster would create a mistyped one without a word."""
    from penstock.cli.library import NewTopic

    try:
        cluster.partition_count(topic)
        return
    except CliError as error:
        if error.code != exit_codes.NOT_FOUND:
            raise
        if not create:
            raise CliError(
                error.message, error.code, f"rerun with --create, or create it: penstock topics create {topic}"
            ) from None
    futures = cluster.admin.create_topics(
        [NewTopic(topic, -1, -1)], operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s
    )
    cluster.wait(futures[topic], f"create the topic {topic}")
    note(f"created topic {topic} with {plural(cluster.partition_count(topic), 'partition')}")


class _Sending:
    """Records on their way, and what became of them."""

    def __init__(self, cluster: Cluster, producer: Producer, topic: str, template: OutgoingRecord) -> None:
        self.delivered = 0
        self.size_bytes = 0
        self.failures: Counter[str] = Counter()
        self._first_error: KafkaError | None = None
        self._cluster = cluster
        self._producer = producer
        self._topic = topic
        self._template = template
        self._accepted = 0
        self._started_s = time.monotonic()

    def send(self, record: OutgoingRecord) -> None:
        template = self._template
        key = record.key if record.key is not None else template.key
        headers: list[tuple[str, str | bytes | None]] = [*record.headers, *template.headers]
        partition = record.partition if record.partition is not None else template.partition
        timestamp_ms = record.timestamp_ms if record.timestamp_ms is not None else template.timestamp_ms
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    key,
                    -1 if partition is None else partition,
                    on_delivery=self._on_delivery,
                    timestamp=0 if timestamp_ms is None else timestamp_ms,
                    headers=headers or None,
                )
            except BufferError:
                # The queue is full: wait until some of it has been delivered.
                self._producer.poll(QUEUE_FULL_WAIT_S)
                self._cluster.fail_fast()
                continue
            break
        self._accepted += 1
        if self._accepted % POLL_EVERY_RECORDS == 0:
            self._producer.poll(0)

    def flush(self) -> None:
        """Waits until every record is delivered or given up, which happens after `message.timeout.ms`."""
        while self._producer.flush(PROGRESS_INTERVAL_S):
            if self.delivered == 0:
                self._cluster.fail_fast()

    def report(self, *, quiet: bool, json: bool) -> None:
        failed = sum(self.failures.values())
        elapsed_s = time.monotonic() - self._started_s
        if json:
            print_json(
                {
                    "topic": self._topic,
                    "delivered": self.delivered,
                    "failed": failed,
                    "bytes": self.size_bytes,
                    "errors": dict(self.failures),
                }
            )
        elif not quiet:
            note(f"{self.progress()} to {self._topic} in {elapsed_s:.1f} s")

    def progress(self) -> str:
        return f"{plural(self.delivered, 'record')} delivered ({size_of(self.size_bytes)})"

    def raise_failures(self) -> None:
        if self._first_error is None:
            return
        failed = sum(self.failures.values())
        error = self._cluster.failure(self._first_error, f"deliver {plural(failed, 'record')} to {self._topic}")
        reasons = "".join(f"\n  {count:,} × {reason}" for reason, count in self.failures.most_common())
        raise CliError(error.message + reasons, error.code, error.hint)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
            self.size_bytes += len(message.key() or b"") + len(message)
        else:
            if self._first_error is None:
                self._first_error = error
            self.failures[error.str()] += 1


class _Progress:
    """A line on the terminal that tells how far it is."""

    def __init__(self, sending: _Sending, *, shown: bool) -> None:
        self._sending = sending
        self._shown = shown
        self._next_s = time.monotonic() + PROGRESS_INTERVAL_S

    def show(self) -> None:
        if self._shown and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + PROGRESS_INTERVAL_S
            sys.stderr.write(f"\r\x1b[K{self._sending.progress()}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")


@contextmanager
def _lines(file: Path | None) -> Iterator[tuple[Iterator[bytes], bool]]:
    """The lines of the input without their ends, and whether a person types them."""
    if file is None or str(file) == "-":
        yield _without_ends(sys.stdin.buffer), sys.stdin.isatty()
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise CliError(f"cannot read {file}: {error.strerror}", exit_codes.USAGE) from None
    with opened:
        yield _without_ends(opened), False


def _without_ends(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.removesuffix(b"\n").removesuffix(b"\r")
