"""`penstock pipeline explain`: what a pipeline will do, in words."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, examples
from penstock.cli.output import note, print_json, print_line
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
)
from penstock.cli.pipeline_work import with_spark

if TYPE_CHECKING:
    from penstock.pipeline.explaining import Section

EXAMPLES = examples(
    ("penstock pipeline explain revenue.sql", "sources, offsets, state, sinks and guarantees"),
    ("penstock pipeline explain revenue.sql --no-spark", "in a second, without the part about state"),
    ("penstock pipeline explain revenue.sql --plan", "with the plans that Spark makes of the queries"),
)
WIDTH_MAX = 120


def explain(
    file: File,
    plan: Annotated[bool, typer.Option("--plan", help="Show Spark's plan of each query, too.")] = False,
    settings: Settings = None,
    bootstrap_server: OptionalBootstrap = None,
    master: Master = None,
    cluster: Annotated[bool, typer.Option("--cluster/--no-cluster", help="Ask the cluster for the topics.")] = True,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Have Spark say what state is kept.")] = True,
    json: Json = False,
) -> None:
    """Say what a pipeline will do: sources, offsets, triggers, state, sinks, guarantees. Runs and writes nothing."""
    from penstock.client import ClientError

    if spark or plan:
        require_spark()
    with told(json=json):
        from penstock.pipeline import explaining
        from penstock.pipeline.checking import check_declarations, check_plan
        from penstock.pipeline.planning import own_session
        from penstock.pipeline.planning import plan as plan_pipeline

        pipeline = load(file, settings, bootstrap_server)
        raise_for(check_declarations(pipeline), pipeline)
        try:
            positions = explaining.look_up(pipeline, cluster=cluster)
        except ClientError as error:
            note(explaining.unreachable(error, pipeline))
            positions = explaining.look_up(pipeline, cluster=False)

        def ask_spark() -> tuple[dict[str, list[str]], dict[str, str]]:
            session = start_session(pipeline, master)
            try:
                planned = plan_pipeline(pipeline, own_session(session, pipeline))
                raise_for(check_plan(pipeline, planned), pipeline)
                state = {name: explaining.state_of(rows) for name, rows in planned.sinks.items()}
                return state, {name: explaining.spark_plan(rows) for name, rows in planned.sinks.items() if plan}
            finally:
                session.stop()

        state, plans = with_spark(ask_spark) if spark or plan else (None, {})
        sections = explaining.explain(pipeline, positions, state)
    if json:
        print_json({"pipeline": pipeline.name, "sections": [asdict(one) for one in sections], "plans": plans})
        return
    for line in section_lines(sections):
        print_line(line)
    for name, text in plans.items():
        print_line(f"\nSpark's plan of {name}")
        print_line(textwrap.indent(text.rstrip(), "  "))


def section_lines(sections: tuple[Section, ...]) -> Iterator[str]:
    """The sections as indented text, as wide as the terminal."""
    width = min(WIDTH_MAX, shutil.get_terminal_size().columns)
    for number, section in enumerate(sections):
        if number:
            yield ""
        yield section.title
        for item in section.items:
            yield f"  {item.name}"
            for sentence in item.sentences:
                yield from textwrap.wrap(sentence, width, initial_indent="    ", subsequent_indent="      ")
