"""`penstock pipeline init --from-topic`: a pipeline file for the columns that the records of a topic have."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.connection import parse_settings
from penstock.cli.errors import CliError
from penstock.cli.options import DEFAULT_BOOTSTRAP_SERVER
from penstock.cli.output import note, plural, print_json
from penstock.cli.pipeline_files import write_new

if TYPE_CHECKING:
    from penstock.pipeline.inference import InferredSchema

RECORDS_DEFAULT = 1_000
RECORDS_MAX = 100_000
CLIENT_PREFIX = "kafka."

Sample = Annotated[
    int, typer.Option(metavar="N", min=1, max=RECORDS_MAX, help="With --from-topic: read the newest N records.")
]
ClientSettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="With --from-topic: a client property, such as kafka.security.protocol=SASL_SSL. Repeatable.",
    ),
]
SampledCluster = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="PENSTOCK_BOOTSTRAP_SERVER",
        help="With --from-topic: the cluster that has the topic.",
    ),
]


def init_from_topic(
    topic: str,
    file: Path | None,
    *,
    records_max: int,
    settings: list[str] | None,
    bootstrap_servers: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Writes a pipeline file for a topic."""
    from penstock.client import ClientError, ClientSettings, Cluster, ConnectionFailed, UnknownTopic
    from penstock.pipeline.inference import infer_schema, pipeline_text, stream_name
    from penstock.pipeline.model import nearest
    from penstock.pipeline.sampling import sample_topic

    path = file or Path(f"{stream_name(topic)}.sql")
    if path.suffix != ".sql":
        hint = f"name it {path.with_suffix('.sql')}"
        raise CliError("--from-topic writes a file of SQL, whose name ends in .sql", exit_codes.USAGE, hint)
    servers = bootstrap_servers or DEFAULT_BOOTSTRAP_SERVER
    given = parse_settings(settings or [], "--set")
    properties = {name.removeprefix(CLIENT_PREFIX): value for name, value in given.items()}
    try:
        with Cluster(ClientSettings.from_properties({"bootstrap.servers": servers, **properties})) as cluster:
            try:
                sample = sample_topic(cluster, topic, records_max)
            except UnknownTopic:
                known = sorted(one.name for one in cluster.topics().values() if not one.is_internal)
                message = f"there is no topic {topic} at {servers}{nearest(topic, known)}"
                raise CliError(message, exit_codes.NOT_FOUND) from None
    except ConnectionFailed as error:
        raise CliError(str(error), exit_codes.UNREACHABLE, "name the cluster with --bootstrap-server") from None
    except ClientError as error:
        raise CliError(f"cannot read {topic} at {servers}: {error}") from None
    if not sample:
        hint = "produce a record first, or start from `penstock pipeline init --list`"
        raise CliError(f"the topic {topic} has no records to look at", exit_codes.NOT_FOUND, hint)
    schema = infer_schema(sample)
    write_new(path, pipeline_text(schema, topic, bootstrap_servers=servers), force=force)
    if as_json:
        columns = [asdict(one) for one in schema.columns]
        print_json({"file": str(path), "topic": topic, "records": schema.records, "columns": columns})
        return
    note(f"wrote {path}: {_found(schema)} in {plural(schema.records, 'record')} of {topic}")
    if given:
        note("client properties given with --set are not in the file: give them again, or write SET kafka.… into it")
    note(f"next: penstock pipeline validate {path}, then penstock pipeline run {path}")


def _found(schema: InferredSchema) -> str:
    if not schema.columns:
        return f"format {schema.format}"
    times = f", {schema.time} as the time of the event" if schema.time else ""
    return f"{plural(len(schema.columns), 'column')}{times}"
