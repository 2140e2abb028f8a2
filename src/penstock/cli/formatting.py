"""`penstock format`: a new data directory with users that can log in from the start, as Kafka's `kafka-storage format`.

A node formats its directory by itself. This command is for the node that founds a cluster (the one with the smallest
id) if its users must exist before the first start: with SCRAM between nodes, or for a first administrator.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import print_json, print_line
from penstock.config import BrokerConfig, ConfigError, parse_properties

EXAMPLES = examples(
    (
        "penstock format --config server.properties --add-scram 'SCRAM-SHA-512=[name=admin,password-file=secret.txt]'",
        "an administrator from the first start",
    ),
)
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
_SCRAM = re.compile(r"(SCRAM-SHA-256|SCRAM-SHA-512)=\[(.*)\]\Z", re.IGNORECASE | re.DOTALL)


def format_(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The node's properties.")],
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            metavar="MECHANISM=[…]",
            help="A user that can log in from the start: see the example. Inside the brackets are name, password-file "
            "(or password, which others on this machine can see) and iterations. Repeatable.",
        ),
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", metavar="ID", show_default="a random one", help="As in Kafka.")
    ] = None,
    json: Json = False,
) -> None:
    """Format the data directory of the node that founds a cluster."""
    from penstock.cli import security_files as files

    try:
        settings = parse_properties(config.read_text(encoding="utf-8"))
        resolved = BrokerConfig.resolve(settings)
        credentials = [files.credential_of(*scram_of(text)) for text in add_scram or []]
        made = files.format_data(resolved, credentials, cluster_id)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}", exit_codes.USAGE) from None
    except (ConfigError, ValueError) as error:
        raise CliError(str(error), exit_codes.USAGE) from None
    except files.NotFormatted as error:
        raise CliError(str(error), exit_codes.ALREADY_EXISTS) from None
    if json:
        print_json({"directory": resolved.log_dir, "cluster_id": made, "users": len(credentials)})
    else:
        print_line(f"{resolved.log_dir} is formatted for cluster {made}, with {len(credentials)} credentials")


def scram_of(text: str) -> tuple[str, str, str, int]:
    """(user, password, mechanism, iterations). Raises ValueError, which never repeats a password."""
    found = _SCRAM.match(text.strip())
    if found is None:
        raise ValueError("--add-scram: write it as SCRAM-SHA-512=[name=NAME,password-file=FILE]")
    fields: dict[str, str] = {}
    for part in found[2].split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise ValueError("--add-scram: inside the brackets write name=value, separated by commas")
        fields[name] = value.strip().strip('"')
    unknown = [name for name in fields if name not in ("name", "password", "password-file", "iterations")]
    if unknown:
        raise ValueError(f"--add-scram: {unknown[0]} is not supported; use name, password-file, iterations")
    if "password-file" in fields:
        fields["password"] = Path(fields["password-file"]).read_text(encoding="utf-8").rstrip("\r\n")
    if not fields.get("name") or not fields.get("password"):
        raise ValueError("--add-scram needs name, and password-file or password")
    iterations = fields.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isascii() or not iterations.isdigit():
        raise ValueError("--add-scram: iterations must be a number")
    count = int(iterations)
    if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
        raise ValueError(f"--add-scram: iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    return fields["name"], fields["password"], found[1].upper(), count
