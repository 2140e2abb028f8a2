"""`penstock plan partitions`: how many partitions a topic needs, and making the topic so."""

from __future__ import annotations

from typing import Annotated

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
from penstock.cli.output import plural, print_json, print_line
from penstock.cli.perf_calibrate import CalibrationFile, load_calibration
from penstock.cli.plan_answers import ValuesFile, as_json, catalogue_of, plan_errors, show
from penstock.cli.topics import SAMPLE_RECORDS_DEFAULT, increase_partitions
from penstock.planning.calibration import PARTITION_MB_S
from penstock.planning.partitions import plan_partitions

EXAMPLES = examples(
    ("penstock plan partitions --peak-mb-s 100 --per-partition-mb-s 10 --consumers 5", "the count and its reasons"),
    ("penstock plan partitions --current-mb-s 40 --per-partition-mb-s 10", "a current load gets headroom"),
    (
        "penstock plan partitions --peak-mb-s 100 --per-partition-mb-s 10 --apply orders",
        "creates the topic, or tells what more partitions would do and asks",
    ),
)


def partitions(
    per_partition_mb_s: Annotated[
        float | None,
        typer.Option("--per-partition-mb-s", help="What one partition takes; `penstock perf calibrate` measures it."),
    ] = None,
    calibration: CalibrationFile = None,
    peak_mb_s: Annotated[float | None, typer.Option("--peak-mb-s", help="Peak load of the topic.")] = None,
    current_mb_s: Annotated[
        float | None, typer.Option("--current-mb-s", help="Load now, if the peak is not known; it gets headroom.")
    ] = None,
    consumers: Annotated[int, typer.Option("--consumers", min=0, help="Members of the largest group.")] = 0,
    apply: Annotated[
        str | None,
        typer.Option("--apply", metavar="TOPIC", help="Create this topic, or add partitions to it if it has fewer."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="Replicas of a topic that --apply creates."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Add partitions without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --apply, say what would follow, and change nothing.")
    ] = False,
    values: ValuesFile = None,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Partitions that a topic needs for its bytes and its consumers."""
    catalogue = catalogue_of(values)
    measured = load_calibration(calibration)
    if per_partition_mb_s is None and measured is None:
        raise CliError(
            "what one partition takes is not known: give --per-partition-mb-s or --calibration",
            exit_codes.USAGE,
            "`penstock perf calibrate` measures it; the documents say 10, 50 or 100 MB/s",
        )
    with plan_errors():
        if per_partition_mb_s is None:
            assert measured is not None
            per_partition_mb_s = measured[PARTITION_MB_S]
        plan = plan_partitions(
            catalogue,
            peak_mb_s=peak_mb_s,
            current_mb_s=current_mb_s,
            per_partition_mb_s=per_partition_mb_s,
            consumers=consumers,
        )
    if apply is None:
        show("Partitions", plan, catalogue, json=json)
        return
    if not json:
        show("Partitions", plan, catalogue, json=False)
        print_line("")
    cluster = Cluster(bootstrap_server, command_config, timeout)
    result = _apply(cluster, apply, plan.partitions, replication_factor, yes=yes, dry_run=dry_run, quiet=json)
    if json:
        print_json({**as_json(plan, catalogue), "applied": result})


def _apply(
    cluster: Cluster, topic: str, wanted: int, replication_factor: int | None, *, yes: bool, dry_run: bool, quiet: bool
) -> dict[str, object]:
    """As document 002's script: a new topic is created, one with too few partitions grows, any other is left."""
    now = _partitions_of(cluster, topic)
    result: dict[str, object] = {"topic": topic, "partitions_before": now, "action": "none"}
    if now is None:
        _create(cluster, topic, wanted, replication_factor, dry_run=dry_run)
        result["action"] = "create"
        told = f"{'would create' if dry_run else 'created'} {topic} with {plural(wanted, 'partition')}"
    elif now < wanted:
        result["impact"] = increase_partitions(
            cluster, topic, wanted, yes=yes, dry_run=dry_run, sample=SAMPLE_RECORDS_DEFAULT, quiet=quiet
        )
        result["action"] = "increase"
        told = f"{'would grow' if dry_run else 'grew'} {topic} from {now} to {plural(wanted, 'partition')}"
    else:
        told = f"{topic} has {plural(now, 'partition')}, which is enough"
    if not quiet:
        print_line(told)
    return {**result, "changed": result["action"] != "none" and not dry_run}


def _partitions_of(cluster: Cluster, topic: str) -> int | None:
    try:
        return cluster.partition_count(topic)
    except CliError as error:
        if error.code != exit_codes.NOT_FOUND:
            raise
    return None


def _create(cluster: Cluster, topic: str, partitions: int, replication_factor: int | None, *, dry_run: bool) -> None:
    from penstock.cli.library import NewTopic

    futures = cluster.admin.create_topics(
        [NewTopic(topic, partitions, replication_factor or -1)],
        validate_only=dry_run,
        operation_timeout=cluster.timeout_s,
        request_timeout=cluster.timeout_s,
    )
    cluster.wait(futures[topic], f"create the topic {topic}")
