"""`penstock security`: certificates and properties for a small cluster, and what a listener accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.commands import Commands
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import Cell, note, print_json, print_line, print_table
from penstock.config import ConfigError, parse_host_port
from penstock.config.local_cluster import NodeAddress, node_settings
from penstock.config.local_security import CLIENT_FILE, node_file

app = Commands(help="Secure a cluster, and look at what a listener accepts.")

CONTROLLERS_ABOVE = 100
INTERNAL_ABOVE = 300
DATA = "data"


@app.command(
    "init",
    epilog=examples(
        ("penstock security init secured --host 127.0.0.1", "for one node on this machine"),
        ("penstock security init secured --host kafka.example.com --nodes 3 --port 9092", "for three"),
        ("penstock server --config secured/node-1.properties", "start the first"),
        ("penstock topics list --command-config secured/client.properties", "as the administrator"),
    ),
)
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the files.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="A name or address of the nodes. Repeatable: one for each node."),
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=99, help="How many nodes the cluster has.")] = 1,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65000, help="For clients; nodes on one host use the next ones as well.")
    ] = 9092,
    json: Json = False,
) -> None:
    """Create an authority, a certificate for each node, an administrator, and the properties that use them."""
    from penstock.cli import security_files as files
    from penstock.config import BrokerConfig

    hosts = host or ["127.0.0.1"]
    if len(hosts) not in (1, nodes):
        raise CliError("--host: name one host for all nodes, or one for each", exit_codes.USAGE)
    names = [hosts[index % len(hosts)] for index in range(nodes)]
    is_shared = len(hosts) == 1

    def address_of(number: int) -> NodeAddress:
        own = port + (number - 1 if is_shared else 0)
        return NodeAddress(names[number - 1], own, own + INTERNAL_ABOVE, own + CONTROLLERS_ABOVE)

    if (directory / node_file(1)).exists():
        raise CliError(f"{directory} has certificates already", exit_codes.ALREADY_EXISTS, "name another directory")
    files.create_certificates(directory, list(dict.fromkeys([*names, "localhost"])), nodes)
    bootstrap = ",".join(f"{address_of(n).host}:{address_of(n).clients}" for n in range(1, nodes + 1))
    password = files.create_client(directory / CLIENT_FILE, directory, bootstrap)
    where = directory.resolve()
    for number in range(1, nodes + 1):
        settings = node_settings(number, nodes, address_of, str(where))
        settings["log.dirs"] = str(where / DATA / f"node-{number}")
        text = files.properties_text(f"Node {number}: penstock server --config this-file", settings)
        files.write_secret(directory / f"node-{number}.properties", text)
        if number == 1:
            try:
                files.format_data(BrokerConfig.resolve(settings), files.admin_credentials(password))
            except (files.NotFormatted, ConfigError) as error:
                raise CliError(str(error), exit_codes.FAILED) from None
    if json:
        print_json({"directory": str(where), "nodes": nodes, "client": str(where / CLIENT_FILE), "user": "admin"})
        return
    print_line(f"{where} has what {nodes} node{'s' if nodes > 1 else ''} and the administrator need:")
    rows: list[list[Cell]] = [
        ["ca.pem", "the authority; give it to every client"],
        ["ca-key.pem", "its key; keep it offline"],
        ["node-N.pem, node-N.properties", "key, certificate and settings of node N; nothing else goes to that machine"],
        [CLIENT_FILE, "the administrator's login, for every command and every client of librdkafka"],
    ]
    print_table("", ("file", "what it is for"), rows)
    note(f"next: penstock server --config {directory}/node-1.properties")


@app.command(
    "check",
    epilog=examples(
        ("penstock security check 127.0.0.1:9092", "what it accepts"),
        ("penstock security check broker:9093 --ca ca.pem --days 30", "fails if the certificate expires in 30 days"),
    ),
)
def check(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="A listener.")],
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Verify the certificate against this.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=0, help="Fail if the certificate expires sooner than this.")] = 0,
    json: Json = False,
) -> None:
    """Tell which security protocol and mechanisms a listener accepts, and when its certificate expires."""
    from penstock.cli.security_probe import Unreachable, probe

    try:
        host, port = parse_host_port(address)
    except ValueError as error:
        raise CliError(str(error), exit_codes.USAGE) from None
    try:
        found = probe(host or "127.0.0.1", port, ca)
    except Unreachable as error:
        raise CliError(f"cannot reach {address}: {error}", exit_codes.UNREACHABLE) from None
    if json:
        print_json(found.as_dict())
    else:
        print_table("", ("property", "value"), [[name, str(value)] for name, value in found.as_dict().items()])
    problem = found.problem(days)
    if problem is not None:
        raise CliError(problem, exit_codes.UNHEALTHY)
