"""The commands, put together."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer

from penstock import __version__
from penstock.cli import (
    acls,
    alerts,
    brokers,
    cluster,
    configs,
    exit_codes,
    groups,
    host,
    leaders,
    log,
    metadata,
    perf,
    pipeline,
    plan,
    profile,
    quotas,
    reassign,
    security,
    tables,
    topics,
    transactions,
    users,
)
from penstock.cli.advise import EXAMPLES as ADVISE_EXAMPLES
from penstock.cli.advise import advise
from penstock.cli.chaos import EXAMPLES as CHAOS_EXAMPLES
from penstock.cli.chaos import chaos
from penstock.cli.commands import BROKERS, CLUSTERS, PIPELINES, RECORDS, TOOLS, Commands, usage_error
from penstock.cli.consume import EXAMPLES as CONSUME_EXAMPLES
from penstock.cli.consume import consume
from penstock.cli.demo import EXAMPLES as DEMO_EXAMPLES
from penstock.cli.demo import demo
from penstock.cli.doctor import EXAMPLES as DOCTOR_EXAMPLES
from penstock.cli.doctor import doctor
from penstock.cli.errors import CliError
from penstock.cli.forecast import EXAMPLES as FORECAST_EXAMPLES
from penstock.cli.forecast import forecast
from penstock.cli.formatting import EXAMPLES as FORMAT_EXAMPLES
from penstock.cli.formatting import format_
from penstock.cli.monitor import EXAMPLES as MONITOR_EXAMPLES
from penstock.cli.monitor import monitor
from penstock.cli.options import examples
from penstock.cli.output import json_messages, print_error
from penstock.cli.produce import EXAMPLES as PRODUCE_EXAMPLES
from penstock.cli.produce import produce
from penstock.cli.server_options import ServerOptions, UpOptions, declared

T = TypeVar("T")

app = Commands(
    name="penstock",
    help="An event-streaming platform that speaks Apache Kafka's protocol. "
    "All commands that talk to a cluster work with Apache Kafka as well.",
    epilog=examples(
        ("penstock up", "a broker on this machine"),
        ("penstock topics create greetings", "in another terminal"),
        ("echo hello | penstock produce greetings", "write a record"),
        ("penstock consume greetings --from-beginning --until-end", "read it"),
    ),
)

SERVER_EXAMPLES = examples(
    ("penstock server --data /var/lib/penstock", "keep data elsewhere"),
    ("penstock server --listen 0.0.0.0:9092 --set advertised.listeners=PLAINTEXT://b1:9092", "for other machines"),
    ("penstock server --config server.properties --metrics 127.0.0.1:9404", "properties from a file, and metrics"),
)
UP_EXAMPLES = examples(
    ("penstock up", "one broker at 127.0.0.1:9092, with its data in ./data"),
    ("penstock up --port 9192 --data /tmp/play", "another port and directory"),
    ("penstock up --brokers 3 --restart", "a cluster of three; nodes that die are restarted"),
    ("penstock up --secure --data secured", "clients log in over TLS, with secured/client.properties"),
    ("penstock up --set log.retention.hours=1", "with a property of the broker"),
)


def declare_command(
    app: Commands, name: str, options: type[T], run: Callable[[T], int], about: str, examples: str
) -> None:
    """Makes a command of options that are declared without typer; see `server_options.py`."""

    def command(**values: Any) -> None:
        # Options that are not given keep the declaration's default.
        given = {name: value for name, value in values.items() if value is not None}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        raise typer.Exit(run(options(**given)))

    parameters = []
    for long_name, (field, option, default) in declared(options).items():
        kind: Any = list[str] if option.repeatable else option.kind
        if default in (None, ()):
            kind, default = kind | None, None
        info = typer.Option(
            long_name,
            metavar=option.metavar,
            min=option.minimum,
            max=option.maximum,
            help=option.help,
            show_default=True if option.shown_default is None else option.shown_default,
        )
        parameters.append(
            inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    app.command(name, help=about, epilog=examples, rich_help_panel=BROKERS)(command)


def _serve(options: ServerOptions) -> int:
    from penstock.cli.server import serve

    return serve(options)


def _up(options: UpOptions) -> int:
    from penstock.cli.server import up

    return up(options)


declare_command(
    app,
    "up",
    UpOptions,
    _up,
    "Start a broker, or a local cluster of several, in the foreground. Ctrl-C stops it.",
    UP_EXAMPLES,
)
declare_command(
    app,
    "server",
    ServerOptions,
    _serve,
    "Run one broker in the foreground, alone or as a node of a cluster. SIGTERM or Ctrl-C stops it cleanly.",
    SERVER_EXAMPLES,
)
app.command(epilog=DEMO_EXAMPLES, rich_help_panel=BROKERS)(demo)
app.command("format", epilog=FORMAT_EXAMPLES, rich_help_panel=BROKERS)(format_)
app.add_typer(topics.app, name="topics", rich_help_panel=RECORDS)
app.command(epilog=PRODUCE_EXAMPLES, rich_help_panel=RECORDS)(produce)
app.command(epilog=CONSUME_EXAMPLES, rich_help_panel=RECORDS)(consume)
app.add_typer(groups.app, name="groups", rich_help_panel=RECORDS)
app.add_typer(transactions.app, name="transactions", rich_help_panel=RECORDS)
app.add_typer(configs.app, name="configs", rich_help_panel=RECORDS)
app.add_typer(cluster.app, name="cluster", rich_help_panel=CLUSTERS)
app.add_typer(brokers.app, name="brokers", rich_help_panel=CLUSTERS)
app.add_typer(leaders.app, name="leaders", rich_help_panel=CLUSTERS)
app.add_typer(reassign.app, name="reassign", rich_help_panel=CLUSTERS)
app.add_typer(quotas.app, name="quotas", rich_help_panel=CLUSTERS)
app.add_typer(users.app, name="users", rich_help_panel=CLUSTERS)
app.add_typer(security.app, name="security", rich_help_panel=CLUSTERS)
app.add_typer(acls.app, name="acls", rich_help_panel=CLUSTERS)
app.command(epilog=MONITOR_EXAMPLES, rich_help_panel=CLUSTERS)(monitor)
app.command(epilog=ADVISE_EXAMPLES, rich_help_panel=CLUSTERS)(advise)
app.add_typer(alerts.app, name="alerts", rich_help_panel=CLUSTERS)
app.add_typer(profile.app, name="profile", rich_help_panel=CLUSTERS)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel=PIPELINES)
app.add_typer(tables.app, name="tables", rich_help_panel=PIPELINES)
app.command(epilog=FORECAST_EXAMPLES, rich_help_panel=PIPELINES)(forecast)
app.command(epilog=DOCTOR_EXAMPLES, rich_help_panel=PIPELINES)(doctor)
app.add_typer(plan.app, name="plan", rich_help_panel=TOOLS)
app.add_typer(host.app, name="host", rich_help_panel=TOOLS)
app.add_typer(perf.app, name="perf", rich_help_panel=TOOLS)
app.command(epilog=CHAOS_EXAMPLES, rich_help_panel=TOOLS)(chaos)
app.add_typer(log.app, name="log", rich_help_panel=TOOLS)
app.add_typer(metadata.app, name="metadata", rich_help_panel=TOOLS)


def main(arguments: list[str]) -> int:
    """Runs a command and returns its exit code."""
    with json_messages(asks_for_json(arguments)):
        try:
            result = app(args=arguments, prog_name="penstock", standalone_mode=False)
        except CliError as error:
            print_error(error)
            return error.code
        except typer.Abort:
            print_error(CliError("nothing was changed", exit_codes.DECLINED))
            return exit_codes.DECLINED
        except typer.TyperException as error:
            problem = usage_error(error)
            print_error(problem)
            return problem.code
        except KeyboardInterrupt:
            return exit_codes.INTERRUPTED
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else exit_codes.OK
    return result if isinstance(result, int) else exit_codes.OK


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether --json is among the options. It must be known before the line is parsed: that may fail, too."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


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
