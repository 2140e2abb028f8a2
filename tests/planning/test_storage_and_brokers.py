"""The worked examples about storage, throughput and brokers, with the corrections of the errata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planning.brokers import BrokerSpec, brokers_for_rate, capacity, cross_zone_mb_s, plan_brokers
from penstock.planning.catalogue import Catalogue, PlanError
from penstock.planning.load import cores, iops, plan_load, plan_memory, plan_network, plan_rates
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
    offsets = plan_offsets(CATALOGUE, consumers=200_000, partitions_per_consumer=10, commits_per_s=1e6)
    assert offsets.offset_bytes == pytest.approx(0.2 * GB)
    assert offsets.commit_bytes_per_s == pytest.approx(100e6)
    assert offsets.commit_bytes_per_day == pytest.approx(8.64 * TB)
    assert metadata_bytes(CATALOGUE, topics=100_000, partitions=1e6, groups=10_000, brokers=100) == pytest.approx(
        6.6 * GB
    )


def test_throughput_of_document_000_is_limited_by_its_disk() -> None:
    found = capacity(BROKER, replication_factor=3)
    assert found.binding == "disk writes"
    assert found.ingest_mb_s == pytest.approx(500 / 3)
    limits = dict(found.limits)
    assert limits["network in"] == pytest.approx(1250 / 3), "000's 416 MB/s"
    per_s = [found.ingest_mb_s * 1e6 / size for size in (1_000, 10_000, 100_000)]
    assert per_s == pytest.approx([166_667, 16_667, 1_667], rel=1e-3), "messages of 1, 10 and 100 KB"
    assert [10 * one for one in per_s[:2]] == pytest.approx([1_666_667, 166_667], rel=1e-4), "ten brokers"
    assert 2 * limits["network in"] == pytest.approx(833, rel=1e-3), "what replication would take of 1,250 MB/s out"


def test_partitions_of_document_001_hold_gigabytes_and_not_a_hundred() -> None:
    sizes = [
        plan_storage(CATALOGUE, messages_per_s=rate, message_bytes=1000, retention_days=7).retained_bytes / 1e6
        for rate in (3e6, 10e6)
    ]
    assert sizes == pytest.approx([1.8 * GB, 6.05 * GB], rel=0.01)


def test_the_other_example_of_document_003_exceeds_its_own_brokers() -> None:
    full = CATALOGUE.with_overrides("[brokers]\nutilisation = 1.0\nutilisation_degraded = 1.0\n")
    broker = BrokerSpec(network_mb_s=1e6, disk_write_mb_s=50 * 3, disk_read_mb_s=1e6)
    assert plan_brokers(full, broker, ingest_mb_s=500).brokers > 3, "three brokers are said to take 500 MB/s"


def test_brokers_of_document_003_both_ways() -> None:
    taking = BrokerSpec(network_mb_s=1e6, disk_write_mb_s=50 * 3, disk_read_mb_s=1e6)
    writing = BrokerSpec(network_mb_s=1e6, disk_write_mb_s=50, disk_read_mb_s=1e6)
    full = CATALOGUE.with_overrides("[brokers]\nutilisation = 1.0\nutilisation_degraded = 1.0\n")
    assert dict(plan_brokers(full, taking, ingest_mb_s=500).constraints)["throughput (disk writes) at 100%"] == 10
    assert dict(plan_brokers(full, writing, ingest_mb_s=500).constraints)["throughput (disk writes) at 100%"] == 30


def test_cores_of_document_001() -> None:
    assert cores(CATALOGUE, messages_per_s=10_000) == pytest.approx(12)
    assert cores(CATALOGUE, messages_per_s=100_000) == pytest.approx(84)
    assert cores(CATALOGUE, messages_per_s=100_000, io_scales=True) == pytest.approx(120)


def test_the_whole_load_of_document_001() -> None:
    plan = plan_load(
        CATALOGUE, average_messages_per_s=3e6, peak_messages_per_s=10e6, message_bytes=1000, brokers=100,
        partitions=1_000_000, fan_out=2, topics=100_000, groups=10_000, producers=100_000, consumers=200_000,
        partitions_per_consumer=10, commits_per_s=1e6, messages_per_batch=10_000,
    )  # fmt: skip
    assert [plan.cores_per_broker, plan.cores_per_broker_scaled] == pytest.approx([84, 120])
    assert plan.iops_per_broker == 30
    assert plan.memory_bytes_per_broker == pytest.approx(120 * GB)
    assert [plan.offset_bytes, plan.metadata_bytes] == pytest.approx([0.2 * GB, 6.6 * GB])
    with pytest.raises(PlanError, match="below the average"):
        plan_load(CATALOGUE, average_messages_per_s=2, peak_messages_per_s=1, message_bytes=1, brokers=1, partitions=1)


def test_rates_of_document_001() -> None:
    plan = plan_rates(CATALOGUE, average_messages_per_s=3e6, peak_messages_per_s=10e6, partitions=1_000_000)
    assert plan.messages_per_day == pytest.approx(259.2e9)
    assert plan.burst_messages_per_s == pytest.approx(30e6)
    assert (plan.average_per_partition, plan.peak_per_partition) == (3, 10)
    assert any("exceeds the stated peak" in note for note in plan.notes)


def test_network_of_document_001() -> None:
    plan = plan_network(CATALOGUE, messages_per_s=10e6, message_bytes=1000, replication_factor=3, fan_out=2)
    assert plan.inbound_bytes_per_s == pytest.approx(36e9)
    assert plan.consumer_bytes_per_s == pytest.approx(24e9)
    assert plan.internal_bytes_per_s == pytest.approx(20.1e9)
    assert plan.outbound_bytes_per_s == pytest.approx(48e9)


def test_memory_and_iops_of_document_001() -> None:
    plan = plan_memory(CATALOGUE, producers=1000, consumers=2000)
    assert plan.total_bytes == pytest.approx(120 * GB)
    assert plan.heap_share == pytest.approx(0.133, rel=0.01)
    assert iops(messages_per_s=10_000, replication_factor=3, read_messages_per_s=20_000) == 50_000
    assert (
        iops(messages_per_s=10_000, replication_factor=3, read_messages_per_s=20_000, messages_per_batch=10_000) == 5
    ), "with the document's own batches"


def test_brokers_from_a_message_rate() -> None:
    assert brokers_for_rate(messages_per_s=1e6, tested_messages_per_s=100_000, utilisation=0.8) == 13


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


@pytest.mark.parametrize(
    ("zones", "factor", "elsewhere"), [(3, 3, 2.0), (2, 3, 4 / 3), (3, 2, 1.0), (3, 5, 3.2), (1, 3, 0.0), (3, 1, 0.0)]
)
def test_followers_in_other_zones_are_counted_by_where_replicas_can_be(
    zones: int, factor: int, elsewhere: float
) -> None:
    clients = 0.0 if zones == 1 else (zones - 1) / zones
    assert cross_zone_mb_s(1, zones, factor, 0) == pytest.approx(elsewhere + clients)


def test_readers_behind_the_page_cache_read_from_disk() -> None:
    broker = BrokerSpec(network_mb_s=1250, disk_write_mb_s=500, disk_read_mb_s=100, page_cache_bytes=64 * GB)
    near = plan_brokers(CATALOGUE, broker, ingest_mb_s=1000, reader_lags=[(1, 1)])
    far = plan_brokers(CATALOGUE, broker, ingest_mb_s=1000, reader_lags=[(1, 86_400)])
    assert (near.cold_share, far.cold_share) == (0, 1)
    assert far.brokers > near.brokers
    assert "disk reads" in far.binding
    middle = plan_brokers(CATALOGUE, broker, ingest_mb_s=1000, reader_lags=[(1, near.page_cache_s)])
    assert middle.cold_share == 0, "what is just inside the page cache is not read from disk"


def test_absurd_numbers_are_refused_and_not_computed_with() -> None:
    for absurd in ({"zones": 10**9}, {"replication_factor": 10**9}, {"fan_out": float("nan")}, {"partitions": -1}):
        with pytest.raises(PlanError, match="is needed"):
            plan_brokers(CATALOGUE, BROKER, ingest_mb_s=1, **absurd)


def test_a_tested_message_rate_limits_a_cluster_of_small_messages() -> None:
    broker = BrokerSpec(network_mb_s=1250, disk_write_mb_s=500, disk_read_mb_s=1000, tested_messages_per_s=100_000)
    plan = plan_brokers(CATALOGUE, broker, ingest_mb_s=100, messages_per_s=1e6)
    assert (plan.binding, plan.brokers) == ("message rate at 70%", 15)


def test_data_without_the_size_of_a_disk_is_refused() -> None:
    with pytest.raises(PlanError, match="size of a broker's disks"):
        plan_brokers(CATALOGUE, BROKER, ingest_mb_s=1, stored_bytes=TB)


def test_a_user_replaces_values_and_is_told_of_wrong_names() -> None:
    own = CATALOGUE.with_overrides("[partitions]\nminimum = 3\n[price]\nbroker = 321.5\n")
    assert (own["partitions.minimum"], own["price.broker"]) == (3, 321.5)
    assert own.replaced == {"partitions.minimum", "price.broker"}
    with pytest.raises(PlanError, match=r"line 2: partitions\.minimun .*did you mean partitions\.minimum"):
        CATALOGUE.with_overrides("[partitions]\nminimun = 3\n")
    with pytest.raises(PlanError, match="a number is needed"):
        CATALOGUE.with_overrides('[price]\nbroker = "cheap"\n')
    with pytest.raises(PlanError, match=r"from 0 to 0\.9"):
        CATALOGUE.with_overrides("[storage]\nheadroom = 2\n")
    with pytest.raises(PlanError, match="a whole number is needed"):
        CATALOGUE.with_overrides("[partitions]\nminimum = 2.5\n")
    with pytest.raises(PlanError, match="it must be 0 or more"):
        CATALOGUE.with_overrides("[price]\nbroker = inf\n")
    with pytest.raises(PlanError, match="not valid TOML"):
        CATALOGUE.with_overrides("[storage\n")
