"""`penstock alerts`: what is wrong now, the rules, silences, and files for Prometheus, Alertmanager and Grafana."""

from __future__ import annotations

import time
import uuid
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.commands import Commands
from penstock.cli.connection import Cluster
from penstock.cli.durations import parse_duration_ms
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
from penstock.cli.plan_answers import ValuesFile, catalogue_of

if TYPE_CHECKING:
    from penstock.alerts.engine import Alert

app = Commands(help="Show what is wrong with a cluster, and the rules that decide it.")

WEBHOOK_EXAMPLE = "http://127.0.0.1:9093/webhook"


class Format(StrEnum):
    TABLE = "table"
    PROMETHEUS = "prometheus"
    ALERTMANAGER = "alertmanager"
    GRAFANA = "grafana"


@app.command(
    "list",
    epilog=examples(
        ("penstock alerts list", "the alerts that fire now, as the monitor told them"),
        ("penstock alerts list --check", "for scripts: exit code 10 if a critical alert fires"),
    ),
)
def list_alerts(
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 10 if a critical alert fires that is not silenced.")
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the alerts that fire, the worst first, and the silences. They come from `penstock monitor`."""
    from penstock import client
    from penstock.alerts.board import Board
    from penstock.alerts.silences import silence_of
    from penstock.cli.protocol import reach

    cluster = Cluster(bootstrap_server, command_config, timeout)
    with reach(cluster, "read alerts") as known:
        assert isinstance(known, client.Cluster)
        board = Board(known)
        board.read()
    now_ms = time.time_ns() // 1_000_000
    order = ("critical", "warning", "info")
    alerts = sorted(board.firing(), key=lambda one: (order.index(one.severity), one.since_ms))
    silences = [one for one in board.silences.values() if one.until_ms > now_ms]
    silenced = {one.key for one in alerts if silence_of(one, silences, now_ms) is not None}
    if json:
        import msgspec

        print_json(
            {
                "alerts": [_as_json(one, silenced=one.key in silenced) for one in alerts],
                "silences": [msgspec.to_builtins(one) for one in silences],
            }
        )
    else:
        rows: list[list[Cell]] = [
            [
                str(one.severity) + (" (silenced)" if one.key in silenced else ""),
                one.rule,
                one.name,
                one.text,
                _age(now_ms - one.since_ms),
                one.command,
            ]
            for one in alerts
        ]
        if rows:
            print_table("", ("severity", "rule", "resource", "what", "for", "next command"), rows)
        else:
            print_line("no alert fires")
        for silence in silences:
            left = _age(silence.until_ms - now_ms)
            note(f"silenced for {left}: {silence.rule} of {silence.name} ({silence.id}) {silence.comment}".rstrip())
    loud = [one for one in alerts if one.severity == "critical" and one.key not in silenced]
    if check and loud:
        raise CliError(f"{plural(len(loud), 'critical alert')}: {loud[0].text}", exit_codes.UNHEALTHY, loud[0].command)


@app.command(
    epilog=examples(
        ("penstock alerts rules", "every rule with its threshold and source"),
        ("penstock alerts rules --format prometheus > penstock.rules.yml", "a rule file for Prometheus"),
        ("penstock alerts rules --format alertmanager > alertmanager.yml", "an example for Alertmanager"),
        ("penstock alerts rules --format grafana > penstock.json", "a dashboard for Grafana"),
        ("penstock alerts rules --values mine.toml", "with thresholds of your own"),
    )
)
def rules(
    format: Annotated[Format, typer.Option("--format", help="Write the rules like this.")] = Format.TABLE,
    webhook: Annotated[
        str, typer.Option(metavar="URL", help="The receiver in the example for Alertmanager.")
    ] = WEBHOOK_EXAMPLE,
    values: ValuesFile = None,
    json: Json = False,
) -> None:
    """Show the rules, or write them for Prometheus, Alertmanager or Grafana."""
    from penstock.alerts.catalogue import RULES
    from penstock.alerts.grafana import dashboard
    from penstock.alerts.prometheus import alertmanager_file, expression, rules_file

    catalogue = catalogue_of(values)
    if format is Format.PROMETHEUS:
        print_line(rules_file(catalogue).rstrip("\n"))
    elif format is Format.ALERTMANAGER:
        print_line(alertmanager_file(webhook).rstrip("\n"))
    elif format is Format.GRAFANA:
        print_json(dashboard(catalogue))
    elif json:
        print_json(
            [
                {
                    "name": rule.name,
                    "severity": str(rule.severity),
                    "kind": str(rule.kind),
                    "metric": rule.metric,
                    "condition": f"{rule.comparison} {catalogue[rule.bound]:g}",
                    "value": rule.bound,
                    "for_s": rule.for_s,
                    "meaning": rule.meaning,
                    "command": rule.command,
                    "source": rule.source,
                    "expression": expression(rule, catalogue),
                }
                for rule in RULES
            ]
        )
    else:
        rows: list[list[Cell]] = [
            [
                rule.name,
                str(rule.severity),
                f"{rule.kind} {rule.metric} {rule.comparison} {catalogue[rule.bound]:g} {rule.unit}",
                f"{rule.for_s} s",
                rule.source,
            ]
            for rule in RULES
        ]
        print_table("", ("rule", "severity", "condition", "for", "source"), rows)


@app.command(
    epilog=examples(
        ("penstock alerts silence BrokerDown --for 2h --comment 'new disk'", "during maintenance"),
        ("penstock alerts silence 'ConsumerLag*' --resource nightly --for 8h", "alerts about one group"),
        ("penstock alerts silence --remove 3f2a91c0", "end a silence"),
    )
)
def silence(
    rule: Annotated[str | None, typer.Argument(help="The rule, or a pattern such as 'ConsumerLag*'.")] = None,
    resource: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only for these groups, brokers or pipelines.")
    ] = "*",
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 30m, 2h, 1d.")] = "1h",
    comment: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    remove: Annotated[str | None, typer.Option(metavar="ID", help="End this silence instead.")] = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Have the monitor send no messages about some alerts for a while. They are still listed."""
    from penstock.alerts.board import Board, silence_entry
    from penstock.alerts.catalogue import RULES, UNREACHABLE
    from penstock.alerts.silences import DURATION_MS_MAX, PATTERN_CHARS_MAX, Silence
    from penstock.cli.protocol import reach

    now_ms = time.time_ns() // 1_000_000
    cluster = Cluster(bootstrap_server, command_config, timeout)
    if remove is not None:
        with reach(cluster, "end a silence") as known:
            board = Board(known)
            board.read()
            if remove not in board.silences:
                raise CliError(
                    f"there is no silence {remove}", exit_codes.NOT_FOUND, "`penstock alerts list` shows them"
                )
            board.write({f"silence/{remove}": None}, now_ms)
        note(f"ended {remove}")
        return
    if rule is None:
        raise CliError("name a rule, or a pattern for rules", exit_codes.USAGE, "`penstock alerts rules` lists them")
    names = [*(one.name for one in RULES), UNREACHABLE]
    if not any(_matches(rule, name) for name in names):
        from penstock.cli.suggestions import did_you_mean

        raise CliError(
            f"no rule is called {rule}{did_you_mean(rule, names)}",
            exit_codes.USAGE,
            "`penstock alerts rules` lists them",
        )
    try:
        length_ms = parse_duration_ms(duration)
    except ValueError as error:
        raise CliError(f"--for {duration}: {error}", exit_codes.USAGE) from None
    if not 0 < length_ms <= DURATION_MS_MAX:
        raise CliError(f"--for {duration}: a silence lasts from 1 s to 90 d", exit_codes.USAGE)
    if max(len(rule), len(resource), len(comment)) > PATTERN_CHARS_MAX:
        raise CliError(f"a pattern or comment has at most {PATTERN_CHARS_MAX} characters", exit_codes.USAGE)
    made = Silence(id=uuid.uuid4().hex[:8], rule=rule, name=resource, until_ms=now_ms + length_ms, comment=comment)
    with reach(cluster, "write a silence") as known:
        Board(known).write(dict([silence_entry(made)]), now_ms)
    if json:
        import msgspec

        print_json(msgspec.to_builtins(made))
    else:
        print_line(f"silenced {rule} of {resource} for {_age(length_ms)}; end it with --remove {made.id}")


def _matches(pattern: str, name: str) -> bool:
    from fnmatch import fnmatchcase

    return fnmatchcase(name, pattern)


def _as_json(alert: Alert, *, silenced: bool) -> dict[str, object]:
    import msgspec

    return {**msgspec.to_builtins(alert), "silenced": silenced}


def _age(milliseconds: int) -> str:
    from penstock.lag.verdicts import duration_text

    return duration_text(milliseconds)
