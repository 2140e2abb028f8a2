"""The files that `penstock pipeline init --from NAME` writes: one for each built-in pipeline."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from penstock.pipeline.model import Template

_SUMMARIES: Final = {
    "archive.sql": "a topic into a Delta table, record for record, a directory for each day",
    "windows.sql": "counts and sums per window of time and key",
    "top_k.py": "the best of each window",
    "deduplicate.py": "each record once, though it was sent more often",
    "sessions.py": "events of one key that follow each other closely, as one row",
    "join.sql": "a stream with what a table knows about its keys",
    "roll_up.sql": "metrics by the minute out of metrics by the second",
    "metrics.sql": "what `penstock monitor` measured into a Delta table, for `penstock forecast`",
    "replay.sql": "a time range of a topic into another one",
    "repartition.sql": "a topic into another one with more partitions, keys in order, for as long as it runs",
}


def _read(file: str) -> Template:
    name, dot, suffix = file.partition(".")
    text = files("penstock.pipeline.builtin").joinpath("files", file).read_text(encoding="utf-8")
    return Template(name=name.replace("_", "-"), summary=_SUMMARIES[file], text=text, suffix=dot + suffix)


TEMPLATES: Final[dict[str, Template]] = {one.name: one for one in map(_read, _SUMMARIES)}
"""By name, as `--from` takes it."""


def template(name: str) -> Template:
    """The template of that name; KeyError if there is none."""
    return TEMPLATES[name]
