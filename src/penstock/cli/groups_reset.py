"""`penstock groups reset-offsets`: where a group reads on."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import COORDINATOR_BACKOFF_S, PASSING, Cluster
from penstock.cli.durations import parse_duration_ms
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
from penstock.cli.output import note, plural, print_json, print_table
from penstock.cli.reset_plan import Change, Facts, Impossible, Place, Way, export, parse_file, parse_topic, plan

EXAMPLES = examples(
    ("penstock groups reset-offsets billing --topic orders --to-earliest", "what would happen; changes nothing"),
    ("penstock groups reset-offsets billing --topic orders --to-earliest --execute", "does it"),
    ("penstock groups reset-offsets billing --all-topics --by-duration PT2H --execute", "back by two hours"),
    ("penstock groups reset-offsets billing --topic orders:0,3 --shift-by -100 --execute", "100 records again"),
    ("penstock groups reset-offsets billing --all-topics --to-current --export > offsets.csv", "keep where it is"),
    ("penstock groups reset-offsets billing --from-file offsets.csv --execute", "and go back there"),
)

_SCOPE = "Which partitions"
_WHERE = "Where to"


def reset_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", show_default=False)],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC[:P,…]", rich_help_panel=_SCOPE, help="A topic, or some of its partitions. Repeatable."
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", rich_help_panel=_SCOPE, help="All topics in which the group has offsets.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", rich_help_panel=_WHERE, help="Move to the oldest record.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", rich_help_panel=_WHERE, help="Move to the end, and so skip all records.")
    ] = False,
    to_current: Annotated[
        bool,
        typer.Option("--to-current", rich_help_panel=_WHERE, help="Keep the current offsets; useful with --export."),
    ] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=_WHERE,
            help="To the first record that is not older: ISO 8601 (UTC if it names no zone), or ms since 1970.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(metavar="SPAN", rich_help_panel=_WHERE, help="To so long ago: PT1H30M or P7D, or 90m."),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            metavar="N", rich_help_panel=_WHERE, help="Move by this many records; a negative number moves back."
        ),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", min=0, rich_help_panel=_WHERE, help="Move to this offset.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV", rich_help_panel=_WHERE, help="To offsets from lines topic,partition,offset; - for stdin."
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Change the offsets.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change; this is the default.")
    ] = False,
    export_: Annotated[
        bool, typer.Option("--export", help="Write the new offsets as CSV, in the form that --from-file reads.")
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Set the offsets of a group. Shows what would change; --execute changes it.

    Stop the consumers of the group first: while they run, they would overwrite the new offsets with their own.
    """
    way = _way(
        {
            Way.EARLIEST: to_earliest,
            Way.LATEST: to_latest,
            Way.CURRENT: to_current,
            Way.TIME: to_datetime is not None or by_duration is not None,
            Way.SHIFT: shift_by is not None,
            Way.OFFSET: to_offset is not None,
            Way.FILE: from_file is not None,
        }
    )
    if to_datetime is not None and by_duration is not None:
        raise CliError("give either --to-datetime or --by-duration", exit_codes.USAGE)
    if execute and dry_run:
        raise CliError("give either --execute or --dry-run", exit_codes.USAGE)
    if json and export_:
        raise CliError("give either --json or --export", exit_codes.USAGE)
    if bool(topic) == all_topics and not (way is Way.FILE and not topic):
        raise CliError("choose partitions: --topic TOPIC[:P,…] or --all-topics", exit_codes.USAGE)
    when_ms = _time(to_datetime, by_duration)
    cluster = Cluster(bootstrap_server, command_config, timeout)
    try:
        offsets = parse_file(_read(from_file), group) if from_file is not None else {}
        scope = dict(parse_topic(text) for text in topic or [])
        if execute:
            _refuse_active(cluster, group)
        changes = _plan(cluster, group, way, scope, offsets, when_ms, amount=shift_by or to_offset or 0)
    except Impossible as reason:
        raise CliError(str(reason), exit_codes.USAGE) from None
    if not changes:
        raise CliError(
            f"the group {group} has no offsets, so there is nothing to reset",
            exit_codes.NOT_FOUND,
            "name topics with --topic, or look at the groups there are: penstock groups list",
        )
    if execute:
        _execute(cluster, group, changes)
    _print(group, changes, executed=execute, json=json, csv=export_)


def _way(asked: Mapping[Way, bool]) -> Way:
    ways = [way for way, wanted in asked.items() if wanted]
    if len(ways) != 1:
        names = ", ".join([*(way.value for way in Way), "--by-duration"])
        raise CliError(f"give exactly one of {names}", exit_codes.USAGE)
    return ways[0]


def _time(to_datetime: str | None, by_duration: str | None) -> int | None:
    now_ms = time.time_ns() // 1_000_000
    try:
        if to_datetime is not None:
            return parse_time_ms(to_datetime, now_ms)
        if by_duration is not None:
            return now_ms - parse_duration_ms(by_duration)
    except ValueError as error:
        raise CliError(str(error), exit_codes.USAGE) from None
    return None


def _read(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"cannot read {path}: {error}", exit_codes.USAGE) from None


def _refuse_active(cluster: Cluster, group: str) -> None:
    from penstock.cli.group_views import describe_groups

    view = describe_groups(cluster, [group])[group]
    if isinstance(view, CliError):
        # A group that is not there yet may get offsets before its first consumer comes.
        if view.code == exit_codes.NOT_FOUND:
            return
        raise view
    if view.is_active:
        raise CliError(
            f"the group {group} is active ({view.state}, {plural(len(view.members), 'member')}): "
            "its consumers would go on where they are and commit over the new offsets",
            exit_codes.REFUSED,
            f"stop them, wait until `penstock groups describe {group}` says Empty, and try again",
        )


def _plan(
    cluster: Cluster,
    group: str,
    way: Way,
    scope: Mapping[str, Iterable[int] | None],
    offsets: Mapping[Place, int],
    when_ms: int | None,
    amount: int,
) -> list[Change]:
    from penstock.cli.group_lag import committed_offsets, earliest_offsets, latest_offsets, offsets_at

    committed = committed_offsets(cluster, group)
    places = set(offsets) if way is Way.FILE else set(committed)
    if scope:
        places = _in_scope(cluster, scope, offsets if way is Way.FILE else None)
    starts, ends = earliest_offsets(cluster, places), latest_offsets(cluster, places)
    if lost := sorted(place for place in places if place not in starts or place not in ends):
        raise CliError(
            f"no such partition, or one without a leader: {', '.join(f'{t}-{p}' for t, p in lost)}",
            exit_codes.NOT_FOUND,
            "`penstock topics describe` shows what there is; leave these out with --topic",
        )
    at_time = offsets_at(cluster, dict.fromkeys(places, when_ms)) if when_ms is not None else {}
    facts = {
        place: Facts(start=starts[place], end=ends[place], committed=committed.get(place), at_time=at_time.get(place))
        for place in places
    }
    return plan(way, facts, amount=amount, offsets=offsets)


def _in_scope(
    cluster: Cluster, scope: Mapping[str, Iterable[int] | None], offsets: Mapping[Place, int] | None
) -> set[Place]:
    """The partitions that --topic names, and of these the ones that the file names, if there is one."""
    places = set()
    for topic, partitions in scope.items():
        numbers = range(cluster.partition_count(topic)) if partitions is None else partitions
        places |= {(topic, number) for number in numbers if offsets is None or (topic, number) in offsets}
    return places


def _execute(cluster: Cluster, group: str, changes: Iterable[Change]) -> None:
    from penstock.cli.library import ConsumerGroupTopicPartitions, TopicPartition

    wanted = [TopicPartition(one.topic, one.partition, one.after) for one in changes]
    doing = f"reset the offsets of {group}"
    deadline_s = time.monotonic() + cluster.timeout_s
    while True:
        result = cluster.wait_for_coordinator(
            lambda: cluster.admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=cluster.timeout_s
            )[group],
            doing,
        )
        failed = [one for one in result.topic_partitions or [] if one.error is not None]
        if not failed:
            return
        # A coordinator that is still being set up says so for each partition.
        if failed[0].error.name() not in PASSING or time.monotonic() > deadline_s:
            raise cluster.failure(failed[0].error, f"{doing} in {failed[0].topic}-{failed[0].partition}")
        time.sleep(COORDINATOR_BACKOFF_S)


def _print(group: str, changes: list[Change], *, executed: bool, json: bool, csv: bool) -> None:
    if csv:
        sys.stdout.write(export(changes))
    elif json:
        print_json(
            {
                "group": group,
                "executed": executed,
                "changes": [
                    {
                        "topic": one.topic,
                        "partition": one.partition,
                        "before": one.before,
                        "after": one.after,
                        "note": one.note or None,
                    }
                    for one in changes
                ],
            }
        )
    else:
        print_table(
            "",
            ("group", "topic", "partition", "before", "after", "change", "note"),
            [
                (
                    group,
                    one.topic,
                    one.partition,
                    one.before,
                    one.after,
                    None if one.difference is None else f"{one.difference:+d}",
                    one.note or None,
                )
                for one in changes
            ],
        )
    if not executed and not csv:
        note("Nothing was changed. To do it: the same command with --execute")
