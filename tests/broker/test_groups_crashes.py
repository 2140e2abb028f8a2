"""Crash at every operation on the disk while groups of both protocols rebalance and commit.

What was acknowledged is read back with its metadata; a commit that was not is there wholly or not at all; and no
partition ever has two owners in one generation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from broker.group_session import (
    QUICK,
    ClassicMember,
    ConsumerMember,
    Offsets,
    Rebalance,
    commit,
    committed,
    find,
    ready,
    settled,
)
from broker.session import Session, expect_no_surprise, is_recovered
from penstock.broker.coordination.journal import PartitionJournal
from penstock.coordinators.groups import GroupShard
from penstock.coordinators.host import ShardHost
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.records import build_keyed_batch

STRIDE = 3
"""Runs of one test: together they crash at every operation."""
PARTITIONS = 3
SIMPLE, CLASSIC, CONSUMER = "simple", "classic", "consumer"


@dataclass
class History:
    """What the broker has said, and what it had not said yet when it died."""

    offsets: dict[str, Offsets] = field(default_factory=dict)
    attempted: tuple[str, Offsets] | None = None
    """A group, and all its offsets as they were to be."""
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """Of a partition in a generation of the classic group: the member that was told that it is its own."""
    members: list[ClassicMember] = field(default_factory=list)
    consumers: list[ConsumerMember] = field(default_factory=list)

    def own(self, member: ClassicMember, assignment: bytes) -> None:
        for partition in assignment:
            owner = self.owners.setdefault((member.generation, partition), member.id)
            assert owner == member.id, f"two owners of {partition} in generation {member.generation}"

    def check_consumers(self) -> None:
        owned = [partition for member in self.consumers for partition in member.partitions]
        assert len(owned) == len(set(owned)), f"two owners: {[m.partitions for m in self.consumers]}"

    def begin(self, group: str, offsets: Offsets) -> None:
        self.attempted = group, offsets

    def end(self) -> None:
        assert self.attempted is not None
        self.offsets[self.attempted[0]] = self.attempted[1]
        self.attempted = None


async def script(s: Session, history: History) -> None:
    await s.create("t", PARTITIONS)
    await find(s, CLASSIC)
    await commit_simple(s, history, {("t", 0): (1, "one"), ("t", 1): (2, "two")})
    first = await ClassicMember.connect(s, CLASSIC)
    history.members.append(first)
    await generation(s, history)
    await commit_of(first, history, {("t", 0): (10, "a"), ("t", 1): (11, "b"), ("t", 2): (12, "c")})
    history.members.append(await ClassicMember.connect(s, CLASSIC))
    await generation(s, history)
    await commit_of(history.members[1], history, {("t", 1): (21, "d" * 50)})
    await commit_of(first, history, {("t", 0): (20, ""), ("t", 2): (22, "e")})
    await history.members.pop().leave()
    await generation(s, history)
    await commit_of(first, history, {("t", 0): (30, "f"), ("t", 1): (31, "g")})
    history.begin(SIMPLE, {})
    (deleted,) = (await s.call(DeleteGroupsRequest(groups_names=[SIMPLE]))).results
    assert deleted.error_code == ErrorCode.NONE
    history.end()
    await consume(s, history)


async def consume(s: Session, history: History) -> None:
    history.consumers.append(await ConsumerMember.connect(s, CONSUMER, ["t"]))
    await beat(history)
    await commit_of(history.consumers[0], history, {("t", 0): (40, "h"), ("t", 2): (42, "i")})
    history.consumers.append(await ConsumerMember.connect(s, CONSUMER, ["t"]))
    for _ in range(4):
        await beat(history)
    await commit_of(history.consumers[1], history, {("t", 1): (51, "j")})
    assert (await history.consumers[0].leave()).error_code == ErrorCode.NONE
    del history.consumers[0]
    for _ in range(2):
        await beat(history)


async def beat(history: History) -> None:
    for member in history.consumers:
        assert (await member.heartbeat()).error_code == ErrorCode.NONE
        history.check_consumers()


async def generation(s: Session, history: History) -> None:
    """All members come together in one generation, and share the partitions."""

    def share(members: list[str]) -> dict[str, bytes]:
        return {member: bytes(range(number, PARTITIONS, len(members))) for number, member in enumerate(members)}

    await Rebalance(s, history.members, share).run(history.own)


async def commit_simple(s: Session, history: History, offsets: Offsets) -> None:
    history.begin(SIMPLE, offsets)
    told = await commit(s.client, SIMPLE, offsets)
    assert set(told.values()) == {ErrorCode.NONE}
    history.end()


async def commit_of(member: ClassicMember | ConsumerMember, history: History, offsets: Offsets) -> None:
    history.begin(member.group, {**history.offsets.get(member.group, {}), **offsets})
    told = await member.commit(offsets)
    assert set(told.values()) == {ErrorCode.NONE}, told
    history.end()


async def verify(s: Session, history: History) -> None:
    await s.until(lambda: is_recovered(s.node))
    for group in (SIMPLE, CLASSIC, CONSUMER):
        await ready(s, group)
        allowed = [history.offsets.get(group, {})]
        if history.attempted is not None and history.attempted[0] == group:
            allowed.append(history.attempted[1])
        history.offsets[group] = await committed(s.client, group)
        assert history.offsets[group] in allowed, group
    if s.node.served.quorum.image.topic("t") is None:
        await s.create("t", PARTITIONS)
    await go_on_as_members(s, history)
    await go_on_as_consumers(s, history)


async def go_on_as_members(s: Session, history: History) -> None:
    """The members come back, those that the coordinator knows with their old ids, and with them one more."""
    for member in history.members:
        member.s, member.client = s, await s.connect()
    seen = max((number for number, _ in history.owners), default=0)
    history.members.append(await ClassicMember.connect(s, CLASSIC))
    await generation(s, history)
    assert history.members[0].generation >= seen
    await commit_of(history.members[0], history, {("t", 0): (60, "k")})
    assert await committed(s.client, CLASSIC) == history.offsets[CLASSIC]


async def go_on_as_consumers(s: Session, history: History) -> None:
    for member in history.consumers:
        member.s, member.client = s, await s.connect()
        answer = await member.heartbeat()
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            # As a client does: it gives up what it had, and begins anew.
            member.epoch, member.owned = 0, {}
        else:
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        history.check_consumers()
    if history.consumers:
        # One that died with its acknowledgement may be a member still: its session has to end first.
        await s.runtime.sleep(0)
        for _ in range(15):
            await beat_again(history)
            await s.runtime.sleep(5_000)
        await settled(history.consumers, PARTITIONS)


async def beat_again(history: History) -> None:
    for member in history.consumers:
        answer = await member.heartbeat()
        if answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            member.epoch, member.owned = 0, {}
        history.check_consumers()


def crash_at(operation: int | None, *, power_loss: bool, seed: int) -> int:
    """Run the script with a crash in this operation, restart, verify. Returns how many operations the script has."""
    history = History()
    settings = {**QUICK, **({"log.flush.interval.messages": "1"} if power_loss else {})}
    with World(f"{seed}-{operation}") as world:
        node = SimBroker(world, settings)
        node.start()
        before = node.host.disk.operations
        if operation is not None:
            node.host.disk.crash_after(operation)

        async def main(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            try:
                await script(s, history)
            except ConnectionError:
                assert node.process.is_dead, node.events.all[-1]

        world.execute(main)
        count = node.host.disk.operations - before
        node.host.disk.cancel_crash()
        node.restart(power_loss=power_loss)

        async def after(runtime: SimRuntime) -> None:
            await verify(await Session.open(runtime, node), history)

        world.execute(after)
        expect_no_surprise(node)
        assert not node.events.named("coordinator restarts")
        node.stop()
    return count


@pytest.mark.parametrize("part", range(STRIDE))
@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_a_crash_at_any_operation_keeps_what_groups_were_told(power_loss: bool, part: int) -> None:
    total = crash_at(None, power_loss=power_loss, seed=0)
    assert total > 30
    for operation in range(1 + part, total + 3, STRIDE):
        crash_at(operation, power_loss=power_loss, seed=part)


def answers_at_once(host: ShardHost[GroupShard]) -> None:
    while host._held:
        _, asked, answer, _ = host._held.popleft()
        if asked in host._waiting:
            del host._waiting[asked]
            asked.settle(answer)


def a_batch_per_record(host: ShardHost[GroupShard]) -> None:
    records, host._pending, host._pending_bytes = host._pending, [], 0
    host._flush_timer = None
    host._is_appending = True
    for record in records:
        host._journal.append(build_keyed_batch([record], timestamp=1))
    host._is_appending = False
    host._release()


BUGS = {
    "answers before the append": (ShardHost, "_release", answers_at_once),
    "a decision in several batches": (ShardHost, "flush", a_batch_per_record),
    "answers before the sync": (
        PartitionJournal, "high_watermark", property(lambda journal: journal.end_offset)
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead = BUGS[bug]
    monkeypatch.setattr(owner, name, instead)
    total = crash_at(None, power_loss=True, seed=0)
    for operation in range(1, total):
        try:
            crash_at(operation, power_loss=True, seed=0)
        except AssertionError:
            return
    pytest.fail(f"{bug}: nothing was found wrong")
