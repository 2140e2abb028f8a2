"""`penstock configs`: the settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from penstock.cli import exit_codes
from penstock.cli.commands import Commands
from penstock.cli.connection import Cluster, parse_settings
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
    from penstock.cli.library import ConfigEntry, ConfigResource

T = TypeVar("T")

app = Commands(help="Show and change the settings of topics and brokers.")

SOURCES = {
    0: "unknown",
    1: "topic",
    2: "broker, at run time",
    3: "all brokers, at run time",
    4: "broker, its file",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
OWN_SOURCES = {"topic": (1,), "broker": (2, 3, 4)}

Topic = Annotated[list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="A topic. Repeatable.")]
Broker = Annotated[
    list[int] | None, typer.Option("--broker", metavar="ID", help="A broker, by its node.id. Repeatable.")
]
AllBrokers = Annotated[bool, typer.Option("--all-brokers", help="Every broker of the cluster.")]


@app.command(
    epilog=examples(
        ("penstock configs describe --topic orders", "what was set for the topic"),
        ("penstock configs describe --topic orders --all", "everything that applies to it, and where it comes from"),
        ("penstock configs describe --broker 1 --all --json", "a broker's, for a script"),
    )
)
def describe(
    topic: Topic = None,
    broker: Broker = None,
    all_brokers: AllBrokers = False,
    all_: Annotated[
        bool, typer.Option("--all", "-a", help="Include defaults, and show where each value comes from.")
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the settings that were changed, or with --all every setting."""
    cluster = Cluster(bootstrap_server, command_config, timeout)
    shown = []
    for kind, name in _resources(cluster, topic, broker, all_brokers):
        rows: list[dict[str, Cell]] = []
        for key, entry in sorted(described_configs(cluster, kind, name).items()):
            if all_ or source_of(entry) in OWN_SOURCES[kind]:
                value = "(hidden)" if entry.is_sensitive else entry.value
                rows.append(
                    {"name": key, "value": value, "source": SOURCES[source_of(entry)], "read-only": entry.is_read_only}
                )
        shown.append({kind: name, "configs": rows})
        if not json:
            print_table(
                f"{kind} {name}", ("name", "value", "source", "read-only"), [list(row.values()) for row in rows]
            )
            if not rows:
                note(f"{kind} {name} has no settings of its own; --all shows what applies to it")
    if json:
        print_json(shown)


@app.command(
    epilog=examples(
        ("penstock configs alter --topic orders --add retention.ms=3600000", "keep records for an hour"),
        ("penstock configs alter --topic orders --delete retention.ms", "go back to the cluster's value"),
        ("penstock configs alter --all-brokers --add log.retention.ms=86400000", "on every broker, without a restart"),
    )
)
def alter(
    topic: Topic = None,
    broker: Broker = None,
    all_brokers: AllBrokers = False,
    add: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Set a value. Repeatable.")] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Remove a setting, so that the default applies. Repeatable."),
    ] = None,
    append: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Add values to a list setting. Repeatable.")
    ] = None,
    subtract: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Remove values from a list setting. Repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask the cluster whether it would accept the change, and change nothing.")
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Change settings at run time. Settings that are not named stay as they are."""
    if not (add or delete or append or subtract):
        raise CliError("nothing to change: give --add, --delete, --append or --subtract", exit_codes.USAGE)
    cluster = Cluster(bootstrap_server, command_config, timeout)
    altered = _resources(cluster, topic, broker, all_brokers)
    for kind, name in altered:
        alter_configs(
            cluster,
            kind,
            name,
            set_=parse_settings(add or [], "--add"),
            delete=delete or [],
            append=parse_settings(append or [], "--append"),
            subtract=parse_settings(subtract or [], "--subtract"),
            dry_run=dry_run,
        )
        if not json:
            print_line(f"{kind} {name} {'would be altered' if dry_run else 'is altered'}")
    if json:
        print_json([{kind: name, "altered": not dry_run} for kind, name in altered])


def described_configs(cluster: Cluster, kind: str, name: str) -> dict[str, ConfigEntry]:
    """All settings of a topic or broker."""
    resource = _resource(kind, name)
    futures = cluster.admin.describe_configs([resource], request_timeout=cluster.timeout_s)
    described: dict[str, ConfigEntry] = _wait(
        cluster, futures[resource], kind, name, f"describe the settings of {kind} {name}"
    )
    return described


def source_of(entry: ConfigEntry) -> int:
    """Where a value comes from: a number, or with some versions of the library a member of an enumeration."""
    source: object = entry.source
    number = getattr(source, "value", source)
    assert isinstance(number, int)
    return number


def alter_configs(
    cluster: Cluster,
    kind: str,
    name: str,
    *,
    set_: Mapping[str, str],
    delete: list[str],
    append: Mapping[str, str],
    subtract: Mapping[str, str],
    dry_run: bool,
) -> None:
    """Changes some settings of a topic or broker, all or none of them."""
    from penstock.cli.library import AlterConfigOpType, ConfigEntry

    operations = [
        *((key, value, AlterConfigOpType.SET) for key, value in set_.items()),
        *((key, "", AlterConfigOpType.DELETE) for key in delete),
        *((key, value, AlterConfigOpType.APPEND) for key, value in append.items()),
        *((key, value, AlterConfigOpType.SUBTRACT) for key, value in subtract.items()),
    ]
    resource = _resource(kind, name)
    for key, value, operation in operations:
        resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=operation))
    futures = cluster.admin.incremental_alter_configs(
        [resource], validate_only=dry_run, request_timeout=cluster.timeout_s
    )
    _wait(cluster, futures[resource], kind, name, f"alter the settings of {kind} {name}")


def _wait(cluster: Cluster, future: Future[T], kind: str, name: str, doing: str) -> T:
    try:
        return cluster.wait(future, doing)
    except CliError as error:
        if kind == "topic" and error.code == exit_codes.NOT_FOUND:
            raise cluster.no_topic(name) from None
        raise


def _resources(
    cluster: Cluster, topics: list[str] | None, brokers: list[int] | None, all_brokers: bool
) -> list[tuple[str, str]]:
    named = [("topic", name) for name in topics or []]
    ids = cluster.broker_ids() if all_brokers else brokers or []
    named += [("broker", str(number)) for number in ids]
    if not named:
        raise CliError("give --topic, --broker or --all-brokers", exit_codes.USAGE)
    return named


def _resource(kind: str, name: str) -> ConfigResource:
    from penstock.cli.library import ConfigResource

    return ConfigResource(ConfigResource.Type.TOPIC if kind == "topic" else ConfigResource.Type.BROKER, name)
