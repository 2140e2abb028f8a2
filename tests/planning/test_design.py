"""A whole design: what is refused and on which line, what decides, and what a change costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.planning.brokers import BrokerSpec
from penstock.planning.catalogue import Catalogue, PlanError
from penstock.planning.design import Variant, plan_cluster
from penstock.planning.spec import ClusterSpec, TopicSpec, read_spec
from penstock.planning.storage import GB, TB

CATALOGUE = Catalogue()
EXAMPLE = (Path(__file__).resolve().parents[2] / "examples" / "cluster.toml").read_text(encoding="utf-8")

SMALL = """[cluster]
per_partition_mb_s = 10
[broker]
network_mb_s = 1250
disk_write_mb_s = 500
disk_gb = 4000

[[topics]]
name = "orders"
average_messages_per_s = 1000
peak_messages_per_s = 5000
message_bytes = 1000
retention_days = 7
"""


def read(text: str) -> ClusterSpec:
    return read_spec(text, CATALOGUE, "spec.toml")[0]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("retention_days = 7", "retention_dyas = 7"), r"line 13: topics has no entry retention_dyas; did you mean"),
        (("[broker]", "[brokers]"), r"line 3: there is no table brokers; did you mean broker\?"),
        (("disk_gb = 4000\n", ""), r"line 3: broker needs disk_gb \(GB\)"),
        (("disk_gb = 4000", "disk_gb = -1"), r"line 6: disk_gb is -1: a number above 0 is needed \(GB\)"),
        (("disk_gb = 4000", "disk_gb = '4 TB'"), r"line 6: disk_gb is '4 TB': a number is needed"),
        (("disk_gb = 4000", "disk_gb = nan"), r"line 6: disk_gb is nan"),
        (("= 5000", "= 500"), r"line 11: the peak of orders \(500 messages/s\) is below its average \(1000\)"),
        (("days = 7", "days = 7\ncompression = 'zip'"), r"line 14: there is no codec zip; did you mean gzip\?"),
        (("days = 7", "days = 7\ncompression = 'lz4'\ncompression_ratio = 2"), r"line 15: give either"),
        (("days = 7", "days = 7\nconsumers = 1.5"), r"line 14: consumers is 1\.5: a whole number is needed"),
        (("[[topics]]", "[topics]"), r"line 8: topics are tables of their own"),
        (("disk_gb = 4000", "disk_gb = 4000\ncount = 2"), r"line 7: 2 brokers cannot hold 3 copies of orders"),
        (
            ("[cluster]", "[values.price]\nbrokr = 3\n[cluster]"),
            r"line 2: price\.brokr is not a value .* price\.broker",
        ),
        (("[cluster]", "[cost]\nreserved = 1\n[cluster]"), r"line 2: reserved is 1: true or false is needed"),
        (("[cluster]", "[cluster"), r"not valid TOML"),
    ],
)
def test_what_a_spec_gets_wrong_is_refused_with_its_line(change: tuple[str, str], complaint: str) -> None:
    assert change[0] in SMALL
    with pytest.raises(PlanError, match=complaint):
        read(SMALL.replace(*change))


def test_a_topic_that_is_there_twice_is_refused_with_both_lines() -> None:
    second = SMALL[SMALL.index("[[topics]]") :]
    with pytest.raises(PlanError, match=r"line 15: orders is there already \(spec.toml, line 9\)"):
        read(SMALL + second)
    with pytest.raises(PlanError, match="no topics"):
        read(SMALL[: SMALL.index("[[topics]]")])


def test_a_spec_brings_its_own_prices() -> None:
    own = "[values.price]\nbroker = 320\n" + SMALL
    spec, catalogue = read_spec(own, CATALOGUE, "spec.toml")
    plan = plan_cluster(catalogue, spec)
    assert plan.cost.compute == 320 * plan.brokers
    assert not any("All prices are the documents'" in note for note in plan.notes)


def test_the_example_names_what_decides_and_what_would_change_it() -> None:
    spec, catalogue = read_spec(EXAMPLE, CATALOGUE)
    plan = plan_cluster(catalogue, spec)
    assert plan.binding == "disk space"
    assert plan.brokers % 3 == 0
    assert dict(plan.constraints)["disk space"] <= plan.brokers
    assert plan.disk_bytes_per_broker <= spec.broker.disk_bytes
    assert plan.cost.per_million_messages == pytest.approx(
        plan.cost.total / (plan.average_messages_per_s * 86_400 * 30 / 1e6)
    )
    sentences = [variant.sentence for variant in plan.sensitivity]
    assert any(sentence.startswith("twice the retention adds 51 brokers and $") for sentence in sentences)
    costs = [variant.cost for variant in plan.alternatives]
    assert costs == sorted(costs)
    assert plan.alternatives[0].brokers_more < 0


def test_a_variant_is_told_in_one_sentence() -> None:
    def sentence(brokers: int, cost: float) -> str:
        return Variant(
            name="twice the retention", brokers=9, brokers_more=brokers, cost=1, cost_more=cost, binding=""
        ).sentence

    assert sentence(3, 1500) == "twice the retention adds 3 brokers and $1,500 a month"
    assert sentence(-1, -500) == "twice the retention saves 1 broker and $500 a month"
    assert sentence(1, -20) == "twice the retention adds 1 broker and saves $20 a month"
    assert sentence(0, 0.2) == "twice the retention changes nothing"


def test_a_cluster_that_exists_is_told_how_many_brokers_it_lacks() -> None:
    few = plan_cluster(CATALOGUE, replace(read(EXAMPLE), brokers_now=50))
    assert any("4 more are needed" in note for note in few.notes)
    many = plan_cluster(CATALOGUE, replace(read(EXAMPLE), brokers_now=60))
    assert any("6 could go" in note for note in many.notes)


def test_a_topic_with_too_few_partitions_is_named() -> None:
    spec = read(SMALL.replace("peak_messages_per_s = 5000", "peak_messages_per_s = 500000\npartitions = 6"))
    plan = plan_cluster(CATALOGUE, spec)
    assert (plan.topics[0].partitions, plan.topics[0].needed) == (6, 50)
    assert any("orders has 6 partitions, and 50 are needed" in note for note in plan.notes)


BROKER = BrokerSpec(
    network_mb_s=1250, disk_write_mb_s=500, disk_read_mb_s=1000, disk_bytes=16 * TB, page_cache_bytes=64 * GB
)


def largest() -> ClusterSpec:
    """001's case: 100,000 topics, 1 M partitions, 10 M messages/s."""
    topic = TopicSpec(
        name="all", count=100_000, average_messages_per_s=30, peak_messages_per_s=100, message_bytes=1000,
        retention_days=7, replication_factor=3, compression_ratio=1, groups=2, reader_lag_s=0, replaying_groups=0,
        consumers=0, per_partition_mb_s=10, partitions=10,
    )  # fmt: skip
    return ClusterSpec(name="largest", zones=1, broker=BROKER, topics=(topic,), people=True)


def test_the_documents_largest_case_needs_more_brokers_than_they_say() -> None:
    plan = plan_cluster(CATALOGUE, largest())
    assert (plan.partitions, plan.replicas) == (1_000_000, 3_000_000)
    assert plan.brokers >= 1500, "001's hundred to thousand brokers contradict 002's 2,000 replicas per broker"
    assert dict(plan.constraints)["partitions per broker"] == 1500


def test_ten_thousand_different_topics_are_planned_one_by_one() -> None:
    one = largest().topics[0]
    spec = replace(largest(), topics=tuple(replace(one, name=f"t{number}", count=1) for number in range(10_000)))
    plan = plan_cluster(CATALOGUE, spec)
    assert (len(plan.topics), plan.partitions) == (10_000, 100_000)


@pytest.mark.long
@pytest.mark.timeout(60)
def test_a_million_partitions_of_different_topics_are_planned_within_a_minute() -> None:
    one = largest().topics[0]
    spec = replace(largest(), topics=tuple(replace(one, name=f"t{number}", count=1) for number in range(100_000)))
    assert plan_cluster(CATALOGUE, spec).partitions == 1_000_000


@settings(max_examples=60)
@given(
    st.floats(1, 1e5), st.floats(1, 20), st.floats(1, 10), st.floats(1, 5), st.integers(1, 4), st.floats(0, 3),
    st.floats(1, 60),
)  # fmt: skip
def test_more_load_or_retention_never_needs_less_or_costs_less(
    average: float, peak: float, more: float, longer: float, zones: int, replaying: float, days: float
) -> None:
    topic = replace(
        largest().topics[0],
        count=3,
        partitions=None,
        average_messages_per_s=average,
        peak_messages_per_s=average * peak,
        replaying_groups=replaying,
        retention_days=days,
    )
    base = replace(largest(), zones=zones, topics=(topic,))
    loaded = replace(topic, average_messages_per_s=average * more, peak_messages_per_s=average * peak * more)
    kept = replace(topic, retention_days=days * longer)
    plan = plan_cluster(CATALOGUE, base)
    for changed in (loaded, kept):
        other = plan_cluster(CATALOGUE, replace(base, topics=(changed,)))
        assert other.brokers >= plan.brokers
        assert other.cost.total >= plan.cost.total - 1e-6
        assert other.stored_bytes >= plan.stored_bytes - 1e-6
    assert plan.brokers % zones == 0
    assert plan.disk_bytes_per_broker <= BROKER.disk_bytes * (1 + 1e-9)
