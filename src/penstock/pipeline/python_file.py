"""A Python pipeline file → the model: the file is run, and what it defined is taken."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from penstock.pipeline.builder import OVERRIDES, PipelineBuilder
from penstock.pipeline.model import NOTHING, Pipeline, PipelineError, Place, Problem, Trigger
from penstock.pipeline.options import SETTINGS

_MODULE = "__penstock_pipeline__"
# Not a name in sys.modules: functions of the file then travel to Spark's workers by value, which cannot import it.

_FIX = "a pipeline file says `from penstock.pipeline import define` and `pipeline = define('name', …)`"


def parse_python(text: str, *, path: Path, overrides: Mapping[str, str] = NOTHING) -> Pipeline:
    """The pipeline that a file of Python defines; PipelineError with the line where the file fails."""
    try:
        code = compile(text, str(path), "exec")
    except SyntaxError as error:
        place = Place(error.lineno or 0, error.offset or 1)
        raise PipelineError(Problem(f"this is not Python: {error.msg}", "", place), path=path) from None
    except ValueError as error:
        raise PipelineError(Problem(f"this is not Python: {error}", _FIX), path=path) from None
    namespace: dict[str, object] = {"__name__": _MODULE, "__file__": str(path), "__builtins__": __builtins__}
    token = OVERRIDES.set(overrides)
    try:
        exec(code, namespace)
    except PipelineError as error:
        raise PipelineError(error.problems, path=path) from None
    except Exception as error:
        raise PipelineError(_failure(error, path), path=path) from error
    except SystemExit:
        raise PipelineError(Problem("this file ends the program instead of defining a pipeline", _FIX)) from None
    finally:
        OVERRIDES.reset(token)
    return _apply(_only_pipeline(namespace, path, text), overrides, path)


def _only_pipeline(namespace: Mapping[str, object], path: Path, text: str) -> Pipeline:
    found: dict[int, PipelineBuilder | Pipeline] = {}
    for value in namespace.values():
        if isinstance(value, PipelineBuilder | Pipeline):
            found[id(value)] = value
    if not found:
        raise PipelineError(Problem("this file defines no pipeline", _FIX), path=path)
    if len(found) > 1:
        listed = ", ".join(sorted(one.name for one in found.values()))
        raise PipelineError(
            Problem(f"this file defines {len(found)} pipelines: {listed}", "put each in a file of its own"), path=path
        )
    [one] = found.values()
    pipeline = one.build(path=path, text=text) if isinstance(one, PipelineBuilder) else one
    checkpoint = pipeline.checkpoint or f"checkpoints/{pipeline.name}"
    return replace(pipeline, path=path, text=text, checkpoint=checkpoint)


def _apply(pipeline: Pipeline, overrides: Mapping[str, str], path: Path) -> Pipeline:
    """Settings of the command line over those of the file."""
    trigger = None
    if "trigger" in overrides:
        try:
            trigger = Trigger.parse(overrides["trigger"])
        except ValueError as error:
            raise PipelineError(Problem(f"--set trigger: {error}"), path=path) from None
    for name in overrides:
        if name in SETTINGS and name not in ("pipeline", "trigger", "checkpoint", "bootstrap.servers"):
            raise PipelineError(
                Problem(f"--set {name} works for SQL files only", f"use variable({name!r}) in the file"), path=path
            )
    return pipeline.with_settings(
        name=overrides.get("pipeline"),
        trigger=trigger,
        checkpoint=overrides.get("checkpoint"),
        bootstrap_servers=overrides.get("bootstrap.servers"),
        properties={key.removeprefix("kafka."): text for key, text in overrides.items() if key.startswith("kafka.")},
        spark={key: text for key, text in overrides.items() if key.startswith("spark.")},
    )


def _failure(error: Exception, path: Path) -> Problem:
    """What a file raised while it ran, at the last of its own lines that led there."""
    line = 0
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path):
            line = frame.lineno or 0
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Problem(f"the file fails with {words}", "", Place(line))
