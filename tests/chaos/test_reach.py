"""When a cluster can acknowledge at all, given the running nodes and the intact links."""

from __future__ import annotations

import pytest

from penstock.chaos.reach import Reach, Timeline, able, need

THREE = need(3, voters=3, copies=3, min_insync=2)
FOUR = need(4, voters=3, copies=3, min_insync=2)
FIVE = need(5, voters=5, copies=3, min_insync=2)


def both_ways(*pairs: tuple[int, int]) -> frozenset[tuple[int, int]]:
    return frozenset(pairs) | {(two, one) for one, two in pairs}


def reach(*down: int, cuts: frozenset[tuple[int, int]] = frozenset()) -> Reach:
    return Reach(frozenset(down), cuts)


def test_a_cluster_of_three_can_do_without_one_node_but_not_without_two() -> None:
    assert able(reach(), THREE)
    assert able(reach(2), THREE)
    assert not able(reach(2, 3), THREE)


def test_four_nodes_need_three_because_any_two_replicas_may_be_needed() -> None:
    assert able(reach(4), FOUR)
    assert able(reach(1), FOUR)
    assert not able(reach(1, 4), FOUR)


def test_most_voters_are_needed_however_many_brokers_there_are() -> None:
    assert not able(reach(1, 2), need(9, voters=3, copies=3, min_insync=1))
    assert able(reach(4, 5, 6), need(9, voters=3, copies=3, min_insync=1)) is False
    assert able(reach(4, 5), need(9, voters=3, copies=3, min_insync=1))


def test_a_group_counts_only_if_all_of_it_reach_each_other_in_both_directions() -> None:
    assert able(reach(cuts=both_ways((1, 2), (1, 3))), THREE)  # 2 and 3 are left
    assert not able(reach(cuts=frozenset({(1, 2), (2, 3), (3, 1)})), THREE)
    assert not able(reach(3, cuts=frozenset({(1, 2)})), THREE)


def test_a_ring_of_cuts_leaves_no_group_of_three_in_four() -> None:
    assert not able(reach(cuts=frozenset({(2, 1), (3, 2), (4, 3), (1, 4)})), FOUR)


def test_the_time_without_such_a_group_is_added_up_within_the_pause() -> None:
    timeline = Timeline(THREE)
    for at_s, state in ((0.0, reach()), (5.0, reach(1)), (10.0, reach(1, 2)), (14.0, reach(2)), (20.0, reach(2, 3))):
        timeline.saw(state, at_s)
    assert timeline.unable_s(0.0, 19.0) == pytest.approx(4.0)
    assert timeline.unable_s(12.0, 19.0) == pytest.approx(2.0)
    assert timeline.unable_s(15.0, 19.0) == 0.0
    assert timeline.unable_s(0.0, 23.0) == pytest.approx(7.0)  # the last one has not ended


def test_five_nodes_need_four_for_all_partitions_with_three_copies() -> None:
    assert able(reach(1), FIVE)
    assert not able(reach(1, 2), FIVE)
