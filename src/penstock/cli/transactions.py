"""`penstock transactions`: list, describe, producers, find-hanging, abort."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.asking import confirm
from penstock.cli.commands import Commands
from penstock.cli.connection import Cluster
from penstock.cli.durations import parse_duration_ms
from penstock.cli.errors import CliError
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    Json,
    Timeout,
    examples,
)
from penstock.cli.output import Cell, note, print_json, print_line, print_table

if TYPE_CHECKING:
    from penstock import client
    from penstock.ops.transactions import Described, OpenTransaction

app = Commands(help="Transactions: state, duration, partitions; find and end those that hang.")

MAX_TIMEOUT_DEFAULT = "15m"

Id = Annotated[str, typer.Argument(metavar="ID", help="A transactional.id.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")]
Partition = Annotated[int | None, typer.Option("--partition", metavar="N", min=0, help="Only this partition of it.")]


@app.command(
    "list",
    epilog=examples(
        ("penstock transactions list", "all transactional ids with their state"),
        ("penstock transactions list --state Ongoing --longer-than 10m", "transactions that have been open for long"),
        ("penstock transactions list --pattern 'billing-.*' --json", "by name, for a script"),
    ),
)
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only ids in this state, such as Ongoing or PrepareCommit. Repeatable."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="ID", help="Only this producer id. Repeatable.")
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="SPAN", help="Only transactions open for longer, such as 90s or 15m."),
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only ids that match this regular expression (RE2).")
    ] = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List transactional ids with coordinator, producer id and state."""
    from penstock.cli.protocol import reach
    from penstock.ops import transactions

    by_lower = {name.lower(): name for name in transactions.STATES}
    states = []
    for text in state or []:
        if text.lower() not in by_lower:
            raise CliError(f"--state {text}: this is not one of {', '.join(transactions.STATES)}", exit_codes.USAGE)
        states.append(by_lower[text.lower()])
    longer_than_ms = -1 if longer_than is None else _span_ms(longer_than, "--longer-than")
    with reach(Cluster(bootstrap_server, command_config, timeout), "list the transactions") as known:
        found = transactions.list_transactions(
            known, states=states, producer_ids=producer_id or (), longer_than_ms=longer_than_ms, pattern=pattern
        )
    rows: list[dict[str, Cell]] = [
        {
            "transactional_id": one.transactional_id,
            "coordinator": one.coordinator,
            "producer_id": one.producer_id,
            "state": one.state,
        }
        for one in found
    ]
    if json:
        print_json(rows)
        return
    print_table("", ("transactional id", "coordinator", "producer id", "state"), [tuple(row.values()) for row in rows])
    if not rows and sys.stdout.isatty():
        note("There are no such transactional ids. One comes into being when a producer with a transactional.id starts")


@app.command(
    epilog=examples(
        ("penstock transactions describe billing-1", "its state, epoch, timeout, duration and partitions"),
        ("penstock transactions describe billing-1 billing-2 --json", "two of them, for a script"),
    )
)
def describe(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Transactional ids.", show_default=False)],
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the current transaction of transactional ids."""
    from penstock.cli.protocol import reach
    from penstock.ops import transactions

    with reach(Cluster(bootstrap_server, command_config, timeout), "describe the transactions") as known:
        found = transactions.describe_transactions(known, dict.fromkeys(ids))
    now_ms = time.time_ns() // 1_000_000
    if json:
        print_json([_described(one, now_ms) for one in found])
        return
    head = (
        "transactional id", "coordinator", "producer id", "epoch", "state", "timeout ms", "open for ms", "partitions",
    )  # fmt: skip
    rows = []
    for one in found:
        row = _described(one, now_ms)
        places = " ".join(f"{topic}-{partition}" for topic, partition in one.partitions)
        rows.append(
            (
                one.transactional_id, one.coordinator, one.producer_id, one.producer_epoch, one.state, one.timeout_ms,
                row["duration_ms"], places or None,
            )
        )  # fmt: skip
    print_table("", head, rows)  # type: ignore[arg-type]


@app.command(
    epilog=examples(
        ("penstock transactions producers orders", "who writes to a topic, and which transactions are open in it"),
        ("penstock transactions producers orders --partition 3 --json", "of one partition, for a script"),
    )
)
def producers(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)],
    partition: Partition = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the idempotent and transactional producers that the leaders of a topic know."""
    from penstock.cli.protocol import reach
    from penstock.ops import transactions

    with reach(Cluster(bootstrap_server, command_config, timeout), "describe the producers") as known:
        found = transactions.describe_producers(known, _partitions(known, topic, partition, None))
    rows = [_producer(one) for one in found]
    if json:
        print_json(rows)
        return
    head = (
        "topic", "partition", "leader", "producer id", "epoch", "coordinator epoch", "last sequence",
        "last timestamp ms", "open since offset",
    )  # fmt: skip
    print_table("", head, [tuple(row.values()) for row in rows])


@app.command(
    "find-hanging",
    epilog=examples(
        ("penstock transactions find-hanging", "in all topics; exit code 10 if there are some"),
        (
            "penstock transactions find-hanging --topic orders --max-transaction-timeout 1h",
            "where clients may take 1 h",
        ),
    ),
)
def find_hanging(
    topic: Topic = None,
    partition: Partition = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", metavar="N", help="Only partitions that this broker leads.")
    ] = None,
    max_transaction_timeout: Annotated[
        str,
        typer.Option(
            "--max-transaction-timeout",
            metavar="SPAN",
            help="The brokers' transaction.max.timeout.ms. Younger transactions cannot hang yet.",
        ),
    ] = MAX_TIMEOUT_DEFAULT,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    Such a transaction keeps readers of committed records waiting for ever. `transactions abort` ends it.
    """
    from penstock.cli.protocol import reach
    from penstock.ops import transactions

    if partition is not None and topic is None:
        raise CliError("--partition needs --topic", exit_codes.USAGE)
    older_than_ms = _span_ms(max_transaction_timeout, "--max-transaction-timeout")
    with reach(Cluster(bootstrap_server, command_config, timeout), "look for hanging transactions") as known:
        places = _partitions(known, topic, partition, broker_id)
        now_ms = time.time_ns() // 1_000_000
        found = transactions.find_hanging(known, places, now_ms=now_ms, older_than_ms=older_than_ms)
    rows = [
        {
            **_producer(one.transaction),
            "transactional_id": one.transactional_id,
            "duration_ms": now_ms - one.transaction.last_timestamp_ms,
        }
        for one in found
    ]
    if json:
        print_json(rows)
    else:
        head = (
            "topic", "partition", "producer id", "epoch", "coordinator epoch", "open since offset", "transactional id",
            "last record ms ago",
        )  # fmt: skip
        keys = (
            "topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset",
            "transactional_id", "duration_ms",
        )  # fmt: skip
        print_table("", head, [tuple(row[key] for key in keys) for row in rows])
    if rows:
        note("To end one: penstock transactions abort --topic TOPIC --partition N --start-offset OFFSET")
        raise typer.Exit(exit_codes.UNHEALTHY)


@app.command(
    epilog=examples(
        ("penstock transactions abort --topic orders --partition 3 --start-offset 4711", "one that hangs; asks first"),
        ("penstock transactions abort --transactional-id billing-1", "through its coordinator: fences its producer"),
    )
)
def abort(
    topic: Topic = None,
    partition: Partition = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="OFFSET", min=0, help="The first offset of the transaction."),
    ] = None,
    transactional_id: Annotated[
        str | None,
        typer.Option("--transactional-id", metavar="ID", help="Abort this id's transaction and fence its producer."),
    ] = None,
    yes: Yes = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Abort a transaction: by its place in a partition if it hangs, or by its transactional id.

    By place, an abort marker is written to this one partition and no coordinator is asked. Make sure with
    `transactions find-hanging` that the transaction hangs: a transaction that is alive would be torn.
    """
    from penstock.cli.protocol import reach
    from penstock.client import TopicPartition
    from penstock.ops import transactions

    by_place = (topic, partition, start_offset)
    if (transactional_id is None) == (None in by_place) and transactional_id is None:
        raise CliError(
            "which transaction? Give --topic, --partition and --start-offset, or --transactional-id", exit_codes.USAGE
        )
    if transactional_id is not None and by_place != (None, None, None):
        raise CliError("give a place or a --transactional-id, not both", exit_codes.USAGE)
    cluster = Cluster(bootstrap_server, command_config, timeout)
    if transactional_id is not None:
        if not yes:
            confirm(f"Abort the transaction of {transactional_id} and fence its producer?")
        with reach(cluster, f"abort the transaction of {transactional_id}") as known:
            transactions.describe_transactions(known, [transactional_id])  # fails by name if there is no such id
            transactions.fence(known, transactional_id)
        result: dict[str, Cell] = {"transactional_id": transactional_id, "aborted": True}
        told = f"aborted the transaction of {transactional_id} and fenced its producer"
    else:
        assert topic is not None
        assert partition is not None
        where = TopicPartition(topic, partition)
        with reach(cluster, f"abort a transaction in {topic}-{partition}") as known:
            found = [one for one in transactions.describe_producers(known, [where]) if one.start_offset == start_offset]
            if not found:
                raise CliError(
                    f"no transaction that begins at offset {start_offset} is open in {topic}-{partition}",
                    exit_codes.NOT_FOUND,
                    f"`penstock transactions producers {topic} --partition {partition}` shows those that are",
                )
            one = found[0]
            if not yes:
                confirm(f"Write an abort marker for producer {one.producer_id} to {topic}-{partition}?")
            transactions.abort_on_partition(known, where, one.producer_id, one.producer_epoch, one.coordinator_epoch)
        result = {**_producer(one), "aborted": True}
        told = f"aborted the transaction of producer {one.producer_id} in {topic}-{partition}"
    if json:
        print_json(result)
    else:
        print_line(told)


def _described(one: Described, now_ms: int) -> dict[str, object]:
    return {
        "transactional_id": one.transactional_id,
        "coordinator": one.coordinator,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state,
        "timeout_ms": one.timeout_ms,
        "start_ms": one.start_ms,
        "duration_ms": None if one.start_ms is None else max(0, now_ms - one.start_ms),
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in one.partitions],
    }


def _producer(one: OpenTransaction) -> dict[str, Cell]:
    from penstock.ops.transactions import NO_OFFSET

    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "leader": one.leader,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch if one.coordinator_epoch >= 0 else None,
        "last_sequence": one.last_sequence,
        "last_timestamp_ms": one.last_timestamp_ms,
        "start_offset": None if one.start_offset == NO_OFFSET else one.start_offset,
    }


def _partitions(
    known: client.Cluster, topic: str | None, partition: int | None, broker_id: int | None
) -> list[client.TopicPartition]:
    """The partitions in question; those without a leader are left out unless they were named."""
    from penstock.client import TopicPartition

    topics = known.topics(None if topic is None else [topic])
    places = [
        TopicPartition(name, one.partition)
        for name, metadata in sorted(topics.items())
        for one in metadata.partitions
        if (broker_id is None or one.leader_id == broker_id)
        and (partition is None or one.partition == partition)
        and (topic is not None or one.leader_id >= 0)
    ]
    if partition is not None and not places:
        raise CliError(f"there is no partition {partition} of {topic}", exit_codes.NOT_FOUND)
    return places


def _span_ms(text: str, option: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise CliError(f"{option}: {error}", exit_codes.USAGE) from None
