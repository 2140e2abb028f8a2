"""What requests hold is given back: the budget of large answers, copies that wait to be decompressed, and connections
that wait are told from those that stopped in the middle of a request."""

from __future__ import annotations

from struct import pack
from weakref import ref

import pytest

from broker.group_session import QUICK, ClassicMember, commit, ready
from broker.session import Session, batch, fetch_request, produce_request, simulated
from penstock.broker import limits
from penstock.broker.net.answering import AnswerBudget
from penstock.broker.produce.preparing import Preparation
from penstock.broker.replicas.partition import Partition
from penstock.sim.broker import ProtocolClient, request_frame
from penstock.wire.codec import Message
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

LARGE = bytes(4 * limits.OPENED_ON_LOOP_BYTES_MAX)
ALL_TOPICS = MetadataRequest(topics=None)


def large_batch(value: bytes = b"") -> bytes:
    """One that is decompressed in a thread."""
    noise = b"".join(number.to_bytes(4, "big") for number in range(len(LARGE) // 4))
    records = batch(value, noise, codec=Codec.GZIP)
    assert len(records) > limits.OPENED_ON_LOOP_BYTES_MAX
    return records


# ---- large answers


async def answer_budget(s: Session, monkeypatch: pytest.MonkeyPatch) -> AnswerBudget:
    monkeypatch.setattr(limits, "LARGE_ANSWER_BYTES", 8 * 1024)
    await s.create("t", 500)
    budget = s.node.served.service.answer_budget
    budget._most = 60_000
    return budget


@simulated()
async def test_large_answers_that_were_read_take_nothing_of_their_budget(
    s: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = await answer_budget(s, monkeypatch)
    clients = [await s.connect() for _ in range(10)]
    for _ in range(3):
        for answer in [client.send(ALL_TOPICS, 12) for client in clients]:
            await answer
    # They are still connected: nobody but the answers themselves can have given it back.
    assert budget.used == 0


@pytest.mark.parametrize("after_ms", [0.0, 0.5, 1.0, 2.0, 5.0, 50.0, 500.0])
@simulated()
async def test_clients_that_leave_before_their_large_answer_take_nothing_of_the_budget(
    s: Session, after_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is made, while it waits for its turn in the budget, and while it is sent."""
    budget = await answer_budget(s, monkeypatch)
    s.world.network.socket_buffer_bytes = 4 * 1024
    clients = [await stuck_reader(s) for _ in range(10)]
    await s.runtime.sleep(after_ms)
    for client in clients:
        client.close()
    await s.until(lambda: s.node.served.service.connection_count == 1)
    await s.runtime.sleep(100)
    assert budget.used == 0
    assert len((await s.call(ALL_TOPICS, 12)).topics[0].partitions) == 500


async def stuck_reader(s: Session, request: Message = ALL_TOPICS, version: int = 12) -> ProtocolClient:
    client = await s.connect()
    assert client.frames.transport is not None
    client.frames.transport.pause_reading()
    client.post(request, version)
    return client


def leader_rejoins(member: ClassicMember) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in member.protocols.items()]
    return JoinGroupRequest(
        group_id=member.group,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        member_id=member.id,
        protocol_type="consumer",
        protocols=protocols,
    )


@simulated(QUICK)
async def test_all_offsets_of_a_group_count_against_the_budget_of_large_answers(s: Session) -> None:
    """A short request, answered with all the metadata that was ever committed."""
    await s.create("t", partitions=200)
    await ready(s)
    await commit(s.client, "g", {("t", index): (1, "m" * 4_000) for index in range(200)})
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    await expect_few_unread(s, request, 9)


@simulated(QUICK)
async def test_what_a_coordinator_answers_counts_against_the_budget_of_large_answers(s: Session) -> None:
    """The leader of a group that asks again, on many connections, what all the members have to say."""
    await ready(s)
    member = await ClassicMember.connect(s, protocols={"range": bytes(400_000)}, session_timeout_ms=300_000)
    assert (await member.join()).error_code == 0
    assert member.leads
    await expect_few_unread(s, leader_rejoins(member), 7)


async def expect_few_unread(s: Session, request: Message, version: int) -> None:
    """Many clients that ask this and do not read the answer take no more than the budget, and one answer each of four
    that are being made."""
    s.world.network.socket_buffer_bytes = 4 * 1024
    service = s.node.served.service
    service.answer_budget._most = 1_000_000
    for _ in range(20):
        await stuck_reader(s, request, version)
    await s.runtime.sleep(1_000)
    unsent = sum(connection.unsent_bytes for connection in service._connections.values())
    assert service.answer_budget.used > 0
    assert unsent <= 1_000_000


# ---- batches that wait to be decompressed


async def outcome(s: Session, request: ProduceRequest) -> PartitionProduceResponse:
    answer = await s.call(request, 12)
    part = answer.responses[0].partition_responses[0]
    assert isinstance(part, PartitionProduceResponse)
    return part


def preparing_of(s: Session) -> Partition:
    partition = s.node.served.manager.table.find(b"t", 0)
    assert partition is not None
    return partition


@simulated()
async def test_a_copy_that_was_decompressed_is_gone_before_its_batch_is_committed(
    s: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Copy(bytearray):
        """Can be referred to weakly."""

    await s.create("t", flush_messages="1")
    copy_of = Preparation.copy
    copies: list[ref[Copy]] = []
    preparations: dict[Preparation, None] = {}

    def copy(preparation: Preparation, partition: Partition, records: memoryview, acks: int) -> bytearray:
        made = Copy(copy_of(preparation, partition, records, acks))
        copies.append(ref(made))
        preparations[preparation] = None
        return made

    monkeypatch.setattr(Preparation, "copy", copy)
    s.node.host.disk.slowness = 5_000.0
    answer = s.client.send(produce_request("t", large_batch()), 12)
    log = preparing_of(s).log
    assert log is not None
    await s.until(lambda: log.end_offset == 2, step_ms=1)
    await s.until(lambda: preparing_of(s).preparing is None, step_ms=1)
    assert not answer.has_come
    assert [one() for one in copies] == [None]
    assert [preparation.queued_bytes for preparation in preparations] == [0]
    s.node.host.disk.slowness = 1.0
    assert (await answer).responses[0].partition_responses[0].error_code == 0


@simulated()
async def test_a_batch_that_is_decompressed_after_its_timeout_is_not_waited_for(s: Session) -> None:
    """It is appended, and that it is not committed in time is told at once."""
    await s.create("t", flush_messages="1")
    s.node.host.disk.slowness = 20_000.0
    began_ms = s.runtime.now_ms()
    late = await outcome(s, produce_request("t", large_batch(), timeout_ms=0))
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert s.runtime.now_ms() - began_ms < 500
    s.node.host.disk.slowness = 1.0


@simulated()
async def test_batches_beyond_what_may_wait_are_refused_so_that_they_are_sent_again(
    s: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    await s.create("t")
    records = large_batch()
    monkeypatch.setattr(limits, "PREPARING_BYTES_MAX", 3 * len(records))
    clients = [await s.connect() for _ in range(10)]
    answers = [client.send(produce_request("t", records), 12) for client in clients]
    codes = [(await answer).responses[0].partition_responses[0].error_code for answer in answers]
    assert set(codes) == {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT}
    assert codes.count(ErrorCode.NONE) >= 3
    assert (await outcome(s, produce_request("t", records))).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [7, 12])
@simulated()
async def test_batches_for_one_partition_in_one_request_are_appended_in_their_order(s: Session, version: int) -> None:
    """Also where the first has to be decompressed in a thread, and the second could be appended at once."""
    await s.create("t")
    entries = [large_batch(b"first"), batch(b"second"), batch(b"third", codec=Codec.GZIP)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=entries[0])]),
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=0, records=records) for records in entries[1:]]
            ),
        ],
    )
    answer = await s.call(request, version)
    parts = [part for topic in answer.responses for part in topic.partition_responses]
    assert [(part.error_code, part.base_offset) for part in parts] == [(0, 0), (0, 2), (0, 3)]
    values = await s.values("t")
    assert [values[0], *values[2:]] == [b"first", b"second", b"third"]


# ---- half requests, and those that wait


@pytest.mark.parametrize("cut", [2, 5, 9])
@simulated({"connections.max.idle.ms": "600000"})
async def test_half_a_request_behind_a_long_poll_is_no_reason_to_close_it(s: Session, cut: int) -> None:
    """The rest of it is not read while the poll waits, so that nobody knows whether the client would send it."""
    await s.create("t")
    other = await s.connect()
    poll = other.send(fetch_request("t", max_wait_ms=4 * limits.REQUEST_SILENCE_MS, min_bytes=1), 12)
    frame = request_frame(ApiVersionsRequest(), 0, 2)
    other.frames.send_raw((pack(">i", len(frame)) + frame)[:cut])
    assert (await poll).error_code == 0
    assert not other.frames.is_lost
    await other.frames.closed()
    assert "silent" in s.node.events.said("connection closed", "reason")[-1]


@simulated({"socket.request.max.bytes": "10000000", "queued.max.request.bytes": "20000000"})
async def test_a_request_that_waits_for_memory_is_not_taken_for_half_a_request(s: Session) -> None:
    """Its rest is left in the socket because of others. Those hold memory, and it is they who keep it waiting."""
    declared = pack(">ihhih", 9_000_000, 0, 9, 1, -1)
    for _ in range(5):
        (await s.connect()).frames.send_raw(declared + bytes(3_000_000))
    await s.runtime.sleep(100)
    service = s.node.served.service
    assert service.receive_budget.short
    begun = [connection for connection in service._connections.values() if connection._need]
    assert len(begun) == 5
    holders = [connection for connection in begun if connection.mid_request]
    assert 0 < len(holders) < 5
    assert holders == [connection for connection in begun if connection.receiving_bytes]
