"""While one client's huge request is served, others are answered in between. In virtual time, in which a slice of work
takes a millisecond: wherever the broker gives the loop back, time passes, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress

import pytest

from broker.group_session import ready
from broker.session import Session, records_of, simulated
from penstock.broker import limits, service
from penstock.broker.net.slices import RequestSlices, Slices
from penstock.broker.quorum import portions
from penstock.sim.broker import ProtocolClient
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Message, encode
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

MANY = 2_000
SLICE_MS = 1.0
ANSWERS_MIN = 10
NO_SESSION = -1


@pytest.fixture(autouse=True)
def slices_that_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pause(slices: Slices) -> None:
        await slices._runtime.sleep(SLICE_MS)

    async def pause_of_request(slices: RequestSlices) -> None:
        await slices.begin()
        await pause(slices)

    monkeypatch.setattr(Slices, "slice_ms", -1.0)
    monkeypatch.setattr(RequestSlices, "slice_ms", -1.0)
    monkeypatch.setattr(Slices, "_pause", pause)
    monkeypatch.setattr(RequestSlices, "_pause", pause_of_request)
    monkeypatch.setattr(portions, "PORTION", 20)


def fetch(count: int = MANY, *, max_wait_ms: int = 0, epoch: int = NO_SESSION, session_id: int = 0) -> FetchRequest:
    asked = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(count)]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=epoch,
        session_id=session_id,
        topics=[FetchTopic(topic="wide", partitions=asked)] if asked else [],
    )


HUGE: dict[ApiKey, tuple[int, Callable[[], Message]]] = {
    ApiKey.FETCH: (12, fetch),
    ApiKey.LIST_OFFSETS: (
        7,
        lambda: ListOffsetsRequest(
            topics=[ListOffsetsTopic("wide", [ListOffsetsPartition(partition_index=i) for i in range(MANY)])]
        ),
    ),
    ApiKey.METADATA: (
        9,
        lambda: MetadataRequest(topics=[MetadataRequestTopic(name=f"t{i}") for i in range(MANY)]),
    ),
    ApiKey.OFFSET_FETCH: (
        9,
        lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(f"g{i}", topics=None) for i in range(MANY)]),
    ),
    ApiKey.FIND_COORDINATOR: (
        4,
        lambda: FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{i}" for i in range(MANY)]),
    ),
    ApiKey.DESCRIBE_GROUPS: (5, lambda: DescribeGroupsRequest(groups=[f"g{i}" for i in range(MANY)])),
    ApiKey.DELETE_GROUPS: (2, lambda: DeleteGroupsRequest(groups_names=[f"g{i}" for i in range(MANY)])),
    ApiKey.DELETE_RECORDS: (
        2,
        lambda: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic("wide", [DeleteRecordsPartition(partition_index=i) for i in range(MANY)])]
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        4,
        lambda: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic("wide", [OffsetForLeaderPartition(partition=i) for i in range(MANY)])]
        ),
    ),
    ApiKey.DESCRIBE_LOG_DIRS: (
        4,
        lambda: DescribeLogDirsRequest(topics=[DescribableLogDirTopic("wide", list(range(MANY)))]),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        0,
        lambda: DescribeTopicPartitionsRequest(
            topics=[TopicRequest(f"t{i}") for i in range(MANY)], response_partition_limit=MANY
        ),
    ),
    ApiKey.ELECT_LEADERS: (
        2,
        lambda: ElectLeadersRequest(topic_partitions=[TopicPartitions("wide", list(range(MANY)))]),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        0,
        lambda: AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic("wide", [ReassignablePartition(i, None) for i in range(MANY)])]
        ),
    ),
}


async def answers_beside(s: Session, huge: Message, version: int) -> int:
    """How many requests of a polite client are answered while this one is served."""
    greedy, polite = await s.connect(), await s.connect()
    done = []

    async def serve_huge() -> None:
        done.append(await greedy.call(huge, version))

    s.runtime.spawn(serve_huge(), "a huge request")
    answered = await count_until(polite, lambda: bool(done))
    greedy.close()
    polite.close()
    return answered


async def count_until(polite: ProtocolClient, is_done: Callable[[], bool]) -> int:
    answered = 0
    while not is_done():
        await polite.call(ApiVersionsRequest(client_software_name="polite", client_software_version="1"), 3)
        answered += 1
    return answered


@pytest.mark.parametrize("key", HUGE, ids=lambda key: key.name)
@simulated({"offsets.topic.num.partitions": "2", "auto.create.topics.enable": "false"})
async def test_a_polite_client_is_answered_while_a_huge_request_is_served(
    s: Session, key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its handler: decoding and encoding are done in one go here."""
    await s.create("wide", partitions=40)
    await s.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    monkeypatch.setattr(limits, "LARGE_REQUEST_BYTES", 1 << 30)
    monkeypatch.setattr(service, "encode_in_slices", encode_at_once)
    version, huge = HUGE[key]
    assert await answers_beside(s, huge(), version) >= ANSWERS_MIN


OF_LARGE_GROUPS: dict[str, Message] = {
    "all offsets of a large group": OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]),
    "many named offsets": OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics(name="wide", partition_indexes=[0] * 50_000)])
        ]
    ),
    "a list of many groups": ListGroupsRequest(),
}


@pytest.mark.parametrize("asked", OF_LARGE_GROUPS)
@simulated({"offsets.topic.num.partitions": "1", "auto.create.topics.enable": "false"})
async def test_a_polite_client_is_answered_while_a_coordinator_tells_much(
    s: Session, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await s.create("wide", partitions=MANY)
    await ready(s)
    every = [OffsetCommitRequestPartition(index, 7) for index in range(MANY)]
    topics = [OffsetCommitRequestTopic(name="wide", partitions=every)]
    assert (await s.call(OffsetCommitRequest("g", topics=topics), 8)).topics[0].partitions[-1].error_code == 0
    one = [OffsetCommitRequestTopic(name="wide", partitions=every[:1])]
    for number in range(MANY):
        await s.call(OffsetCommitRequest(f"g{number}", topics=one), 8)
    monkeypatch.setattr(limits, "LARGE_REQUEST_BYTES", 1 << 30)
    monkeypatch.setattr(service, "encode_in_slices", encode_at_once)
    request = OF_LARGE_GROUPS[asked]
    assert await answers_beside(s, request, 4 if isinstance(request, ListGroupsRequest) else 9) >= ANSWERS_MIN
    if isinstance(request, ListGroupsRequest):
        assert len((await s.call(request, 4)).groups) == MANY + 1
        return
    (group,) = (await s.call(request, 9)).groups
    (topic,) = group.topics
    assert {part.committed_offset for part in topic.partitions} == {7}
    assert len(topic.partitions) == (MANY if asked.startswith("all") else 50_000)


def encode_at_once(message: Message, version: int, out: bytearray) -> Generator[None, None, None]:
    yield
    encode(message, version, out)


@simulated()
async def test_a_polite_client_is_answered_while_a_huge_request_is_decoded_and_its_answer_encoded(s: Session) -> None:
    """There is no authorizer, so that nothing else is to be done for this one."""
    rules = [AclCreation(2, f"topic-{number}", 3, "User:x", "*", 2, 3) for number in range(MANY)]
    assert await answers_beside(s, CreateAclsRequest(creations=rules), 3) >= 2 * ANSWERS_MIN


@simulated()
async def test_a_session_of_many_partitions_is_answered_in_slices_however_short_its_requests_are(s: Session) -> None:
    await s.create("wide", partitions=40)
    opened = await s.call(fetch(epoch=0), 12)
    assert opened.session_id
    short = fetch(0, session_id=opened.session_id, epoch=1)
    assert await answers_beside(s, short, 12) >= ANSWERS_MIN


PARTITIONS = 600
"""More than a fetch may have that is served at once."""


def waiting_partitions(s: Session) -> int:
    assert s.node.broker is not None
    return s.node.broker._fetch.waiting_partitions


async def begin(s: Session, request: FetchRequest, answers: list[FetchResponse]) -> ProtocolClient:
    """A connection with this fetch under way; the answer is added to `answers`."""
    reader = await s.connect()

    async def read() -> None:
        with suppress(ConnectionResetError):
            answers.append(await reader.call(request, 12))

    s.runtime.spawn(read(), "a long poll")
    return reader


@pytest.mark.parametrize("after_ms", [0.0, 5.0, 20.0, 300.0, 2_000.0])
@simulated()
async def test_a_fetch_in_slices_is_answered_as_soon_as_records_arrive(s: Session, after_ms: float) -> None:
    """Also those that arrive after it has looked at their partition, while it looks at others."""
    await s.create("wide", partitions=PARTITIONS)
    begun_ms = s.runtime.now_ms()
    answers: list[FetchResponse] = []
    await begin(s, fetch(PARTITIONS, max_wait_ms=60_000), answers)
    await s.runtime.sleep(after_ms)
    await s.produce("wide", b"new")
    await s.until(lambda: bool(answers))
    first = answers[0].responses[0].partitions[0]
    assert [record.value for record in records_of(first)] == [b"new"]
    assert s.runtime.now_ms() - begun_ms < 10_000
    assert waiting_partitions(s) == 0


@simulated()
async def test_a_fetch_in_slices_waits_until_its_time_is_over(s: Session) -> None:
    await s.create("wide", partitions=PARTITIONS)
    begun_ms = s.runtime.now_ms()
    answer = await s.call(fetch(PARTITIONS, max_wait_ms=3_000), 12)
    assert 3_000 <= s.runtime.now_ms() - begun_ms < 4_000
    assert {part.error_code for part in answer.responses[0].partitions} == {ErrorCode.NONE}


@simulated()
async def test_fetches_that_wait_name_no_more_partitions_than_memory_has_room_for(
    s: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that waits costs memory for as long as its client likes. One too many is answered at once."""
    await s.create("wide", partitions=PARTITIONS)
    monkeypatch.setattr(limits, "FETCH_WAITING_PARTITIONS_MAX", 3 * PARTITIONS)
    answers: list[FetchResponse] = []
    readers = [await begin(s, fetch(PARTITIONS, max_wait_ms=300_000), answers) for _ in range(4)]
    await s.until(lambda: len(answers) == 1)
    assert waiting_partitions(s) == 3 * PARTITIONS
    for reader in readers:
        reader.close()
    await s.until(lambda: waiting_partitions(s) == 0)
    assert s.node.broker is not None
    partition = s.node.broker.manager.table.find(b"wide", 7)
    assert partition is not None
    assert not partition.fetch_waiters
