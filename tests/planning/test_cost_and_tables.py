"""The worked examples about cost, tiers, durability and the tables, with the corrections of the errata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planning.catalogue import Catalogue, PlanError
from penstock.planning.cost import (
    compression_ratio,
    off_peak_saving,
    plan_cost,
    plan_tiers,
    retention_saving,
    right_size,
)
from penstock.planning.durability import estimate
from penstock.planning.scaling import advise_scaling, plan_consumers, plan_regions
from penstock.planning.storage import GB, TB
from penstock.planning.tables import (
    CPU_NETWORK,
    MEMORY_STALLS,
    SIZES,
    THRESHOLDS,
    Action,
    Region,
    Urgency,
    cross_region_mb_s,
    milestone,
    region_capacity,
    registry_size,
    scale_cpu_or_network,
    scale_memory,
    useful_consumers,
)

CATALOGUE = Catalogue()


def cost_of_001(stored_pb: float, egress: float | None) -> tuple[float, float]:
    plan = plan_cost(
        CATALOGUE, brokers=100, stored_bytes=stored_pb * 1000 * TB, messages_per_s=3e6, egress_bytes=egress
    )
    return plan.total, plan.per_million_messages


def test_cost_of_document_001_as_its_own_rates_make_it() -> None:
    total, per_million = cost_of_001(6, 500 * TB)
    assert total == pytest.approx(755_500, rel=0.002)
    assert per_million == pytest.approx(0.097, rel=0.01)
    total, per_million = cost_of_001(6, None)
    assert total == pytest.approx(1.119e6, rel=0.002)
    assert per_million == pytest.approx(0.144, rel=0.01)


def test_the_documents_own_sum_for_two_petabytes() -> None:
    plan = plan_cost(CATALOGUE, brokers=100, stored_bytes=2_000 * TB, messages_per_s=3e6, egress_bytes=500 * TB)
    assert plan.infrastructure == pytest.approx(280_500)
    assert plan.operations == pytest.approx(75_000)


def test_right_sizing_of_document_000() -> None:
    found = right_size(CATALOGUE, brokers=20, utilisation=0.4)
    assert (found.brokers, found.saved_per_month) == (12, 4_000)
    assert found.utilisation == pytest.approx(0.6667, rel=1e-3)


def test_retention_and_compression_of_document_000() -> None:
    assert retention_saving(CATALOGUE, "logs") == pytest.approx(0.857, rel=1e-3)
    assert retention_saving(CATALOGUE, "events") == pytest.approx(0.571, rel=1e-3)
    assert [round(100 / compression_ratio(CATALOGUE, codec)) for codec in ("none", "snappy", "gzip")] == [100, 50, 33]
    with pytest.raises(PlanError, match="use one of none, snappy"):
        compression_ratio(CATALOGUE, "brotli")


def test_scaling_down_outside_the_busy_hours_saves_its_share() -> None:
    assert off_peak_saving(CATALOGUE, brokers=10, off_peak_brokers=4, peak_hours_per_day=8) == pytest.approx(2_000)


def test_tiers_of_document_004() -> None:
    plan = plan_tiers(CATALOGUE, bytes_per_day=GB, retention_days=7, hot_days=1, warm_days=1)
    assert plan.disk_saved_share == pytest.approx(6 / 7)
    assert plan.saved_share == pytest.approx(0.80)
    assert plan.cold_bytes == pytest.approx(6 * GB), "one copy"
    tiered = plan_tiers(CATALOGUE, bytes_per_day=GB, retention_days=7, hot_days=1, warm_days=1, cold_holds_all=True)
    assert tiered.cold_bytes == pytest.approx(7 * GB), "closed segments are copied while they are still local"
    assert tiered.saved_share == pytest.approx(0.79, abs=0.001)
    assert tiered.disk_saved_share == pytest.approx(6 / 7)
    young = plan_tiers(CATALOGUE, bytes_per_day=GB, retention_days=5, cold_holds_all=True)
    assert young.cold_bytes == 0, "nothing is old enough"
    with pytest.raises(PlanError, match="warm_days"):
        plan_tiers(CATALOGUE, bytes_per_day=GB, retention_days=7, hot_days=3, warm_days=1)


def test_the_matrices_are_document_002s() -> None:
    assert [str(CPU_NETWORK[key]) for key in CPU_NETWORK] == [
        "no change", "no change", "scale CPU",
        "no change", "scale network", "scale CPU and network",
        "scale network", "scale network", "scale CPU and network",
    ]  # fmt: skip
    assert sum(1 for action in MEMORY_STALLS.values() if action is Action.NONE) == 3
    assert scale_cpu_or_network(CATALOGUE, cpu=0.5, network=0.4) is Action.NONE
    assert scale_cpu_or_network(CATALOGUE, cpu=0.71, network=0.7) is Action.BOTH
    assert scale_memory(CATALOGUE, memory=0.7, stall_p99_ms=50) is Action.MEMORY


def test_sizes_grow_by_their_increments_up_to_a_maximum() -> None:
    cpu = next(size for size in SIZES if size.resource == "cpu")
    assert (cpu.next_size(3), cpu.next_size(9), cpu.next_size(33), cpu.next_size(33, large=True)) == (8, 12, None, 36)
    disk = next(size for size in SIZES if size.resource == "disk")
    assert (disk.next_size(1.2), disk.next_size(1.5), disk.next_size(1e300)) == (1.5, 1.5, None)


def test_thresholds_of_document_002() -> None:
    partitions = next(one for one in THRESHOLDS if one.metric == "partitions")
    judged = [partitions.judge(CATALOGUE, count) for count in (1_500, 1_501, 2_001, 30_000)]
    assert judged == [Urgency.HEALTHY, Urgency.WARNING, Urgency.SCALE, Urgency.EMERGENCY]


@pytest.mark.parametrize(
    ("mb_s", "name", "following"),
    [(9, "small", "medium"), (10, "medium", "large"), (100, "large", "enterprise"), (5_000, "enterprise", None)],
)
def test_milestones_of_document_004(mb_s: float, name: str, following: str | None) -> None:
    here, after = milestone(mb_s)
    assert (here.name, after.name if after else None) == (name, following)


def test_registry_sizes_of_document_002() -> None:
    assert [registry_size(count).instances for count in (999, 1_000, 5_000, 10_000, 10_001)] == [3, 5, 7, 7, 9]


def test_regions_of_document_002() -> None:
    assert region_capacity(Region.STANDBY, [100, 10]) == [100, 100]
    assert region_capacity(Region.HUB, [50, 20, 30]) == [100, 20, 30]
    assert region_capacity(Region.MESH, [50, 20, 30]) == [100, 100, 100]
    assert cross_region_mb_s(Region.MESH, [50, 20, 30]) == 200
    assert cross_region_mb_s(Region.HUB, [50, 20, 30]) == 50


def test_consumers_beyond_the_partitions_are_idle() -> None:
    assert [useful_consumers(count, 10) for count in (1, 5, 10, 20)] == [(1, 0), (5, 0), (10, 0), (10, 10)], "000"
    assert useful_consumers(15, 10) == (10, 5), "003"


def test_a_static_number_of_consumers_stays_below_the_benchmarks_warning() -> None:
    plan = plan_consumers(CATALOGUE, mb_s=70, per_consumer_mb_s=10, partitions=12)
    assert (plan.consumers, plan.needed, plan.idle) == (10, 10, 0)
    crowded = plan_consumers(CATALOGUE, mb_s=70, per_consumer_mb_s=10, partitions=6)
    assert (crowded.consumers, crowded.idle) == (6, 4)
    assert any("add partitions" in note for note in crowded.notes)


def test_scaling_advice_follows_the_matrices_and_names_the_worst_level() -> None:
    advice = advise_scaling(CATALOGUE, cpu=0.85, network=0.3, partitions=2_600)
    assert (advice.vertical, advice.memory, advice.worst) == ("scale CPU", "not judged", "emergency")
    own = CATALOGUE.with_overrides("[threshold]\npartitions_emergency = 4000\n")
    assert advise_scaling(own, cpu=0.5, network=0.3, partitions=2_600).worst == "scale"
    with pytest.raises(PlanError, match="together"):
        advise_scaling(CATALOGUE, cpu=0.5)
    with pytest.raises(PlanError, match="nothing to judge"):
        advise_scaling(CATALOGUE)


def test_one_region_is_no_model_of_regions() -> None:
    with pytest.raises(PlanError, match="at least two"):
        plan_regions(Region.HUB, [1])
    assert plan_regions(Region.STANDBY, [100, 10]).capacity_mb_s == (100, 100)


def test_more_copies_and_quicker_repair_lose_less() -> None:
    losses = [
        estimate(CATALOGUE, replication_factor=factor, min_insync_replicas=1).yearly_loss for factor in (1, 2, 3, 5)
    ]
    assert losses == sorted(losses, reverse=True)
    assert estimate(CATALOGUE, replication_factor=3, min_insync_replicas=2, repair_hours=0.5).nines > 11, (
        "001's eleven nines"
    )
    assert estimate(CATALOGUE, replication_factor=1).nines < 4, "001's four nines need more than one copy"
    assert (
        estimate(CATALOGUE, replication_factor=3, min_insync_replicas=2, repair_hours=24).yearly_loss
        > estimate(CATALOGUE, replication_factor=3, min_insync_replicas=2, repair_hours=1).yearly_loss
    )


def test_what_a_factor_survives_differs_for_data_and_for_writes() -> None:
    found = estimate(CATALOGUE, replication_factor=3, min_insync_replicas=2)
    assert (found.data_failures_survived, found.write_failures_survived) == (2, 1)
    with pytest.raises(PlanError, match="more than the replication factor"):
        estimate(CATALOGUE, replication_factor=2, min_insync_replicas=3)


@given(st.integers(1, 500), st.floats(0, 1e18), st.floats(0, 1e18), st.floats(1, 1e7))
def test_more_data_never_costs_less(brokers: int, a: float, b: float, rate: float) -> None:
    low, high = sorted((a, b))
    costs = [
        plan_cost(CATALOGUE, brokers=brokers, stored_bytes=stored, messages_per_s=rate).total for stored in (low, high)
    ]
    assert costs[0] <= costs[1]
