"""`penstock acls`: who may do what. The options are those of kafka-acls, and it works on Apache Kafka too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.asking import confirm
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
from penstock.cli.output import Cell, note, plural, print_json, print_line, print_table

if TYPE_CHECKING:
    from penstock.acls import Acl
    from penstock.cli.acl_options import Asked, Resource

app = Commands(help="Allow and deny users to read, write and administer.")

RESOURCES = "Resources"
Topic = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", rich_help_panel=RESOURCES, help="A topic.")]
Group = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", rich_help_panel=RESOURCES, help="A consumer group.")
]
OnCluster = Annotated[bool, typer.Option("--cluster", rich_help_panel=RESOURCES, help="The cluster itself.")]
TransactionalId = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="ID", rich_help_panel=RESOURCES, help="A transactional id."),
]
Token = Annotated[
    list[str] | None,
    typer.Option("--delegation-token", metavar="ID", rich_help_panel=RESOURCES, help="A delegation token."),
]
UserPrincipal = Annotated[
    list[str] | None,
    typer.Option(
        "--user-principal", metavar="USER", rich_help_panel=RESOURCES, help="A user whose tokens may be managed."
    ),
]
Pattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        rich_help_panel=RESOURCES,
        help="literal: this name, or * for all. prefixed: all names that begin so.",
    ),
]
AllowPrincipal = Annotated[
    list[str] | None, typer.Option("--allow-principal", metavar="PRINCIPAL", help="Whom to allow, as User:alice.")
]
DenyPrincipal = Annotated[
    list[str] | None, typer.Option("--deny-principal", metavar="PRINCIPAL", help="Whom to deny; that always wins.")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="HOST", help="Only from this address, or range such as 10.1.0.0/16. Default: any."
    ),
]
DenyHost = Annotated[
    list[str] | None, typer.Option("--deny-host", metavar="HOST", help="Only from this address or range.")
]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="OPERATION", help="READ, WRITE, CREATE, DESCRIBE, … Default: ALL."),
]
Producer = Annotated[bool, typer.Option("--producer", help="What a producer needs for its --topic.")]
Consumer = Annotated[bool, typer.Option("--consumer", help="What a consumer needs for its --topic and --group.")]
Idempotent = Annotated[bool, typer.Option("--idempotent", help="What an idempotent producer needs on old clusters.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command(
    "list",
    epilog=examples(
        ("penstock acls list", "all ACLs"),
        ("penstock acls list --topic orders --resource-pattern-type match", "all that apply to a topic"),
        ("penstock acls list --principal User:alice --json", "those of a user, for a script"),
    ),
)
def list_(
    principal: Annotated[str | None, typer.Option("--principal", metavar="PRINCIPAL", help="Of this user.")] = None,
    topic: Topic = None,
    group: Group = None,
    cluster: OnCluster = False,
    transactional_id: TransactionalId = None,
    delegation_token: Token = None,
    user_principal: UserPrincipal = None,
    resource_pattern_type: Annotated[
        str,
        typer.Option(
            "--resource-pattern-type",
            metavar="TYPE",
            rich_help_panel=RESOURCES,
            help="any, literal, prefixed; match: every pattern that applies to the resource.",
        ),
    ] = "any",
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the ACLs, all or those for some resources."""
    from penstock.acls import AclFilter
    from penstock.cli.acl_options import pattern_of, resources_of
    from penstock.cli.protocol import reach
    from penstock.ops.acls import list_acls

    pattern = pattern_of(resource_pattern_type, "any", "match", "literal", "prefixed")
    resources = resources_of(topic, group, cluster, transactional_id, delegation_token, user_principal)
    filters = [AclFilter(kind, name, pattern, principal) for kind, name in resources]
    with reach(Cluster(bootstrap_server, command_config, timeout), "list the ACLs") as known:
        connection = known.any_broker()
        wanted = filters or [AclFilter(pattern_type=pattern, principal=principal)]
        found = sorted({acl for one in wanted for acl in list_acls(connection, one)})
    if json:
        print_json([as_json(acl) for acl in found])
        return
    show(found)
    if not found:
        note("there are no such ACLs")


@app.command(
    epilog=examples(
        ("penstock acls create --allow-principal User:alice --producer --topic orders", "alice may produce"),
        (
            "penstock acls create --allow-principal User:bob --consumer --topic orders --group billing",
            "bob may consume",
        ),
        (
            "penstock acls create --allow-principal User:team --operation READ --topic logs. "
            "--resource-pattern-type prefixed",
            "all topics that begin with logs.",
        ),
        ("penstock acls create --deny-principal User:eve --topic '*'", "eve may do nothing with any topic"),
    )
)
def create(
    allow_principal: AllowPrincipal = None,
    deny_principal: DenyPrincipal = None,
    allow_host: AllowHost = None,
    deny_host: DenyHost = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    topic: Topic = None,
    group: Group = None,
    cluster: OnCluster = False,
    transactional_id: TransactionalId = None,
    delegation_token: Token = None,
    user_principal: UserPrincipal = None,
    resource_pattern_type: Pattern = "literal",
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Create ACLs. One that exists already is no error."""
    from penstock.acls import check_acl
    from penstock.cli.acl_options import acls_of, pattern_of, resources_of
    from penstock.cli.protocol import reach
    from penstock.ops.acls import create_acls
    from penstock.wire.errors import KafkaError

    wanted = acls_of(
        asked(
            resources_of(topic, group, cluster, transactional_id, delegation_token, user_principal),
            operation,
            pattern_of(resource_pattern_type, "literal", "prefixed"),
            producer,
            consumer,
            idempotent,
        ),
        allow_principal,
        deny_principal,
        allow_host,
        deny_host,
    )
    for acl in wanted:
        try:
            check_acl(acl)
        except KafkaError as error:
            raise CliError(error.message, exit_codes.USAGE) from None
    with reach(Cluster(bootstrap_server, command_config, timeout), "create the ACLs") as known:
        create_acls(known.any_broker(), wanted)
    if json:
        print_json([as_json(acl) for acl in wanted])
        return
    show(wanted)


@app.command(
    epilog=examples(
        ("penstock acls delete --allow-principal User:alice --producer --topic orders", "what create --producer made"),
        ("penstock acls delete --topic orders", "all literal ACLs for a topic, after a question"),
        ("penstock acls delete --topic orders --resource-pattern-type any --dry-run", "show what would be deleted"),
    )
)
def delete(
    allow_principal: AllowPrincipal = None,
    deny_principal: DenyPrincipal = None,
    allow_host: AllowHost = None,
    deny_host: DenyHost = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    topic: Topic = None,
    group: Group = None,
    cluster: OnCluster = False,
    transactional_id: TransactionalId = None,
    delegation_token: Token = None,
    user_principal: UserPrincipal = None,
    resource_pattern_type: Annotated[
        str,
        typer.Option(
            "--resource-pattern-type",
            metavar="TYPE",
            rich_help_panel=RESOURCES,
            help="literal, prefixed, any, or match: every pattern that applies to the resource.",
        ),
    ] = "literal",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")] = False,
    yes: Yes = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete ACLs. What is not named is any: without a principal, those of all principals."""
    from penstock.acls import AclFilter
    from penstock.cli.acl_options import filters_of, pattern_of, resources_of
    from penstock.cli.protocol import reach
    from penstock.ops.acls import delete_acls, list_acls

    filters = filters_of(
        asked(
            resources_of(topic, group, cluster, transactional_id, delegation_token, user_principal),
            operation,
            pattern_of(resource_pattern_type, "literal", "prefixed", "any", "match"),
            producer,
            consumer,
            idempotent,
        ),
        allow_principal,
        deny_principal,
        allow_host,
        deny_host,
    )
    with reach(Cluster(bootstrap_server, command_config, timeout), "delete the ACLs") as known:
        connection = known.any_broker()
        matching = sorted({acl for one in filters for acl in list_acls(connection, one)})
        if not matching:
            raise CliError("there are no such ACLs", exit_codes.NOT_FOUND, "`penstock acls list` shows what there is")
        if not dry_run:
            if not yes:
                show(matching)
                confirm(f"Delete {plural(len(matching), 'ACL')}?")
            # Exactly those that were shown.
            matching = delete_acls(connection, [AclFilter(*acl) for acl in matching])
    if json:
        print_json({"deleted": not dry_run, "acls": [as_json(acl) for acl in matching]})
        return
    show(matching)
    print_line(f"{plural(len(matching), 'ACL')} {'would be' if dry_run else 'were'} deleted")


@app.command(
    epilog=examples(
        ("penstock acls explain --principal User:alice --operation READ --topic orders", "may alice read it, and why?"),
        ("penstock acls explain --principal User:bob --operation ALTER --cluster --host 10.1.2.3", "from one address"),
    )
)
def explain(
    principal: Annotated[str, typer.Option("--principal", metavar="PRINCIPAL", show_default=False, help="Who?")],
    operation: Annotated[
        str, typer.Option("--operation", metavar="OPERATION", show_default=False, help="READ, WRITE, ALTER, …")
    ],
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="From where. Default: an address that no ACL names.")
    ] = "",
    topic: Topic = None,
    group: Group = None,
    cluster: OnCluster = False,
    transactional_id: TransactionalId = None,
    delegation_token: Token = None,
    user_principal: UserPrincipal = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Say whether a principal may do something, and name the ACL that decides."""
    from penstock.acls import ALL
    from penstock.cli.acl_options import operation_of, resources_of
    from penstock.cli.protocol import reach
    from penstock.ops import acls as ops
    from penstock.wire.acls import Operation

    resources = resources_of(topic, group, cluster, transactional_id, delegation_token, user_principal)
    if len(resources) != 1:
        raise CliError("name one resource", exit_codes.USAGE, "such as --topic orders")
    if ":" not in principal:
        raise CliError(f"{principal!r} is not a principal", exit_codes.USAGE, f"write it as User:{principal}")
    wanted = operation_of(operation)
    if wanted == ALL:
        raise CliError("name one operation", exit_codes.USAGE, "such as --operation READ")
    ((kind, name),) = resources
    with reach(Cluster(bootstrap_server, command_config, timeout), "list the ACLs") as known:
        found = ops.explain(known, principal, host, Operation(wanted), kind, name)
    verdict = found.verdict
    if json:
        print_json(
            {
                "allowed": verdict.allowed,
                "reason": verdict.reason.value,
                "acl": None if verdict.acl is None else as_json(verdict.acl),
                "considered": [as_json(acl) for acl in found.considered],
                "super_users": found.settings.super_users,
                "allow_everyone_if_no_acl_found": found.settings.allow_if_no_acl_found,
            }
        )
        return
    may = "may" if verdict.allowed else "may NOT"
    print_line(f"{principal} {may} {Operation(wanted).name} {kind.name} {name}: {verdict}")
    if found.considered:
        show(found.considered)
    if not host and found.elsewhere:
        note(f"{plural(len(found.elsewhere), 'ACL')} hold only for some addresses: give --host to apply them")
    if found.settings.super_users is None and not verdict.allowed:
        note("the broker does not tell its super.users, who may do everything")


# ---- in and out


def asked(
    resources: list[Resource],
    operations: list[str] | None,
    pattern: int,
    producer: bool,
    consumer: bool,
    idempotent: bool,
) -> Asked:
    from penstock.cli.acl_options import Asked, operation_of

    return Asked(resources, [operation_of(text) for text in operations or ()], pattern, producer, consumer, idempotent)


def show(acls: list[Acl]) -> None:
    rows: list[list[Cell]] = [
        [
            row["resource_type"], row["resource_name"], row["pattern_type"], row["principal"], row["host"],
            row["operation"], row["permission"],
        ]
        for row in map(as_json, acls)
    ]  # fmt: skip
    print_table("", ("resource", "name", "pattern", "principal", "host", "operation", "permission"), rows)


def as_json(acl: Acl) -> dict[str, str]:
    from penstock.acls import PatternType, Permission, operation_name
    from penstock.wire.acls import ResourceKind

    return {
        "resource_type": ResourceKind(acl.resource_type).name,
        "resource_name": acl.resource_name,
        "pattern_type": PatternType(acl.pattern_type).name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": operation_name(acl.operation),
        "permission": Permission(acl.permission).name,
    }
