"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 15.0

CLUSTER_PANEL = "Cluster"

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="PENSTOCK_BOOTSTRAP_SERVER",
        rich_help_panel=CLUSTER_PANEL,
        help="Where to find the cluster; several addresses are separated by commas.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        rich_help_panel=CLUSTER_PANEL,
        help="A properties file with client settings, for example security.protocol and sasl.*.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        rich_help_panel=CLUSTER_PANEL,
        help="How long to wait for an answer of the cluster.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, for scripts.")]


def examples(*lines: tuple[str, str]) -> str:
    """The end of a help text: commands with what they do."""
    return "**Examples**\n\n" + "\n\n".join(f"`{command}`  {meaning}" for command, meaning in lines)
