"""What is read next and by which tasks: pure decisions."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from hypothesis import given
from hypothesis import strategies as st

from penstock.client import TopicPartition
from penstock.spark.offsets import Cut, Positions, SourceOffset
from penstock.spark.planning import (
    GONE_MAX,
    Range,
    Snapshot,
    change_between,
    cut_ranges,
    losses,
    next_end,
    prorated,
    ranges_between,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": "id-a", "b": "id-b"}


def planned(
    start: SourceOffset, ends: Positions, *, earliest: Positions | None = None, limit: int | None = None, **ids: str
) -> SourceOffset | None:
    now = Snapshot(ends, ids or {key.topic: IDS[key.topic] for key in ends})
    change = change_between(start, now)
    return next_end(start, now, change, earliest or dict.fromkeys(change.added, 0), offsets_max=limit, cut=Cut())


def test_the_first_end_says_where_it_begins() -> None:
    initial = SourceOffset.initial({A0: 100, A1: 7}, {"a": "id-a"})

    end = planned(initial, {A0: 110, A1: 7})

    assert end == SourceOffset({A0: 110, A1: 7}, {A0: 100, A1: 7}, {"a": "id-a"})


def test_later_ends_say_nothing_that_the_start_says() -> None:
    start = SourceOffset({A0: 110}, {A0: 100}, {"a": "id-a"})

    assert planned(start, {A0: 120}) == SourceOffset({A0: 120}, {}, {"a": "id-a"})


def test_a_start_that_was_asked_for_again_does_not_lose_records() -> None:
    # Killed before the first commit: "latest" is 115 by now, but 110 was planned from 100 on.
    end = SourceOffset({A0: 110}, {A0: 100}, {"a": "id-a"})
    asked_again = SourceOffset.initial({A0: 115}, {"a": "id-a"})

    assert ranges_between(asked_again, end) == ([Range("a", 0, 100, 110)], [])


def test_an_empty_first_batch_does_not_begin_twice() -> None:
    initial = SourceOffset.initial({A0: 100}, {"a": "id-a"})
    asked_again = SourceOffset.initial({A0: 115}, {"a": "id-a"})

    assert planned(initial, {A0: 100}) is None
    assert ranges_between(asked_again, initial) == ([], [])
    end = planned(initial, {A0: 130})
    assert end is not None
    assert ranges_between(initial, end) == ([Range("a", 0, 100, 130)], [])


def test_added_partitions_are_read_from_the_earliest_and_the_end_says_so() -> None:
    start = SourceOffset({A0: 10}, {}, {"a": "id-a"})

    end = planned(start, {A0: 10, A1: 5, B0: 3}, earliest={A1: 0, B0: 2})

    assert end is not None
    assert end.begins == {A1: 0, B0: 2}
    assert ranges_between(start, end) == ([Range("a", 1, 0, 5), Range("b", 0, 2, 3)], [])


def test_a_topic_created_again_is_read_from_its_beginning() -> None:
    start = SourceOffset({A0: 10}, {}, {"a": "id-a"})

    end = planned(start, {A0: 30}, a="another")

    assert end is not None
    assert ranges_between(start, end) == ([Range("a", 0, 0, 30)], [])
    assert end.topic_ids == {"a": "another"}
    assert planned(start, {A0: 10}, a="another") is not None, "even where its log is as long as the old one's was"


def test_deleted_partitions_are_left_out_and_remembered() -> None:
    without = planned(SourceOffset({A0: 10, B0: 5}, {}, IDS), {A0: 10})

    assert without == SourceOffset({A0: 10}, {}, IDS, gone={B0: 5})
    assert planned(without, {A0: 10, B0: 8}) == SourceOffset({A0: 10, B0: 8}, {B0: 5}, IDS)


def test_only_so_many_deleted_partitions_are_remembered() -> None:
    many = {TopicPartition(f"t{number}", 0): number for number in range(GONE_MAX)}
    start = SourceOffset({A0: 10, B0: 5}, {}, IDS | {key.topic: "id" for key in many}, gone=many)

    without = planned(start, {A0: 10})

    assert without is not None
    assert without.gone == {B0: 5}, "the last ones"
    assert without.topic_ids == IDS


def test_a_deleted_partition_of_a_topic_that_is_there_is_forgotten() -> None:
    fewer = planned(SourceOffset({A0: 10, A1: 5}, {}, IDS), {A0: 3}, a="another")

    assert fewer == SourceOffset({A0: 3}, {A0: 0}, {"a": "another"}), "a later a-1 is not the one that was read"


def test_a_partition_that_got_shorter_goes_on_from_its_new_end() -> None:
    start = SourceOffset({A0: 10}, {}, {"a": "id-a"})

    end = planned(start, {A0: 4})

    assert end is not None
    assert ranges_between(start, end) == ([], [])
    after = planned(end, {A0: 6})
    assert after is not None
    assert ranges_between(end, after) == ([Range("a", 0, 4, 6)], [])


def test_losses_are_reported_as_spark_reports_them() -> None:
    start = SourceOffset({A0: 10, A1: 10, B0: 5}, {}, IDS)
    now = Snapshot({A0: 4, TopicPartition("c", 0): 9}, {"a": "id-a", "c": "id-c"})
    change = change_between(start, now)

    assert losses(change, start, now, {TopicPartition("c", 0): 3}) == [
        "a-1, b-0 are gone. Some data may have been missed",
        "Partition a-0's offset was changed from 10 to 4, some data may have been missed",
        "Added partition c-0 starts from 3 instead of 0. Some data may have been missed",
    ]


def test_a_new_topic_of_the_same_name_is_a_loss_even_if_its_log_is_longer() -> None:
    start = SourceOffset({A0: 10}, {}, {"a": "id-a"})
    now = Snapshot({A0: 99}, {"a": "another"})

    assert losses(change_between(start, now), start, now, {A0: 0}) == [
        "Topic a was deleted and created again: what the old one held behind a-0 cannot be read any more"
    ]


def test_a_cluster_without_topic_ids_has_no_topics_created_again() -> None:
    assert not change_between(SourceOffset({A0: 10}), Snapshot({A0: 10}, {"a": "id-a"})).is_loss
    assert not change_between(SourceOffset({A0: 10}, {}, {"a": "id-a"}), Snapshot({A0: 10}, {})).is_loss


def test_a_cap_is_shared_by_size() -> None:
    assert prorated(100, {A0: 0, A1: 0, B0: 7}, {A0: 900, A1: 100, B0: 7}) == {A0: 90, A1: 10, B0: 7}
    assert prorated(5, {A0: 0, A1: 0}, {A0: 1_000_000, A1: 1}) == {A0: 4, A1: 1}, "small ones are not starved"
    assert prorated(10**18, {A0: 0}, {A0: 3}) == {A0: 3}


positions = st.dictionaries(
    st.sampled_from([TopicPartition(topic, number) for topic in "ab" for number in range(4)]),
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    min_size=1,
)


@given(positions, st.integers(1, 10**6))
def test_a_cap_always_makes_progress_and_never_passes_the_end(
    spans: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    begins = {key: begin for key, (begin, _) in spans.items()}
    ends = {key: begin + size for key, (begin, size) in spans.items()}

    capped = prorated(limit, begins, ends)

    assert all(begins[key] <= capped[key] <= ends[key] for key in ends)
    assert any(capped[key] > begins[key] for key in ends) or begins == ends
    assert sum(capped[key] - begins[key] for key in ends) <= limit + len(ends)


def test_one_task_for_each_partition_that_has_something() -> None:
    ranges = [Range("a", 0, 0, 10), Range("a", 1, 5, 5), Range("b", 0, 1, 2)]

    assert cut_ranges(ranges, Cut()) == [ranges[0], ranges[2]]
    assert cut_ranges(ranges, Cut(partitions_min=2)) == [ranges[0], ranges[2]]


def test_large_ranges_are_cut_into_more_tasks_than_partitions() -> None:
    ranges = [Range("a", 0, 0, 100), Range("b", 0, 0, 1)]

    assert cut_ranges(ranges, Cut(partitions_min=4)) == [
        Range("a", 0, 0, 33),
        Range("a", 0, 33, 66),
        Range("a", 0, 66, 100),
        Range("b", 0, 0, 1),
    ]


def test_no_task_has_more_offsets_than_wanted() -> None:
    assert cut_ranges([Range("a", 0, 0, 10)], Cut(records_max=4)) == [
        Range("a", 0, 0, 3),
        Range("a", 0, 3, 6),
        Range("a", 0, 6, 10),
    ]


@given(positions, st.integers(1, 50), st.integers(1, 1000))
def test_tasks_cover_every_offset_once(
    spans: dict[TopicPartition, tuple[int, int]], partitions_min: int, records_max: int
) -> None:
    ranges = [Range(*key, begin, begin + size % 500) for key, (begin, size) in sorted(spans.items())]

    tasks = cut_ranges(ranges, Cut(partitions_min, records_max))

    assert all(0 < task.size <= records_max for task in tasks)
    for one in ranges:
        position = one.start
        for task in tasks:
            if task[:2] == one[:2]:
                assert task.start == position
                position = task.end
        assert position == one.end
    assert tasks == cut_ranges(ranges, Cut(partitions_min, records_max))
