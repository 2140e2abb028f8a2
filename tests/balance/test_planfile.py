"""Plans as files: round trips, files of Kafka's tool, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance.clusters import clusters, even
from penstock.balance import ClusterModel, PlanFile, PlanRefused, add_brokers, planfile

MODEL = even(8, 2, 3, empty=1)
GOOD = {"topic": "topic-00000", "partition": 0, "replicas": [4, 2]}


@settings(max_examples=40)
@given(clusters(), st.one_of(st.none(), st.integers(1, 2**62)), st.floats(0.001, 1.0))
def test_what_is_written_is_read(model: ClusterModel, throttle: int | None, step: float) -> None:
    moves = add_brokers(model, [max(model.brokers)]).moves
    plan = PlanFile(
        moves,
        cluster="a-cluster",
        made_by="a test",
        throttle=throttle,
        step=step,
        leaving=(2,),
        rates_before={1: (None, 5), 3: (7, None)},
    )
    assert planfile.read(planfile.write(plan), model) == plan


def test_a_file_of_kafkas_tool_is_read_with_what_the_cluster_says() -> None:
    text = json.dumps({"version": 1, "partitions": [{**GOOD, "log_dirs": ["any", "any"]}]})
    (move,) = planfile.read(text, MODEL).moves
    assert (move.before, move.after, move.size_bytes) == ((1, 2), (4, 2), 1000)


def test_a_plan_of_another_cluster_is_refused() -> None:
    text = planfile.write(PlanFile(add_brokers(MODEL, [4]).moves, cluster="another"))
    with pytest.raises(PlanRefused, match="made for the cluster another"):
        planfile.read(text, MODEL)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "its version is None"),
        ('{"version": 2, "partitions": []}', "its version is 2"),
        ('{"version": true, "partitions": []}', "its version is True"),
        ('{"version": 1}', 'no list "partitions"'),
        ('{"version": 1, "partitions": [3]}', r"partitions\[0\] is not an object"),
        ('{"version": 1, "partitions": [], "penstock": 3}', '"penstock" is not an object'),
        ('{"version": 1, "partitions": [], "penstock": {"format": 9}}', "its format is 9"),
        ('{"version": 1, "partitions": [], "penstock": {"format": 1, "throttle": 0}}', '"throttle" is 0'),
        ('{"version": 1, "partitions": [], "penstock": {"format": 1, "throttle": "fast"}}', '"throttle"'),
        ('{"version": 1, "partitions": [], "penstock": {"format": 1, "step": 2}}', '"step" is 2'),
        ('{"version": 1, "partitions": [], "penstock": {"format": 1, "rates_before": {"x": 1}}}', "rates_before"),
        ('{"version": 1, "partitions": [], "penstock": {"format": 1, "cluster": 5}}', '"cluster" is not a string'),
    ],
)
def test_malformed_files_are_refused(text: str, reason: str) -> None:
    with pytest.raises(PlanRefused, match=reason):
        planfile.read(text, MODEL)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": 5}, "topic"),
        ({"partition": -1}, "partition"),
        ({"partition": "0"}, "partition"),
        ({"replicas": []}, "not a list of brokers"),
        ({"replicas": "1,2"}, "not a list of brokers"),
        ({"replicas": [1, "2"]}, "'2' is not a broker id"),
        ({"replicas": [1, -2]}, "-2 is not a broker id"),
        ({"replicas": [1, 1]}, "listed twice"),
        ({"replicas": [1, True]}, "True is not a broker id"),
        ({"was": 3}, "was"),
        ({"bytes": -5}, "bytes"),
        ({"log_dirs": ["/data/2"]}, "log directory"),
    ],
)
def test_malformed_partitions_are_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(PlanRefused, match=reason):
        planfile.read(json.dumps({"version": 1, "partitions": [{**GOOD, **change}]}), MODEL)


def test_a_partition_twice_is_refused() -> None:
    with pytest.raises(PlanRefused, match="topic-00000-0 is listed twice"):
        planfile.read(json.dumps({"version": 1, "partitions": [GOOD, GOOD]}), MODEL)


@given(st.text(max_size=50))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with pytest.raises(PlanRefused):
        planfile.read(text, MODEL)


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


@given(_JSON, _JSON, _JSON)
def test_no_json_does_more_than_be_refused_or_read(partitions: object, ours: object, one: object) -> None:
    for value in (partitions, [{**GOOD, "was": one}], [{**GOOD, "replicas": one, "bytes": ours}]):
        try:
            planfile.read(json.dumps({"version": 1, "partitions": value, "penstock": ours}), MODEL)
        except PlanRefused:
            continue
