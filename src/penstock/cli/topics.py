"""`penstock topics`: create, list, describe, alter, trim, repartition, delete."""

from __future__ import annotations

import fnmatch
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes, impact, topics_repartition, topics_trim
from penstock.cli.asking import confirm, failure_of, raise_first
from penstock.cli.commands import Commands
from penstock.cli.connection import Cluster, parse_settings
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
from penstock.cli.plan_presets import PresetName, topic_preset

if TYPE_CHECKING:
    from penstock.cli.library import TopicDescription

app = Commands(help="Create, list, describe, alter, trim, repartition and delete topics.")

SAMPLE_RECORDS_DEFAULT = 10_000
TOPIC_CONFIG_SOURCE = 1

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False)]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", metavar="KEY=VALUE", help="Set a topic property, such as retention.ms=3600000. Repeatable."
    ),
]


@app.command(
    epilog=examples(
        ("penstock topics create orders", "with the cluster's defaults"),
        ("penstock topics create orders --partitions 12 --config retention.ms=86400000", "12 partitions, kept a day"),
        ("penstock topics create orders --preset events", "replicas and settings for a purpose"),
        ("penstock topics create orders --if-not-exists", "for scripts that run more than once"),
    )
)
def create(
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Number of partitions; the cluster's default if not given."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", min=1, help="Number of replicas; the cluster's default if not given."
        ),
    ] = None,
    config: Config = None,
    preset: PresetName = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Brokers of each partition: in 1:2,2:3 brokers 1 and 2 hold the first one."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do not fail if the topic exists.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask the cluster whether it would accept the request, and create nothing.")
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Create topics."""
    from penstock.cli.library import NewTopic

    assignment = _parse_assignment(replica_assignment) if replica_assignment is not None else None
    if assignment is not None and (partitions is not None or replication_factor is not None):
        raise CliError(
            "--replica-assignment determines partitions and replicas: leave out --partitions and --replication-factor",
            exit_codes.USAGE,
        )
    settings = parse_settings(config or [], "--config")
    if preset is not None:
        copies = len(assignment[0]) if assignment else replication_factor
        replication_factor, settings = topic_preset(preset, copies, settings)
    if assignment is None:
        new = [NewTopic(name, partitions or -1, replication_factor or -1, config=settings) for name in names]
    else:
        new = [NewTopic(name, len(assignment), replica_assignment=assignment, config=settings) for name in names]
    cluster = Cluster(bootstrap_server, command_config, timeout)
    futures = cluster.admin.create_topics(
        new, validate_only=dry_run, operation_timeout=timeout, request_timeout=timeout
    )
    results: list[dict[str, Cell]] = []
    failures: list[CliError] = []
    for name, future in futures.items():
        error = failure_of(cluster, future, f"create the topic {name}")
        if error is not None and error.code == exit_codes.ALREADY_EXISTS and if_not_exists:
            results.append({"topic": name, "created": False, "exists": True, "error": None})
        elif error is not None:
            failures.append(error)
            results.append({"topic": name, "created": False, "exists": False, "error": error.message})
        else:
            results.append({"topic": name, "created": not dry_run, "exists": False, "error": None})
    if json:
        print_json(results)
    else:
        for result in results:
            if result["exists"]:
                print_line(f"{result['topic']} is already there")
            elif result["error"] is None:
                print_line(f"{'would create' if dry_run else 'created'} {result['topic']}")
    raise_first(failures)


@app.command(
    "list",
    epilog=examples(
        ("penstock topics list", "all topics"),
        ("penstock topics list 'orders-*' --json", "some of them, for a script"),
    ),
)
def list_topics(
    pattern: Annotated[
        str, typer.Argument(metavar="PATTERN", help="List only names that match; * and ? are wildcards.")
    ] = "*",
    internal: Annotated[bool, typer.Option("--internal", help="Include the cluster's internal topics.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List topics with their partitions and replicas."""
    cluster = Cluster(bootstrap_server, command_config, timeout)
    topics = cluster.topics()
    rows: list[dict[str, Cell]] = []
    for name in sorted(topics):
        if not fnmatch.fnmatchcase(name, pattern) or (name.startswith("__") and not internal):
            continue
        partitions = topics[name].partitions.values()
        rows.append(
            {
                "topic": name,
                "partitions": len(partitions),
                "replicas": max((len(partition.replicas) for partition in partitions), default=0),
                "under-replicated": sum(len(partition.isrs) < len(partition.replicas) for partition in partitions),
            }
        )
    if json:
        print_json(rows)
        return
    print_table("", ("topic", "partitions", "replicas", "under-replicated"), [list(row.values()) for row in rows])
    if not rows and sys.stdout.isatty():
        note("There are no topics. Make one: penstock topics create NAME")


@app.command(
    epilog=examples(
        ("penstock topics describe orders", "partitions, leaders, copies, offsets and settings"),
        ("penstock topics describe orders --json", "the same for a script"),
    )
)
def describe(
    names: Names,
    offsets: Annotated[bool, typer.Option(help="Show the first and last offset of each partition.")] = True,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Describe topics: partitions, leaders, replicas, offsets, settings."""
    cluster = Cluster(bootstrap_server, command_config, timeout)
    described = []
    found, missing = _descriptions(cluster, names)
    for name, topic in found.items():
        ends = _offsets(cluster, topic) if offsets else {}
        described.append(
            {
                "topic": name,
                "id": _kafka_uuid(str(topic.topic_id)),
                "internal": topic.is_internal,
                "configs": _overrides(cluster, name),
                "partitions": [
                    {
                        "partition": partition.id,
                        "leader": partition.leader.id if partition.leader is not None else None,
                        "replicas": [replica.id for replica in partition.replicas],
                        "isr": [replica.id for replica in partition.isr],
                        **({"first": ends[partition.id][0], "end": ends[partition.id][1]} if offsets else {}),
                    }
                    for partition in topic.partitions
                ],
            }
        )
    if json:
        # One entry for each name, as for `create` and `delete`: what is missing must not look like an empty result.
        print_json([*described, *({"topic": name, "error": error.message} for name, error in missing.items())])
    else:
        for one in described:
            _print_description(one)
    raise_first(list(missing.values()))


@app.command(
    epilog=examples(
        ("penstock topics alter orders --partitions 24", "shows the effects, asks, then does it"),
        ("penstock topics alter orders --partitions 24 --dry-run", "only shows the effects"),
        ("penstock topics alter orders --config retention.ms=3600000 --delete-config flush.ms", "change settings"),
    )
)
def alter(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="The new number of partitions.")
    ] = None,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Remove a setting, so that the cluster's applies again. Repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before partitions are added.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report the consequences, and change nothing.")] = False,
    sample: Annotated[
        int,
        typer.Option(
            min=0, metavar="RECORDS", help="How many of the newest records to examine for keys that would move."
        ),
    ] = SAMPLE_RECORDS_DEFAULT,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Add partitions to a topic, or change its settings.

    With more partitions, new records of a key may go to another partition than the old ones. The command reports the
    consequences and asks before it adds partitions, because they can never be removed.
    """
    from penstock.cli.configs import alter_configs

    if partitions is None and not config and not delete_config:
        raise CliError("nothing to change: give --partitions, --config or --delete-config", exit_codes.USAGE)
    cluster = Cluster(bootstrap_server, command_config, timeout)
    result: dict[str, object] = {"topic": name}
    if partitions is not None:
        result["impact"] = increase_partitions(
            cluster, name, partitions, yes=yes, dry_run=dry_run, sample=sample, quiet=json
        )
    if config or delete_config:
        alter_configs(
            cluster,
            "topic",
            name,
            set_=parse_settings(config or [], "--config"),
            delete=delete_config or [],
            append={},
            subtract={},
            dry_run=dry_run,
        )
        result["configs"] = _overrides(cluster, name)
    if json:
        print_json(result)
    elif not dry_run:
        print_line(f"altered {name}")


app.command(epilog=topics_trim.EXAMPLES)(topics_trim.trim)
app.command(epilog=topics_repartition.EXAMPLES)(topics_repartition.repartition)


@app.command(
    epilog=examples(
        ("penstock topics delete orders", "asks first"),
        ("penstock topics delete orders payments --yes", "two at once, without a question"),
    )
)
def delete(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if the topic does not exist.")] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete topics and all their records, for good."""
    if not yes:
        confirm(f"Delete {', '.join(names)} and all records in {'it' if len(names) == 1 else 'them'}?")
    cluster = Cluster(bootstrap_server, command_config, timeout)
    futures = cluster.admin.delete_topics(names, operation_timeout=timeout, request_timeout=timeout)
    results: list[dict[str, Cell]] = []
    failures: list[CliError] = []
    for name, future in futures.items():
        error = failure_of(cluster, future, f"delete the topic {name}")
        if error is not None and error.code == exit_codes.NOT_FOUND and if_exists:
            results.append({"topic": name, "deleted": False, "error": None})
        elif error is not None:
            error = cluster.no_topic(name) if error.code == exit_codes.NOT_FOUND else error
            failures.append(error)
            results.append({"topic": name, "deleted": False, "error": error.message})
        else:
            results.append({"topic": name, "deleted": True, "error": None})
    if json:
        print_json(results)
    else:
        for result in results:
            if result["deleted"]:
                print_line(f"deleted {result['topic']}")
    raise_first(failures)


def increase_partitions(
    cluster: Cluster, name: str, partitions: int, *, yes: bool, dry_run: bool, sample: int, quiet: bool
) -> dict[str, object]:
    """Adds partitions to a topic, after the report of what that does and a question. Returns the report."""
    from penstock.cli.library import NewPartitions
    from penstock.cli.sampling import dependent_groups, newest_keys

    now = cluster.partition_count(name)
    if partitions == now:
        raise CliError(f"{name} already has {plural(now, 'partition')}", exit_codes.REFUSED)
    if partitions < now:
        raise CliError(
            f"{name} has {plural(now, 'partition')}, and a topic cannot lose partitions: their records would be lost",
            exit_codes.REFUSED,
            f"move it to a new topic: penstock topics repartition {name} --partitions {partitions}",
        )
    groups, unknown = dependent_groups(cluster, name)
    report = impact.report(name, now, partitions, newest_keys(cluster, name, now, sample), groups, unknown)
    if not quiet:
        for line in report.lines():
            (print_line if dry_run else note)(line)
    if not dry_run:
        if not yes:
            confirm(f"Add {plural(partitions - now, 'partition')} to {name}?")
        futures = cluster.admin.create_partitions(
            [NewPartitions(name, partitions)], operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s
        )
        cluster.wait(futures[name], f"add partitions to {name}")
    return report.as_json()


def _descriptions(cluster: Cluster, names: list[str]) -> tuple[dict[str, TopicDescription], dict[str, CliError]]:
    """The topics that could be described, and the errors of the others."""
    from penstock.cli.library import TopicCollection

    # The library refuses a list with a name in it twice.
    wanted = list(dict.fromkeys(names))
    futures = cluster.admin.describe_topics(TopicCollection(wanted), request_timeout=cluster.timeout_s)
    described: dict[str, TopicDescription] = {}
    missing: dict[str, CliError] = {}
    for name, future in futures.items():
        try:
            described[name] = cluster.wait(future, f"describe the topic {name}")
        except CliError as error:
            if error.code == exit_codes.UNREACHABLE:
                raise
            missing[name] = cluster.no_topic(name) if error.code == exit_codes.NOT_FOUND else error
    return described, missing


def _offsets(cluster: Cluster, topic: TopicDescription) -> dict[int, tuple[int | None, int | None]]:
    """First and last offset of each partition; None for one that has no leader to ask."""
    from penstock.cli.library import OffsetSpec, TopicPartition

    found: dict[int, list[int | None]] = {partition.id: [None, None] for partition in topic.partitions}
    asked = [TopicPartition(topic.name, p.id) for p in topic.partitions if p.leader is not None and p.leader.id >= 0]
    ends = (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
    for index, spec in enumerate(ends):
        if not asked:
            break
        futures = cluster.admin.list_offsets(dict.fromkeys(asked, spec), request_timeout=cluster.timeout_s)
        for partition, future in futures.items():
            found[partition.partition][index] = cluster.wait(future, f"ask for the offsets of {topic.name}").offset
    return {partition: (first, last) for partition, (first, last) in found.items()}


def _overrides(cluster: Cluster, name: str) -> dict[str, str | None]:
    """The topic's own settings."""
    from penstock.cli.configs import described_configs, source_of

    configs = described_configs(cluster, "topic", name)
    return {key: entry.value for key, entry in sorted(configs.items()) if source_of(entry) == TOPIC_CONFIG_SOURCE}


def _print_description(described: dict[str, object]) -> None:
    partitions = described["partitions"]
    configs = described["configs"]
    assert isinstance(partitions, list)
    assert isinstance(configs, dict)
    replicas = max((len(partition["replicas"]) for partition in partitions), default=0)
    print_line(
        f"{described['topic']}  id {described['id']}  {plural(len(partitions), 'partition')}  "
        f"{plural(replicas, 'copy', 'copies')}"
    )
    if configs:
        print_line("  " + "  ".join(f"{key}={value}" for key, value in configs.items()))
    head = ["partition", "leader", "replicas", "isr"]
    rows: list[list[Cell]] = [
        [p["partition"], p["leader"], ",".join(map(str, p["replicas"])), ",".join(map(str, p["isr"]))]
        for p in partitions
    ]
    if partitions and "first" in partitions[0]:
        head += ["first", "end", "records"]
        for row, partition in zip(rows, partitions, strict=True):
            first, end = partition["first"], partition["end"]
            row += [first, end, end - first if first is not None and end is not None else None]
    print_table("", head, rows)


def _kafka_uuid(text: str) -> str:
    """An id as Kafka's own tools write it, with the letters of base64 that are safe in addresses."""
    return text.replace("+", "-").replace("/", "_")


def _parse_assignment(text: str) -> list[list[int]]:
    try:
        return [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise CliError(
            f"--replica-assignment {text}: broker ids are numbers, with : between the copies of a partition "
            "and , between partitions",
            exit_codes.USAGE,
        ) from None
