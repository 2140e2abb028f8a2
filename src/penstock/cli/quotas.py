"""`penstock quotas`: how much each user, client id and address may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

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
from penstock.cli.sizes import parse_size

if TYPE_CHECKING:
    from penstock.client import Connection
    from penstock.wire.messages.describe_client_quotas import EntryData

app = Commands(help="Limit how much users, client ids and addresses may use.")

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
QUOTAS = {
    "producer_byte_rate": "bytes per second produced",
    "consumer_byte_rate": "bytes per second fetched",
    "request_percentage": "percent of a broker's time",
    "controller_mutation_rate": "partitions per second created and deleted",
    "connection_creation_rate": "connections per second from an address",
}
IN_BYTES = ("producer_byte_rate", "consumer_byte_rate")

Parts = list[tuple[str, str | None]]
"""(type, name) of an entity; None is the default."""

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user.")]
AnyUser = Annotated[bool, typer.Option("--default-user", help="Every user without a quota of its own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="A client id.")]
AnyClientId = Annotated[bool, typer.Option("--default-client-id", help="Every client id without a quota of its own.")]
Address = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An IP address.")]
AnyAddress = Annotated[bool, typer.Option("--default-ip", help="Every address without a quota of its own.")]


@app.command(
    "list",
    epilog=examples(
        ("penstock quotas list", "every quota"),
        ("penstock quotas list --user ann --json", "those that name a user, for a script"),
    ),
)
def list_(
    user: User = None,
    default_user: AnyUser = False,
    client_id: ClientId = None,
    default_client_id: AnyClientId = False,
    ip: Address = None,
    default_ip: AnyAddress = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the quotas that are set, of all or of those that are named."""
    from penstock.cli.protocol import connect

    parts = named(user, default_user, client_id, default_client_id, ip, default_ip)
    with connect(Cluster(bootstrap_server, command_config, timeout)) as connection:
        found = sorted(described(connection, parts, strict=False), key=order)
    rows: list[list[Cell]] = [
        [text_of(parts_of(entry)), value.key, shown(value.value), QUOTAS.get(value.key, "")]
        for entry in found
        for value in sorted(entry.values, key=lambda value: value.key)
    ]
    if json:
        print_json(
            [
                {
                    "entity": dict(parts_of(entry)),
                    "quotas": {value.key: value.value for value in entry.values},
                }
                for entry in found
            ]
        )
        return
    print_table("", ("entity", "quota", "limit", "of"), rows)
    if not rows:
        note("no quotas are set")


@app.command(
    "set",
    epilog=examples(
        ("penstock quotas set --client-id loader producer_byte_rate=10MB", "10 MB/s for one client id"),
        ("penstock quotas set --user ann request_percentage=25", "a quarter of each broker's time"),
        ("penstock quotas set --default-user consumer_byte_rate=20MB", "for every user without a quota of its own"),
        ("penstock quotas set --default-ip connection_creation_rate=10", "new connections per second"),
    ),
)
def set_(
    quota: Annotated[
        list[str],
        typer.Argument(metavar="QUOTA=LIMIT…", help=f"{', '.join(QUOTAS)}. Rates of bytes may be like 10MB."),
    ],
    user: User = None,
    default_user: AnyUser = False,
    client_id: ClientId = None,
    default_client_id: AnyClientId = False,
    ip: Address = None,
    default_ip: AnyAddress = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask the cluster whether it would accept the change, and change nothing.")
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Set quotas of a user, a client id, both together, or an address."""
    from penstock.cli.protocol import connect

    parts = entity(user, default_user, client_id, default_client_id, ip, default_ip)
    values = [(key, limit(key, text)) for key, text in parse_settings(quota, "QUOTA=LIMIT").items()]
    with connect(Cluster(bootstrap_server, command_config, timeout)) as connection:
        alter(connection, parts, values, dry_run=dry_run)
    if json:
        print_json({"entity": dict(parts), "quotas": dict(values), "changed": not dry_run})
    else:
        print_line(f"quotas of {text_of(parts)} {'would be' if dry_run else 'are'} set")


@app.command(
    epilog=examples(
        ("penstock quotas remove --client-id loader producer_byte_rate", "one quota"),
        ("penstock quotas remove --user ann", "all quotas of a user"),
    ),
)
def remove(
    quota: Annotated[list[str] | None, typer.Argument(metavar="[QUOTA…]", help="Default: all of the entity.")] = None,
    user: User = None,
    default_user: AnyUser = False,
    client_id: ClientId = None,
    default_client_id: AnyClientId = False,
    ip: Address = None,
    default_ip: AnyAddress = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Remove quotas, so that those of the default apply."""
    from penstock.cli.protocol import connect

    parts = entity(user, default_user, client_id, default_client_id, ip, default_ip)
    with connect(Cluster(bootstrap_server, command_config, timeout)) as connection:
        known = [value.key for entry in described(connection, parts, strict=True) for value in entry.values]
        wanted = quota or known
        absent = [key for key in wanted if key not in known]
        if absent or not known:
            missing = f"no {', '.join(absent)}" if absent else "no quotas"
            raise CliError(
                f"{text_of(parts)} has {missing}", exit_codes.NOT_FOUND, "`penstock quotas list` shows what is set"
            )
        alter(connection, parts, [(key, None) for key in wanted], dry_run=False)
    if json:
        print_json({"entity": dict(parts), "removed": wanted})
    else:
        print_line(f"{', '.join(wanted)} of {text_of(parts)} removed")


# ---- entities


def named(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
) -> Parts:
    parts: Parts = []
    for kind, name, is_default in (
        (USER, user, default_user),
        (CLIENT_ID, client_id, default_client_id),
        (IP, ip, default_ip),
    ):
        if name is not None and is_default:
            raise CliError(f"--{kind} and --default-{kind} exclude each other", exit_codes.USAGE)
        if name is not None or is_default:
            parts.append((kind, name))
    return parts


def entity(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
) -> Parts:
    parts = named(user, default_user, client_id, default_client_id, ip, default_ip)
    if not parts:
        raise CliError(
            "whose quota? Name a --user, a --client-id, both, or an --ip",
            exit_codes.USAGE,
            "--default-user, --default-client-id and --default-ip are for all that have no quota of their own",
        )
    return parts


def parts_of(entry: EntryData) -> Parts:
    parts = [(part.entity_type, part.entity_name) for part in entry.entity]
    return sorted(parts, key=lambda part: part[0], reverse=True)


def order(entry: EntryData) -> tuple[tuple[str, str], ...]:
    return tuple((kind, name or "") for kind, name in parts_of(entry))


def text_of(parts: Sequence[tuple[str, str | None]]) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in parts)


# ---- values


def limit(key: str, text: str) -> float:
    try:
        return float(parse_size(text)) if key in IN_BYTES else float(text)
    except ValueError as error:
        reason = str(error) if key in IN_BYTES else f"{text!r} is no number"
        raise CliError(f"{key}: {reason}", exit_codes.USAGE) from None


def shown(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else str(value)


# ---- requests


def described(connection: Connection, parts: Parts, *, strict: bool) -> list[EntryData]:
    from penstock.cli.protocol import check
    from penstock.wire.messages.describe_client_quotas import (
        ComponentData,
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    )

    request = DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
            for kind, name in parts
        ],
        strict=strict,
    )
    answer = connection.call(request, DescribeClientQuotasResponse)
    check(answer.error_code, answer.error_message, "list the quotas")
    return answer.entries or []


def alter(connection: Connection, parts: Parts, values: Sequence[tuple[str, float | None]], *, dry_run: bool) -> None:
    from penstock.cli.protocol import check
    from penstock.wire.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasRequestEntityData,
        AlterClientQuotasRequestEntryData,
        AlterClientQuotasResponse,
        OpData,
    )

    entry = AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values],
    )
    answer = connection.call(
        AlterClientQuotasRequest(entries=[entry], validate_only=dry_run), AlterClientQuotasResponse
    )
    for result in answer.entries:
        check(result.error_code, result.error_message, f"change the quotas of {text_of(parts)}")
