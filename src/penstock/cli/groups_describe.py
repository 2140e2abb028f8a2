"""`penstock groups describe` and `members`: the progress of groups, and their members."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.asking import raise_first
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
from penstock.cli.output import Cell, clear_screen, note, plural, print_json, print_line, print_table

if TYPE_CHECKING:
    from penstock.cli.group_lag import LagWatch
    from penstock.cli.group_views import GroupView, Member, Place
    from penstock.lag import GroupLag, PartitionLag, Trend

DESCRIBE_EXAMPLES = examples(
    ("penstock groups describe billing", "state, members, lag, trend and verdict of each partition"),
    ("penstock groups describe billing --watch", "again and again, until Ctrl-C"),
    ("penstock groups describe billing --check", "for scripts: exit code 10 unless the verdict is OK"),
    ("penstock groups describe --all --json", "all groups, for a script"),
    ("penstock groups describe billing --samples 5 --interval 10s", "without reading the history of commits"),
)
MEMBERS_EXAMPLES = examples(
    ("penstock groups members billing", "its members and their partitions"),
    ("penstock groups members billing --json", "for a script"),
)

WINDOW_DEFAULT = "1h"
INTERVAL_DEFAULT = "2s"
SAMPLES_DEFAULT = 3


def describe(
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="Names of groups.", show_default=False)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All groups.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 10 if the verdict of a group is not OK.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every --interval, until Ctrl-C.")] = False,
    window: Annotated[
        str, typer.Option(metavar="SPAN", help="How far back to read commits, such as 15m or PT1H.")
    ] = WINDOW_DEFAULT,
    samples: Annotated[
        int | None,
        typer.Option(min=2, help="Sample the offsets this many times instead of reading the history of commits."),
    ] = None,
    interval: Annotated[
        str, typer.Option(metavar="SPAN", help="The time between samples, and between refreshes of --watch.")
    ] = INTERVAL_DEFAULT,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show state, members and lag of groups, with the trend and a verdict on each partition.

    Lag is told in records, and as the age of the oldest unread one. Verdicts are Burrow's, over the last ten commits:
    OK; WARN, it moves but falls behind; STALL, it commits but does not move; STOP, it no longer commits; REWIND, it
    went back.
    """
    if bool(groups) == all_:
        raise CliError("name groups, or give --all", exit_codes.USAGE)
    window_ms, interval_ms = _span(window, "--window"), _span(interval, "--interval")
    cluster = Cluster(bootstrap_server, command_config, timeout)
    from penstock.cli.group_lag import LagWatch
    from penstock.lag import Rules

    rules = Rules() if samples is None else Rules(intervals=samples)
    with LagWatch(cluster, window_ms=window_ms, rules=rules) as lags:
        while True:
            views, missing = _views(cluster, groups)
            by_samples = _observe(lags, views, samples, interval_ms, watching=watch)
            measured = [(view, lags.measure(view)) for view in views]
            if watch and sys.stdout.isatty():
                clear_screen()
            _print_all(measured, missing, by_samples=by_samples, json=json, watch=watch)
            if not watch:
                break
            samples = 1 if by_samples else None
            time.sleep(interval_ms / 1000)
    raise_first(list(missing.values()))
    if check and any(lag.verdict.name != "OK" for _, lag in measured):
        bad = ", ".join(f"{lag.group} is {lag.verdict.name}" for _, lag in measured if lag.verdict.name != "OK")
        raise CliError(bad, exit_codes.UNHEALTHY, _advice(measured))


def members(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", show_default=False)],
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the members of a group, with their subscriptions and partitions."""
    from penstock.cli.group_views import describe_groups

    cluster = Cluster(bootstrap_server, command_config, timeout)
    view = describe_groups(cluster, [group], details=True)[group]
    if isinstance(view, CliError):
        raise view
    if json:
        print_json({**_group_json(view), "members": [_member_json(one) for one in view.members]})
        return
    print_line(_headline(view))
    if not view.members:
        note(f"{group} has no members")
        return
    head = ["member", "instance", "client", "host", "count", "assignment", "subscription"]
    is_new = view.type == "consumer"
    if is_new:
        head += ["epoch", "target"]
    rows: list[list[Cell]] = []
    for one in view.members:
        row: list[Cell] = [
            one.id,
            one.instance_id,
            one.client_id,
            one.host,
            len(one.assignment),
            places_text(one.assignment) or None,
            _subscription(one),
        ]
        if is_new:
            is_there = one.target is None or list(one.target) == list(one.assignment)
            row += [one.epoch, "reached" if is_there else places_text(one.target or ()) or "nothing"]
        rows.append(row)
    print_table("", head, rows)


def _views(cluster: Cluster, names: Sequence[str] | None) -> tuple[list[GroupView], dict[str, CliError]]:
    """The groups that could be described, and the errors of the others."""
    from penstock.cli.group_views import describe_groups, list_groups, not_found

    wanted = names or [group.group_id for group in list_groups(cluster)]
    views = []
    missing: dict[str, CliError] = {}
    for name, view in describe_groups(cluster, wanted).items():
        if not isinstance(view, CliError):
            views.append(view)
        elif view.code == exit_codes.NOT_FOUND:
            missing[name] = not_found(name, [group.group_id for group in list_groups(cluster)])
        else:
            missing[name] = view
    return views, missing


def _observe(
    lags: LagWatch, views: Sequence[GroupView], samples: int | None, interval_ms: int, *, watching: bool
) -> bool:
    """Fills the windows; says whether by samples."""
    from penstock.cli.group_lag import Unreadable

    if not views:
        return False
    if samples is None:
        try:
            lags.read_history(views)
            return False
        except Unreadable as reason:
            samples = 1 if watching else SAMPLES_DEFAULT
            note(f"The history of commits cannot be read: {reason}.")
            note(f"Offsets are sampled instead, every {interval_ms / 1000:g} s; see --samples and --interval.")
    for number in range(samples):
        if number:
            time.sleep(interval_ms / 1000)
        lags.sample(views)
    return True


def _print_all(
    measured: Sequence[tuple[GroupView, GroupLag]],
    missing: Mapping[str, CliError],
    *,
    by_samples: bool,
    json: bool,
    watch: bool,
) -> None:
    source = "samples" if by_samples else "commits"
    if json:
        described = [_lag_json(view, lag, source) for view, lag in measured]
        failed = [{"group": name, "error": error.message} for name, error in missing.items()]
        print_json([*described, *failed], lines=watch)
        return
    if watch:
        print_line(time.strftime("%Y-%m-%d %H:%M:%S"))
    for view, lag in measured:
        _print_group(view, lag)
    sys.stdout.flush()


def _print_group(view: GroupView, lag: GroupLag) -> None:
    age = f", oldest {age_text(lag.lag_ms_max)}" if lag.lag_ms_max else ""
    print_line(f"{_headline(view)}  lag {plural(lag.total_lag, 'record')}{age}  {lag.verdict.name}")
    if not lag.partitions:
        note(f"{view.name} has no offsets and no assigned partitions")
        return
    owners = view.owners
    rows: list[list[Cell]] = []
    for one in lag.partitions:
        where = one.position
        owner = owners.get((where.topic, where.partition))
        rows.append(
            [
                where.topic,
                where.partition,
                where.committed,
                where.end,
                one.lag_records,
                None if one.lag_ms is None else age_text(one.lag_ms),
                trend_text(one.trend, one.lag_records),
                one.verdict.name if where.committed is not None else None,
                owner.id if owner else None,
                owner.host if owner else None,
            ]
        )
    head = ("topic", "partition", "committed", "end", "lag", "age", "trend", "verdict", "owner", "host")
    print_table("", head, rows)
    for one in lag.partitions:
        where = one.position
        if one.verdict.name != "OK":
            print_line(f"  {where.topic}-{where.partition} {one.verdict.name}: {one.reason}")
        if where.deleted_unread:
            lost = plural(where.deleted_unread, "record")
            print_line(f"  {where.topic}-{where.partition}: retention deleted {lost} before the group read them")


def _headline(view: GroupView) -> str:
    kind = f"{view.type}, {view.assignor}" if view.assignor else view.type
    where = f"  coordinator {view.coordinator}" if view.coordinator is not None else ""
    epochs = f"  epoch {view.epoch}, assignment {view.assignment_epoch}" if view.epoch is not None else ""
    return f"{view.name}  {view.state}  {kind}{epochs}  {plural(len(view.members), 'member')}{where}"


def _group_json(view: GroupView) -> dict[str, object]:
    where = view.coordinator
    return {
        "group": view.name,
        "state": view.state,
        "type": view.type,
        "protocol": view.protocol,
        "assignor": view.assignor or None,
        "epoch": view.epoch,
        "assignment_epoch": view.assignment_epoch,
        "coordinator": None if where is None else {"id": where.id, "host": where.host, "port": where.port},
        "members": len(view.members),
    }


def _lag_json(view: GroupView, lag: GroupLag, source: str) -> dict[str, object]:
    owners = view.owners
    return {
        **_group_json(view),
        "verdict": lag.verdict.name,
        "total_lag": lag.total_lag,
        "lag_seconds_max": _seconds(lag.lag_ms_max),
        "complete": round(lag.complete, 3),
        "source": source,
        "partitions": [
            _partition_json(one, owners.get((one.position.topic, one.position.partition))) for one in lag.partitions
        ],
    }


def _partition_json(one: PartitionLag, owner: Member | None) -> dict[str, object]:
    where = one.position
    to_zero = one.trend.seconds_to_zero(one.lag_records) if one.lag_records is not None else None
    return {
        "topic": where.topic,
        "partition": where.partition,
        "committed": where.committed,
        "start": where.start,
        "end": where.end,
        "lag": one.lag_records,
        "lag_seconds": _seconds(one.lag_ms),
        "deleted_unread": where.deleted_unread,
        "trend": one.trend.direction.value,
        "trend_records_per_second": round(one.trend.records_per_s, 3),
        "seconds_to_zero": None if to_zero is None else round(to_zero, 1),
        "verdict": one.verdict.name,
        "reason": one.reason,
        "complete": round(one.complete, 3),
        "owner": owner.id if owner else None,
        "instance": owner.instance_id if owner else None,
        "client": owner.client_id if owner else None,
        "host": owner.host if owner else None,
    }


def _member_json(one: Member) -> dict[str, object]:
    return {
        "member": one.id,
        "instance": one.instance_id,
        "client": one.client_id,
        "host": one.host,
        "rack": one.rack,
        "type": one.type,
        "epoch": one.epoch,
        "assignment": _places_json(one.assignment),
        "target": None if one.target is None else _places_json(one.target),
        "subscription": None if one.subscription is None else list(one.subscription),
        "regex": one.regex,
    }


def _places_json(places: Sequence[Place]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": partition} for topic, partition in places]


def places_text(places: Sequence[Place]) -> str:
    """`orders:0,1 payments:3`."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{','.join(map(str, partitions))}" for topic, partitions in by_topic.items())


def age_text(milliseconds: int) -> str:
    from penstock.lag.verdicts import duration_text

    return "0s" if milliseconds < 500 else duration_text(max(1000, milliseconds))


def trend_text(trend: Trend, lag: int | None) -> str | None:
    """`growing +12.5/s`, `shrinking -80/s, 0 in 2m`."""
    if trend.direction.value == "unknown":
        return None
    if trend.direction.value == "steady":
        return "steady"
    text = f"{trend.direction.value} {trend.records_per_s:+.3g}/s"
    to_zero = trend.seconds_to_zero(lag) if lag else None
    return text if to_zero is None else f"{text}, 0 in {age_text(round(to_zero * 1000))}"


def _subscription(member: Member) -> str | None:
    parts = list(member.subscription or ())
    if member.regex:
        parts.append(f"/{member.regex}/")
    return ",".join(parts) or None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / 1000, 3)


def _advice(measured: Sequence[tuple[GroupView, GroupLag]]) -> str:
    for _, lag in measured:
        worst = lag.worst
        if worst is not None and worst.verdict.name != "OK":
            return f"look at {worst.position.topic}-{worst.position.partition} first: {worst.reason}"
    return ""


def _span(text: str, option: str) -> int:
    try:
        milliseconds = parse_duration_ms(text)
    except ValueError as error:
        raise CliError(f"{option} {error}", exit_codes.USAGE) from None
    if milliseconds <= 0:
        raise CliError(f"{option} {text}: the span must be positive", exit_codes.USAGE)
    return milliseconds
