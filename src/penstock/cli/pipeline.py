"""`penstock pipeline`: init, validate, run, graph, status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.commands import Commands
from penstock.cli.errors import CliError
from penstock.cli.keys import keys_not_echoed
from penstock.cli.options import Json, examples
from penstock.cli.output import note, plural, print_json, print_line, print_table
from penstock.cli.pipeline_backfill import EXAMPLES as BACKFILL_EXAMPLES
from penstock.cli.pipeline_backfill import backfill
from penstock.cli.pipeline_explain import EXAMPLES as EXPLAIN_EXAMPLES
from penstock.cli.pipeline_explain import explain
from penstock.cli.pipeline_files import (
    File,
    Master,
    OptionalBootstrap,
    Settings,
    load,
    raise_for,
    require_spark,
    start_session,
    told,
    write_new,
)
from penstock.cli.pipeline_sampling import (
    RECORDS_DEFAULT,
    ClientSettingsOption,
    Sample,
    SampledCluster,
    init_from_topic,
)
from penstock.cli.pipeline_testing import EXAMPLES as TEST_EXAMPLES
from penstock.cli.pipeline_testing import run_tests
from penstock.cli.pipeline_watch import run_watched
from penstock.cli.pipeline_work import with_spark
from penstock.config import parse_host_port
from penstock.stop_flag import StopFlag, stop_on_signals

if TYPE_CHECKING:
    from penstock.pipeline.checking import Examined
    from penstock.pipeline.model import Pipeline
    from penstock.pipeline.status import RunStatus

app = Commands(help="Check, run and inspect Spark pipelines, each declared in one SQL or Python file.")


@app.command(
    epilog=examples(
        ("penstock pipeline init revenue.sql", "a SQL file to start from"),
        ("penstock pipeline init revenue.py", "the same in Python"),
        ("penstock pipeline init --list", "the built-in pipelines"),
        ("penstock pipeline init archive.sql --from archive", "a file that uses one of them"),
        ("penstock pipeline init --from-topic orders", "a file with the columns that a sample of the topic has"),
    )
)
def init(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", show_default=False, help="The file to write: .sql or .py.")
    ] = None,
    template: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="The built-in pipeline to start from.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--from-topic", metavar="TOPIC", help="Find the columns in a sample of this topic.")
    ] = None,
    sample: Sample = RECORDS_DEFAULT,
    settings: ClientSettingsOption = None,
    bootstrap_server: SampledCluster = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the built-in pipelines; write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    json: Json = False,
) -> None:
    """Write a pipeline file to start from."""
    from penstock.pipeline.model import nearest
    from penstock.pipeline.starters import templates

    if topic is not None:
        if template is not None:
            raise CliError("--from and --from-topic exclude each other", exit_codes.USAGE)
        init_from_topic(
            topic,
            file,
            records_max=sample,
            settings=settings,
            bootstrap_servers=bootstrap_server,
            force=force,
            as_json=json,
        )
        return
    known = templates()
    if list_all and json:
        print_json([{"name": one.name, "summary": one.summary} for one in known.values()])
        return
    if list_all:
        print_table("", ("name", "what it does"), [(one.name, one.summary) for one in known.values()])
        return
    if template is None:
        template = "python" if file is not None and file.suffix == ".py" else "sql"
    if template not in known:
        raise CliError(
            f"there is no pipeline {template} to start from{nearest(template, known)}",
            exit_codes.NOT_FOUND,
            f"there are {', '.join(known)}",
        )
    chosen = known[template]
    path = file or Path(f"{'pipeline' if template in ('sql', 'python') else template}{chosen.suffix}")
    if path.suffix != chosen.suffix:
        raise CliError(
            f"the pipeline {template} is written in a file that ends in {chosen.suffix}",
            exit_codes.USAGE,
            f"name it {path.with_suffix(chosen.suffix)}",
        )
    write_new(path, chosen.text, force=force)
    if json:
        print_json({"file": str(path), "template": template})
        return
    note(f"wrote {path}: {chosen.summary}")
    note(f"next: penstock pipeline validate {path}, then penstock pipeline run {path}")


@app.command(
    epilog=examples(
        ("penstock pipeline validate revenue.sql", "checks everything, and shows the columns of each step"),
        ("penstock pipeline validate revenue.sql --no-cluster", "without asking a broker"),
    )
)
def validate(
    file: File,
    settings: Settings = None,
    bootstrap_server: OptionalBootstrap = None,
    master: Master = None,
    cluster: Annotated[bool, typer.Option("--cluster/--no-cluster", help="Ask the cluster for the topics.")] = True,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Have Spark check the queries.")] = True,
    json: Json = False,
) -> None:
    """Check a pipeline without running it."""
    if spark:
        require_spark()
    with told(json=json):
        from penstock.pipeline.checking import examine

        pipeline = load(file, settings, bootstrap_server)
        # What needs no Spark first: it takes some seconds to start.
        found = examine(pipeline, None, cluster=cluster)
        raise_for(found.problems, pipeline)
        if spark:

            def ask_spark() -> Examined:
                session = start_session(pipeline, master)
                try:
                    return examine(pipeline, session, cluster=False)
                finally:
                    session.stop()

            found = with_spark(ask_spark)
            raise_for(found.problems, pipeline)
    if json:
        steps = [asdict(step) for step in found.steps]
        print_json({"pipeline": pipeline.name, "problems": [], **({"steps": steps} if spark else {})})
        return
    for line in _summary(pipeline):
        print_line(line)
    for step in found.steps:
        print_line("")
        print_line(f"{step.kind} {step.name}")
        for column in step.columns:
            print_line(f"  {column.name}  {column.type}")


@app.command(
    epilog=examples(
        ("penstock pipeline run revenue.sql", "until Ctrl-C; run it again and it goes on"),
        ("penstock pipeline run revenue.sql --set trigger=once", "all that is there now, then end"),
        ("penstock pipeline run revenue.sql --metrics 127.0.0.1:9400", "with figures for Prometheus"),
        ("penstock pipeline run revenue.sql --master spark://host:7077", "on a Spark cluster"),
    )
)
def run(
    file: File,
    settings: Settings = None,
    bootstrap_server: OptionalBootstrap = None,
    master: Master = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics at http://HOST:PORT/metrics.")
    ] = None,
    live: Annotated[
        bool | None, typer.Option("--live/--no-live", help="Show a table that moves; by default on a terminal only.")
    ] = None,
    json: Json = False,
) -> None:
    """Check a pipeline, then run it and show its progress.

    With --json it writes one object at the end, the same as `pipeline status --json`.
    """
    require_spark()
    address = _address(metrics) if metrics is not None else None
    with told(json=json):
        from penstock.pipeline.progress import records_read

        pipeline = load(file, settings, bootstrap_server)
        status = run_watched(pipeline, master=master, metrics=address, live=False if json else live)
    if json:
        print_json(status.as_json())
        return
    again = "" if status.state == "finished" else "; run it again and it goes on where it stopped"
    read = records_read(status.queries.values())
    note(f"{pipeline.name} {status.state}: {plural(read, 'record')} read{again}")


@app.command(
    epilog=examples(
        ("penstock pipeline graph revenue.sql", "as a tree, in the terminal"),
        ("penstock pipeline graph revenue.sql --svg revenue.svg", "as a picture"),
    )
)
def graph(
    file: File,
    settings: Settings = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an SVG picture to this file instead.")] = None,
    json: Json = False,
) -> None:
    """Show where a pipeline's rows come from and where they go. Needs neither Spark nor a broker."""
    from penstock.pipeline.checking import check_declarations
    from penstock.pipeline.graph import graph_of, svg_of, tree_lines

    with told(json=json):
        pipeline = load(file, settings, None)
        raise_for(check_declarations(pipeline), pipeline)
    found = graph_of(pipeline)
    if svg is not None:
        try:
            svg.write_text(svg_of(found, pipeline.name), encoding="utf-8")
        except OSError as error:
            raise CliError(f"cannot write {svg}: {error.strerror}") from None
        note(f"wrote {svg}")
    if json:
        print_json(found.as_json())
    elif svg is None:
        for line in tree_lines(found):
            print_line(line)


@app.command(
    epilog=examples(
        ("penstock pipeline status revenue.sql", "how the run in another terminal is doing"),
        ("penstock pipeline status checkpoints/revenue --json", "by its checkpoint, for scripts"),
    )
)
def status(
    file: Annotated[
        Path, typer.Argument(metavar="FILE|CHECKPOINT", show_default=False, help="The file, or its checkpoint.")
    ],
    settings: Settings = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    json: Json = False,
) -> None:
    """Show the progress of a pipeline that runs in another terminal."""
    from penstock.pipeline.status import read_status, status_path

    with told(json=json):
        checkpoint = str(file) if file.is_dir() else load(file, settings, None).checkpoint
    path = status_path(checkpoint)
    if path is None:
        raise CliError(
            f"the checkpoint {checkpoint} is not on this machine, so its status is not either",
            exit_codes.NOT_FOUND,
            "use --metrics when you run it",
        )

    def read() -> RunStatus:
        try:
            found = read_status(path)
        except (OSError, ValueError) as error:
            raise CliError(f"cannot read {path}: {error}") from None
        if found is None:
            raise CliError(
                f"nothing has run with the checkpoint {checkpoint}",
                exit_codes.NOT_FOUND,
                f"start it: penstock pipeline run {file}",
            )
        return found

    if watch and not json:
        _show_until_interrupted(read)
        return
    found = read()
    if json:
        print_json(found.as_json())
    elif sys.stdout.isatty():
        from rich.console import Console

        from penstock.cli.pipeline_view import StatusView

        Console().print(StatusView(found))
    else:
        from penstock.cli.pipeline_view import heading, rows_of

        print_line(heading(found))
        head, rows = rows_of(found)
        print_table("", head, rows)
        if found.error:
            note(f"error: {found.error}")
    if found.state in ("failed", "lost"):
        raise typer.Exit(exit_codes.UNHEALTHY)


app.command(epilog=EXPLAIN_EXAMPLES)(explain)
app.command(epilog=BACKFILL_EXAMPLES)(backfill)
app.command("test", epilog=TEST_EXAMPLES)(run_tests)


def _show_until_interrupted(read: Callable[[], RunStatus]) -> None:
    from rich.live import Live

    from penstock.cli.pipeline_view import StatusView

    view = Live(StatusView(read()), auto_refresh=False)
    with stop_on_signals(StopFlag()) as stop, keys_not_echoed(), view as display:
        while not stop.wait(1.0):
            display.update(StatusView(read()), refresh=True)


def _summary(pipeline: Pipeline) -> Iterator[str]:
    from penstock.pipeline.identity import identity_of

    yield f"{pipeline.name} is fine: trigger {pipeline.trigger}, checkpoint {pipeline.checkpoint}"
    for name, query in identity_of(pipeline).queries.items():
        yield f"  {name}: {', '.join(query.reads)} → {query.writes}"


def _address(text: str) -> tuple[str, int]:
    try:
        return parse_host_port(text)
    except ValueError as error:
        hint = "write HOST:PORT, such as 127.0.0.1:9400"
        raise CliError(f"--metrics {text}: {error}", exit_codes.USAGE, hint) from None
