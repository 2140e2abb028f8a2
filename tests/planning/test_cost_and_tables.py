"""The worked examples about cost, tiers, durability and the tables, with the corrections of the errata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planning.catalogue import Catalogue, PlanError
from penstock.planning.cost import COMPRESSION_RATIOS, RETENTION_DAYS, plan_cost, plan_tiers, right_size
from penstock.planning.durability import estimate
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
    assert 1 - RETENTION_DAYS["logs"] / 7 == pytest.approx(0.857, rel=1e-3)
    assert 1 - RETENTION_DAYS["events"] / 7 == pytest.approx(0.571, rel=1e-3)
    assert [round(100 / COMPRESSION_RATIOS[codec]) for codec in ("none", "snappy", "gzip")] == [100, 50, 33]


def test_tiers_of_document_004() -> None:
    plan = plan_tiers(CATALOGUE, bytes_per_day=GB, retention_days=7, hot_days=1, warm_days=1)
    assert plan.disk_saved_share == pytest.approx(6 / 7)
    assert plan.saved_share == pytest.approx(0.80, abs=0.01)
    assert plan.cold_bytes == pytest.approx(6 * GB), "one copy"
    with pytest.raises(PlanError, match="warm_days"):
        plan_tiers(CATALOGUE, bytes_per_day=GB, retention_days=7, hot_days=3, warm_days=1)


def test_the_matrices_are_document_002s() -> None:
    assert [str(CPU_NETWORK[key]) for key in CPU_NETWORK] == [
        "no change", "no change", "scale CPU",
        "no change", "scale network", "scale CPU and network",
        "scale network", "scale network", "scale CPU and network",
    ]  # fmt: skip
    assert sum(1 for action in MEMORY_STALLS.values() if action is Action.NONE) == 3
    assert scale_cpu_or_network(cpu=0.5, network=0.4) is Action.NONE
    assert scale_cpu_or_network(cpu=0.71, network=0.7) is Action.BOTH
    assert scale_memory(memory=0.7, stall_p99_ms=50) is Action.MEMORY


def test_sizes_grow_by_their_increments_up_to_a_maximum() -> None:
    cpu = next(size for size in SIZES if size.resource == "cpu")
    assert (cpu.next_size(3), cpu.next_size(9), cpu.next_size(33), cpu.next_size(33, large=True)) == (8, 12, None, 36)


def test_thresholds_of_document_002() -> None:
    partitions = next(one for one in THRESHOLDS if one.metric == "partitions")
    judged = [partitions.judge(count) for count in (1_500, 1_501, 2_001, 30_000)]
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
    assert useful_consumers(20, 10) == (10, 10)


def test_more_copies_and_quicker_repair_lose_less() -> None:
    losses = [estimate(replication_factor=factor, min_insync_replicas=1).yearly_loss for factor in (1, 2, 3, 5)]
    assert losses == sorted(losses, reverse=True)
    assert estimate(replication_factor=3, min_insync_replicas=2, repair_hours=0.5).nines > 11, "001's eleven nines"
    assert estimate(replication_factor=1).nines < 4, "001's four nines need more than one copy"
    assert (
        estimate(replication_factor=3, min_insync_replicas=2, repair_hours=24).yearly_loss
        > estimate(replication_factor=3, min_insync_replicas=2, repair_hours=1).yearly_loss
    )


def test_what_a_factor_survives_differs_for_data_and_for_writes() -> None:
    found = estimate(replication_factor=3, min_insync_replicas=2)
    assert (found.data_failures_survived, found.write_failures_survived) == (2, 1)
    with pytest.raises(PlanError, match="more than the replication factor"):
        estimate(replication_factor=2, min_insync_replicas=3)


@given(st.integers(1, 500), st.floats(0, 1e18), st.floats(0, 1e18), st.floats(1, 1e7))
def test_more_data_never_costs_less(brokers: int, a: float, b: float, rate: float) -> None:
    low, high = sorted((a, b))
    costs = [
        plan_cost(CATALOGUE, brokers=brokers, stored_bytes=stored, messages_per_s=rate).total for stored in (low, high)
    ]
    assert costs[0] <= costs[1]
