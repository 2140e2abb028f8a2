"""`penstock topics trim`: deletes the oldest records of a topic (Kafka's DeleteRecords)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.asking import confirm, raise_first
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.formats import parse_time_ms
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    Json,
    Timeout,
    examples,
)
from penstock.cli.output import Cell, note, plural, print_json, print_table

EXAMPLES = examples(
    ("penstock topics trim orders --before-time -7d", "shows what would be deleted, and asks"),
    ("penstock topics trim orders --keep-last 1000 --dry-run", "all but the last 1,000 of each partition"),
    ("penstock topics trim orders --partition 3 --before-offset 1200 --yes", "one partition, without a question"),
)


@dataclass(slots=True, kw_only=True)
class Trim:
    """One partition: what it holds, and the offset before which records are deleted."""

    partition: int
    start: int
    end: int
    new_start: int
    error: str | None = None

    @property
    def deleted(self) -> int:
        """How many offsets go. Compaction and transactions leave offsets without records, so records may be fewer."""
        return self.new_start - self.start


def trim(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)],
    before_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", min=0, help="Delete records before this offset.")
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Delete records older than this: ISO 8601, ms since 1970, or -7d."),
    ] = None,
    keep_last: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Delete all but the last N records of each partition.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="P", min=0, help="Trim only this partition. Repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete the oldest records of a topic, for good. Shows the records to be deleted, and asks."""
    if sum(one is not None for one in (before_offset, before_time, keep_last)) != 1:
        raise CliError("give exactly one of --before-offset, --before-time and --keep-last", exit_codes.USAGE)
    try:
        when_ms = parse_time_ms(before_time, round(time.time() * 1000)) if before_time is not None else None
    except ValueError as error:
        raise CliError(f"--before-time: {error}", exit_codes.USAGE) from None
    cluster = Cluster(bootstrap_server, command_config, timeout)
    trims = plan(cluster, name, partition, before_offset=before_offset, when_ms=when_ms, keep_last=keep_last)
    wanted = [one for one in trims if one.deleted]
    if not json:
        _print(name, trims)
    if wanted and not dry_run:
        if not yes:
            count = sum(one.deleted for one in wanted)
            confirm(f"Delete {plural(count, 'record')} from {plural(len(wanted), 'partition')} of {name}?")
        failures = _delete(cluster, name, wanted)
    else:
        failures = []
    if json:
        print_json({"topic": name, "executed": bool(wanted) and not dry_run, "partitions": [_row(t) for t in trims]})
    elif not wanted:
        note("There is nothing to delete.")
    elif dry_run:
        note("Nothing was deleted. To do it: the same command without --dry-run")
    else:
        done = [one for one in wanted if one.error is None]
        note(f"deleted {plural(sum(one.deleted for one in done), 'record')} from {plural(len(done), 'partition')}")
    raise_first(failures)


def plan(
    cluster: Cluster,
    topic: str,
    partitions: list[int] | None,
    *,
    before_offset: int | None,
    when_ms: int | None,
    keep_last: int | None,
) -> list[Trim]:
    """The records to be deleted. An offset outside a partition is replaced by the nearer end of it."""
    from penstock.cli.group_lag import earliest_offsets, latest_offsets, offsets_at

    count = cluster.partition_count(topic)
    for number in partitions or []:
        if number >= count:
            raise CliError(
                f"{topic} has no partition {number}", exit_codes.NOT_FOUND, f"it has {count}: 0 to {count - 1}"
            )
    places = [(topic, number) for number in sorted(set(partitions or range(count)))]
    starts, ends = earliest_offsets(cluster, places), latest_offsets(cluster, places)
    if lost := [number for _, number in places if (topic, number) not in starts or (topic, number) not in ends]:
        raise CliError(
            f"no leader for partition {', '.join(map(str, lost))} of {topic}",
            exit_codes.FAILED,
            "`penstock cluster describe` shows why; or name other partitions with --partition",
        )
    at_time = offsets_at(cluster, dict.fromkeys(places, when_ms)) if when_ms is not None else {}
    trims = []
    for place in places:
        start, end = starts[place], ends[place]
        if keep_last is not None:
            target = end - keep_last
        elif before_offset is not None:
            target = before_offset
        else:
            # All records are older where no record is this young.
            found = at_time.get(place, -1)
            target = found if found >= 0 else end
        trims.append(Trim(partition=place[1], start=start, end=end, new_start=min(max(target, start), end)))
    return trims


def _delete(cluster: Cluster, topic: str, trims: list[Trim]) -> list[CliError]:
    from penstock.cli.library import TopicPartition

    by_partition = {one.partition: one for one in trims}
    futures = cluster.admin.delete_records(
        [TopicPartition(topic, one.partition, one.new_start) for one in trims],
        operation_timeout=cluster.timeout_s,
        request_timeout=cluster.timeout_s,
    )
    failures = []
    for place, future in futures.items():
        try:
            cluster.wait(future, f"trim {topic}-{place.partition}")
        except CliError as error:
            if error.code == exit_codes.UNREACHABLE:
                raise
            failures.append(error)
            by_partition[place.partition].error = error.message
    return failures


def _row(one: Trim) -> dict[str, Cell]:
    return {
        "partition": one.partition,
        "start": one.start,
        "end": one.end,
        "new_start": one.new_start,
        "deleted": one.deleted if one.error is None else 0,
        "error": one.error,
    }


def _print(topic: str, trims: list[Trim]) -> None:
    rows: list[list[Cell]] = [[topic, one.partition, one.start, one.end, one.new_start, one.deleted] for one in trims]
    print_table("", ("topic", "partition", "first", "end", "new first", "to delete"), rows)
