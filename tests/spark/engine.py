"""Spark's engine, as far as a source sees it: the questions that it asks, in its order, and what it writes down.

`Run.to_the_end` is a run with the trigger AvailableNow: prepare, initial offset, and then an end, tasks and rows in
turn until the end does not move. What it keeps from run to run, `Checkpoint`, is what a checkpoint keeps.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spark.offsets import Json
from penstock.spark.options import SourceOptions
from penstock.spark.stream_reader import StreamReader

BATCHES_MAX = 500


class Checkpoint:
    """What Spark writes down: the end of each planned micro-batch, and which of them are done."""

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.committed = 0


class Run:
    def __init__(self, options: SourceOptions, checkpoint: Checkpoint) -> None:
        self._reader = StreamReader(options)
        self._checkpoint = checkpoint
        self.rows: list[dict[str, Any]] = []

    def to_the_end(self, between: Callable[[int], None] | None = None) -> list[dict[str, Any]]:
        """`between` is called with the number of each micro-batch before its tasks run."""
        reader, checkpoint = self._reader, self._checkpoint
        reader.prepareForTriggerAvailableNow()
        try:
            for _ in range(BATCHES_MAX):
                if checkpoint.committed == len(checkpoint.ends):
                    start = self._committed() or reader.initialOffset()
                    end = reader.latestOffset(start, reader.getDefaultReadLimit())
                    if checkpoint.ends and json.dumps(end) == checkpoint.ends[-1]:
                        return self.rows
                    checkpoint.ends.append(json.dumps(end))
                if between is not None:
                    between(checkpoint.committed)
                self._batch(self._committed() or reader.initialOffset(), json.loads(checkpoint.ends[-1]))
                checkpoint.committed += 1
            pytest.fail("it goes on and on")
        finally:
            reader.stop()

    def _committed(self) -> Json | None:
        done = self._checkpoint.committed
        read: Json | None = json.loads(self._checkpoint.ends[done - 1]) if done else None
        return read

    def _batch(self, start: Json, end: Json) -> None:
        for part in self._reader.partitions(start, end):
            for batch in self._reader.read(part):
                self.rows += batch.to_pylist()
