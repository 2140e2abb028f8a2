"""After any operations, loading what was written gives the state there is."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from coordinators.groups.harness import Groups, subscription
from penstock.coordinators.groups.classic_group import ClassicGroup, ClassicState

GROUPS = st.sampled_from(["g", "h"])
TOPICS = st.sampled_from(["t", "u"])
INSTANCES = st.sampled_from([None, None, "one", "two"])
Protocols = tuple[tuple[str, bytes], ...]

PROTOCOLS = st.sampled_from(
    [
        (("range", subscription("t")),),
        (("range", subscription("u")), ("sticky", subscription("t"))),
        (("range", b"?"),),
    ]
)


class Operations(RuleBasedStateMachine):
    """What clients and administrators do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups(offsets_retention_ms=1_000_000, group_max_size=4)
        for topic in ("t", "u"):
            self.groups.create_topic(topic, partitions=3)
        self.rng = Random(7)

    def member(self, group: str) -> tuple[str, str | None]:
        known = self.groups.shard.groups.get(group)
        if not isinstance(known, ClassicGroup):
            return "", None
        ids = [*known.members, *known.pending_join]
        member_id = self.rng.choice(ids) if ids else ""
        member = known.members.get(member_id)
        return member_id, None if member is None else member.instance_id

    def generation(self, group: str) -> int:
        known = self.groups.shard.groups.get(group)
        return known.generation if isinstance(known, ClassicGroup) else -1

    @rule(group=GROUPS, instance=INSTANCES, protocols=PROTOCOLS, version=st.sampled_from([3, 4, 8, 9]))
    def join_new(self, group: str, instance: str | None, protocols: Protocols, version: int) -> None:
        self.groups.join(group=group, instance=instance, protocols=protocols, version=version)

    @rule(group=GROUPS, protocols=PROTOCOLS)
    def join_again(self, group: str, protocols: Protocols) -> None:
        member_id, instance = self.member(group)
        self.groups.join(member_id, group=group, instance=instance, protocols=protocols)

    @rule(group=GROUPS)
    def everybody_joins_and_syncs(self, group: str) -> None:
        known = self.groups.shard.groups.get(group)
        if not isinstance(known, ClassicGroup):
            return
        for member in list(known.members.values()):
            self.groups.join(member.member_id, group=group, instance=member.instance_id, protocols=member.protocols)
        if known.state is ClassicState.COMPLETING_REBALANCE:
            assignments = {member_id: self.rng.randbytes(5) for member_id in known.members}
            for member in list(known.members.values()):
                self.groups.sync(
                    member.member_id,
                    known.generation,
                    assignments,
                    group=group,
                    instance=member.instance_id,
                    protocol_name=None,
                )

    @rule(group=GROUPS)
    def sync(self, group: str) -> None:
        member_id, instance = self.member(group)
        generation = self.generation(group)
        self.groups.sync(member_id, generation, {member_id: b"x"}, group=group, instance=instance, protocol_name=None)

    @rule(group=GROUPS)
    def leave(self, group: str) -> None:
        self.groups.leave(self.member(group), group=group)

    @rule(group=GROUPS, topic=TOPICS, partition=st.integers(0, 3), offset=st.integers(0, 9), alone=st.booleans())
    def commit(self, group: str, topic: str, partition: int, offset: int, alone: bool) -> None:
        member_id, instance = ("", None) if alone else self.member(group)
        generation = -1 if alone else self.generation(group)
        self.groups.commit(
            offset,
            group=group,
            topic=topic,
            partition=partition,
            member_id=member_id,
            instance=instance,
            generation=generation,
            metadata="m" * offset,
            retention_ms=1_000 * offset if offset > 7 else -1,
        )

    @rule(group=GROUPS, topic=TOPICS, partition=st.integers(0, 3))
    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        self.groups.delete_offsets((topic, partition), group=group)

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.groups.delete(group)

    @rule(topic=TOPICS)
    def recreate_topic(self, topic: str) -> None:
        self.groups.delete_topic(topic)
        self.groups.create_topic(topic, partitions=3)

    @rule(duration_ms=st.sampled_from([100, 3_000, 10_000, 60_000, 700_000]))
    def wait(self, duration_ms: int) -> None:
        self.groups.advance(duration_ms)

    @rule()
    def crash(self) -> None:
        self.groups = self.groups.reloaded()

    @invariant()
    def loading_gives_the_same(self) -> None:
        there = self.groups.shard.durable_state()
        loaded = self.groups.reloaded().shard.durable_state()
        assert loaded["offsets"] == there["offsets"]
        assert loaded["consumer"] == there["consumer"]
        classic_there, classic_loaded = there["classic"], loaded["classic"]
        assert isinstance(classic_there, dict)
        assert isinstance(classic_loaded, dict)
        for group_id, state in classic_there.items():
            if state != "rebalancing":
                # Over its limit, a loaded group rebalances at once.
                assert classic_loaded[group_id] == state
        # Nothing comes back that is gone.
        assert [group_id for group_id in classic_loaded if group_id not in classic_there] == []

    @invariant()
    def counts_agree_with_members(self) -> None:
        for group in self.groups.shard.groups.values():
            assert isinstance(group, ClassicGroup)
            members = group.members.values()
            assert group.awaiting_join == sum(member.join_ticket is not None for member in members)
            assert group.static_members == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
            assert (group.leader_id in group.members) if group.members else group.leader_id is None
            assert all(member_id in group.members for member_id in group.pending_sync)
            assert not any(member_id in group.members for member_id in group.pending_join)
            supported: dict[str, int] = {}
            for member in members:
                for name, _ in member.protocols:
                    supported[name] = supported.get(name, 0) + 1
            assert group.supporters() == supported
            if group.is_empty:
                assert not group.members
            if group.state is ClassicState.STABLE:
                assert group.members
                assert group.awaiting_join == 0
                assert all(member.sync_ticket is None for member in members)


Operations.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_loading_gives_what_there_was = Operations.TestCase
