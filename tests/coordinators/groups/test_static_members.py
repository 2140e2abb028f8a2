"""Static members (KIP-345): an instance that restarts gets back what it had, and only one of a kind is let in."""

from __future__ import annotations

from coordinators.groups.harness import Groups, subscription
from penstock.coordinators.groups.classic_group import ClassicState
from penstock.wire.errors import ErrorCode


def stable(groups: Groups, *instances: str, **options: object) -> dict[str, str]:
    """A stable group of static members: instance → member id; the first leads."""
    joins = [groups.join(instance=instance, **options) for instance in instances]  # type: ignore[arg-type]
    while any(join.waits for join in joins):
        groups.advance_to_next_timer()
    groups.settle(joins)
    return dict(zip(instances, (join.member_id for join in joins), strict=True))


def test_a_static_member_joins_in_one_round_and_its_id_tells_the_instance() -> None:
    groups = Groups()
    joined = groups.join(instance="worker-1")
    groups.advance(3_000)
    assert joined.member_id.startswith("worker-1-")
    assert joined.response.members[0].group_instance_id == "worker-1"


def test_a_restart_gives_back_the_assignment_without_a_rebalance() -> None:
    groups = Groups()
    ids = stable(groups, "one", "two")
    again = groups.join(instance="two", host="/10.0.0.9")
    assert again.response.generation_id == 1
    assert again.member_id != ids["two"]
    assert not again.response.skip_assignment
    assert groups.group.state is ClassicState.STABLE
    synced = groups.sync(again.member_id, 1, instance="two")
    assert synced.response.assignment == ids["two"].encode()
    assert groups.heartbeat(ids["one"], 1, instance="one") == ErrorCode.NONE
    assert groups.describe().members[1].client_host == "/10.0.0.9"


def test_a_restarted_leader_is_told_to_skip_the_assignment() -> None:
    groups = Groups()
    stable(groups, "one", "two")
    again = groups.join(instance="one", version=9)
    assert again.response.leader == again.member_id
    assert again.response.skip_assignment
    assert [m.group_instance_id for m in again.response.members] == ["two", "one"]


def test_a_restarted_leader_that_cannot_skip_is_told_that_its_former_self_leads() -> None:
    groups = Groups()
    ids = stable(groups, "one", "two")
    again = groups.join(instance="one", version=8)
    assert again.response.leader == ids["one"] != again.member_id
    assert again.response.members == []


def test_a_restart_survives_a_crash_of_the_coordinator() -> None:
    groups = Groups()
    ids = stable(groups, "one", "two")
    again = groups.join(instance="two")
    loaded = groups.reloaded()
    assert loaded.heartbeat(again.member_id, 1, instance="two") == ErrorCode.NONE
    assert loaded.heartbeat(ids["two"], 1, instance="two") == ErrorCode.FENCED_INSTANCE_ID


def test_a_restart_with_another_subscription_takes_part_in_what_the_group_reads() -> None:
    groups = Groups()
    groups.create_topic("u")
    stable(groups, "one", protocols=(("range", subscription("t")),))
    again = groups.join(instance="one", protocols=(("range", subscription("u")),))
    groups.commit(topic="u", member_id=again.member_id, generation=1, instance="one")
    for shard in (groups, groups.reloaded()):
        response = shard.delete_offsets(("u", 0))
        assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_a_restart_with_another_protocol_rebalances() -> None:
    groups = Groups()
    both = (("range", b""), ("sticky", b""))
    stable(groups, "one", "two", protocols=both)
    again = groups.join(instance="two", protocols=(("sticky", b""),))
    assert again.waits
    assert groups.group.state is ClassicState.PREPARING_REBALANCE


def test_a_duplicate_instance_fences_the_member_that_was_there() -> None:
    groups = Groups()
    ids = stable(groups, "one", "two")
    groups.join(instance="two")
    assert groups.heartbeat(ids["two"], 1, instance="two") == ErrorCode.FENCED_INSTANCE_ID
    assert groups.sync(ids["two"], 1, instance="two").error == ErrorCode.FENCED_INSTANCE_ID
    assert groups.join(ids["two"], instance="two").error == ErrorCode.FENCED_INSTANCE_ID
    assert groups.commit(member_id=ids["two"], generation=1, instance="two") == ErrorCode.FENCED_INSTANCE_ID
    assert groups.leave((ids["two"], "two")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert groups.heartbeat(ids["two"], 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_duplicate_fences_whoever_waits_to_join() -> None:
    groups = Groups()
    first = groups.join(instance="one")
    second = groups.join(instance="one")
    assert first.error == ErrorCode.FENCED_INSTANCE_ID
    assert second.waits
    groups.advance(3_000)
    assert second.response.generation_id == 1
    assert len(groups.group.members) == 1


def test_a_duplicate_fences_whoever_waits_to_sync_and_starts_over() -> None:
    groups = Groups()
    joins = [groups.join(instance="one"), groups.join(instance="two")]
    groups.advance(6_000)
    waiting = groups.sync(joins[1].member_id, 1, instance="two")
    again = groups.join(instance="two")
    assert waiting.error == ErrorCode.FENCED_INSTANCE_ID
    assert again.waits
    assert groups.group.state is ClassicState.PREPARING_REBALANCE


def test_a_restart_before_the_sync_still_owes_the_sync() -> None:
    for syncs in (True, False):
        groups = Groups()
        joins = [groups.join(instance=name, session_ms=60_000, rebalance_ms=20_000) for name in ("one", "two")]
        groups.advance(6_000)
        groups.sync(joins[0].member_id, 1, {joins[1].member_id: b"yours"}, instance="one")
        again = groups.join(instance="two", session_ms=60_000, rebalance_ms=20_000)
        if syncs:
            assert groups.sync(again.member_id, 1, instance="two").response.assignment == b"yours"
        groups.advance(20_000)
        assert ("two" in groups.group.static_members) is syncs
        assert (groups.group.state is ClassicState.STABLE) is syncs


def test_an_instance_nobody_knows_is_an_unknown_member() -> None:
    groups = Groups()
    ids = stable(groups, "one")
    assert groups.heartbeat(ids["one"], 1, instance="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.join("some-id", instance="other").error == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_to_a_dynamic_member_cannot_take_over_an_instance() -> None:
    groups = Groups()
    ids = stable(groups, "one")
    pending = groups.join().member_id
    assert groups.join(pending, instance="one").error == ErrorCode.FENCED_INSTANCE_ID
    assert groups.heartbeat(ids["one"], 1, instance="one") == ErrorCode.NONE


def test_a_static_member_that_misses_a_rebalance_stays_until_its_sync_is_due() -> None:
    groups = Groups()
    stable(groups, "one", "two", session_ms=100_000, rebalance_ms=20_000)
    new, joined = groups.enter(rebalance_ms=20_000, session_ms=100_000)
    one = groups.group.static_members["one"]
    led = groups.join(one, instance="one", rebalance_ms=20_000, session_ms=100_000)
    groups.advance(20_000)
    assert [m.group_instance_id for m in led.response.members] == ["one", "two", None]
    assert joined.response.generation_id == 2
    groups.settle([led, joined])
    groups.advance(20_000)
    assert list(groups.group.static_members) == ["one"], "who never syncs is out"
    assert groups.group.state is ClassicState.PREPARING_REBALANCE
    assert new in groups.group.members


def test_a_group_whose_static_members_are_all_away_waits_for_the_first_of_them() -> None:
    groups = Groups()
    ids = stable(groups, "one", "two", session_ms=300_000, rebalance_ms=20_000)
    dynamic, _ = groups.enter(rebalance_ms=20_000)
    assert groups.leave(dynamic) == [ErrorCode.NONE]
    groups.advance(20_000)
    assert groups.group.state is ClassicState.PREPARING_REBALANCE
    assert groups.group.generation == 1
    back = groups.join(instance="two", rebalance_ms=20_000, session_ms=300_000)
    groups.advance(20_000)
    assert back.response.leader == back.member_id
    assert ids["one"] in groups.group.members


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    groups = Groups()
    stable(groups, "one", "two")
    assert groups.leave(("", "two"), ("", "three"), ("", None)) == [
        ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID
    ]  # fmt: skip
    assert list(groups.group.static_members) == ["one"]


def test_a_static_member_that_leaves_only_goes_when_it_says_so() -> None:
    """Clients do not send LeaveGroup for static members; a session is what ends them."""
    groups = Groups()
    ids = stable(groups, "one", "two", session_ms=10_000)
    groups.advance(9_000)
    groups.heartbeat(ids["one"], 1, instance="one")
    assert len(groups.group.members) == 2
    groups.advance(1_000)
    assert list(groups.group.static_members) == ["one"]
