"""`penstock pipeline backfill`: a pipeline once more, over a time range of its topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import note, plural, print_json, print_line
from penstock.cli.pipeline_files import (
    File,
    Master,
    OptionalBootstrap,
    Settings,
    load,
    raise_for,
    require_spark,
    told,
)
from penstock.cli.pipeline_watch import run_watched

if TYPE_CHECKING:
    from penstock.pipeline.backfilling import Backfill
    from penstock.pipeline.model import Pipeline

EXAMPLES = examples(
    ("penstock pipeline backfill revenue.sql --from 2026-01-31T08:00Z --to 2026-01-31T12:00Z --dry-run", "the plan"),
    ("penstock pipeline backfill revenue.sql --from … --to … --into lake/again", "results in tables of their own"),
    ("penstock pipeline backfill revenue.sql --from … --to … --in-place", "results where the pipeline writes them"),
)


def backfill(
    file: File,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="The first time, such as 2026-01-31T08:00Z.")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="The time at which it ends, exclusive.")],
    into: Annotated[
        str, typer.Option("--into", metavar="DIR", help="Write tables below DIR, and nothing to topics.")
    ] = "",
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Write to the pipeline's own tables and topics, a second time.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="QUERY", help="Run this query alone. Repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be read and written.")] = False,
    settings: Settings = None,
    bootstrap_server: OptionalBootstrap = None,
    master: Master = None,
    live: Annotated[
        bool | None, typer.Option("--live/--no-live", help="Show a table that moves; by default on a terminal only.")
    ] = None,
    json: Json = False,
) -> None:
    """Run a pipeline once more over the records of a time range.

    The range is looked up once, as offsets, so the run ends. It has a checkpoint of its own: stop it with Ctrl-C, and
    the same command resumes it. A time is that of the records; without a zone it is in UTC.
    """
    if not dry_run:
        require_spark()
    if into and in_place:
        raise CliError("--into and --in-place exclude each other", exit_codes.USAGE)
    with told(json=json):
        from penstock.pipeline.backfilling import narrowed, save, settle_backfill
        from penstock.pipeline.checking import check_declarations
        from penstock.pipeline.progress import records_read

        pipeline = load(file, settings, bootstrap_server)
        raise_for(check_declarations(pipeline), pipeline)
        chosen = narrowed(pipeline, only=tuple(only or ()), into=into)
        bounded, found = settle_backfill(chosen, _moment("--from", start), _moment("--to", end))
        if dry_run:
            if json:
                print_json(_as_json(bounded, found))
            for line in () if json else plan_lines(bounded, found, into=into):
                print_line(line)
            return
        if not (into or in_place):
            raise CliError(
                "say where the results go: the pipeline may have processed this range before",
                exit_codes.USAGE,
                "--into DIR writes tables elsewhere, --in-place writes to its own; --dry-run shows what that means",
            )
        if found.done or not found.offsets:
            note("nothing to do: this backfill is done" if found.done else "nothing to do: the range has no records")
            return
        for line in () if json else plan_lines(bounded, found, into=into):
            note(line)
        save(bounded, found)
        status = run_watched(bounded, master=master, live=False if json else live)
        if status.state == "finished":
            save(bounded, replace(found, done=True))
    if json:
        print_json(status.as_json())
        return
    again = "" if status.state == "finished" else "; the same command resumes it"
    note(f"backfill {status.state}: {plural(records_read(status.queries.values()), 'record')} read{again}")


def plan_lines(pipeline: Pipeline, backfill: Backfill, *, into: str) -> Iterator[str]:
    """What a backfill reads and writes, in words."""
    from penstock.pipeline.backfilling import effect_of

    state = "is done" if backfill.done else "begins" if backfill.is_new else "resumes"
    yield f"backfill of {pipeline.name} from {backfill.start} to {backfill.end} {state}; {pipeline.checkpoint}"
    for name, within in backfill.ranges.items():
        yield f"  reads {name}: {plural(within.offsets, 'offset')}"
        for topic, starts in within.starts.items():
            for partition, start in starts.items():
                yield f"    {topic}-{partition}: {start:,} to {within.ends[topic][partition]:,}"
    for sink in pipeline.sinks:
        target = f"topic {sink.topic}" if sink.topic else f"table {sink.path}" if sink.path else str(sink.kind)
        yield f"  writes {sink.name} to {target}" + ("" if into else f": {effect_of(sink)}")
    delays = [source.watermark.delay for source in pipeline.sources if source.watermark is not None]
    if delays:
        yield f"  Windows that end later than {delays[0].lower()} before the newest record are not written:"
        yield "  they are still open when the range ends. A later --to closes them."


def _moment(option: str, text: str) -> datetime:
    from penstock.pipeline.planning import moment_of

    try:
        return moment_of(text)
    except (ValueError, OverflowError):
        hint = "write a time such as 2026-01-31T08:00Z"
        raise CliError(f"{option} {text}: this is no time", exit_codes.USAGE, hint) from None


def _as_json(pipeline: Pipeline, backfill: Backfill) -> dict[str, object]:
    from penstock.pipeline.backfilling import effect_of

    return {
        "pipeline": pipeline.name,
        "start": backfill.start,
        "end": backfill.end,
        "checkpoint": pipeline.checkpoint,
        "done": backfill.done,
        "resumes": not backfill.is_new,
        "offsets": backfill.offsets,
        "ranges": {name: {"starts": one.starts, "ends": one.ends} for name, one in backfill.ranges.items()},
        "queries": [
            {"name": one.name, "path": one.path, "topic": one.topic, "effect": effect_of(one)} for one in pipeline.sinks
        ],
    }
