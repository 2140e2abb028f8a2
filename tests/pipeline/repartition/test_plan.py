"""The plan of a repartitioning, and positions in the new topic: pure."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.builtin.replay_plan import header_of
from penstock.pipeline.builtin.replaying import HEADER
from penstock.pipeline.repartition.plan import (
    WAYPOINT_NUMBERS_MAX,
    Phase,
    RepartitionError,
    RepartitionOrder,
    RepartitionPlan,
    Waypoint,
    decode,
    encode,
    thinned,
)
from penstock.pipeline.repartition.translation import SearchTask


def planned(old: int = 2, new: int = 3) -> RepartitionPlan:
    plan = RepartitionPlan.new(RepartitionOrder("orders", new), "me", 0)
    zeros = (0,) * old
    return plan.changed(phase=Phase.COPYING, starts=zeros, positions=zeros, waypoints=(Waypoint(zeros, (0,) * new),))


def test_a_chunk_gives_each_partition_its_share_and_none_is_left_behind() -> None:
    plan = planned().next_chunk((0, 0), (900, 1), (0, 0, 0), 100)
    assert plan.chunk is not None
    assert plan.chunk.ends == (99, 1)
    done = plan.chunk_done(100)
    assert (done.positions, done.written, done.backlog((900, 1))) == ((99, 1), 100, 801)


def test_records_that_retention_removed_before_they_were_copied_are_counted() -> None:
    plan = planned().next_chunk((40, 0), (50, 5), (0, 0, 0), 100)
    assert (plan.positions, plan.expired) == ((40, 0), 40)


def test_a_plan_survives_the_ledger_and_one_of_a_newer_version_is_refused() -> None:
    plan = planned().next_chunk((0, 0), (9, 9), (0, 0, 0), 5).leased(77)
    assert decode(encode(plan)) == plan
    with pytest.raises(RepartitionError, match="newer version"):
        decode(encode(plan.changed(format=99)))
    with pytest.raises(RepartitionError, match="not a plan"):
        decode(b"{")


def test_waypoints_stay_few_and_the_newest_stays() -> None:
    waypoints: tuple[Waypoint, ...] = ()
    for number in range(3_000):
        waypoints = thinned((*waypoints, Waypoint((number,) * 10, (number,) * 20)))
        assert waypoints[-1].source[0] == number
        assert len(waypoints) * 30 <= WAYPOINT_NUMBERS_MAX
    assert len(waypoints) > 100


def arrow(partition: int, records: list[tuple[int, bytes | None]]) -> pa.RecordBatch:
    headers = [[] if header is None else [{"key": HEADER, "value": header}] for _, header in records]
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    return pa.RecordBatch.from_arrays(
        [
            pa.array([partition] * len(records), pa.int32()),
            pa.array([offset for offset, _ in records], pa.int64()),
            pa.array(headers, kind),
        ],
        names=["partition", "offset", "headers"],
    )


@given(seed=st.integers(0, 2**32), new=st.integers(1, 4), chunk=st.integers(1, 40))
def test_a_group_skips_nothing_and_what_it_reads_again_is_counted(seed: int, new: int, chunk: int) -> None:
    """Against a model: a copy in chunks, in which tasks of the old partitions interleave at random."""
    rng = random.Random(seed)
    old = 2
    ends = (rng.randrange(60), rng.randrange(60))
    plan = planned(old, new)
    target: list[list[tuple[int, int]]] = [[] for _ in range(new)]
    while plan.backlog(ends):
        plan = plan.next_chunk((0,) * old, ends, [len(one) for one in target], chunk)
        assert plan.chunk is not None
        todo = [list(range(plan.positions[p], plan.chunk.ends[p])) for p in range(old)]
        while any(todo):
            partition = rng.choice([p for p in range(old) if todo[p]])
            offset = todo[partition].pop(0)
            target[(partition * 7 + offset) % new].append((partition, offset))
        plan = plan.chunk_done(0)
    plan = plan.changed(phase=Phase.SWITCHED, switch_ends=tuple(len(one) for one in target))
    committed = {partition: rng.randint(0, ends[partition]) for partition in range(old) if rng.random() < 0.9}

    starts = plan.search_from(committed)
    task = SearchTask(plan.id, (committed,), (starts,))
    positions, again = list(plan.switch_ends), 0
    for number, records in enumerate(target):
        rows = [(offset, header_of(plan.id, *place)) for offset, place in enumerate(records)][starts[number] :]
        other = (len(records), header_of("another", 0, 99))
        (found,) = task.run(iter([arrow(number, [*rows, other, (len(records) + 1, None)])]))
        for row in found.to_pylist():
            positions[number], again = row["first"], again + row["read_again"]

    unread = {(p, offset) for p in range(old) for offset in range(committed.get(p, 0), ends[p])}
    will_read = [place for number, records in enumerate(target) for place in records[positions[number] :]]
    assert unread <= set(will_read)
    assert len(will_read) - len(unread) == again
    # It begins at a record that it needs: no position could be later.
    for number, records in enumerate(target):
        assert positions[number] == len(records) or records[positions[number]] in unread
