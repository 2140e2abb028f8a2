"""`penstock consume`: records become lines of standard output."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, cast

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster, parse_settings
from penstock.cli.consume_group import GroupReading
from penstock.cli.errors import CliError
from penstock.cli.formats import ReceivedRecord, Renderer, parse_time_ms, renderer_of, unescape
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    Json,
    Timeout,
    examples,
)
from penstock.cli.output import note, plural

if TYPE_CHECKING:
    from penstock.cli.library import Consumer, Message, TopicPartition

FETCH_RECORDS = 500
FETCH_TIMEOUT_S = 0.1

EXAMPLES = examples(
    ("penstock consume orders", "what arrives from now on, until Ctrl-C"),
    ("penstock consume orders --from-beginning --until-end", "all there is, then stop"),
    ("penstock consume orders --offset -10 --until-end", "the last ten of each partition"),
    ("penstock consume orders --from-time -15m", "since a quarter of an hour ago"),
    ("penstock consume orders --group audit --from-beginning", "as a member of a group: each record once"),
    ("penstock consume orders --partition 3 --offset 1200 --max-messages 1", "one record"),
    (r"penstock consume orders --format '%p:%o %k=%s\n'", "in your own form, as kcat's -f"),
)


class Isolation(StrEnum):
    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.", show_default=False)],
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the oldest record.")] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="OFFSET",
            help="Start at this offset: a number, earliest, latest, or -N for the last N records.",
        ),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start at the first record with this timestamp or a later one: ISO 8601, ms since 1970, or -15m.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Read only this partition. Repeatable.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this consumer group: continue at its offsets, share the partitions with its "
            "other members, and commit what was written.",
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=0, help="Stop after this many records.")
    ] = None,
    until_end: Annotated[
        bool,
        typer.Option(
            "--until-end",
            "--exit-at-end",
            "-e",
            help="Stop at the end that each partition had when the command started.",
        ),
    ] = False,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            help="value, key-value, json, hex, base64, key-value-hex, key-value-base64, or a template: %t topic, "
            "%p partition, %o offset, %T time, %k key, %s value, %h headers, %K and %S their sizes.",
        ),
    ] = "value",
    key_separator: Annotated[
        str, typer.Option("--key-separator", "-K", metavar="TEXT", help="Text between key and value.")
    ] = r"\t",
    null_value: Annotated[str, typer.Option(metavar="TEXT", help="Text to show for null.")] = "null",
    headers: Annotated[bool, typer.Option("--headers", help="Show headers before the value.")] = False,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Show times (ms since 1970) before the value.")
    ] = False,
    print_offsets: Annotated[
        bool, typer.Option("--print-offsets", help="Show partition:offset before the value.")
    ] = False,
    isolation: Annotated[
        Isolation, typer.Option(help="Hide or show records of open and aborted transactions.")
    ] = Isolation.COMMITTED,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", "-X", metavar="KEY=VALUE", help="Set a client property of librdkafka. Repeatable."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Read records and write them to standard output, one per line.

    Without an option that says where to begin it shows what arrives from now on. Without --group no group is joined and
    nothing is committed. With --group, --from-beginning says where to begin in partitions without a committed offset.
    """
    start = _start(from_beginning, offset, from_time)
    if group is not None and (partition or offset is not None or from_time is not None):
        raise CliError(
            "--group continues at the offsets of the group: leave out --partition, --offset and --from-time",
            exit_codes.USAGE,
            "`penstock groups reset-offsets` moves the offsets of a group",
        )
    render = _renderer(
        "json" if json else format_,
        key_separator,
        headers=headers,
        timestamps=timestamps,
        offsets=print_offsets,
        null=null_value,
    )
    cluster = Cluster(bootstrap_server, command_config, timeout)
    wanted = _partitions(cluster, topic, partition)
    consumer = cluster.consumer(
        {
            "enable.partition.eof": True,
            "isolation.level": isolation.value,
            **({"auto.offset.reset": "error"} if group is None else {"auto.offset.reset": start, "group.id": group}),
            **parse_settings(property_ or [], "--property"),
        }
    )
    reading: _Reading | GroupReading
    try:
        if group is None:
            reading = _Reading(cluster, consumer, topic, wanted)
            reading.begin(start, until_end=until_end)
        else:
            reading = GroupReading(cluster, consumer, topic, group)
            reading.begin(until_end=until_end)
        try:
            _write(reading.records(max_messages), render)
        except KeyboardInterrupt:
            sys.stdout.flush()
        if isinstance(reading, GroupReading):
            reading.flushed()
            reading.commit()
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does. Python would flush to it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        consumer.close()
    if not quiet and sys.stderr.isatty():
        note(f"{plural(reading.count, 'record')} read")


class _Reading:
    """Partitions being read, and how far."""

    def __init__(self, cluster: Cluster, consumer: Consumer, topic: str, partitions: list[int]) -> None:
        self.count = 0
        self._cluster = cluster
        self._consumer = consumer
        self._topic = topic
        self._partitions = partitions
        self._ends: dict[int, int] | None = None
        """Where to stop in each partition that is not finished; None to go on for ever."""

    def begin(self, start: str | int, *, until_end: bool) -> None:
        """`start` is `earliest`, `latest`, `time:MS`, an offset, or -N for the last N records."""
        bounds = {number: self._bounds(number) for number in self._partitions}
        offsets = self._offsets(start, bounds)
        if until_end:
            self._ends = {number: end for number, (_, end) in bounds.items() if offsets[number] < end}
        if self._ends != {}:
            self._consumer.assign([self._place(number, offset) for number, offset in offsets.items()])

    def records(self, limit: int | None) -> Iterator[ReceivedRecord | None]:
        """Records until the end or the limit; None whenever no more records are available yet."""
        while self._ends != {} and (limit is None or self.count < limit):
            wanted = FETCH_RECORDS if limit is None else min(FETCH_RECORDS, limit - self.count)
            messages = self._consumer.consume(wanted, FETCH_TIMEOUT_S)
            for message in messages:
                record = self._received(message)
                if record is not None:
                    self.count += 1
                    yield record
            if len(messages) < wanted:
                yield None
            if not messages:
                self._cluster.fail_fast()

    def _received(self, message: Message) -> ReceivedRecord | None:
        number, offset = message.partition(), message.offset()
        error = message.error()
        if error is not None:
            if error.name() != "_PARTITION_EOF":
                raise self._cluster.failure(error, f"read {self._topic}")
            assert number is not None
            self._reached(number, offset or 0)
            return None
        assert number is not None
        assert offset is not None
        end = self._ends.get(number, 0) if self._ends is not None else None
        self._reached(number, offset + 1)
        if end is not None and offset >= end:
            return None
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        return ReceivedRecord(
            topic=message.topic() or self._topic,
            partition=number,
            offset=offset,
            timestamp_ms=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
            headers=headers,
        )

    def _reached(self, number: int, position: int) -> None:
        if (
            self._ends is not None
            and position >= self._ends.get(number, 0)
            and self._ends.pop(number, None) is not None
        ):
            self._consumer.incremental_unassign([self._place(number)])

    def _offsets(self, start: str | int, bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        if isinstance(start, int):
            if start < 0:
                return {number: max(first, end + start) for number, (first, end) in bounds.items()}
            return self._within(start, bounds)
        if start == "earliest":
            return {number: first for number, (first, _) in bounds.items()}
        if start == "latest":
            return {number: end for number, (_, end) in bounds.items()}
        from penstock.cli.library import KafkaException

        timestamp_ms = int(start.removeprefix("time:"))
        places = [self._place(number, timestamp_ms) for number in self._partitions]
        try:
            found = self._consumer.offsets_for_times(places, timeout=self._cluster.timeout_s)
        except KafkaException as error:
            raise self._cluster.failure(error.args[0], f"look up the time in {self._topic}") from None
        return {place.partition: place.offset if place.offset >= 0 else bounds[place.partition][1] for place in found}

    def _within(self, offset: int, bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """The offset, moved into what each partition holds; an error if none reaches that far."""
        if all(offset > end for _, end in bounds.values()):
            held = ", ".join(f"{number}: {first} to {end}" for number, (first, end) in bounds.items())
            raise CliError(
                f"there is no offset {offset} in {self._topic}", exit_codes.NOT_FOUND, f"the partitions hold {held}"
            )
        offsets = {number: min(max(offset, first), end) for number, (first, end) in bounds.items()}
        for number, moved in offsets.items():
            if moved != offset:
                note(f"partition {number} holds {bounds[number][0]} to {bounds[number][1]}: it is read from {moved}")
        return offsets

    def _bounds(self, number: int) -> tuple[int, int]:
        from penstock.cli.library import KafkaException

        try:
            bounds = self._consumer.get_watermark_offsets(self._place(number), timeout=self._cluster.timeout_s)
        except KafkaException as error:
            raise self._cluster.failure(error.args[0], f"find the offsets of {self._topic}-{number}") from None
        return bounds

    def _place(self, number: int, offset: int = -1001) -> TopicPartition:
        from penstock.cli.library import TopicPartition

        return TopicPartition(self._topic, number, offset)


def _write(records: Iterator[ReceivedRecord | None], render: Renderer) -> None:
    """Writes records as they come; what is written is on its way whenever there is nothing more to read."""
    output = sys.stdout.buffer
    for record in records:
        if record is None:
            output.flush()
        else:
            output.write(render(record))
    output.flush()


def _start(from_beginning: bool, offset: str | None, from_time: str | None) -> str | int:
    if sum((from_beginning, offset is not None, from_time is not None)) > 1:
        raise CliError("give only one of --from-beginning, --offset and --from-time", exit_codes.USAGE)
    if from_time is not None:
        try:
            return f"time:{parse_time_ms(from_time, round(time.time() * 1000))}"
        except ValueError as error:
            raise CliError(f"--from-time: {error}", exit_codes.USAGE) from None
    if offset is not None:
        named = {"earliest": "earliest", "beginning": "earliest", "latest": "latest", "end": "latest"}.get(offset)
        if named is not None:
            return named
        try:
            return int(offset)
        except ValueError:
            raise CliError(
                f"--offset {offset}: this is neither a number nor earliest nor latest", exit_codes.USAGE
            ) from None
    return "earliest" if from_beginning else "latest"


def _partitions(cluster: Cluster, topic: str, asked: list[int] | None) -> list[int]:
    count = cluster.partition_count(topic)
    for number in asked or []:
        if number >= count:
            raise CliError(
                f"{topic} has no partition {number}", exit_codes.NOT_FOUND, f"it has {count}: 0 to {count - 1}"
            )
    return sorted(asked) if asked else list(range(count))


def _renderer(form: str, key_separator: str, *, headers: bool, timestamps: bool, offsets: bool, null: str) -> Renderer:
    try:
        return renderer_of(
            form,
            key_separator=unescape(key_separator),
            headers=headers,
            timestamps=timestamps,
            offsets=offsets,
            null=null.encode(),
        )
    except ValueError as error:
        raise CliError(f"--format: {error}", exit_codes.USAGE) from None
