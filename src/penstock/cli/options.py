"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.help_text import example_lines

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 15.0

CLUSTER_PANEL = "Cluster"

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        rich_help_panel=CLUSTER_PANEL,
        help="Addresses of the cluster, separated by commas. Without it: the profile, the variable "
        "PENSTOCK_BOOTSTRAP_SERVER, the default.",
        show_default=DEFAULT_BOOTSTRAP_SERVER,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        rich_help_panel=CLUSTER_PANEL,
        help="Read client settings, such as security.protocol and sasl.*, from a properties file.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        rich_help_panel=CLUSTER_PANEL,
        help="Wait this long for an answer from the cluster.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, for scripts.")]


def examples(*lines: tuple[str, str]) -> str:
    """The examples at the end of a help text: commands with explanations."""
    return example_lines(lines)
