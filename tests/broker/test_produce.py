"""What Produce guarantees and refuses, beyond the differences between versions."""

from __future__ import annotations

import pytest

from broker.session import Session, batch, produce_request, records_of, run_session, simulated, versions
from penstock.wire.apis import ApiKey
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import Record, build_batch

OTHER_ID = bytes(15) + b"\7"


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
@simulated()
async def test_every_part_of_a_request_succeeds_or_fails_on_its_own(s: Session, version: int) -> None:
    topic_id = await s.create("t", partitions=2)

    def topic(name: str, known_id: bytes, *parts: PartitionProduceData) -> TopicProduceData:
        named = {"topic_id": known_id} if version >= 13 else {"name": name}
        return TopicProduceData(**named, partition_data=list(parts))

    broken = bytearray(batch(b"broken"))
    broken[-1] ^= 1
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            topic(
                "t",
                topic_id,
                PartitionProduceData(index=1, records=batch(b"good")),
                PartitionProduceData(index=0, records=bytes(broken)),
                PartitionProduceData(index=2, records=batch(b"no such partition")),
                PartitionProduceData(index=1, records=batch(b"again")),
                PartitionProduceData(index=0, records=None),
            ),
            topic("nowhere", OTHER_ID, PartitionProduceData(index=0, records=batch(b"lost"))),
        ],
    )
    known, unknown = (await s.call(request, version)).responses
    assert [(part.index, part.error_code, part.base_offset) for part in known.partition_responses] == [
        (1, ErrorCode.NONE, 0),
        (0, ErrorCode.CORRUPT_MESSAGE, -1),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (1, ErrorCode.NONE, 1),
        (0, ErrorCode.INVALID_RECORD, -1),
    ]
    assert known.partition_responses[1].error_message == (
        "the batch does not match its checksum" if version >= 8 else None
    )
    (part,) = unknown.partition_responses
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert part.error_code == expected
    assert await s.values("t", 0) == []
    assert await s.values("t", 1) == [b"good", b"again"]


@pytest.mark.parametrize("acks", [2, -2, 100])
@simulated()
async def test_acks_other_than_0_1_and_all_are_refused(s: Session, acks: int) -> None:
    await s.create("t")
    assert (await s.produce("t", b"x", acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert await s.values("t") == []


@simulated()
async def test_a_transactional_batch_outside_a_transaction_is_refused(s: Session) -> None:
    """It could never be committed, so readers of committed records must neither see it nor wait for it."""
    await s.create("t")
    records = build_batch(
        [Record(timestamp=1, value=b"x")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    assert (await s.produce("t", records=records)).error_code != 0
    two = batch(b"plain") + records
    assert (await s.produce("t", records=two)).error_code != 0
    assert await s.values("t") == []


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (batch(b"x", producer_id=5, epoch=0, sequence=-1), ErrorCode.INVALID_RECORD),
        (build_batch([Record(timestamp=1, value=b"x")], control=True), ErrorCode.INVALID_RECORD),
        (batch(b"x")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch(b"x")[:20], ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.INVALID_RECORD),
        (bytes(61), ErrorCode.INVALID_RECORD),
        (batch(b"x", timestamp=1_900_000_000_000), ErrorCode.INVALID_TIMESTAMP),
        (batch(bytes(1_100_000)), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
@simulated()
async def test_an_invalid_batch_in_a_produce_request_is_refused(s: Session, records: bytes, error: ErrorCode) -> None:
    await s.create("t")
    answer = await s.produce("t", records=records)
    assert answer.error_code == error, answer.error_message
    assert answer.error_message
    assert (await s.produce("t", b"fine")).base_offset == 0


@pytest.mark.parametrize("codec", list(Codec))
@simulated()
async def test_a_batch_is_stored_as_it_came_whatever_its_codec(s: Session, codec: Codec) -> None:
    await s.create("t")
    values = [b"the same again and again " * 20] * 30
    sent = batch(*values, codec=codec)
    assert (await s.produce("t", records=sent)).error_code == 0
    found = await s.fetch("t")
    assert found.records is not None
    assert bytes(found.records)[16:] == sent[16:], "all but offset, length and epoch is the producer's"
    assert [record.value for record in records_of(found)] == values


@simulated()
async def test_a_partition_takes_one_batch_of_a_request(s: Session) -> None:
    """As in Kafka from v3 on. A request with many tiny batches would block the loop for seconds."""
    await s.create("t")
    refused = await s.produce("t", records=batch(b"a", b"b") + batch(b"c"))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert await s.values("t") == []


# ---- idempotent producers


@simulated()
async def test_a_retry_is_answered_with_the_offset_it_had_and_stored_once(s: Session) -> None:
    await s.create("t")
    producer = await s.producer_id()
    sent = [batch(b"%d" % n, producer_id=producer, epoch=0, sequence=n) for n in range(6)]
    for number, records in enumerate(sent):
        assert (await s.produce("t", records=records)).base_offset == number
    for number in (5, 3, 1):
        again = await s.produce("t", records=sent[number])
        assert (again.error_code, again.base_offset) == (0, number)
    forgotten = await s.produce("t", records=sent[0])
    assert forgotten.error_code in (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert await s.values("t") == [b"%d" % n for n in range(6)]


@simulated()
async def test_a_gap_and_an_old_epoch_are_refused(s: Session) -> None:
    await s.create("t")
    producer = await s.producer_id()

    async def send(epoch: int, sequence: int) -> int:
        records = batch(b"x", producer_id=producer, epoch=epoch, sequence=sequence)
        return (await s.produce("t", records=records)).error_code

    assert await send(0, 0) == 0
    assert await send(0, 2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await send(1, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await send(1, 0) == 0
    assert await send(0, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(await s.records("t")) == 2


@pytest.mark.parametrize("clean", [True, False])
def test_the_producer_state_survives_a_restart(clean: bool) -> None:
    async def scenario(s: Session) -> None:
        await s.create("t")
        producer = await s.producer_id()
        sent = [batch(b"%d" % n, producer_id=producer, epoch=0, sequence=n) for n in range(3)]
        for records in sent:
            assert (await s.produce("t", records=records)).error_code == 0
        if clean:
            s.node.host.stop()
            await s.until(lambda: s.node.process.is_dead)
        else:
            s.node.host.kill()
        await s.started()
        await s.until(lambda: not s.node.served.manager.recovering)
        # A snapshot, which is all that a clean stop leaves, has the last batch of each producer, as in Kafka.
        for number in [2] if clean else [2, 1, 0]:
            assert (await s.produce("t", records=sent[number])).base_offset == number
        assert (await s.produce("t", records=batch(b"4", producer_id=producer, epoch=0, sequence=4))).error_code == 45
        assert (await s.produce("t", records=batch(b"3", producer_id=producer, epoch=0, sequence=3))).base_offset == 3
        assert await s.values("t") == [b"0", b"1", b"2", b"3"]

    run_session(scenario)


# ---- read-only topics


@simulated()
async def test_a_read_only_topic_refuses_records_for_good_and_is_read_as_before(s: Session) -> None:
    await s.create("t")
    producer = await s.producer_id()
    sent = [batch(b"%d" % n, producer_id=producer, epoch=0, sequence=n) for n in range(3)]
    for records in sent[:2]:
        assert (await s.produce("t", records=records)).error_code == 0
    assert (await s.alter("t", penstock_read_only="true")).error_code == 0
    for acks in (1, -1):
        refused = await s.produce("t", b"x", acks=acks)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert "penstock.read.only" in (refused.error_message or "")
    assert (await s.produce("t", records=sent[2])).error_code == ErrorCode.POLICY_VIOLATION
    # The producer did not hear of the append: it must learn that the record is there, or would send it elsewhere, too.
    again = await s.produce("t", records=sent[1])
    assert (again.error_code, again.base_offset) == (0, 1)
    # Whether a partition is fenced can be asked without writing anything.
    broken = bytearray(batch(b"probe"))
    broken[-1] ^= 1
    assert (await s.produce("t", records=bytes(broken))).error_code == ErrorCode.POLICY_VIOLATION
    zipped = batch(b"z" * 3000, codec=Codec.GZIP)
    assert (await s.produce("t", records=zipped)).error_code == ErrorCode.POLICY_VIOLATION
    assert await s.values("t") == [b"0", b"1"]
    assert (await s.alter("t", penstock_read_only=None)).error_code == 0
    assert (await s.produce("t", records=sent[2])).base_offset == 2
    assert (await s.produce("t", records=bytes(broken))).error_code == ErrorCode.CORRUPT_MESSAGE


# ---- waiting for the commit


@simulated()
async def test_a_duplicate_is_not_acknowledged_before_the_original_is_committed(s: Session) -> None:
    await s.create("t", flush_messages="1")
    producer = await s.producer_id()
    records = batch(b"x", producer_id=producer, epoch=0, sequence=0)
    s.node.host.disk.slowness = 500.0
    other = await s.connect()
    first = s.client.send(produce_request("t", records), 12)
    second = other.send(produce_request("t", records, acks=1), 12)
    await s.runtime.sleep(50)
    assert not first.has_come
    assert not second.has_come
    for answer in (await first, await second):
        (part,) = answer.responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (0, 0)
    s.node.host.disk.slowness = 1.0
    assert len(await s.records("t")) == 1


@pytest.mark.parametrize("acks", [1, -1])
@simulated()
async def test_a_produce_request_that_is_not_committed_in_time_gets_a_timeout(s: Session, acks: int) -> None:
    await s.create("t", flush_messages="1")
    s.node.host.disk.slowness = 2_000.0
    began_ms = s.runtime.now_ms()
    answer = await s.call(produce_request("t", batch(b"x"), acks=acks, timeout_ms=500), 12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert 500 <= s.runtime.now_ms() - began_ms < 600
    s.node.host.disk.slowness = 1.0
    assert (await s.produce("t", b"y", acks=acks)).base_offset == 1


@simulated()
async def test_records_are_not_shown_before_they_are_as_safe_as_the_topic_asks(s: Session) -> None:
    await s.create("t", flush_messages="1")
    s.node.host.disk.slowness = 500.0
    answer = s.client.send(produce_request("t", batch(b"x")), 12)
    reader = await s.connect()
    assert (await s.fetch("t", client=reader)).high_watermark == 0
    assert not answer.has_come
    await answer
    assert (await s.fetch("t", client=reader)).high_watermark == 1


@simulated()
async def test_waiting_producers_get_an_error_when_the_topic_is_deleted(s: Session) -> None:
    await s.create("t", flush_messages="1")
    s.node.host.disk.slowness = 2000.0
    other = await s.connect()
    waiting = other.send(produce_request("t", batch(b"x")), 12)
    await s.runtime.sleep(20)
    assert not waiting.has_come
    s.node.host.disk.slowness = 1.0
    await s.delete("t")
    (part,) = (await waiting).responses[0].partition_responses
    assert part.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
