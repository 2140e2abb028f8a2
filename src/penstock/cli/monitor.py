"""`penstock monitor`: watches a cluster, keeps its figures in topics and serves them to Prometheus."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
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
from penstock.cli.output import note, print_json, print_table
from penstock.cli.plan_answers import ValuesFile, catalogue_of

if TYPE_CHECKING:
    from penstock import client
    from penstock.client import ClientSettings
    from penstock.monitor.running import Follower, Monitor
    from penstock.planning.catalogue import Catalogue
    from penstock.telemetry.http.routes import Routes

EXAMPLES = examples(
    ("penstock monitor", "every 10 s, to the topic penstock.metrics"),
    ("penstock monitor --metrics 127.0.0.1:9405", "with figures for Prometheus, lag in seconds included"),
    ("penstock monitor --scrape 1=127.0.0.1:9292", "with the figures that broker 1 exports itself"),
    ("penstock monitor --once --no-write", "two samples, the figures as a table, nothing written"),
)
API_TIMEOUT_MS = 10_000
"""How long a round waits for a cluster that is away."""
ONCE_BUDGET = 0.99
"""Two samples may cost what they cost."""

Scrape = Annotated[
    list[str],
    typer.Option(
        "--scrape", metavar="ID=HOST:PORT", help="The Prometheus endpoint of a broker, by its id. Repeatable."
    ),
]


def monitor(
    interval: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=3600,
            help="Sample this often; a large cluster, as often as the CPU budget allows.",
        ),
    ] = 10.0,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics at http://HOST:PORT/metrics.")
    ] = None,
    scrape: Scrape = [],  # noqa: B006
    pipeline: Annotated[
        list[str],
        typer.Option(metavar="NAME=HOST:PORT", help="The Prometheus endpoint of a pipeline. Repeatable."),
    ] = [],  # noqa: B006
    webhook: Annotated[
        list[str],
        typer.Option(metavar="URL", help="POST alerts there, in the format of Alertmanager's webhooks. Repeatable."),
    ] = [],  # noqa: B006
    values: ValuesFile = None,
    no_alerts: Annotated[bool, typer.Option("--no-alerts", help="Evaluate no alert rules.")] = False,
    no_write: Annotated[
        bool, typer.Option("--no-write", help="Do not write to topics; only serve or show the figures.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Take two samples, show the figures, and stop.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Watch a cluster: sample it, keep the figures in topics, and serve them to Prometheus. Ctrl-C stops it."""
    from penstock import client
    from penstock.monitor.collector import Collector
    from penstock.monitor.running import Monitor, Settings
    from penstock.monitor.writer import Writer
    from penstock.stop_flag import StopFlag, stop_on_signals

    settings = settings_of(Cluster(bootstrap_server, command_config, timeout))
    brokers = parse_endpoints(scrape, "--scrape", numbers=True)
    pipelines = parse_endpoints(pipeline, "--pipeline")
    with ExitStack() as stack:
        cluster = stack.enter_context(client.Cluster(settings))
        watching = Monitor(
            Collector(cluster, brokers={int(k): v for k, v in brokers.items()}, pipelines=pipelines),
            None if no_write else Writer(cluster),
            Settings(interval_s=1.0, budget=ONCE_BUDGET) if once else Settings(interval_s=interval),
            say=note,
        )
        stop = stack.enter_context(stop_on_signals(StopFlag()))
        if not (once or no_alerts):
            watching.followers = [_alerts(cluster, webhook, values, stack, writes=not no_write)]
        if once:
            _once(watching, stop, json=json, address=bootstrap_server)
            return
        if metrics is not None:
            _serve(watching, metrics, catalogue_of(values), stack)
        note(f"watching {bootstrap_server} every {interval:g} s; Ctrl-C stops it")
        watching.run(stop)


def _once(watching: Monitor, stop: object, *, json: bool, address: str) -> None:
    from penstock.stop_flag import StopFlag

    assert isinstance(stop, StopFlag)
    reached = watching.round()
    stop.wait(watching.settings.interval_s)
    if not (reached and watching.round()):
        raise CliError(
            f"cannot reach a Kafka cluster at {address}",
            exit_codes.UNREACHABLE,
            "name the cluster with --bootstrap-server HOST:PORT",
        )
    if json:
        import msgspec

        print_json([msgspec.to_builtins(one) for one in watching.newest])
        return
    rows = [[one.kind.value, one.name, one.metric, f"{one.value:g}", one.unit] for one in watching.newest]
    print_table("", ("kind", "name", "metric", "value", "unit"), rows)


def _alerts(
    cluster: client.Cluster, urls: list[str], values: Path | None, stack: ExitStack, *, writes: bool
) -> Follower:
    from penstock.alerts.board import Board
    from penstock.alerts.following import AlertFollower
    from penstock.alerts.sinks import Webhook, WebhookRefused

    hooks = []
    for url in urls:
        try:
            hook = Webhook(url, note)
        except (WebhookRefused, ValueError) as error:
            raise CliError(f"--webhook {error}", exit_codes.USAGE) from None
        stack.callback(hook.close)
        hooks.append(hook.put)
    return AlertFollower(
        Board(cluster) if writes else None,
        catalogue=catalogue_of(values),
        tell=lambda notice: note(notice.line()),
        also=hooks,
        say=note,
    )


def _add_autoscaling(watching: Monitor, routes: Routes, catalogue: Catalogue) -> None:
    """How many consumers each group should have, for KEDA and HorizontalPodAutoscalers."""
    from penstock.advise.autoscaling import Autoscaling
    from penstock.advise.situation import Situation

    def situation() -> Situation | None:
        newest = watching.newest
        return Situation(observed=watching.observed, samples=newest, catalogue=catalogue) if newest else None

    Autoscaling(situation, watching.wall_ms).add_routes(routes)


def _serve(watching: Monitor, metrics: str, catalogue: Catalogue, stack: ExitStack) -> None:
    from penstock.config import parse_host_port
    from penstock.telemetry.background import BackgroundServer
    from penstock.telemetry.endpoint import metrics_routes

    try:
        host, port = parse_host_port(metrics)
        routes = metrics_routes(watching.exposed)
        _add_autoscaling(watching, routes, catalogue)
        server = stack.enter_context(BackgroundServer(host, port, routes))
    except ValueError as error:
        raise CliError(f"--metrics {metrics}: {error}", exit_codes.USAGE) from None
    except OSError as error:
        raise CliError(f"cannot listen on {metrics}: {error.strerror}", exit_codes.FAILED) from None
    note(f"metrics at {server.url}metrics")


def settings_of(cluster: Cluster) -> ClientSettings:
    """The settings of connections to the cluster, with a short patience: the next round asks again."""
    from penstock.cli.protocol import client_settings

    found = client_settings(cluster)
    return dataclasses.replace(found, client_id="penstock-monitor", api_timeout_ms=API_TIMEOUT_MS)


def parse_endpoints(texts: list[str], option: str, *, numbers: bool = False) -> dict[str, str]:
    """`NAME=HOST:PORT` options as a mapping."""
    from penstock.config import parse_host_port

    found = {}
    for text in texts:
        name, equals, address = text.partition("=")
        try:
            if not equals or not name or (numbers and not name.isdecimal()):
                raise ValueError("it must be ID=HOST:PORT" if numbers else "it must be NAME=HOST:PORT")
            parse_host_port(address)
        except ValueError as error:
            raise CliError(f"{option} {text}: {error}", exit_codes.USAGE) from None
        found[name] = address
    return found
