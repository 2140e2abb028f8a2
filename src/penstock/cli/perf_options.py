"""Shared by the performance commands: options, client settings, client metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster, parse_settings
from penstock.cli.errors import CliError
from penstock.cli.output import note, print_line
from penstock.client.errors import ClientError
from penstock.client.librdkafka import librdkafka_properties

STATISTICS_INTERVAL_MS = 250
STATISTICS_WAIT_S = 2.0
DEFAULT_REPORTING_INTERVAL_MS = 5_000

Topic = Annotated[
    str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic to test with.", show_default=False)
]
CommandProperty = Annotated[
    list[str] | None,
    typer.Option(
        "--command-property",
        "--producer-props",
        "--consumer-props",
        "-X",
        metavar="KEY=VALUE",
        help="A setting of the client, by Java's name or librdkafka's. Repeatable; more may follow without the option.",
    ),
]
MoreProperties = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="More client settings.", show_default=False)
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        "--producer.config",
        "--consumer.config",
        metavar="FILE",
        help="A properties file with client settings.",
    ),
]
PrintMetrics = Annotated[bool, typer.Option("--print-metrics", help="Show the client's own metrics at the end.")]
ReportingInterval = Annotated[
    int, typer.Option("--reporting-interval", metavar="MS", min=1, help="How often to print a line, in milliseconds.")
]
Chart = Annotated[
    bool, typer.Option("--chart/--no-chart", help="Draw throughput and latency while it runs, if this is a terminal.")
]


def client_settings(properties: list[str] | None, more: list[str] | None, option: str) -> dict[str, str]:
    """The settings of the command line, in librdkafka's words."""
    given = parse_settings([*(properties or []), *(more or [])], option)
    try:
        return librdkafka_properties(given)
    except ClientError as error:
        raise CliError(f"{option}: {error}", exit_codes.USAGE) from None


def cluster_of(
    bootstrap_server: str, command_config: Path | None, settings: dict[str, str], timeout_s: float
) -> Cluster:
    """Kafka's older usage names the brokers among the settings."""
    return Cluster(settings.pop("bootstrap.servers", bootstrap_server), command_config, timeout_s)


def check_reachable(cluster: Cluster, topic: str) -> None:
    """Fails soon where no cluster is. A topic that is not there may still be made by the broker when it is used."""
    try:
        cluster.partition_count(topic)
    except CliError as error:
        if error.code != exit_codes.NOT_FOUND:
            raise


class Statistics:
    """The client's own metrics: librdkafka tells them from time to time, and the last word is kept."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._last: Mapping[str, object] = {}

    @property
    def settings(self) -> dict[str, object]:
        return {"stats_cb": self._take, "statistics.interval.ms": STATISTICS_INTERVAL_MS} if self._wanted else {}

    def await_first(self, poll: Callable[[float], object]) -> None:
        """A test may be over before the client has told anything. `poll` lets it speak."""
        deadline_s = time.monotonic() + STATISTICS_WAIT_S
        while self._wanted and not self._last and time.monotonic() < deadline_s:
            poll(STATISTICS_INTERVAL_MS / 1000)

    def print(self) -> None:
        if not self._wanted:
            return
        if not self._last:
            note("the client did not tell its metrics")
            return
        rows = sorted(_numbers("", self._last))
        width = max(len(name) for name, _ in rows)
        print_line(f"{'Metric Name':<{width}}   Value")
        for name, value in rows:
            print_line(f"{name:<{width}} : {value:.3f}")

    def _take(self, text: str) -> None:
        self._last = json.loads(text)


def _numbers(prefix: str, values: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(f"{prefix}{name}:", value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)
