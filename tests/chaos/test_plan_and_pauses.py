"""The order of faults, the times without acknowledgements, and the names of records."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from penstock.chaos.ledger import Name, decode, encode
from penstock.chaos.pauses import Pause, Pauses, longest_wait_s, merged
from penstock.chaos.plan import plan


def test_the_same_seed_gives_the_same_faults_and_another_seed_others() -> None:
    names = ["a", "b", "c", "d"]

    def first(seed: int) -> list[tuple[str, float]]:
        return list(islice(plan(names, Random(seed)), 40))

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_every_fault_comes_once_in_each_round() -> None:
    steps = [step.name for step in plan(["a", "b", "c"], Random(5), rounds=4)]
    assert len(steps) == 12
    for start in range(0, 12, 3):
        assert sorted(steps[start : start + 3]) == ["a", "b", "c"]


def test_the_longest_pause_of_any_partition_counts_even_if_it_goes_on() -> None:
    pauses = Pauses(2)
    for now_s in (0.0, 1.0, 2.0, 3.0):
        pauses.acknowledged(0, now_s)
    pauses.acknowledged(1, 0.5)
    assert pauses.running_s(3.0) == 2.5
    pauses.acknowledged(1, 3.5)
    assert pauses.take_s(3.5) == 3.0
    assert pauses.take_s(4.0) == 0.5


def test_names_of_records_come_back_from_their_values() -> None:
    assert decode(encode(Name(12, 345)) + b"   ") == Name(12, 345)


@pytest.mark.parametrize(
    "value", [None, b"", b"hello", b"penstock chaos 1", b"penstock chaos 1 x", b"penstock chaos -1 2"]
)
def test_values_of_others_have_no_name(value: bytes | None) -> None:
    assert decode(value) is None


def test_a_long_pause_is_kept_with_its_time_even_if_it_goes_on() -> None:
    pauses = Pauses(2)
    pauses.acknowledged(0, 0.0)
    pauses.acknowledged(1, 0.0)
    pauses.acknowledged(0, 6.0)
    pauses.take_s(8.0)
    pauses.acknowledged(1, 9.0)
    assert [(one.start_s, one.end_s, one.partitions) for one in pauses.long] == [(0.0, 6.0, [0]), (0.0, 8.0, [1])]


def test_pauses_of_several_partitions_at_the_same_time_are_told_as_the_longest_of_them() -> None:
    pauses = [Pause(0.0, 6.0, [0]), Pause(1.0, 9.0, [2]), Pause(20.0, 26.0, [1])]
    assert merged(pauses) == [Pause(1.0, 9.0, [0, 2]), Pause(20.0, 26.0, [1])]


def test_a_probe_that_was_acknowledged_during_a_pause_had_to_wait_for_a_part_of_it_only() -> None:
    assert longest_wait_s([], 10.0, 30.0) == 20.0
    assert longest_wait_s([9.0, 22.0, 23.0, 31.0], 10.0, 30.0) == 12.0
