"""`penstock plan cluster`: a whole design from a file, or from a cluster that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.errors import CliError
from penstock.cli.options import DEFAULT_TIMEOUT_S, CommandConfig, Json, Timeout, examples
from penstock.cli.output import note, print_json, print_line, print_table
from penstock.cli.plan_answers import (
    ValuesFile,
    as_json,
    catalogue_of,
    explain,
    figures,
    plan_errors,
    read_text,
    text,
    worded,
)

if TYPE_CHECKING:
    from penstock.planning.catalogue import Catalogue
    from penstock.planning.design import ClusterPlan, Variant

EXAMPLES = examples(
    ("penstock plan cluster spec.toml", "brokers, partitions, disks, network and cost, with alternatives"),
    ("penstock plan cluster spec.toml --html plan.html", "the same as a page with charts"),
    (
        "penstock plan cluster --from-cluster localhost:9092 --spec-out spec.toml",
        "write a spec with the topics and rates of a running cluster",
    ),
    ("penstock plan cluster hardware.toml --from-cluster localhost:9092", "its topics, and your hardware and prices"),
)
TOPICS_SHOWN_MAX = 50
SECONDS_DEFAULT = 10.0


def cluster(
    spec: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SPEC.toml]", help="The design; docs/reference/planning.md lists its entries.", show_default=False
        ),
    ] = None,
    from_cluster: Annotated[
        str | None,
        typer.Option("--from-cluster", metavar="HOST:PORT", help="Take topics, rates and sizes from this cluster."),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="How long to watch the rates of that cluster.")
    ] = SECONDS_DEFAULT,
    peak_factor: Annotated[
        float, typer.Option("--peak-factor", min=1, help="Peak over the rate that was watched.")
    ] = 2.0,
    spec_out: Annotated[
        Path | None,
        typer.Option("--spec-out", metavar="FILE", help="Write the spec of that cluster, to complete and to keep."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a report with charts as well.")
    ] = None,
    values: ValuesFile = None,
    json: Json = False,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Plan a whole cluster: what it needs and costs, what limits it, and what a change would do."""
    from penstock.planning.design import plan_cluster
    from penstock.planning.spec import read_spec

    if spec is None and from_cluster is None:
        raise CliError("give a spec, or --from-cluster HOST:PORT", exit_codes.USAGE)
    if spec_out is not None and from_cluster is None:
        raise CliError("--spec-out writes what --from-cluster finds: give both", exit_codes.USAGE)
    if spec is None and spec_out is None:
        raise CliError(
            "a cluster does not tell its hardware and prices",
            exit_codes.USAGE,
            "give a spec with [cluster] and [broker] too, or write one to complete with --spec-out FILE",
        )
    written = "" if spec is None else read_text(spec)
    origin = "the cluster's spec" if spec is None else str(spec)
    if from_cluster is not None:
        from penstock.cli.plan_from_cluster import spec_of

        written = spec_of(from_cluster, command_config, timeout, seconds, peak_factor, base=written, origin=origin)
    if spec_out is not None:
        _write(spec_out, written)
        if spec is None:
            return
    catalogue = catalogue_of(values)
    with plan_errors():
        design, catalogue = read_spec(written, catalogue, origin)
        plan = plan_cluster(catalogue, design)
    if html is not None:
        from penstock.planning.report import html_report

        _write(html, html_report(plan, catalogue))
    if json:
        print_json(_as_json(plan, catalogue))
        return
    _print(plan, catalogue)


def _as_json(plan: ClusterPlan, catalogue: Catalogue) -> dict[str, object]:
    return {
        **as_json(plan, catalogue),
        "cost": {key: value for key, value in as_json(plan.cost, catalogue).items() if key != "values_replaced"},
        "topics": [
            {
                "name": topic.name,
                "count": topic.count,
                "needed": topic.needed,
                "partitions": topic.partitions,
                "decided_by": topic.decided_by,
                "replication_factor": topic.replication_factor,
                "peak_mb_s": topic.peak_mb_s,
                "stored_bytes": topic.stored_bytes,
                "cold_bytes": topic.cold_bytes,
            }
            for topic in plan.topics
        ],
        "alternatives": [_variant(one) for one in plan.alternatives],
        "sensitivity": [_variant(one) for one in plan.sensitivity],
    }


def _variant(one: Variant) -> dict[str, object]:
    return {
        "change": one.name,
        "brokers": one.brokers,
        "brokers_more": one.brokers_more,
        "cost": one.cost,
        "cost_more": one.cost_more,
        "binding": one.binding,
        "sentence": one.sentence,
    }


def _print(plan: ClusterPlan, catalogue: Catalogue) -> None:
    rows = [(worded(name), text(name, value)) for name, value in figures(plan) if isinstance(value, (str, int, float))]
    print_table(plan.name, ("figure", "value"), rows)
    _table(
        "Brokers by constraint", ("constraint", "brokers"), [(name, f"{count:,}") for name, count in plan.constraints]
    )
    largest = sorted(plan.topics, key=lambda topic: (-topic.stored_bytes, topic.name))
    _table(
        "Topics",
        ("topic", "how many", "partitions each", "decided by", "copies", "peak", "stored"),
        [
            (
                topic.name,
                f"{topic.count:,}",
                f"{topic.partitions:,}",
                topic.decided_by,
                str(topic.replication_factor),
                text("peak_mb_s", topic.peak_mb_s),
                text("stored_bytes", topic.stored_bytes),
            )
            for topic in largest[:TOPICS_SHOWN_MAX]
        ],
    )
    if len(largest) > TOPICS_SHOWN_MAX:
        note(f"{len(largest) - TOPICS_SHOWN_MAX:,} smaller topics are not shown; --json has all of them")
    _table("Cost a month", ("item", "cost"), [(worded(name), text(name, value)) for name, value in figures(plan.cost)])
    for title, variants in (("Alternatives", plan.alternatives), ("Sensitivity", plan.sensitivity)):
        print_line("")
        print_line(f"{title}:")
        for one in variants:
            print_line(f"  {one.sentence}")
    explain(plan, catalogue)


def _table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    print_line("")
    print_table(title, head, rows)


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}", exit_codes.FAILED) from None
    note(f"wrote {path}")
