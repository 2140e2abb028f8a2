"""The pure cores of consumers and processors: what is handed out, what is in work, what may be committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.commit_tracker import CommitTracker, PartitionTracker
from penstock.client.failures import Backoff
from penstock.client.handed_out import HandedOut
from penstock.client.lanes import KeyLanes, QueueGate
from penstock.client.workload import Order, Workload


@dataclass(frozen=True)
class Record:
    of_partition: int
    at: int
    of_key: bytes | None = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.of_partition

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.of_key


@given(st.sets(st.integers(0, 200), min_size=1), st.data())
def test_a_commit_never_passes_a_record_that_is_not_finished(numbers: set[int], data: st.DataObject) -> None:
    offsets = sorted(numbers)
    tracker = PartitionTracker()
    for offset in offsets:
        tracker.start(offset)
    left = list(offsets)
    while left:
        offset = left.pop(data.draw(st.integers(0, len(left) - 1)))
        tracker.finish(offset)
        finished = [one for one in offsets if one not in left]
        contiguous = next((one for one in offsets if one in left), None)
        if contiguous is None:
            assert tracker.position == offsets[-1] + 1
        else:
            before = [one for one in finished if one < contiguous]
            assert tracker.position == (before[-1] + 1 if before else None)
        assert tracker.unfinished == len(left)


def test_only_positions_that_moved_are_committed_again() -> None:
    commits = CommitTracker()
    tracker = commits.start("t", 0, 5)
    assert commits.to_commit() == {}
    tracker.finish(5)
    assert commits.to_commit() == {("t", 0): 6}
    commits.committed({("t", 0): 6})
    assert commits.to_commit() == {}


def test_a_record_of_before_a_partition_went_and_came_back_does_not_count() -> None:
    commits = CommitTracker()
    old = commits.start("t", 0, 5)
    commits.forget("t", 0)
    commits.start("t", 0, 5)
    old.finish(5)
    assert commits.to_commit() == {}
    assert commits.unfinished("t", 0) == 1


def test_records_of_a_partition_start_in_order() -> None:
    tracker = PartitionTracker()
    tracker.start(7)
    with pytest.raises(AssertionError):
        tracker.start(7)


@given(st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=60), st.integers(1, 6), st.data())
def test_records_of_a_key_are_worked_on_one_after_another_and_all_are(
    keys: list[int | None], workers: int, data: st.DataObject
) -> None:
    lanes: KeyLanes[tuple[int | None, int]] = KeyLanes()
    coming = deque((key, number) for number, key in enumerate(keys))
    in_work: list[tuple[int | None, tuple[int | None, int]]] = []
    done: list[tuple[int | None, int]] = []
    while coming or lanes.queued or in_work:
        moves = []
        if coming:
            moves.append("add")
        if len(in_work) < workers and lanes.queued:
            moves.append("take")
        if in_work:
            moves.append("finish")
        move = data.draw(st.sampled_from(moves))
        if move == "add":
            key, number = coming.popleft()
            lanes.add(key, (key, number))
        elif move == "take":
            taken = lanes.take()
            if taken is None:
                # All that waits is behind something in work.
                assert in_work
                continue
            its_key, record = taken
            assert its_key is None or its_key not in [other for other, _ in in_work], "two records of a key at once"
            in_work.append((record[0], record))
        else:
            key, record = in_work.pop(data.draw(st.integers(0, len(in_work) - 1)))
            lanes.finish(key)
            done.append(record)
        assert lanes.taken == len(in_work)
    assert sorted(done, key=lambda one: one[1]) == list(zip(keys, range(len(keys)), strict=True))
    for key in range(5):
        mine = [number for of, number in done if of == key]
        assert mine == sorted(mine)


def test_dropping_takes_what_waits_and_leaves_what_is_in_work() -> None:
    lanes: KeyLanes[str] = KeyLanes()
    for key, record in [("a", "a1"), ("a", "x1"), ("a", "a2"), ("b", "x2"), ("b", "b1"), (None, "x3"), (None, "n1")]:
        lanes.add(key, record)
    assert lanes.take() == ("a", "a1")
    assert sorted(lanes.drop(lambda record: record.startswith("x"))) == ["x1", "x2", "x3"]
    assert lanes.queued == 3
    assert {lanes.take(), lanes.take()} == {("b", "b1"), (None, "n1")}
    assert lanes.take() is None
    lanes.finish("a")
    assert lanes.take() == ("a", "a2")


def test_a_gate_closes_at_its_limit_and_opens_at_half_of_it() -> None:
    gate = QueueGate(10)
    assert [gate.look(queued) for queued in (0, 9, 10, 9, 6, 5, 9)] == [True, True, False, False, False, True, True]


def handed_out(records: list[Record], *, whole: bool = False) -> HandedOut[Record]:
    handed: HandedOut[Record] = HandedOut()
    handed.start(records, whole=whole)
    return handed


def test_the_record_that_the_user_has_is_not_done_unless_it_says_so() -> None:
    handed = handed_out([Record(0, 10), Record(0, 11), Record(1, 5)])
    handed.current = 1
    assert handed.unfinished(given_too=True) == {("t", 0): 11, ("t", 1): 5}
    assert handed.unfinished(given_too=False) == {("t", 1): 5}
    handed.finish_batch()
    assert handed.unfinished(given_too=True) == {}


def test_a_batch_that_is_given_whole_is_done_whole() -> None:
    handed = handed_out([Record(0, 10), Record(0, 11)], whole=True)
    assert handed.unfinished(given_too=True) == {("t", 0): 10}
    assert handed.unfinished(given_too=False) == {}
    assert handed.take_rest() == []


@given(
    st.lists(st.sampled_from(["next", "hold", "release", "batch"]), max_size=60),
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
)
def test_pausing_and_resuming_neither_loses_nor_repeats_nor_reorders(moves: list[str], partitions: list[int]) -> None:
    """As a consumer does it: a partition that is paused is not fetched, and what was fetched waits."""
    counts = {0: 0, 1: 0, 2: 0}
    records = []
    for partition in partitions:
        records.append(Record(partition, counts[partition]))
        counts[partition] += 1
    fetched = deque(records)
    handed: HandedOut[Record] = HandedOut()
    seen: list[Record] = []
    paused = False

    def next_batch() -> None:
        batch = handed.take_rest()
        while not batch and fetched and not (paused and all(one.of_partition == 1 for one in fetched)):
            ready = [one for one in fetched if not (paused and one.of_partition == 1)][:5]
            for one in ready:
                fetched.remove(one)
            batch = ready
        handed.start(batch, whole=False)
        if batch:
            seen.append(batch[0])

    def step() -> None:
        if handed.given < len(handed.batch):
            handed.current += 1
            seen.append(handed.batch[handed.current])
        else:
            next_batch()

    for move in moves:
        if move in ("next", "batch"):
            (step if move == "next" else next_batch)()
        elif move == "hold":
            handed.hold([("t", 1)])
            paused = True
        else:
            handed.release([("t", 1)])
            paused = False
        not_given = {one.of_partition: one.at for one in reversed(records) if one not in seen}
        for where, offset in handed.unfinished(given_too=False).items():
            assert offset == not_given[where[1]]
    handed.release([("t", 1)])
    paused = False
    while len(seen) < len(records):
        before = len(seen)
        step()
        assert len(seen) > before
    for partition in (0, 1, 2):
        assert [one for one in seen if one.of_partition == partition] == [
            one for one in records if one.of_partition == partition
        ]


def test_what_is_dropped_is_not_handed_out() -> None:
    handed = handed_out([Record(0, 1), Record(1, 1), Record(0, 2), Record(1, 2)])
    handed.hold([("t", 1)])
    handed.drop([("t", 1)])
    handed.release([("t", 1)])
    assert handed.take_rest() == [Record(0, 2)]


@pytest.mark.parametrize(
    ("order", "ready"),
    [(Order.KEY, [0, 2, 3, 4]), (Order.PARTITION, [0, 4]), (Order.NONE, [0, 1, 2, 3, 4])],
)
def test_an_order_says_which_records_wait_for_which(order: Order, ready: list[int]) -> None:
    work: Workload[Record] = Workload(100, order)
    work.accept([Record(0, 0, b"a"), Record(0, 1, b"a"), Record(0, 2, b"b"), Record(0, 3), Record(1, 4, b"a")])
    taken = []
    while (item := work.take()) is not None:
        taken.append(item.offset)
    assert taken == ready


def test_records_of_a_partition_that_is_taken_away_are_dropped_unless_they_are_in_work() -> None:
    work: Workload[Record] = Workload(100, Order.KEY)
    work.accept([Record(0, 0, b"a"), Record(0, 1, b"a"), Record(1, 0, b"a")])
    first = work.take()
    assert first is not None
    assert work.drop([("t", 0)]) == 1
    assert work.busy([("t", 0)]) == 1
    work.finish(first)
    assert work.to_commit() == {("t", 0): 1}
    work.forget([("t", 0)])
    assert work.to_commit() == {}
    assert work.queued == 1


def test_a_record_that_was_given_up_holds_back_the_commit() -> None:
    work: Workload[Record] = Workload(100, Order.KEY)
    work.accept([Record(0, 0, b"a"), Record(0, 1, b"b")])
    first, second = work.take(), work.take()
    assert first is not None
    assert second is not None
    work.give_up(first)
    work.finish(second)
    assert work.to_commit() == {}


def test_room_is_what_the_queue_may_still_take() -> None:
    work: Workload[Record] = Workload(4, Order.NONE)
    assert work.room() == 4
    work.accept([Record(0, offset) for offset in range(4)])
    assert work.room() == 0
    assert work.take() is not None
    assert work.room() == 0
    assert work.take() is not None
    assert work.room() == 2


@pytest.mark.parametrize(("attempt", "wait_ms"), [(1, 0), (2, 100), (3, 200), (5, 800), (2000, 10_000)])
def test_a_backoff_doubles_up_to_its_limit(attempt: int, wait_ms: float) -> None:
    wait: Callable[[int], float] = Backoff().before
    assert wait(attempt) == wait_ms
