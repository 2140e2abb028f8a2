"""Pipelines that nearly everyone needs, ready to use.

| function | what it does |
|---|---|
| `archive_topic` | a topic to a Delta table, record for record, partitioned by day |
| `windowed_counts` | counts and sums per window of time and key |
| `top_k` | the k first of each window |
| `deduplicate` | each record once, though it was sent more often |
| `sessions` | events of one key that follow each other closely, as one row |
| `roll_up` | many samples of a measure as a few figures per window of time and series |
| `join_table` | a stream and what a table knows about its keys; `topic_as_table` makes a table of a topic |
| `replay` | a time range of a topic into another one, exactly as it was, going on where it stopped |

Theory of operation
-------------------
Most of them are functions from a DataFrame to a DataFrame, with nothing hidden: they work on streams and on batches
alike, in a notebook, in a job, and in a Python pipeline file (`penstock pipeline init --from NAME` writes one). With a
stream they need to know how late events may be (`watermark`), since state that nobody can drop grows for ever; the
column of time must be a timestamp. Results of windows and sessions come out in append mode, once, when they are final.

`archive_topic` and `replay` are whole jobs, because their guarantees are in how they read and write. The first starts a
streaming query; the second runs until its range is done.

`templates` holds the pipeline files of `penstock pipeline init --from NAME`; each uses these functions, or the SQL that
says the same.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.pipeline.builtin.archiving import archive_topic
    from penstock.pipeline.builtin.deduplicating import deduplicate
    from penstock.pipeline.builtin.joining import join_table, latest_by_key, topic_as_table
    from penstock.pipeline.builtin.replay_plan import ReplayError
    from penstock.pipeline.builtin.replaying import Replayed, replay
    from penstock.pipeline.builtin.sessionizing import sessions
    from penstock.pipeline.builtin.templates import TEMPLATES, template
    from penstock.pipeline.builtin.windows import roll_up, top_k, windowed_counts

_HOMES = {
    "TEMPLATES": "templates",
    "ReplayError": "replay_plan",
    "Replayed": "replaying",
    "archive_topic": "archiving",
    "deduplicate": "deduplicating",
    "join_table": "joining",
    "latest_by_key": "joining",
    "replay": "replaying",
    "roll_up": "windows",
    "sessions": "sessionizing",
    "template": "templates",
    "top_k": "windows",
    "topic_as_table": "joining",
    "windowed_counts": "windows",
}

__all__ = [
    "TEMPLATES",
    "ReplayError",
    "Replayed",
    "archive_topic",
    "deduplicate",
    "join_table",
    "latest_by_key",
    "replay",
    "roll_up",
    "sessions",
    "template",
    "top_k",
    "topic_as_table",
    "windowed_counts",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
