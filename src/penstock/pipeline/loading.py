"""Pipeline files: which language they are in, and what is said of one that is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.pipeline.model import NOTHING, Pipeline, PipelineError, Problem
from penstock.pipeline.options import PREFIXES, SETTINGS
from penstock.pipeline.python_file import parse_python
from penstock.pipeline.sql_file import parse_sql
from penstock.pipeline.sql_statements import variables_of

SUFFIXES = (".sql", ".py")
FILE_BYTES_MAX = 1_000_000


def load_pipeline(path: str | Path, *, overrides: Mapping[str, str] = NOTHING) -> Pipeline:
    """The pipeline of a file; PipelineError with everything wrong that can be seen without Spark or a broker.

    `overrides` are settings (`trigger`, `checkpoint`, `bootstrap.servers`, `kafka.…`, `spark.…`) and variables.
    """
    path = Path(path)
    text = _read(path)
    if path.suffix == ".py":
        return parse_python(text, path=path, overrides=overrides)
    _check_overrides(overrides, text, path)
    return parse_sql(text, name=path.stem, path=path, overrides=overrides)


def _read(path: Path) -> str:
    if path.suffix not in SUFFIXES:
        raise PipelineError(
            Problem(
                f"{path} is not a pipeline file: its name ends neither in .sql nor in .py",
                "`penstock pipeline init` writes a pipeline file to start from",
            ),
            path=path,
        )
    try:
        data = path.read_bytes() if path.stat().st_size <= FILE_BYTES_MAX else None
    except OSError as error:
        fix = "`penstock pipeline init` writes a pipeline file to start from" if not path.exists() else ""
        raise PipelineError(Problem(f"cannot read {path}: {error.strerror}", fix), path=path) from None
    if data is None:
        raise PipelineError(
            Problem(f"{path} is larger than {FILE_BYTES_MAX:,} bytes: it is not a pipeline file", "name another file"),
            path=path,
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PipelineError(
            Problem(f"{path} is not a text file: line {line} is not UTF-8", "name a file of SQL or Python"), path=path
        ) from None


def _check_overrides(overrides: Mapping[str, str], text: str, path: Path) -> None:
    variables = variables_of(text)
    for name in overrides:
        if name not in SETTINGS and not name.startswith(tuple(PREFIXES)) and name not in variables:
            known = ", ".join([*SETTINGS, *variables])
            raise PipelineError(
                Problem(
                    f"--set {name}: the file has no variable ${{{name}}}, and there is no setting of that name",
                    f"it may be {known}, or begin with {' or '.join(PREFIXES)}",
                ),
                path=path,
            )
