"""`penstock pipeline test`: rows of a fixture file through the queries of a pipeline, on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.errors import CliError
from penstock.cli.options import Json, examples
from penstock.cli.output import plural, print_json, print_line
from penstock.cli.pipeline_files import File, Settings, load, raise_for, require_spark, told
from penstock.cli.pipeline_work import with_spark

if TYPE_CHECKING:
    from penstock.pipeline.testing import Comparison, Outcome

EXAMPLES = examples(
    ("penstock pipeline test revenue.sql", "the tests in revenue.test and revenue.*.test"),
    ("penstock pipeline test revenue.sql --fixture late.test", "the tests of one file"),
    ("penstock pipeline test revenue.sql --only late", "tests whose name contains a word"),
)
MASTER = "local[2]"
SESSION = {
    "spark.ui.enabled": "false",
    # A test has a handful of rows: compiling its queries takes longer than running them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def run_tests(
    file: File,
    fixtures: Annotated[
        list[Path] | None,
        typer.Option("--fixture", metavar="FILE", help="Run this file instead of those beside FILE. Repeatable."),
    ] = None,
    only: Annotated[str | None, typer.Option(metavar="WORD", help="Run only tests whose name contains WORD.")] = None,
    settings: Settings = None,
    json: Json = False,
) -> None:
    """Send rows of fixture files through a pipeline, and compare the rows that its queries write.

    Needs Spark, but no broker: nothing is read from topics, and nothing is written. Exit code 0 means that all tests
    passed, 10 that some failed, and 1 that the pipeline or a fixture file is wrong.
    """
    require_spark()
    with told(json=json):
        from penstock.pipeline.checking import check_declarations
        from penstock.pipeline.fixtures import Case, fixture_paths, read_cases
        from penstock.pipeline.testing import run_case
        from penstock.spark import build_session

        pipeline = load(file, settings, None)
        raise_for(check_declarations(pipeline), pipeline)
        paths = fixtures or fixture_paths(file)
        if not paths:
            raise CliError(
                f"there is no fixture file for {file}",
                exit_codes.NOT_FOUND,
                f"write {file.with_suffix('.test')}; docs/reference/pipelines.md shows one",
            )
        cases: list[tuple[Path, Case]] = [(path, case) for path in paths for case in read_cases(path)]
        chosen = [(path, case) for path, case in cases if only is None or only.lower() in case.name.lower()]
        if not chosen:
            raise CliError(f"no test has {only!r} in its name", exit_codes.NOT_FOUND)

        def run_chosen() -> list[tuple[Path, Outcome]]:
            config = {**SESSION, **pipeline.spark}
            spark = build_session(f"penstock test: {pipeline.name}", master=MASTER, config=config)
            outcomes = []
            try:
                for path, case in chosen:
                    outcome = run_case(pipeline, case, spark, path)
                    outcomes.append((path, outcome))
                    if not json:
                        for line in outcome_lines(path, outcome):
                            print_line(line)
            finally:
                spark.stop()
            return outcomes

        outcomes = with_spark(run_chosen)
    failed = sum(not outcome.passed for _, outcome in outcomes)
    if json:
        print_json({"pipeline": pipeline.name, "failed": failed, "tests": [_as_json(*one) for one in outcomes]})
    else:
        passed = len(outcomes) - failed
        told_failed = f"{plural(failed, 'test')} failed, " if failed else ""
        print_line(f"{told_failed}{passed} passed")
    if failed:
        raise typer.Exit(exit_codes.UNHEALTHY)


def outcome_lines(path: Path, outcome: Outcome) -> Iterator[str]:
    """`ok` or `FAILED` with the name of the test; then how the rows of each query differ."""
    from penstock.pipeline.row_diff import diff_lines

    word = "ok    " if outcome.passed else "FAILED"
    yield f"{word} {path}:{outcome.case.line}  {outcome.case.name} ({outcome.seconds:.1f} s)"
    for one in outcome.comparisons:
        if one.differences:
            yield f"  {one.name}, line {one.line}: {_counts(one)}; - expected, + found"
            for line in diff_lines(one.columns, one.differences):
                yield f"    {line}"


def _counts(one: Comparison) -> str:
    changed = sum(each.expected is not None and each.found is not None for each in one.differences)
    missing = sum(each.found is None for each in one.differences)
    extra = sum(each.expected is None for each in one.differences)
    told = [
        f"{changed} of {plural(one.expected, 'row')} differ{'s' if changed == 1 else ''}" if changed else "",
        f"{missing} missing" if missing else "",
        f"{extra} not expected" if extra else "",
    ]
    return ", ".join(filter(None, told))


def _as_json(path: Path, outcome: Outcome) -> dict[str, object]:
    from penstock.pipeline.row_diff import text_of

    def row(columns: tuple[str, ...], values: tuple[object, ...] | None) -> dict[str, str] | None:
        return None if values is None else dict(zip(columns, map(text_of, values), strict=True))

    return {
        "file": str(path),
        "line": outcome.case.line,
        "name": outcome.case.name,
        "passed": outcome.passed,
        "seconds": round(outcome.seconds, 3),
        "differences": [
            {"query": one.name, "expected": row(one.columns, each.expected), "found": row(one.columns, each.found)}
            for one in outcome.comparisons
            for each in one.differences
        ],
    }
