"""The worked examples about storage, throughput and brokers, with the corrections of the errata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planning.brokers import BrokerSpec, brokers_for_rate, capacity, cores, plan_brokers
from penstock.planning.catalogue import Catalogue, PlanError
from penstock.planning.storage import GB, TB, metadata_bytes, plan_offsets, plan_storage

CATALOGUE = Catalogue()
BROKER = BrokerSpec(network_mb_s=1250, disk_write_mb_s=500, disk_read_mb_s=1000)


def test_storage_of_document_000() -> None:
    plan = plan_storage(
        CATALOGUE,
        messages_per_s=1e6,
        message_bytes=1000,
        retention_days=7,
        replication_factor=3,
        overhead=1.2,
        brokers=10,
    )
    assert plan.bytes_per_day == pytest.approx(86.4 * TB)
    assert plan.retained_bytes == pytest.approx(604.8 * TB)
    assert plan.replicated_bytes == pytest.approx(1814.4 * TB)
    assert plan.total_bytes == pytest.approx(2177.28 * TB)
    assert plan.bytes_per_broker == pytest.approx(217.728 * TB)


def test_storage_of_document_001() -> None:
    at_peak = plan_storage(CATALOGUE, messages_per_s=10e6, message_bytes=1000, retention_days=7, brokers=100)
    assert at_peak.retained_bytes == pytest.approx(6.048e15)
    assert at_peak.retained_bytes / 100 == pytest.approx(60.48 * TB)
    assert at_peak.bytes_per_broker == pytest.approx(199.584 * TB), "181.4 TB and 10 % for indexes"
    on_average = plan_storage(CATALOGUE, messages_per_s=3e6, message_bytes=1000, retention_days=7, brokers=100)
    assert on_average.bytes_per_broker == pytest.approx(59.875 * TB, rel=1e-3)


def test_storage_of_document_003_and_its_headroom() -> None:
    plan = plan_storage(
        CATALOGUE, messages_per_s=1e9 / 86_400, message_bytes=1000, retention_days=7, replication_factor=3, overhead=1.0
    )
    assert plan.total_bytes == pytest.approx(21 * TB)
    assert plan.disk_bytes == pytest.approx(30 * TB)


def test_open_segments_are_counted() -> None:
    without = plan_storage(CATALOGUE, messages_per_s=1000, message_bytes=1000, retention_days=1)
    with_slack = plan_storage(CATALOGUE, messages_per_s=1000, message_bytes=1000, retention_days=1, partitions=100)
    assert with_slack.total_bytes - without.total_bytes == pytest.approx(100 * 3 * 2**30 / 2)


def test_offsets_and_metadata_of_document_001() -> None:
    offsets = plan_offsets(consumers=200_000, partitions_per_consumer=10, commits_per_s=1e6)
    assert offsets.offset_bytes == pytest.approx(0.2 * GB)
    assert offsets.commit_bytes_per_s == pytest.approx(100e6)
    assert offsets.commit_bytes_per_day == pytest.approx(8.64 * TB)
    assert metadata_bytes(topics=100_000, partitions=1e6, groups=10_000, brokers=100) == pytest.approx(6.6 * GB)


def test_throughput_of_document_000_is_limited_by_its_disk() -> None:
    found = capacity(BROKER, replication_factor=3)
    assert found.binding == "disk writes"
    assert found.ingest_mb_s == pytest.approx(500 / 3)
    limits = dict(found.limits)
    assert limits["network in"] == pytest.approx(1250 / 3), "000's 416 MB/s"
    assert 10 * found.ingest_mb_s / 0.001 == pytest.approx(1_666_667, rel=1e-4), "ten brokers, 1 KB messages"


def test_brokers_of_document_003_both_ways() -> None:
    taking = BrokerSpec(network_mb_s=1e6, disk_write_mb_s=50 * 3, disk_read_mb_s=1e6)
    writing = BrokerSpec(network_mb_s=1e6, disk_write_mb_s=50, disk_read_mb_s=1e6)
    full = CATALOGUE.with_overrides("[brokers]\nutilisation = 1.0\nutilisation_degraded = 1.0\n")
    assert dict(plan_brokers(full, taking, ingest_mb_s=500).constraints)["throughput (disk writes) at 100%"] == 10
    assert dict(plan_brokers(full, writing, ingest_mb_s=500).constraints)["throughput (disk writes) at 100%"] == 30


def test_cores_of_document_001() -> None:
    assert cores(messages_per_s=10_000) == pytest.approx(12)
    assert cores(messages_per_s=100_000) == pytest.approx(84)


def test_brokers_from_a_message_rate() -> None:
    assert brokers_for_rate(messages_per_s=1e6, tested_max_per_broker=100_000, utilisation=0.8) == 13


def test_partitions_can_be_what_limits_a_cluster() -> None:
    plan = plan_brokers(CATALOGUE, BROKER, ingest_mb_s=100, partitions=1_000_000)
    assert (plan.binding, plan.brokers) == ("partitions per broker", 1500), (
        "001's hundred are not enough for 002's limit"
    )


def test_rebuilding_001s_broker_takes_hours_and_not_minutes() -> None:
    broker = BrokerSpec(network_mb_s=1250, disk_write_mb_s=1e5, disk_read_mb_s=1e5, disk_bytes=30 * TB)
    plan = plan_brokers(
        CATALOGUE, broker, ingest_mb_s=100, stored_bytes=20 * TB * 100, rebuild_mb_s=1250, partitions=100
    )
    assert plan.rebuild_hours * plan.brokers / 100 == pytest.approx(4.44, rel=0.01)


def test_a_lost_zone_is_survived_at_peak() -> None:
    plan = plan_brokers(CATALOGUE, BROKER, ingest_mb_s=2000, zones=3)
    assert plan.brokers % 3 == 0
    assert plan.utilisation_degraded <= CATALOGUE["brokers.utilisation_degraded"]
    assert plan.cross_zone_mb_s == pytest.approx(2000 * (2 / 3 + 2 + 2 / 3))


@given(st.floats(1, 1e5), st.floats(1, 1e5), st.integers(1, 5), st.floats(0, 20), st.integers(1, 4))
def test_more_load_never_needs_fewer_brokers(a: float, b: float, factor: int, fan_out: float, zones: int) -> None:
    low, high = sorted((a, b))
    counts = [
        plan_brokers(CATALOGUE, BROKER, ingest_mb_s=load, replication_factor=factor, fan_out=fan_out, zones=zones)
        for load in (low, high)
    ]
    assert counts[0].brokers <= counts[1].brokers
    for plan in counts:
        assert plan.utilisation <= CATALOGUE["brokers.utilisation"] + 1e-9
        assert plan.utilisation_degraded <= CATALOGUE["brokers.utilisation_degraded"] + 1e-9


def test_data_without_the_size_of_a_disk_is_refused() -> None:
    with pytest.raises(PlanError, match="size of a broker's disks"):
        plan_brokers(CATALOGUE, BROKER, ingest_mb_s=1, stored_bytes=TB)


def test_a_user_replaces_values_and_is_told_of_wrong_names() -> None:
    own = CATALOGUE.with_overrides("[partitions]\nminimum = 3\n[price]\nbroker = 321.5\n")
    assert (own["partitions.minimum"], own["price.broker"]) == (3, 321.5)
    assert own.replaced == {"partitions.minimum", "price.broker"}
    with pytest.raises(PlanError, match="did you mean partitions.minimum"):
        CATALOGUE.with_overrides("[partitions]\nminimun = 3\n")
    with pytest.raises(PlanError, match="a number is needed"):
        CATALOGUE.with_overrides('[price]\nbroker = "cheap"\n')
    with pytest.raises(PlanError, match="from 0 to 0.9"):
        CATALOGUE.with_overrides("[storage]\nheadroom = 2\n")
    with pytest.raises(PlanError, match="not valid TOML"):
        CATALOGUE.with_overrides("[storage\n")
