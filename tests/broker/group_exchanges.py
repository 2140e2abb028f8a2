"""One conversation per API of groups, for `test_every_version.py`: each is held once in every version of its API."""

from __future__ import annotations

from broker.group_session import (
    ClassicMember,
    ConsumerMember,
    commit,
    commit_request,
    committed,
    describe,
    describe_consumer,
    find,
    listed,
    stable_group,
)
from broker.session import Session
from penstock.wire.apis import ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.uuids import ZERO_UUID


async def join_group(s: Session, version: int, topic_id: bytes) -> None:
    await find(s)
    member = await ClassicMember.connect(s)
    first = await member.send_join(version)
    if version >= 4:
        assert (first.error_code, first.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        member.id = first.member_id
        answer = await member.join(version)
    else:
        answer = first
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.leader == answer.member_id != ""
    ((found, instance_id, metadata),) = [(m.member_id, m.group_instance_id, m.metadata) for m in answer.members]
    assert (found, instance_id, metadata) == (answer.member_id, None, b"subscription")
    if version >= 5:
        static = await ClassicMember.connect(s, "static", instance_id="one")
        answer = await static.join(version)
        assert (answer.error_code, answer.generation_id, answer.members[0].group_instance_id) == (0, 1, "one")


async def sync_group(s: Session, version: int, topic_id: bytes) -> None:
    await find(s)
    member = await ClassicMember.connect(s)
    await member.join()
    answer = await member.sync({member.id: b"mine"}, version)
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    told = ("consumer", "range") if version >= 5 else (None, None)
    assert (answer.protocol_type, answer.protocol_name) == told
    member.generation += 1
    assert (await member.sync(version=version)).error_code == ErrorCode.ILLEGAL_GENERATION


async def heartbeat(s: Session, version: int, topic_id: bytes) -> None:
    await find(s)
    (member,) = await stable_group(s, 1)
    assert await member.heartbeat(version) == ErrorCode.NONE
    member.generation += 1
    assert await member.heartbeat(version) == ErrorCode.ILLEGAL_GENERATION
    member.id = "nobody"
    assert await member.heartbeat(version) == ErrorCode.UNKNOWN_MEMBER_ID


async def leave_group(s: Session, version: int, topic_id: bytes) -> None:
    await find(s)
    (member,) = await stable_group(s, 1)
    answer = await member.leave(version)
    assert answer.error_code == ErrorCode.NONE
    if version >= 3:
        assert [(one.member_id, one.error_code) for one in answer.members] == [(member.id, 0)]
    assert (await describe(s)).group_state == "Empty"
    again = await member.leave(version)
    told = again.members[0].error_code if version >= 3 else again.error_code
    assert told == ErrorCode.UNKNOWN_MEMBER_ID


async def offset_commit(s: Session, version: int, topic_id: bytes) -> None:
    await find(s)
    (member,) = await stable_group(s, 1)
    request = commit_request("g", {("t", 0): (2, "why"), ("t", 1): (3, None)}, member.id, member.generation)
    request.topics[0].topic_id = topic_id
    answer = await member.client.call(request, version)
    (topic,) = answer.topics
    assert (topic.name, topic.topic_id) == (("", topic_id) if version >= 10 else ("t", ZERO_UUID))
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [(0, 0), (1, 0)]
    found = await committed(s.client, "g")
    assert found == {("t", 0): (2, "why"), ("t", 1): (3, "")}
    stale = commit_request("g", {("t", 0): (9, None)}, member.id, member.generation + 1)
    stale.topics[0].topic_id = topic_id
    (part,) = (await member.client.call(stale, version)).topics[0].partitions
    assert part.error_code == ErrorCode.ILLEGAL_GENERATION
    assert await committed(s.client, "g") == found


async def offset_fetch(s: Session, version: int, topic_id: bytes) -> None:
    await find(s)
    assert await commit(s.client, "g", {("t", 0): (2, "why")}) == {("t", 0): ErrorCode.NONE}
    if version < 10:
        wanted = [("t", 0), ("t", 1)]
        assert await committed(s.client, "g", wanted, version) == {("t", 0): (2, "why")}
        if version >= 2:
            assert await committed(s.client, "g", None, version) == {("t", 0): (2, "why")}
        assert await committed(s.client, "other", wanted, version) == {}
    if version < 8:
        return
    named = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
    topics = [OffsetFetchRequestTopics(**named, partition_indexes=[0, 1])]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=topics),
            OffsetFetchRequestGroup(group_id="other", topics=topics),
            OffsetFetchRequestGroup(group_id="g", topics=None),
        ],
        require_stable=True,
    )
    answer = await s.call(request, version)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("g", 0), ("other", 0), ("g", 0)]
    for group, offsets in zip(answer.groups, ([2, -1], [-1, -1], [2]), strict=True):
        (topic,) = group.topics
        assert (topic.name, topic.topic_id) == (("", topic_id) if version >= 10 else ("t", ZERO_UUID))
        assert [part.committed_offset for part in topic.partitions] == offsets
        assert [part.error_code for part in topic.partitions] == [0] * len(offsets)


async def offset_delete(s: Session, version: int, topic_id: bytes) -> None:
    await find(s)
    await commit(s.client, "g", {("t", 0): (2, "why"), ("t", 1): (3, None)})
    entry = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    answer = await s.call(OffsetDeleteRequest(group_id="g", topics=[entry]), version)
    assert answer.error_code == ErrorCode.NONE
    assert [(part.partition_index, part.error_code) for part in answer.topics[0].partitions] == [(0, 0)]
    assert await committed(s.client, "g") == {("t", 1): (3, "")}
    missing = await s.call(OffsetDeleteRequest(group_id="nowhere", topics=[entry]), version)
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def describe_groups(s: Session, version: int, topic_id: bytes) -> None:
    await find(s)
    (member,) = await stable_group(s, 1)
    request = DescribeGroupsRequest(groups=["g", "nowhere"], include_authorized_operations=True)
    found, missing = (await s.call(request, version)).groups
    assert (found.error_code, found.group_id, found.group_state) == (0, "g", "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (one,) = found.members
    assert (one.member_id, one.client_id, one.client_host) == (member.id, "sim", "/client")
    assert (one.member_metadata, one.member_assignment) == (b"subscription", f"for {member.id}".encode())
    assert (found.authorized_operations > 0) == (version >= 3)
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert missing.group_state == "Dead"


async def list_groups(s: Session, version: int, topic_id: bytes) -> None:
    assert (await s.call(ListGroupsRequest(), version)).groups == []
    await find(s)
    await stable_group(s, 1)
    await commit(s.client, "simple", {("t", 0): (2, "why")})
    answer = await s.call(ListGroupsRequest(), version)
    assert answer.error_code == 0
    found = {(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in answer.groups}
    told = [("g", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")]
    states, types = version >= 4, version >= 5
    assert found == {(g, p, state if states else "", kind if types else "") for g, p, state, kind in told}
    if states:
        answer = await s.call(ListGroupsRequest(states_filter=["empty"]), version)
        assert [one.group_id for one in answer.groups] == ["simple"]
    if types:
        assert (await s.call(ListGroupsRequest(types_filter=["consumer"]), version)).groups == []


async def delete_groups(s: Session, version: int, topic_id: bytes) -> None:
    await find(s)
    await stable_group(s, 1, "busy")
    await commit(s.client, "g", {("t", 0): (2, "why")})
    answer = await s.call(DeleteGroupsRequest(groups_names=["g", "busy", "nowhere"]), version)
    told = {one.group_id: one.error_code for one in answer.results}
    assert told == {"g": 0, "busy": ErrorCode.NON_EMPTY_GROUP, "nowhere": ErrorCode.GROUP_ID_NOT_FOUND}
    assert list(await listed(s)) == ["busy"]
    assert await committed(s.client, "g") == {}


async def consumer_group_heartbeat(s: Session, version: int, topic_id: bytes) -> None:
    await find(s, "c")
    member = await ConsumerMember.connect(s, "c", ["t"])
    if version == 0:
        member.id = ""
    answer = await member.heartbeat(version)
    assert (answer.error_code, answer.heartbeat_interval_ms) == (0, 5000), answer
    assert answer.member_id == member.id != ""
    assert answer.member_epoch > 0
    assert member.partitions == [(topic_id, 0), (topic_id, 1)]
    again = await member.heartbeat(version)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, member.epoch, None)
    member.epoch += 5
    assert (await member.heartbeat(version)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    if version >= 1:
        by_regex = await ConsumerMember.connect(s, "r", subscribed_topic_regex="[s-u]")
        for _ in range(3):
            assert (await by_regex.heartbeat(version)).error_code == 0
            await s.runtime.sleep(100)
        assert by_regex.partitions == [(topic_id, 0), (topic_id, 1)]


async def consumer_group_describe(s: Session, version: int, topic_id: bytes) -> None:
    await find(s, "c")
    member = await ConsumerMember.connect(s, "c", ["t"])
    await member.heartbeat()
    await member.heartbeat()
    request = ConsumerGroupDescribeRequest(group_ids=["c", "nowhere"], include_authorized_operations=True)
    found, missing = (await s.call(request, version)).groups
    assert (found.error_code, found.group_id, found.group_state, found.assignor_name) == (0, "c", "Stable", "uniform")
    assert (found.group_epoch, found.assignment_epoch) == (member.epoch, member.epoch)
    assert found.authorized_operations > 0
    (one,) = found.members
    assert (one.member_id, one.member_epoch, one.subscribed_topic_names) == (member.id, member.epoch, ["t"])
    assert one.member_type == (1 if version >= 1 else -1)
    for assignment in (one.assignment, one.target_assignment):
        (part,) = assignment.topic_partitions
        assert (part.topic_id, part.topic_name, sorted(part.partitions)) == (topic_id, "t", [0, 1])
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert missing.error_message
    assert (await describe_consumer(s)).group_state == "Stable"


GROUP_EXCHANGES = {
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.JOIN_GROUP: join_group,
    ApiKey.HEARTBEAT: heartbeat,
    ApiKey.LEAVE_GROUP: leave_group,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
}
