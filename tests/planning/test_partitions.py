"""Every worked example about partitions, and what must hold for any input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planning.catalogue import Catalogue, PlanError
from penstock.planning.partitions import class_of, plan_partitions, share_moved

CATALOGUE = Catalogue()
loads = st.floats(0.1, 10_000)
partitions_mb_s = st.floats(0.5, 500)


def test_the_example_of_document_002() -> None:
    plan = plan_partitions(CATALOGUE, peak_mb_s=100, per_partition_mb_s=10, consumers=5)
    assert (plan.needed, plan.partitions) == (10, 12)
    assert plan.class_partitions == 24, "002's own table"
    assert (plan.generous_low, plan.generous_high) == (20, 30), "003"
    assert plan.simple == 5, "000"


def test_the_example_of_document_003() -> None:
    plan = plan_partitions(CATALOGUE, peak_mb_s=500, per_partition_mb_s=10)
    assert (plan.needed, plan.partitions, plan.binding) == (50, 54, "throughput")


@pytest.mark.parametrize(("mb_s", "partitions"), [(100, 1), (300, 3), (1000, 10)])
def test_the_examples_of_document_004(mb_s: float, partitions: int) -> None:
    plan = plan_partitions(CATALOGUE, peak_mb_s=mb_s, per_partition_mb_s=100)
    assert plan.throughput_factor == partitions


def test_the_example_of_document_000() -> None:
    """10 → 20 partitions: half of the keys move."""
    assert share_moved(10, 20) == pytest.approx(0.5)


def test_the_script_floors_where_a_partition_more_is_needed() -> None:
    assert plan_partitions(CATALOGUE, peak_mb_s=125, per_partition_mb_s=10).needed == 13


def test_a_current_load_gets_headroom_and_a_peak_does_not() -> None:
    peak = plan_partitions(CATALOGUE, peak_mb_s=100, per_partition_mb_s=10)
    current = plan_partitions(CATALOGUE, current_mb_s=100, per_partition_mb_s=10)
    assert (peak.needed, current.needed) == (10, 20)


@pytest.mark.parametrize(
    ("mb_s", "name"), [(9.9, "low"), (10, "medium"), (50, "high"), (100, "high"), (101, "very high")]
)
def test_bounds_belong_to_the_higher_class(mb_s: float, name: str) -> None:
    assert class_of(mb_s).name == name


def test_many_partitions_are_warned_of() -> None:
    assert any(
        "gains little" in note for note in plan_partitions(CATALOGUE, peak_mb_s=600, per_partition_mb_s=10).notes
    )
    assert any(
        "split the topic" in note for note in plan_partitions(CATALOGUE, peak_mb_s=2e4, per_partition_mb_s=10).notes
    )


@pytest.mark.parametrize(
    "inputs",
    [
        {"per_partition_mb_s": 10.0},
        {"per_partition_mb_s": 10.0, "peak_mb_s": 1.0, "current_mb_s": 1.0},
        {"per_partition_mb_s": 0.0, "peak_mb_s": 1.0},
        {"per_partition_mb_s": 10.0, "peak_mb_s": -1.0},
        {"per_partition_mb_s": 10.0, "peak_mb_s": float("nan")},
        {"per_partition_mb_s": 10.0, "peak_mb_s": 1.0, "consumers": -1},
    ],
)
def test_contradictory_or_absurd_inputs_are_refused(inputs: dict[str, float]) -> None:
    with pytest.raises(PlanError):
        plan_partitions(CATALOGUE, **inputs)  # type: ignore[arg-type]


@given(loads, loads, partitions_mb_s, st.integers(0, 500))
def test_more_load_never_needs_fewer_partitions(a: float, b: float, per_partition: float, consumers: int) -> None:
    low, high = sorted((a, b))
    less = plan_partitions(CATALOGUE, peak_mb_s=low, per_partition_mb_s=per_partition, consumers=consumers)
    more = plan_partitions(CATALOGUE, peak_mb_s=high, per_partition_mb_s=per_partition, consumers=consumers)
    assert less.partitions <= more.partitions
    assert more.partitions % 6 == 0
    assert more.needed <= more.partitions < more.needed + 6
    assert more.needed * per_partition >= high * (1 - 1e-9)


@given(st.integers(1, 200), st.integers(1, 200))
def test_the_share_of_moved_keys_is_what_counting_gives(before: int, after: int) -> None:
    hashes = range(before * after)
    moved = sum(1 for number in hashes if number % before != number % after)
    assert share_moved(before, after) == pytest.approx(moved / len(hashes))
