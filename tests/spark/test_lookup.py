"""The driver's questions, asked of a cluster in memory."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from penstock.client import ConnectionFailed, TopicPartition
from penstock.spark.errors import DataLossError, OptionError, SourceError
from penstock.spark.options import batch_options, stream_options
from spark.fake_cluster import FakeCluster, Log, lookup_of

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(internal=frozenset({"__offsets_a"}))
    cluster.create("a", 10, 20)
    cluster.create("b", 5)
    cluster.create("__offsets_a", 1)
    return cluster


def test_topics_are_selected_by_name_by_pattern_and_by_partition(cluster: FakeCluster) -> None:
    for given, expected in (
        ({"subscribe": "b,a"}, [A0, A1, B0]),
        ({"subscribePattern": "^[ab]$"}, [A0, A1, B0]),
        ({"subscribePattern": "a"}, [A0, A1]),  # anywhere in the name, but no internal topic
        ({"assign": '{"a":[1],"b":[0]}'}, [A1, B0]),
    ):
        found = lookup_of(stream_options(SERVERS | given), cluster).selected()
        assert sorted(found) == expected, given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "a,zebra"}, "there is no topic zebra (subscribe 'a,zebra') on localhost:9092: create it"),
        ({"assign": '{"a":[0,7]}'}, "there is no partition a-7 (assign a-0, a-7): topic a has 2 partitions"),
    ],
)
def test_what_is_named_has_to_be_there(cluster: FakeCluster, given: dict[str, str], message: str) -> None:
    with pytest.raises(SourceError) as missing:
        lookup_of(stream_options(SERVERS | given), cluster).starts()
    assert message in str(missing.value)


def test_starts_by_offset(cluster: FakeCluster) -> None:
    cluster.logs["a"][0].start = 3

    def starts(text: str) -> dict[TopicPartition, int]:
        given = SERVERS | {"subscribe": "a", "startingOffsets": text}
        return dict(lookup_of(stream_options(given), cluster).starts().ends)

    assert starts("earliest") == {A0: 3, A1: 0}
    assert starts("latest") == {A0: 13, A1: 20}
    assert starts('{"a":{"0":-2,"1":17}}') == {A0: 3, A1: 17}
    assert starts('{"a":{"0":-1,"1":20}}') == {A0: 13, A1: 20}
    with pytest.raises(OptionError, match=r"don't match what are assigned.*Specified: a-0 Assigned: a-0, a-1"):
        starts('{"a":{"0":3}}')
    with pytest.raises(DataLossError, match=r"startingOffsets has offset 2 for a-0, but the log holds 3 to 13"):
        starts('{"a":{"0":2,"1":0}}')


def test_an_offset_outside_the_log_is_moved_into_it_where_loss_is_accepted(cluster: FakeCluster) -> None:
    cluster.logs["a"][0].start = 3
    given = {"subscribe": "a", "startingOffsets": '{"a":{"0":2,"1":99}}', "failOnDataLoss": "false"}

    assert lookup_of(stream_options(SERVERS | given), cluster).starts().ends == {A0: 3, A1: 20}


def test_starts_and_stops_by_time(cluster: FakeCluster) -> None:
    cluster.logs["a"] = [Log([10, 20, 30], start=5), Log([10])]
    given = SERVERS | {"subscribe": "a", "startingTimestamp": "20", "endingTimestamp": "30"}

    with pytest.raises(SourceError, match="No offset matched from request of topic-partition a-1 and timestamp 20"):
        lookup_of(batch_options(given), cluster).starts()
    lenient = lookup_of(batch_options(given | {"startingOffsetsByTimestampStrategy": "latest"}), cluster)
    starts, stops = lenient.ranges()
    assert starts.ends == {A0: 6, A1: 1}
    assert stops.ends == {A0: 7, A1: 1}, "no match for an end is the log's end"

    each = batch_options(SERVERS | {"subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":11,"1":5}}'})
    assert lookup_of(each, cluster).starts().ends == {A0: 6, A1: 0}
    some = batch_options(SERVERS | {"subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":11}}'})
    with pytest.raises(OptionError, match="don't match what are assigned"):
        lookup_of(some, cluster).starts()


def test_an_end_before_what_is_known_is_asked_for_again(cluster: FakeCluster) -> None:
    slept: list[float] = []
    cluster.behind = {A0: 2}
    lookup = lookup_of(stream_options(SERVERS | {"subscribe": "a"}), cluster, slept)

    assert lookup.latest({A0: 10, A1: 20}).ends == {A0: 10, A1: 20}
    assert slept == [1.0, 1.0]


def test_a_topic_that_one_answer_lacks_is_asked_for_again(cluster: FakeCluster) -> None:
    slept: list[float] = []
    options = stream_options(SERVERS | {"subscribe": "a,b"})
    known = {A0: 10, A1: 20, B0: 5}

    cluster.hidden = {"b": 2}
    assert lookup_of(options, cluster, slept).latest(known).ends == known
    assert slept == [1.0, 1.0]
    cluster.hidden = {"b": 3}
    assert lookup_of(options, cluster, slept).latest(known).ends == {A0: 10, A1: 20}, "asked as often as we may"


@pytest.mark.parametrize("lenient", ["true", "false"])
@pytest.mark.parametrize(
    ("given", "start", "end"),
    [
        ({"startingOffsets": '{"a":{"0":15}}'}, 15, 13),
        ({"startingOffsets": '{"a":{"0":12}}', "endingTimestamp": "20"}, 12, 11),
        ({"startingTimestamp": "30", "endingOffsets": '{"a":{"0":11}}'}, 12, 11),
        ({"endingOffsets": '{"a":{"0":5}}'}, 10, 5),
    ],
)
def test_a_batch_that_would_go_backwards_is_a_mistake_whatever_is_said_of_loss(
    cluster: FakeCluster, given: dict[str, str], start: int, end: int, lenient: str
) -> None:
    cluster.logs["a"] = [Log([10, 20, 30], start=10)]
    options = batch_options(SERVERS | {"subscribe": "a", "failOnDataLoss": lenient} | given)
    message = f"The resolved start offset {start} is greater than the resolved end offset {end} for topic a partition 0"

    with pytest.raises(OptionError, match=message) as refused:
        lookup_of(options, cluster).ranges()
    assert "failOnDataLoss" not in str(refused.value)


def test_what_is_asked_of_a_batch_and_is_gone_is_a_loss(cluster: FakeCluster) -> None:
    cluster.logs["a"] = [Log([10, 20, 30], start=10)]
    given = SERVERS | {"subscribe": "a", "startingOffsets": '{"a":{"0":3}}', "endingOffsets": '{"a":{"0":99}}'}

    with pytest.raises(DataLossError, match="startingOffsets has offset 3 for a-0, but the log holds 10 to 13"):
        lookup_of(batch_options(given), cluster).ranges()
    starts, stops = lookup_of(batch_options(given | {"failOnDataLoss": "false"}), cluster).ranges()
    assert (starts.ends, stops.ends) == ({A0: 10}, {A0: 13})


def test_a_broken_connection_is_opened_again_as_often_as_the_option_says(cluster: FakeCluster) -> None:
    options = stream_options(SERVERS | {"subscribe": "a", "fetchOffset.numRetries": "2"})
    lookup = lookup_of(options, cluster)
    lookup.latest()

    cluster.failures = 1
    assert lookup.latest().ends == {A0: 10, A1: 20}
    assert cluster.closed == 1
    cluster.failures = 2
    with pytest.raises(ConnectionFailed):
        lookup.latest()


def test_a_cluster_that_never_answered_is_given_up_on_at_once(cluster: FakeCluster) -> None:
    cluster.failures = 1

    with pytest.raises(ConnectionFailed):
        lookup_of(stream_options(SERVERS | {"subscribe": "a"}), cluster).latest()
    assert cluster.asked == 1
