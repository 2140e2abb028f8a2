"""What the commands of `penstock pipeline` share: options, loading the file, a Spark session, and error messages."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock import install_command
from penstock.cli import exit_codes
from penstock.cli.connection import parse_settings
from penstock.cli.errors import CliError
from penstock.cli.output import print_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.model import Pipeline, PipelineError, Problem

File = Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="The pipeline's file: .sql or .py.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the file made otherwise (trigger, checkpoint, kafka.…, spark.…), or a variable ${NAME}. "
        "Repeatable.",
    ),
]
OptionalBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="PENSTOCK_BOOTSTRAP_SERVER",
        help="The cluster, instead of the one that the file names.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where Spark runs: local[*] if not given, spark://…, yarn, k8s://…, or sc://… for Spark Connect.",
    ),
]


@contextmanager
def told(*, json: bool = False) -> Iterator[None]:
    """Problems of a pipeline, in the words of the command line."""
    from penstock.pipeline.model import PipelineError

    try:
        yield
    except PipelineError as error:
        if json:
            print_json({"problems": [_problem_json(one, error.path) for one in error.problems]})
            raise typer.Exit(exit_codes.FAILED) from None
        raise CliError(_described(error), exit_codes.FAILED) from None
    except Exception as error:
        # What Spark's side raises about Java and the like names the fix itself.
        if type(error).__module__.startswith("penstock.") and not isinstance(error, CliError):
            raise CliError(str(error)) from None
        raise


def load(file: Path, settings: list[str] | None, bootstrap_server: str | None) -> Pipeline:
    from penstock.pipeline.loading import load_pipeline

    overrides = parse_settings(settings or [], "--set")
    if bootstrap_server is not None:
        overrides.setdefault("bootstrap.servers", bootstrap_server)
    return load_pipeline(file, overrides=overrides)


def raise_for(problems: list[Problem], pipeline: Pipeline) -> None:
    from penstock.pipeline.model import PipelineError

    if problems:
        raise PipelineError(problems, path=pipeline.path)


def _described(error: PipelineError) -> str:
    from penstock.pipeline.reporting import describe

    text = ""
    if error.path is not None and error.path.is_file():
        text = error.path.read_text(encoding="utf-8-sig", errors="replace")
    return describe(error.problems, error.path, text)


def _problem_json(problem: Problem, path: Path | None) -> dict[str, object]:
    return {
        "file": str(path or ""),
        "line": problem.line,
        "column": problem.column,
        "message": problem.message,
        "fix": problem.fix,
    }


def require_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise CliError("pipelines run on Spark, which is not installed", hint=install_command("spark"))


def start_session(pipeline: Pipeline, master: str | None) -> SparkSession:
    from penstock.spark import build_session

    return build_session(f"penstock: {pipeline.name}", master=master, config=pipeline.spark)


def write_new(path: Path, text: str, *, force: bool) -> None:
    """Writes a file that must not exist yet, unless `force` is set."""
    if path.exists() and not force:
        hint = "name another file, or overwrite it with --force"
        raise CliError(f"{path} exists already", exit_codes.ALREADY_EXISTS, hint)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from None
