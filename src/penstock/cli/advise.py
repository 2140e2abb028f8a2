"""`penstock advise`: what to do now, the most urgent first, with evidence and the command."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.monitor import Scrape, parse_endpoints
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    Json,
    Timeout,
    examples,
)
from penstock.cli.output import note, plural, print_json, print_line
from penstock.cli.perf_calibrate import CalibrationFile, load_calibration
from penstock.cli.plan_answers import ValuesFile, catalogue_of
from penstock.planning.calibration import PARTITION_MB_S

if TYPE_CHECKING:
    from penstock.advise import Item, Situation

EXAMPLES = examples(
    ("penstock advise", "what to do now, from five seconds of figures and the monitor's history"),
    ("penstock advise --scrape 1=127.0.0.1:9292", "with CPU, disk and network of broker 1"),
    ("penstock advise --per-consumer 2000", "one consumer processes 2,000 records/s: advises fewer, too"),
    ("penstock advise --check --json", "for scripts: exit code 10 if something is to be done now"),
)


def advise(
    seconds: Annotated[float, typer.Option(metavar="N", min=1, max=300, help="Measure rates for this long.")] = 5.0,
    scrape: Scrape = [],  # noqa: B006
    per_consumer: Annotated[
        float | None,
        typer.Option(metavar="RECORDS/S", min=0.001, help="What one consumer can process, from your benchmark."),
    ] = None,
    per_partition: Annotated[
        float | None,
        typer.Option(metavar="MB/S", min=0.001, help="What one partition takes, from `penstock perf`."),
    ] = None,
    calibration: CalibrationFile = None,
    max_rate: Annotated[
        float | None,
        typer.Option(metavar="RECORDS/S", min=0.001, help="The tested maximum of one broker."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with code 10 if something is to be done now.")] = False,
    values: ValuesFile = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Say what to do now, by urgency, with evidence, effect, risk and command. Changes nothing."""
    from penstock.advise import advise as advice
    from penstock.advise.gathering import gather
    from penstock.cli.protocol import reach

    brokers = {int(name): address for name, address in parse_endpoints(scrape, "--scrape", numbers=True).items()}
    catalogue = catalogue_of(values)
    measured = load_calibration(calibration)
    if per_partition is None and measured is not None and PARTITION_MB_S in measured.measures:
        per_partition = measured[PARTITION_MB_S]
    cluster = Cluster(bootstrap_server, command_config, timeout)
    with reach(cluster, "look at the cluster") as known:
        situation = gather(
            known, seconds=seconds, brokers=brokers, catalogue=catalogue, per_consumer_per_s=per_consumer,
            per_partition_mb_s=per_partition, message_rate_max=max_rate,
        )  # fmt: skip
    items = advice(situation)
    if json:
        print_json(
            {
                "items": [dataclasses.asdict(one) for one in items],
                "history_s": _history_s(situation),
                "unknown": list(situation.observed.problems),
            }
        )
    else:
        _print(items, situation)
    urgent = [one for one in items if one.urgency == "now"]
    if check and urgent:
        raise CliError(f"{urgent[0].subject}: {urgent[0].what}", exit_codes.UNHEALTHY, urgent[0].command)


def _print(items: list[Item], situation: Situation) -> None:
    if not items:
        print_line("nothing to do: the cluster is healthy")
    for number, one in enumerate(items, 1):
        saved = f" (saves ${one.saves_month:,.2f} a month)" if one.saves_month else ""
        print_line(f"{number}. [{one.urgency}] {one.what}{saved}")
        for line in one.evidence:
            print_line(f"     - {line}")
        print_line(f"   effect:  {one.effect}")
        print_line(f"   risk:    {one.risk}")
        print_line(f"   command: {one.command}")
        print_line(f"   source:  {one.source}")
    history_s = _history_s(situation)
    if history_s is None:
        note("no history: `penstock monitor` keeps one, and advice then looks at sustained values instead of moments")
    else:
        note(f"based on {history_s / 60:,.0f} minutes of history")
    for problem in situation.observed.problems[:5]:
        note(f"not known: {problem}")
    if len(situation.observed.problems) > 5:
        note(f"not known: {plural(len(situation.observed.problems) - 5, 'more thing')}")


def _history_s(situation: Situation) -> float | None:
    span = situation.history
    if span is None or span.first_ms is None:
        return None
    return (span.samples[-1].time_ms - span.first_ms) / 1000
