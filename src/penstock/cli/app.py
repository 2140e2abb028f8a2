"""The commands, put together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import (
    brokers,
    cluster,
    configs,
    exit_codes,
    groups,
    leaders,
    log,
    metadata,
    perf,
    pipeline,
    reassign,
    tables,
    topics,
)
from penstock.cli.chaos import EXAMPLES as CHAOS_EXAMPLES
from penstock.cli.chaos import chaos
from penstock.cli.consume import EXAMPLES as CONSUME_EXAMPLES
from penstock.cli.consume import consume
from penstock.cli.demo import EXAMPLES as DEMO_EXAMPLES
from penstock.cli.demo import demo
from penstock.cli.doctor import EXAMPLES as DOCTOR_EXAMPLES
from penstock.cli.doctor import doctor
from penstock.cli.errors import CliError
from penstock.cli.options import examples
from penstock.cli.output import note
from penstock.cli.produce import EXAMPLES as PRODUCE_EXAMPLES
from penstock.cli.produce import produce

PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="An event-streaming platform that speaks Apache Kafka's protocol. "
    "All commands that talk to a cluster work against Apache Kafka as well.",
    epilog=examples(
        ("penstock up", "a broker on this machine"),
        ("penstock topics create greetings", "then, in another terminal"),
        ("echo hello | penstock produce greetings", "write"),
        ("penstock consume greetings --from-beginning --until-end", "read"),
    ),
)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.add_typer(cluster.app, name="cluster")
app.add_typer(brokers.app, name="brokers")
app.add_typer(leaders.app, name="leaders")
app.add_typer(reassign.app, name="reassign")
app.add_typer(log.app, name="log")
app.add_typer(metadata.app, name="metadata")
app.add_typer(perf.app, name="perf")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(tables.app, name="tables")
app.command(epilog=PRODUCE_EXAMPLES)(produce)
app.command(epilog=CONSUME_EXAMPLES)(consume)
app.command(epilog=DOCTOR_EXAMPLES)(doctor)
app.command(epilog=CHAOS_EXAMPLES)(chaos)
app.command(epilog=DEMO_EXAMPLES, rich_help_panel="Broker")(demo)


def main(arguments: list[str]) -> int:
    """Runs a command and returns its exit code."""
    try:
        app(args=arguments, prog_name="penstock")
    except CliError as error:
        note(f"error: {error.message}")
        if error.hint:
            note(f"hint: {error.hint}")
        return error.code
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else exit_codes.OK
    return exit_codes.OK


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"penstock {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass


@app.command(context_settings=PASSED_ON, rich_help_panel="Broker")
def up(context: typer.Context) -> None:
    """Start the platform on this machine, in one command. See penstock up --help."""
    from penstock.cli.up import main as run_up

    raise typer.Exit(run_up(context.args))


@app.command(context_settings=PASSED_ON, rich_help_panel="Broker")
def server(context: typer.Context) -> None:
    """Run one broker. See penstock server --help."""
    from penstock.cli.server import main as run_server

    raise typer.Exit(run_server(context.args))
