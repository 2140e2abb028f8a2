"""`penstock groups`: list, describe, members, reset-offsets, delete, delete-offsets."""

from __future__ import annotations

import fnmatch
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes, groups_describe, groups_reset
from penstock.cli.asking import confirm, raise_first
from penstock.cli.commands import Commands
from penstock.cli.connection import Cluster
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
    from penstock.cli.group_views import Place

app = Commands(help="Consumer groups: members, lag, offsets.")

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command(
    "list",
    epilog=examples(
        ("penstock groups list", "all groups"),
        ("penstock groups list 'billing-*' --lag", "some of them, with how far behind they are"),
        ("penstock groups list --state Empty --type classic", "by state and type"),
    ),
)
def list_groups(
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="List only names that match; * and ? are wildcards.")
    ] = "*",
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only groups in this state, such as Stable or Empty. Repeatable."),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only groups of this type: classic or consumer. Repeatable."),
    ] = None,
    lag: Annotated[bool, typer.Option("--lag", help="Show the lag of each group, in records.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List groups with state, type, protocol, assignor and number of members."""
    from penstock.cli import group_views

    states = _choices(state, group_views.STATES, "--state")
    types = _choices(type_, group_views.TYPES, "--type")
    cluster = Cluster(bootstrap_server, command_config, timeout)
    names = [one.group_id for one in group_views.list_groups(cluster) if fnmatch.fnmatchcase(one.group_id, pattern)]
    rows: list[dict[str, Cell]] = []
    failures: list[CliError] = []
    for view in group_views.describe_groups(cluster, names).values():
        if isinstance(view, CliError):
            # One that went between the two questions is no failure.
            if view.code != exit_codes.NOT_FOUND:
                failures.append(view)
            continue
        if (states and view.state not in states) or (types and view.type not in types):
            continue
        row: dict[str, Cell] = {
            "group": view.name,
            "state": view.state,
            "type": view.type,
            "protocol": view.protocol or None,
            "assignor": view.assignor or None,
            "members": len(view.members),
        }
        if lag:
            row["lag"] = _total_lag(cluster, view.name)
        rows.append(row)
    if json:
        print_json(rows)
    else:
        head = ["group", "state", "type", "protocol", "assignor", "members", *(["lag"] if lag else [])]
        print_table("", head, [list(row.values()) for row in rows])
        if not rows and sys.stdout.isatty():
            note("There are no such groups. One comes into being when a consumer with a group.id subscribes.")
    raise_first(failures)


app.command(epilog=groups_describe.DESCRIBE_EXAMPLES)(groups_describe.describe)
app.command(epilog=groups_describe.MEMBERS_EXAMPLES)(groups_describe.members)
app.command("reset-offsets", epilog=groups_reset.EXAMPLES)(groups_reset.reset_offsets)


@app.command(
    epilog=examples(
        ("penstock groups delete billing", "asks first"),
        ("penstock groups delete billing audit --yes", "two at once, without a question"),
    )
)
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP", help="Names of groups.", show_default=False)],
    yes: Yes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if the group does not exist.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete groups and all their offsets. A group that has members cannot be deleted."""
    if not yes:
        confirm(f"Delete {', '.join(names)} and all offsets of {'it' if len(names) == 1 else 'them'}?")
    cluster = Cluster(bootstrap_server, command_config, timeout)
    results: list[dict[str, Cell]] = []
    failures: list[CliError] = []
    for name in dict.fromkeys(names):
        error = _delete(cluster, name)
        if error is not None and not (error.code == exit_codes.NOT_FOUND and if_exists):
            failures.append(error)
            results.append({"group": name, "deleted": False, "error": error.message})
        else:
            results.append({"group": name, "deleted": error is None, "error": None})
    if json:
        print_json(results)
    else:
        for result in results:
            if result["deleted"]:
                print_line(f"deleted {result['group']}")
    raise_first(failures)


@app.command(
    "delete-offsets",
    epilog=examples(
        ("penstock groups delete-offsets billing --topic orders", "of all partitions of a topic; asks first"),
        ("penstock groups delete-offsets billing --topic orders:0,3 --dry-run", "what would be deleted"),
    ),
)
def delete_offsets(
    group: Name,
    topic: Annotated[
        list[str], typer.Option(metavar="TOPIC[:P,…]", help="A topic, or some of its partitions. Repeatable.")
    ],
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and change nothing.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete a group's offsets in topics that it no longer reads.

    A consumer that reads such a topic again begins where its auto.offset.reset says.
    """
    from penstock.cli.group_lag import committed_offsets

    cluster = Cluster(bootstrap_server, command_config, timeout)
    committed = committed_offsets(cluster, group)
    places = _in_scope(topic, committed)
    if not places:
        raise CliError(
            f"the group {group} has no offsets there",
            exit_codes.NOT_FOUND,
            f"`penstock groups describe {group}` shows where it has some",
        )
    if not dry_run and not yes:
        confirm(f"Delete {len(places)} offsets of {group}?")
    errors = {} if dry_run else _delete_offsets(cluster, group, places)
    rows: list[dict[str, Cell]] = [
        {
            "topic": place[0],
            "partition": place[1],
            "offset": committed[place],
            "deleted": not dry_run and place not in errors,
            "error": errors[place].message if place in errors else None,
        }
        for place in places
    ]
    if json:
        print_json({"group": group, "offsets": rows})
    else:
        print_table("", ("topic", "partition", "offset", "deleted"), [list(row.values())[:-1] for row in rows])
    if dry_run:
        note("Nothing was changed. To do it: the same command without --dry-run")
    raise_first(list({error.message: error for error in errors.values()}.values()))


def _delete(cluster: Cluster, name: str) -> CliError | None:
    try:
        cluster.wait_for_coordinator(
            lambda: cluster.admin.delete_consumer_groups([name], request_timeout=cluster.timeout_s)[name],
            f"delete the group {name}",
        )
    except CliError as error:
        if error.code == exit_codes.UNREACHABLE:
            raise
        return error
    return None


def _delete_offsets(cluster: Cluster, group: str, places: list[Place]) -> dict[Place, CliError]:
    """Delete offsets without the client library, which lacks this request. Returns the failures with their reasons."""
    from penstock.cli.protocol import check, connect_to_coordinator, error_of
    from penstock.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
    )

    doing = f"delete the offsets of {group}"
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for name, partition in places:
        by_topic.setdefault(name, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()]
    with connect_to_coordinator(cluster, group) as coordinator:
        answer = coordinator.call(OffsetDeleteRequest(group_id=group, topics=topics), OffsetDeleteResponse)
    check(answer.error_code, None, doing)
    return {
        (one.name, partition.partition_index): error_of(partition.error_code, None, f"{doing} in {one.name}")
        for one in answer.topics
        for partition in one.partitions
        if partition.error_code
    }


def _in_scope(topics: list[str], committed: dict[Place, int]) -> list[Place]:
    from penstock.cli.reset_plan import Impossible, parse_topic

    places: list[Place] = []
    for text in topics:
        try:
            name, partitions = parse_topic(text)
        except Impossible as reason:
            raise CliError(str(reason), exit_codes.USAGE) from None
        places += [place for place in committed if place[0] == name and (partitions is None or place[1] in partitions)]
    return sorted(set(places))


def _total_lag(cluster: Cluster, group: str) -> int:
    from penstock.cli.group_lag import committed_offsets, latest_offsets

    committed = committed_offsets(cluster, group)
    ends = latest_offsets(cluster, committed)
    return sum(max(0, ends[place] - offset) for place, offset in committed.items() if place in ends)


def _choices(given: list[str] | None, known: tuple[str, ...], option: str) -> set[str]:
    by_lower = {name.lower(): name for name in known}
    chosen = set()
    for text in given or []:
        for name in text.split(","):
            if name.strip().lower() not in by_lower:
                raise CliError(f"{option} {name}: this is not one of {', '.join(known)}", exit_codes.USAGE)
            chosen.add(by_lower[name.strip().lower()])
    return chosen
