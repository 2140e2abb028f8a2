"""From readings to figures: rates, resets, gaps, lag."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.monitor.derive import PARTITION_SAMPLES_MAX, rate, samples
from penstock.monitor.end_history import EndHistory
from penstock.monitor.observed import (
    BrokerShape,
    Disk,
    GroupView,
    Observed,
    PartitionShape,
    Reading,
    Shape,
    TopicShape,
)
from penstock.monitor.pace import Part
from penstock.monitor.samples import Kind

NOW_MS = 1_700_000_000_000


def observed(partitions: int = 2) -> Observed:
    rows = tuple(PartitionShape(number, 1, (1, 2), (1, 2)) for number in range(partitions))
    return Observed(
        shape=Shape(
            cluster_id="c",
            controller_id=1,
            brokers={node: BrokerShape(node, f"h:{node}", None, True, 1.0) for node in (1, 2)},
            topics={"orders": TopicShape("orders", b"", False, rows)},
            under_min_isr=(),
        )
    )


def values(state: Observed) -> dict[tuple[str, str, str], float]:
    return {(one.kind.value, one.name, one.metric): one.value for one in samples(state, NOW_MS)}


@pytest.mark.parametrize(
    ("now", "before", "seconds", "expected"),
    [
        (30, 10, 10, 2.0), (10, 10, 10, 0.0), (5, 10, 10, None), (30, 10, 0.1, None), (None, 1, 10, None),
        (1, None, 10, None),
    ],
)  # fmt: skip
def test_a_rate_needs_two_values_and_a_counter_that_was_not_reset(
    now: Any, before: Any, seconds: float, expected: float | None
) -> None:
    assert rate(now, before, seconds) == expected


def test_rates_come_from_the_ends_of_logs() -> None:
    state = observed()
    state.ends.take({"orders": [100, 0]}, 50.0)
    assert ("topic", "orders", "messages_in_per_s") not in values(state)
    state.ends.take({"orders": [400, 100]}, 60.0)
    found = values(state)
    assert found["topic", "orders", "messages_in_per_s"] == 40.0
    assert found["partition", "orders-0", "messages_in_per_s"] == 30.0
    assert found["topic", "orders", "skew"] == 1.5
    assert found["broker", "1", "messages_in_per_s"] == 40.0
    assert found["cluster", "", "messages_in_per_s"] == 40.0


def test_a_topic_that_was_created_again_has_a_gap_and_no_negative_rate() -> None:
    state = observed()
    state.ends.take({"orders": [100, 100]}, 50.0)
    state.ends.take({"orders": [5, 100]}, 60.0)
    assert values(state)["topic", "orders", "messages_in_per_s"] == 0.0
    assert ("partition", "orders-0", "messages_in_per_s") not in values(state)


def test_bytes_are_records_times_the_average_size_on_disk() -> None:
    state = observed()
    state.starts = {"orders": [50, 0]}
    state.ends.take({"orders": [100, 50]}, 50.0)
    state.ends.take({"orders": [150, 100]}, 60.0)
    disk = Disk(1_000_000, 250_000, {"orders": {0: 100_000, 1: 100_000}}, {("orders", 1): 7})
    state.disks[1] = Reading(disk, 60.0)
    state.behind_since_s[1, ("orders", 1)] = 45.0
    found = values(state)
    assert found["topic", "orders", "bytes_in_per_s"] == pytest.approx(10 * 1_000)
    assert found["broker", "1", "disk_used_share"] == 0.75
    assert found["broker", "1", "replica_lag_messages"] == 7
    assert found["broker", "1", "replica_lag_ms"] == 15_000


def test_lag_and_consumption_of_a_group() -> None:
    state = observed()
    state.ends.take({"orders": [100, 100]}, 50.0)
    state.ends.take({"orders": [200, 100]}, 60.0)
    for committed, at_s in (
        ({("orders", 0): 10, ("orders", 1): 100}, 50.0),
        ({("orders", 0): 60, ("orders", 1): 100}, 60.0),
    ):
        state.groups.take({"g": GroupView("g", "Stable", "classic", 1, committed, 3)}, at_s)
    state.lag_s = {"g": 42.0}
    found = values(state)
    assert found["group", "g", "lag_records"] == 140
    assert found["group", "g", "lag_records_max"] == 140
    assert found["group", "g", "consume_per_s"] == 5.0
    assert found["group", "g", "produce_per_s"] == 10.0
    assert found["group", "g", "lag_s"] == 42.0
    assert found["group", "g", "members"] == 3


def test_a_reset_of_offsets_is_no_negative_consumption() -> None:
    state = observed()
    state.groups.take({"g": GroupView("g", "Empty", "classic", 1, {("orders", 0): 90})}, 50.0)
    state.groups.take({"g": GroupView("g", "Empty", "classic", 1, {("orders", 0): 0})}, 60.0)
    assert ("group", "g", "consume_per_s") not in values(state)


def test_a_broker_that_holds_replicas_and_is_gone_counts_as_down() -> None:
    state = observed()
    del state.shape.brokers[2]
    found = values(state)
    assert found["cluster", "", "brokers_down"] == 1
    assert found["broker", "2", "up"] == 0


def test_health_counts_come_from_the_metadata() -> None:
    state = observed()
    broken = (PartitionShape(0, -1, (1, 2), ()), PartitionShape(1, 1, (1, 2), (1,)))
    state.shape.topics["orders"] = TopicShape("orders", b"", False, broken)
    state.shape.under_min_isr = (("orders", 0),)
    state.shape.controller_id = -1
    found = values(state)
    names = ("offline_partitions", "under_replicated_partitions", "under_min_isr_partitions", "active_controllers")
    assert [found["cluster", "", name] for name in names] == [1, 2, 1, 0]


def test_unknown_settings_are_a_gap_and_not_zero() -> None:
    state = observed()
    state.shape.under_min_isr = None
    assert ("cluster", "", "under_min_isr_partitions") not in values(state)


def test_a_brokers_endpoint_adds_its_host_and_latency() -> None:
    state = observed()
    page = {
        "process_cpu_seconds_total": 10.0,
        "penstock_host_cores": 4.0,
        "penstock_host_cpu_seconds_total": 100.0,
        "penstock_host_network_received_bytes_total": 0.0,
        "penstock_host_network_sent_bytes_total": 0.0,
        "penstock_host_network_speed_bytes": 1_000.0,
        'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}': 12.5,
    }
    later = page | {
        "process_cpu_seconds_total": 15.0,
        "penstock_host_cpu_seconds_total": 120.0,
        "penstock_host_network_received_bytes_total": 5_000.0,
    }
    state.scrapes[1] = Reading(later, 60.0, page, 50.0)
    found = values(state)
    assert found["broker", "1", "cpu_share"] == 0.5
    assert found["broker", "1", "host_cpu_share"] == 0.5
    assert found["broker", "1", "network_share"] == 0.5
    assert found["broker", "1", "request_p99_ms"] == 12.5
    assert ("broker", "2", "cpu_share") not in found


def test_a_restarted_broker_has_a_gap() -> None:
    state = observed()
    state.scrapes[1] = Reading({"process_cpu_seconds_total": 1.0}, 60.0, {"process_cpu_seconds_total": 900.0}, 50.0)
    assert ("broker", "1", "cpu_share") not in values(state)


def test_many_partitions_are_told_by_topic_only() -> None:
    few, many = observed(10), observed(PARTITION_SAMPLES_MAX + 1)
    for state in (few, many):
        state.ends.take({"orders": [1] * len(state.shape.topics["orders"].partitions)}, 50.0)
    assert any(one.kind is Kind.PARTITION for one in samples(few, NOW_MS))
    assert not any(one.kind is Kind.PARTITION for one in samples(many, NOW_MS))


def test_pipelines_tell_rate_and_lag_and_that_they_are_down() -> None:
    state = observed()
    state.pipelines_up = {"shop": True, "gone": False}
    labels = '{pipeline="shop",query="a"}'
    state.pipelines["shop"] = Reading(
        {f"penstock_pipeline_rows_read_total{labels}": 500.0, f"penstock_pipeline_lag_records{labels}": 7.0}, 60.0,
        {f"penstock_pipeline_rows_read_total{labels}": 100.0}, 50.0,
    )  # fmt: skip
    found = values(state)
    assert found["pipeline", "shop", "records_per_s"] == 40.0
    assert found["pipeline", "shop", "lag_records"] == 7.0
    assert found["pipeline", "gone", "up"] == 0


# ---- when was an offset written?


def test_an_offset_between_two_rounds_was_written_between_them() -> None:
    history = EndHistory()
    for number, end in enumerate((100, 200, 200, 300)):
        history.add(NOW_MS + number * 10_000, [(("t", 0), end)])
    assert history.time_of(("t", 0), 150) == NOW_MS + 5_000
    assert history.time_of(("t", 0), 250) == NOW_MS + 25_000
    assert history.time_of(("t", 0), 200) == NOW_MS + 20_000
    assert history.time_of(("t", 0), 99) is None
    assert history.time_of(("t", 0), 300) is None
    assert history.time_of(("other", 0), 1) is None


def test_a_partition_that_came_later_is_unknown_before_it_was_seen() -> None:
    history = EndHistory()
    history.add(NOW_MS, [(("t", 0), 5)])
    history.add(NOW_MS + 10_000, [(("t", 0), 5), (("t", 1), 10)])
    history.add(NOW_MS + 20_000, [(("t", 1), 20)])
    assert history.time_of(("t", 1), 5) is None
    assert history.time_of(("t", 1), 15) == NOW_MS + 15_000


def test_old_rounds_are_thinned_and_forgotten() -> None:
    history = EndHistory()
    for number in range(2_000):
        history.add(NOW_MS + number * 10_000, [(("t", 0), number)])
    assert history.rounds < 100
    assert history.time_of(("t", 0), 1_990) is not None


def test_a_clock_that_was_set_back_starts_the_history_again() -> None:
    history = EndHistory()
    history.add(NOW_MS, [(("t", 0), 5)])
    history.add(NOW_MS - 60_000, [(("t", 0), 9)])
    assert history.rounds == 1
    assert history.time_of(("t", 0), 7) is None


# ---- the CPU budget


def test_a_cheap_part_is_sampled_at_its_wanted_interval() -> None:
    part = Part(10.0, 0.002)
    for now_s in range(0, 100, 10):
        assert part.is_due(now_s)
        part.done(now_s, 0.001)
    assert part.interval_s == 10.0


def test_the_interval_of_a_costly_part_grows_until_it_is_within_its_share() -> None:
    part = Part(10.0, 0.002)
    for _ in range(20):
        part.done(0.0, 0.2)
    assert part.interval_s == pytest.approx(100.0)
    assert not part.is_due(50.0)
    assert part.is_due(100.0)


def test_the_cost_of_the_first_time_does_not_count() -> None:
    part = Part(10.0, 0.002)
    part.done(0.0, 5.0)
    assert part.interval_s == 10.0
