"""The writer in a process of its own, with real transactions and without Spark: cheap enough to be killed very often.

    python -m support.topic_process '{"bootstrap": …, "topic": …, "checkpoint": …, "batches": 5, "die_at": "MARKED"}'

What Spark does around the writer is done by hand: batches one after another, and a file that says which are done,
written after the writer has returned. The plan is that of `support.topic_driver`, and so are the rows.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from penstock.pipeline.topic_errors import TopicSinkError
from penstock.spark.producing import RecordColumns
from support.topic_driver import RETURNED, Plan, Reaper, refuse_a_commit, writer_of

QUERY_ID = "by-hand"


class HandMadeBatch:
    """The rows of one batch; random, as those of a query with `rand()` are."""

    def __init__(self, batch_id: int, rows_per_batch: int, topic: str) -> None:
        self._batch_id = batch_id
        self._rows_per_batch = rows_per_batch
        self._topic = topic

    def evaluate(self) -> tuple[RecordColumns, Iterable[pa.RecordBatch]]:
        evaluation = uuid.uuid4().hex
        numbers = range(self._batch_id * self._rows_per_batch, (self._batch_id + 1) * self._rows_per_batch)
        values = [f"{self._batch_id}:{number}:{evaluation}:{random.random()}" for number in numbers]
        keys = [str(number % 17) for number in numbers]
        rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], ["key", "value"])
        return RecordColumns(value=1, key=0, fixed_topic=self._topic), [rows]

    def pass_over(self) -> None:
        """Nothing is kept between batches here, so there is nothing to bring up to date."""


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    reaper = Reaper(plan)
    if plan.fail_commit_in is not None:
        refuse_a_commit(plan.fail_commit_in)
    transactions = writer_of(plan, reaper)._transactions(f"{QUERY_ID}-{plan.topic}")
    commits = Path(plan.checkpoint)
    commits.mkdir(parents=True, exist_ok=True)
    first = next(number for number in itertools.count() if not (commits / str(number)).exists())
    for batch_id in range(first, plan.batches):
        try:
            transactions.write(batch_id, HandMadeBatch(batch_id, plan.rows_per_batch, plan.topic))
        except TopicSinkError as error:
            print(f"FAILED {error}", flush=True)
            os._exit(3)
        reaper.reached(RETURNED, batch_id)
        (commits / str(batch_id)).touch()
    print("DONE", flush=True)
    transactions.close()


if __name__ == "__main__":
    main()
