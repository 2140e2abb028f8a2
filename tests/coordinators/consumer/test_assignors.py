"""The assignors: everything assigned once, evenly, and with as few moves as possible."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinators.groups.consumer.assignors import ASSIGNORS, NO_PARTITIONS, Assignment, GroupSpec, MemberSpec

Owners = dict[tuple[bytes, int], str]


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def group(
    subscriptions: dict[str, tuple[int, ...]],
    counts: dict[int, int],
    current: dict[str, Assignment] | None = None,
    instances: dict[str, str] | None = None,
) -> GroupSpec:
    """Subscriptions to topics by number."""
    interned: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
    members = []
    for member_id, topics in subscriptions.items():
        ids = tuple(topic_id(number) for number in topics if number in counts)
        ids = interned.setdefault(ids, ids)
        assignment = (current or {}).get(member_id, NO_PARTITIONS)
        members.append(MemberSpec(member_id, (instances or {}).get(member_id), ids, assignment))
    wanted = [number for number in counts if any(number in topics for topics in subscriptions.values())]
    return GroupSpec(members, {topic_id(number): counts[number] for number in wanted})


def owners_of(assignments: dict[str, Assignment]) -> Owners:
    owners: Owners = {}
    for member_id, assignment in assignments.items():
        for topic, partitions in assignment.items():
            assert partitions, "topics without partitions are left out"
            assert list(partitions) == sorted(partitions)
            for partition in partitions:
                assert (topic, partition) not in owners
                owners[topic, partition] = member_id
    return owners


def sizes(assignments: dict[str, Assignment]) -> list[int]:
    return [sum(map(len, assignment.values())) for assignment in assignments.values()]


def check_valid(spec: GroupSpec, assignments: dict[str, Assignment]) -> Owners:
    """Every partition that somebody wants has one owner, who wants it."""
    owners = owners_of(assignments)
    assert set(assignments) == {member.member_id for member in spec.members}
    assert set(owners) == {(topic, p) for topic, count in spec.partition_counts.items() for p in range(count)}
    wanted = {member.member_id: member.topics for member in spec.members}
    assert all(topic in wanted[member_id] for (topic, _), member_id in owners.items())
    return owners


def check_no_move_helps(spec: GroupSpec, assignments: dict[str, Assignment]) -> None:
    loads = dict(zip(assignments, sizes(assignments), strict=True))
    for (topic, _), owner in owners_of(assignments).items():
        least = min(loads[member.member_id] for member in spec.members if topic in member.topics)
        assert loads[owner] - least <= 1


counts = st.dictionaries(st.integers(0, 5), st.integers(1, 12), min_size=1, max_size=5)
member_ids = st.lists(st.integers(0, 99).map(lambda number: f"m{number:02}"), min_size=1, max_size=9, unique=True)


@st.composite
def subscriptions(draw: st.DrawFn, *, homogeneous: bool) -> dict[str, tuple[int, ...]]:
    ids = draw(member_ids)
    choice = st.lists(st.integers(0, 5), unique=True, max_size=5).map(lambda topics: tuple(sorted(topics)))
    if homogeneous:
        topics = draw(choice)
        return dict.fromkeys(ids, topics)
    return {member_id: draw(choice) for member_id in ids}


@st.composite
def garbage(draw: st.DrawFn, ids: list[str]) -> dict[str, Assignment]:
    """What members may have had: topics that are gone, partitions that are gone, partitions that others had too."""
    numbers = st.lists(st.integers(0, 14), unique=True, min_size=1, max_size=6)
    partitions = numbers.map(lambda chosen: tuple(sorted(chosen)))
    assignments = st.dictionaries(st.integers(0, 7).map(topic_id), partitions, max_size=4)
    return {member_id: draw(assignments) for member_id in ids if draw(st.booleans())}


@pytest.mark.parametrize("name", ["uniform", "range"])
@given(data=st.data(), homogeneous=st.booleans(), counts=counts)
def test_every_partition_gets_one_owner_whatever_was_before(
    name: str, data: st.DataObject, homogeneous: bool, counts: dict[int, int]
) -> None:
    subscribed = data.draw(subscriptions(homogeneous=homogeneous))
    spec = group(subscribed, counts, data.draw(garbage(list(subscribed))))
    assignments = ASSIGNORS[name](spec)
    check_valid(spec, assignments)
    again = ASSIGNORS[name](group(subscribed, counts, assignments))
    assert all(again[member_id] is assignments[member_id] for member_id in again), "what is good stays"


@given(data=st.data(), counts=counts)
def test_uniform_gives_everyone_the_same_to_within_one(data: st.DataObject, counts: dict[int, int]) -> None:
    subscribed = data.draw(subscriptions(homogeneous=True))
    made = sizes(ASSIGNORS["uniform"](group(subscribed, counts, data.draw(garbage(list(subscribed))))))
    assert max(made) - min(made) <= 1


@given(data=st.data(), counts=counts)
def test_uniform_with_different_subscriptions_leaves_no_move_that_would_help(
    data: st.DataObject, counts: dict[int, int]
) -> None:
    subscribed = data.draw(subscriptions(homogeneous=False))
    spec = group(subscribed, counts, data.draw(garbage(list(subscribed))))
    check_no_move_helps(spec, ASSIGNORS["uniform"](spec))


@given(data=st.data(), counts=counts)
def test_when_one_joins_partitions_move_to_it_and_to_nobody_else(data: st.DataObject, counts: dict[int, int]) -> None:
    subscribed = data.draw(subscriptions(homogeneous=True))
    before = ASSIGNORS["uniform"](group(subscribed, counts))
    joined = {**subscribed, "new": next(iter(subscribed.values()))}
    after = ASSIGNORS["uniform"](group(joined, counts, before))
    owners_before, owners_after = owners_of(before), owners_of(after)
    moved = [partition for partition, owner in owners_after.items() if owners_before[partition] != owner]
    assert all(owners_after[partition] == "new" for partition in moved)
    assert len(moved) == sum(map(len, after["new"].values()))
    assert len(moved) <= len(owners_before) // len(joined) + 1
    unchanged = [member_id for member_id in subscribed if after[member_id] == before[member_id]]
    assert all(after[member_id] is before[member_id] for member_id in unchanged)


@given(data=st.data(), counts=counts)
def test_when_one_leaves_the_others_keep_all_they_have(data: st.DataObject, counts: dict[int, int]) -> None:
    subscribed = data.draw(subscriptions(homogeneous=True))
    before = ASSIGNORS["uniform"](group(subscribed, counts))
    left = data.draw(st.sampled_from(sorted(subscribed)))
    stayed = {member_id: topics for member_id, topics in subscribed.items() if member_id != left}
    if not stayed:
        return
    after = owners_of(ASSIGNORS["uniform"](group(stayed, counts, before)))
    for partition, owner in owners_of(before).items():
        assert owner in (after[partition], left)


@given(data=st.data(), counts=counts)
def test_partitions_that_are_added_move_as_little_as_possible(data: st.DataObject, counts: dict[int, int]) -> None:
    subscribed = data.draw(subscriptions(homogeneous=True))
    before = ASSIGNORS["uniform"](group(subscribed, counts))
    grown = {number: count + data.draw(st.integers(0, 5)) for number, count in counts.items()}
    after = owners_of(ASSIGNORS["uniform"](group(subscribed, grown, before)))
    assert all(after[partition] == owner for partition, owner in owners_of(before).items())


@given(data=st.data(), counts=counts)
def test_with_different_subscriptions_a_new_member_takes_from_those_that_have_most(
    data: st.DataObject, counts: dict[int, int]
) -> None:
    subscribed = data.draw(subscriptions(homogeneous=False))
    spec = group(subscribed, counts)
    before = ASSIGNORS["uniform"](spec)
    joined = {**subscribed, "new": tuple(sorted(counts))}
    after_spec = group(joined, counts, before)
    after = ASSIGNORS["uniform"](after_spec)
    check_valid(after_spec, after)
    loads = dict(zip(before, sizes(before), strict=True))
    gains = dict(zip(after, sizes(after), strict=True))
    assert all(gains[member_id] <= load + 1 for member_id, load in loads.items())


def test_topics_are_spread_over_the_members() -> None:
    assignments = ASSIGNORS["uniform"](group(dict.fromkeys(["a", "b"], (0, 1)), {0: 4, 1: 4}))
    assert all(list(map(len, assignment.values())) == [2, 2] for assignment in assignments.values())
    joined = ASSIGNORS["uniform"](group(dict.fromkeys(["a", "b", "c"], (0, 1)), {0: 4, 1: 4}, assignments))
    assert set(joined["c"]) == {topic_id(0), topic_id(1)}, "taken from both topics"


# -- range -------------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(data=st.data(), counts=counts, homogeneous=st.booleans())
def test_range_gives_consecutive_partitions_the_first_ones_one_more(
    data: st.DataObject, counts: dict[int, int], homogeneous: bool
) -> None:
    subscribed = data.draw(subscriptions(homogeneous=homogeneous))
    assignments = ASSIGNORS["range"](group(subscribed, counts))
    for number, count in counts.items():
        given_out = [
            assignments[member_id].get(topic_id(number), ())
            for member_id in sorted(subscribed)
            if number in subscribed[member_id]
        ]
        if given_out:
            assert [partition for partitions in given_out for partition in partitions] == list(range(count))
            lengths = list(map(len, given_out))
            assert lengths == sorted(lengths, reverse=True)
            assert lengths[0] - lengths[-1] <= 1


def test_range_gives_the_same_partitions_of_topics_that_are_partitioned_alike() -> None:
    assignments = ASSIGNORS["range"](group(dict.fromkeys(["b", "a"], (0, 1)), {0: 3, 1: 3}))
    assert assignments["a"] == {topic_id(0): (0, 1), topic_id(1): (0, 1)}
    assert assignments["b"] == {topic_id(0): (2,), topic_id(1): (2,)}


def test_range_takes_static_members_first_and_by_their_instance_ids() -> None:
    subscribed: dict[str, tuple[int, ...]] = dict.fromkeys(["a", "m9", "m1"], (0,))
    assignments = ASSIGNORS["range"](group(subscribed, {0: 3}, instances={"m9": "i1", "m1": "i2"}))
    assert [assignments[member_id][topic_id(0)] for member_id in ("m9", "m1", "a")] == [(0,), (1,), (2,)]
    renamed: dict[str, tuple[int, ...]] = dict.fromkeys(["a", "m5", "m1"], (0,))
    again = ASSIGNORS["range"](group(renamed, {0: 3}, instances={"m5": "i1", "m1": "i2"}))
    assert again["m5"] == assignments["m9"], "it came back under another member id"


@pytest.mark.parametrize("name", ["uniform", "range"])
def test_a_group_without_members_or_topics_is_no_trouble(name: str) -> None:
    assert ASSIGNORS[name](GroupSpec([], {})) == {}
    assert ASSIGNORS[name](group({"a": (), "b": ()}, {})) == {"a": {}, "b": {}}
