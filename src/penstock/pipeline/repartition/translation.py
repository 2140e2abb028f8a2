"""Positions in the old topic → positions in the new one.

A group has read each old partition up to an offset. A new partition holds records of all old ones, interleaved. The
group's position there is the first record that it has not read; of the records behind it, some may have been read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.pipeline.builtin.reading import topic_reader
from penstock.pipeline.builtin.replay_plan import place_in
from penstock.pipeline.builtin.replaying import HEADER
from penstock.pipeline.repartition.plan import GroupMoved, Offsets, RepartitionPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_RESULT: Final = "group INT, partition INT, first BIGINT, read_again BIGINT"


@dataclass
class Search:
    """One group in one new partition: fed with its records in order."""

    committed: Mapping[int, int]
    """By old partition; one that is missing was never read."""
    first: int | None = field(default=None, init=False)
    read_again: int = field(default=0, init=False)

    def see(self, offset: int, source: tuple[int, int]) -> None:
        partition, source_offset = source
        if source_offset >= self.committed.get(partition, 0):
            if self.first is None:
                self.first = offset
        elif self.first is not None:
            self.read_again += 1


@dataclass(frozen=True)
class SearchTask:
    """Reads one partition of the new topic for all groups."""

    plan_id: str
    committed: tuple[dict[int, int], ...]
    starts: tuple[Offsets, ...]
    """For each group, where its search begins: others may begin earlier."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        searches = [Search(one) for one in self.committed]
        partition = -1
        for batch in batches:
            for number, offset, headers in zip(*(batch.column(index).to_pylist() for index in range(3)), strict=True):
                partition = number
                place = self._place(headers)
                if place is None:
                    continue
                for search, starts in zip(searches, self.starts, strict=True):
                    if offset >= starts[number]:
                        search.see(offset, place)
        rows = [
            {"group": group, "partition": partition, "first": search.first, "read_again": search.read_again}
            for group, search in enumerate(searches)
            if search.first is not None
        ]
        types = {"group": pa.int32(), "partition": pa.int32(), "first": pa.int64(), "read_again": pa.int64()}
        yield pa.RecordBatch.from_pylist(rows, pa.schema(types))

    def _place(self, headers: list[Mapping[str, object]] | None) -> tuple[int, int] | None:
        for header in reversed(headers or ()):
            if header["key"] == HEADER and isinstance(header["value"], bytes):
                return place_in(header["value"], self.plan_id)
        return None


def translate(
    spark: SparkSession, properties: Mapping[str, str], plan: RepartitionPlan, groups: Mapping[str, Mapping[int, int]]
) -> dict[str, GroupMoved]:
    """Where each group goes on in the new topic; one pass over what the slowest of them has not read."""
    assert plan.phase.has_switched
    names = list(groups)
    committed = tuple(dict(groups[name]) for name in names)
    starts = tuple(plan.search_from(one) for one in committed)
    begins = [min(column) for column in zip(*starts, strict=True)]
    first: list[list[int]] = [list(plan.switch_ends) for _ in names]
    again = [0] * len(names)
    wanted = [number for number, end in enumerate(plan.switch_ends) if end > begins[number]]
    if wanted:
        frame = (
            topic_reader(spark.read, {"isolation.level": "read_uncommitted", **properties})
            .option("assign", json.dumps({plan.target: wanted}))
            .option("startingOffsets", _offsets(plan.target, {one: begins[one] for one in wanted}))
            .option("endingOffsets", _offsets(plan.target, {one: plan.switch_ends[one] for one in wanted}))
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "false")
            .load()
            .select("partition", "offset", "headers")
        )
        task = SearchTask(plan.id, committed, starts)
        for row in frame.mapInArrow(task.run, _RESULT).collect():
            first[row.group][row.partition] = row.first
            again[row.group] += row.read_again
    return {
        name: GroupMoved(dict(groups[name]), tuple(first[number]), again[number]) for number, name in enumerate(names)
    }


def _offsets(topic: str, positions: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in positions.items()}})
