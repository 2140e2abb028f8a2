"""The questions that Spark asks a streaming source, in Spark's order, over a cluster in memory."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from penstock.spark.backend import SourcePartition
from penstock.spark.errors import DataLossError, SourceError
from penstock.spark.offsets import Json
from penstock.spark.options import stream_options
from penstock.spark.stream_reader import StreamReader
from spark.fake_cluster import FakeCluster, lookup_of

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"}
ALL = ReadAllAvailable()

Task = tuple[str, int, int, int]


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def reader_of(cluster: FakeCluster, clock: Clock | None = None, **options: str) -> StreamReader:
    read = stream_options(BASE | options)
    return StreamReader(read, lookup=lookup_of(read, cluster), wall_ms=clock or Clock())


def tasks(reader: StreamReader, start: Json, end: Json) -> list[Task]:
    found = reader.partitions(start, end)
    assert all(isinstance(one, SourcePartition) for one in found)
    return [one.range_key for one in found if isinstance(one, SourcePartition)]


def stored(offset: Json) -> Json:
    """Through the checkpoint and back."""
    read: Json = json.loads(json.dumps(offset))
    return read


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.create("a", 100, 50)
    return cluster


def test_a_run_from_the_latest_on(cluster: FakeCluster) -> None:
    reader = reader_of(cluster)

    start = reader.initialOffset()
    cluster.append("a", 0, 10)
    end = reader.latestOffset(start, ALL)
    assert tasks(reader, reader.initialOffset(), end) == [("a", 0, 100, 110)]
    assert reader.latestOffset(stored(end), ALL) == end, "nothing is new"
    cluster.append("a", 1, 5)
    after = reader.latestOffset(stored(end), ALL)
    assert tasks(reader, stored(end), after) == [("a", 1, 50, 55)]
    assert reader.reportLatestOffset() == {"a": {"0": 110, "1": 55}}


def test_a_stream_stops_at_the_offsets_that_it_is_given(cluster: FakeCluster) -> None:
    cluster.create("b", 7)
    bounds: dict[str, Any] = {
        "startingOffsets": '{"a": {"0": 10, "1": 20}}',
        "penstock.stopAtOffsets": '{"a": {"0": 30, "1": 20}}',
    }
    reader = reader_of(cluster, **bounds)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert tasks(reader, start, end) == [("a", 0, 10, 30)]
    cluster.append("a", 0, 5)
    again = reader_of(cluster, **bounds)
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(stored(end), ALL) == end, "it is done, in this run and in the next"


def test_killed_before_the_first_commit_nothing_is_lost(cluster: FakeCluster) -> None:
    first_run = reader_of(cluster)
    start = first_run.initialOffset()
    cluster.append("a", 0, 10)
    end = stored(first_run.latestOffset(start, ALL))

    cluster.append("a", 0, 1000)
    second_run = reader_of(cluster)

    assert tasks(second_run, second_run.initialOffset(), end) == [("a", 0, 100, 110)]
    after = second_run.latestOffset(end, ALL)
    assert tasks(second_run, end, after) == [("a", 0, 110, 1110)]


def test_a_first_batch_of_nothing_keeps_the_place(cluster: FakeCluster) -> None:
    first_run = reader_of(cluster)
    end = stored(first_run.latestOffset(first_run.initialOffset(), ALL))
    assert tasks(first_run, end, end) == []

    cluster.append("a", 0, 7)
    second_run = reader_of(cluster)
    assert tasks(second_run, second_run.initialOffset(), end) == []
    after = stored(second_run.latestOffset(end, ALL))
    assert tasks(second_run, end, after) == [("a", 0, 100, 107)]


def test_the_initial_offset_is_the_same_all_through_a_run(cluster: FakeCluster) -> None:
    reader = reader_of(cluster)
    first = reader.initialOffset()
    cluster.append("a", 0, 10)

    assert reader.initialOffset() == first


def test_what_is_unchanged_is_the_same_text(cluster: FakeCluster) -> None:
    reader = reader_of(cluster, startingOffsets="earliest", minPartitions="4")
    end = reader.latestOffset(reader.initialOffset(), ALL)

    assert json.dumps(reader.latestOffset(stored(end), ALL)) == json.dumps(end)


def test_a_batch_is_cut_as_it_was_planned_whatever_the_options_say_now(cluster: FakeCluster) -> None:
    reader = reader_of(cluster, startingOffsets="earliest", minPartitions="4")
    start = reader.initialOffset()
    end = stored(reader.latestOffset(start, ALL))
    cut = tasks(reader, start, end)

    assert len(cut) == 4
    assert tasks(reader_of(cluster), start, end) == cut
    assert tasks(reader_of(cluster, maxRecordsPerPartition="1"), start, end) == cut


def test_a_cap_is_kept_and_spark_may_lift_it(cluster: FakeCluster) -> None:
    reader = reader_of(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()

    assert limit == ReadMaxRows(30)
    assert tasks(reader, start, reader.latestOffset(start, limit)) == [("a", 0, 0, 20), ("a", 1, 0, 10)]
    assert tasks(reader, start, reader.latestOffset(start, ALL)) == [("a", 0, 0, 100), ("a", 1, 0, 50)]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"minOffsetsPerTrigger": "20", "maxTriggerDelay": "10s"}, ReadMinRows(20)),
        ({"minOffsetsPerTrigger": "20", "maxTriggerDelay": "10s", "maxOffsetsPerTrigger": "1000"}, ReadMaxRows(1000)),
    ],
)
def test_a_minimum_is_waited_for_but_not_for_ever(
    cluster: FakeCluster, options: dict[str, str], limit: ReadLimit
) -> None:
    clock = Clock()
    reader = reader_of(cluster, clock, startingOffsets="earliest", **options)
    assert reader.getDefaultReadLimit() == limit
    end = stored(reader.latestOffset(reader.initialOffset(), limit))
    assert tasks(reader, reader.initialOffset(), end), "the first batch does not wait"

    cluster.append("a", 0, 19)
    clock.now_ms += 9_999
    assert reader.latestOffset(end, limit) == end
    assert reader.latestOffset(end, ALL) != end, "a trigger that wants all gets all"
    cluster.append("a", 0, 1)
    enough = stored(reader.latestOffset(end, limit))
    assert tasks(reader, end, enough) == [("a", 0, 100, 120)]

    cluster.append("a", 0, 1)
    assert reader.latestOffset(enough, limit) == enough
    clock.now_ms += 10_000
    assert reader.latestOffset(enough, limit) != enough, "waited long enough"


def test_partitions_that_are_added_are_read_from_the_earliest(cluster: FakeCluster) -> None:
    reader = reader_of(cluster)
    start = reader.initialOffset()
    cluster.create("a", 100, 50, 8)

    end = stored(reader.latestOffset(start, ALL))

    assert tasks(reader, start, end) == [("a", 2, 0, 8)]
    cluster.logs["a"][2].start, cluster.logs["a"][2].timestamps = 5, [0] * 3
    assert tasks(reader, start, end) == [("a", 2, 0, 8)], "the same after retention: tasks find out"


def test_topics_that_come_to_match_a_pattern_are_read_from_the_earliest(cluster: FakeCluster) -> None:
    read = stream_options({"kafka.bootstrap.servers": "localhost:9092", "subscribePattern": "^a"})
    reader = StreamReader(read, lookup=lookup_of(read, cluster), wall_ms=Clock())
    start = reader.initialOffset()
    begun = stored(reader.latestOffset(start, ALL))
    cluster.create("b", 5)
    assert reader.latestOffset(begun, ALL) == begun

    cluster.create("another", 8)
    end = stored(reader.latestOffset(begun, ALL))

    assert tasks(reader, begun, end) == [("another", 0, 0, 8)]
    cluster.append("another", 0, 1)
    assert tasks(reader, end, reader.latestOffset(end, ALL)) == [("another", 0, 8, 9)]


def test_available_now_reads_what_was_there_and_ends(cluster: FakeCluster) -> None:
    reader = reader_of(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="60", minOffsetsPerTrigger="50")
    reader.prepareForTriggerAvailableNow()
    cluster.append("a", 0, 1000)
    cluster.create("b", 5)
    cluster.logs["a"].append(cluster.logs["b"][0])

    offset, read = reader.initialOffset(), 0
    for _ in range(10):
        following = stored(reader.latestOffset(offset, ReadMaxRows(60)))
        read += sum(end - start for _, _, start, end in tasks(reader, offset, following))
        if following == offset:
            break
        offset = following
    else:
        pytest.fail("it goes on and on")
    assert read == 150, "and no minimum keeps the rest back"


def test_available_now_from_the_latest_on_is_no_loss(cluster: FakeCluster) -> None:
    reader = reader_of(cluster)
    reader.prepareForTriggerAvailableNow()
    cluster.append("a", 0, 10)

    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start


def test_available_now_after_a_topic_was_deleted(cluster: FakeCluster) -> None:
    cluster.create("b", 9)
    earlier = reader_of(cluster, subscribe="a,b", startingOffsets="earliest")
    end = stored(earlier.latestOffset(earlier.initialOffset(), ALL))
    del cluster.logs["b"]
    cluster.append("a", 0, 1)

    strict = reader_of(cluster, subscribe="a,b")
    strict.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="b-0 are gone"):
        strict.latestOffset(end, ALL)

    lenient = reader_of(cluster, subscribe="a,b", failOnDataLoss="false")
    lenient.prepareForTriggerAvailableNow()
    following = stored(lenient.latestOffset(end, ALL))
    assert tasks(lenient, end, following) == [("a", 0, 100, 101)]
    assert lenient.latestOffset(following, ALL) == following


def test_a_topic_that_was_created_again_is_noticed_even_if_it_is_longer(cluster: FakeCluster) -> None:
    earlier = reader_of(cluster, startingOffsets="earliest")
    end = stored(earlier.latestOffset(earlier.initialOffset(), ALL))
    cluster.create("a", 300, topic_id="another")

    with pytest.raises(DataLossError, match="Topic a was deleted and created again"):
        reader_of(cluster).latestOffset(end, ALL)
    lenient = reader_of(cluster, failOnDataLoss="false")
    following = lenient.latestOffset(end, ALL)
    assert tasks(lenient, end, following) == [("a", 0, 0, 300)]


def test_a_topic_that_was_away_goes_on_where_it_was(cluster: FakeCluster) -> None:
    cluster.create("b", 9)
    reader = reader_of(cluster, subscribe="a,b", startingOffsets="earliest", failOnDataLoss="false")
    end = stored(reader.latestOffset(reader.initialOffset(), ALL))

    away = cluster.logs.pop("b")
    without = stored(reader.latestOffset(end, ALL))
    assert tasks(reader, end, without) == []
    cluster.append("a", 0, 1)
    later = stored(reader.latestOffset(without, ALL))
    assert tasks(reader, without, later) == [("a", 0, 100, 101)]

    cluster.logs["b"] = away
    cluster.append("b", 0, 2)
    again = stored(reader.latestOffset(later, ALL))
    assert tasks(reader, later, again) == [("b", 0, 9, 11)]
    assert "gone" not in again["$penstock"]
    assert tasks(reader, again, reader.latestOffset(again, ALL)) == []


def test_another_topic_of_a_name_that_was_away_is_read_from_its_beginning(cluster: FakeCluster) -> None:
    cluster.create("b", 9, 9)
    reader = reader_of(cluster, subscribe="a,b", startingOffsets="earliest", failOnDataLoss="false")
    end = stored(reader.latestOffset(reader.initialOffset(), ALL))
    del cluster.logs["b"]
    without = stored(reader.latestOffset(end, ALL))

    cluster.create("b", 4, topic_id="another")
    again = stored(reader_of(cluster, subscribe="a,b").latestOffset(without, ALL))

    assert tasks(reader, without, again) == [("b", 0, 0, 4)], "the loss was told when it went"
    cluster.create("b", 4, 20, topic_id="another")
    assert tasks(reader, again, stored(reader.latestOffset(again, ALL))) == [("b", 1, 0, 20)]


def test_a_topic_that_came_back_shorter_is_a_loss(cluster: FakeCluster) -> None:
    cluster.create("b", 9)
    options: dict[str, Any] = {"subscribe": "a,b", "startingOffsets": "earliest"}
    lenient = reader_of(cluster, failOnDataLoss="false", **options)
    end = stored(lenient.latestOffset(lenient.initialOffset(), ALL))
    del cluster.logs["b"]
    without = stored(lenient.latestOffset(end, ALL))

    cluster.create("b", 4)
    with pytest.raises(DataLossError, match="b-0's offset was changed from 9 to 4"):
        reader_of(cluster, **options).latestOffset(without, ALL)


def test_data_loss_is_told_before_anything_is_written_down(cluster: FakeCluster) -> None:
    once: dict[str, Any] = {"fetchOffset.numRetries": "1"}
    reader = reader_of(cluster, startingOffsets="earliest", **once)
    end = stored(reader.latestOffset(reader.initialOffset(), ALL))
    whole = cluster.logs["a"][0].timestamps
    cluster.logs["a"][0].timestamps = whole[:40]

    with pytest.raises(DataLossError, match=r"a-0's offset was changed from 100 to 40.*failOnDataLoss"):
        reader.latestOffset(end, ALL)
    cluster.logs["a"][0].timestamps = [*whole, 0]
    assert tasks(reader, end, reader.latestOffset(end, ALL)) == [("a", 0, 100, 101)]


def test_a_checkpoint_of_another_source_is_refused(cluster: FakeCluster) -> None:
    with pytest.raises(SourceError, match="checkpointLocation of its own"):
        reader_of(cluster).latestOffset({"rate": {"x": 3}}, ALL)


def test_a_checkpoint_of_sparks_own_source_is_continued(cluster: FakeCluster) -> None:
    reader = reader_of(cluster)

    assert tasks(reader, {"a": {"0": 10}}, {"a": {"0": 20, "1": 5}}) == [("a", 0, 10, 20), ("a", 1, 0, 5)]
    end = reader.latestOffset({"a": {"0": 20, "1": 5}}, ALL)
    assert tasks(reader, {"a": {"0": 20, "1": 5}}, end) == [("a", 0, 20, 100), ("a", 1, 5, 50)]


def test_readers_travel_without_their_connections(cluster: FakeCluster) -> None:
    reader = reader_of(cluster)
    reader.initialOffset()

    assert isinstance(pickle.loads(pickle.dumps(reader)), StreamReader)
