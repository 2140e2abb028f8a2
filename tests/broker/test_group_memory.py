"""Groups take no more memory than `penstock.group.state.bytes.max`: beyond it nothing new is let in, and what is there
goes on."""

from __future__ import annotations

from typing import Any, cast

from broker.group_session import QUICK, ClassicMember, ConsumerMember, commit, ready, stable_group
from broker.session import Session, simulated
from penstock.broker.coordination.groups import WEIGHINGS_APART_MS
from penstock.coordinators.groups.memory import GroupMemory
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_groups import DeleteGroupsRequest

MB = 1 << 20
SMALL = {**QUICK, "penstock.group.state.bytes.max": str(MB)}
PARTITIONS = 200
LONG = "m" * 4_000


def memory_of(s: Session) -> GroupMemory:
    kind: Any = s.node.served.node.coordinators.kind
    return cast(GroupMemory, kind.memory)


async def fill_with_offsets(s: Session) -> int:
    """Commit until there is no more room. Returns how many groups have offsets."""
    await s.create("t", partitions=PARTITIONS)
    await ready(s)
    for number in range(1_000):
        offsets = {("t", index): (1, LONG) for index in range(10)}
        codes = await commit(s.client, f"g{number}", offsets)
        if set(codes.values()) != {ErrorCode.NONE}:
            assert set(codes.values()) == {ErrorCode.POLICY_VIOLATION}
            return number
    raise AssertionError("there is always room")


@simulated(SMALL)
async def test_offsets_beyond_the_memory_of_groups_are_refused_and_others_still_committed(s: Session) -> None:
    groups = await fill_with_offsets(s)
    assert 15 < groups < 30
    assert MB <= memory_of(s).used < MB + 50_000
    new = await commit(s.client, "g0", {("t", 100): (1, "")})
    assert new == {("t", 100): ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    again = {("t", index): (2, LONG) for index in range(10)}
    assert set((await commit(s.client, "g0", again)).values()) == {ErrorCode.NONE}
    shorter = {("t", index): (3, "") for index in range(10)}
    assert set((await commit(s.client, "g0", shorter)).values()) == {ErrorCode.NONE}
    assert await commit(s.client, "g0", {("t", 100): (1, "")}) == {("t", 100): ErrorCode.NONE}, "now there is room"


@simulated(SMALL)
async def test_the_memory_of_groups_is_known_after_a_restart_and_free_after_a_deletion(s: Session) -> None:
    groups = await fill_with_offsets(s)
    used = memory_of(s).offsets
    await s.restarted()
    await s.until(lambda: memory_of(s).offsets == used)
    names = [f"g{number}" for number in range(groups)]
    await s.call(DeleteGroupsRequest(groups_names=names), 2)
    await s.until(lambda: memory_of(s).offsets == 0)
    assert set((await commit(s.client, "g0", {("t", 0): (1, LONG)})).values()) == {ErrorCode.NONE}


@simulated(SMALL)
async def test_members_beyond_the_memory_of_groups_are_refused_until_others_have_left(s: Session) -> None:
    await ready(s)
    members = await stable_group(s, 2, protocols={"range": bytes(1_000)}, session_timeout_ms=60_000)
    others: list[Any] = []
    while True:
        protocols = {"range": bytes(100_000)}
        other = await ClassicMember.connect(s, f"g{len(others)}", protocols=protocols, session_timeout_ms=60_000)
        answer = await other.join()
        if answer.error_code:
            break
        await other.sync({other.id: b"all"})
        others.append(other)
        await s.runtime.sleep(2 * WEIGHINGS_APART_MS)
    assert answer.error_code in (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.POLICY_VIOLATION)
    assert 5 <= len(others) <= 11
    late = await ClassicMember.connect(s, protocols={"range": bytes(MB // 4)})
    assert (await late.send_join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    for member in members:
        assert await member.heartbeat() == ErrorCode.NONE
    for other in others:
        await other.leave()
    await late.send_join()
    await s.runtime.sleep(2 * WEIGHINGS_APART_MS)
    assert (await late.send_join()).error_code == ErrorCode.MEMBER_ID_REQUIRED


@simulated(SMALL)
async def test_members_of_the_consumer_protocol_are_bounded_too(s: Session) -> None:
    await s.create("t")
    await ready(s)
    names = [f"nowhere-{number}" for number in range(500)]
    codes = []
    for _ in range(40):
        member = await ConsumerMember.connect(s, "c", topics=["t", *names])
        codes.append((await member.heartbeat()).error_code)
        await s.runtime.sleep(WEIGHINGS_APART_MS / 4)
    let_in = codes.index(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert 10 < let_in < 25
    assert set(codes[let_in:]) == {ErrorCode.GROUP_MAX_SIZE_REACHED}
