"""Topics with their own codec: producers' batches are stored with it, in their order."""

from __future__ import annotations

import pytest

from broker.session import Session, batch, produce_request, simulated
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.records import Record, build_batch, iter_batches

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
VALUES = [b"again and again " * 30] * 10
MB = 1 << 20


async def stored_codecs(s: Session, topic: str = "t") -> list[Codec]:
    return [header.codec for header, _ in iter_batches((await s.fetch(topic)).records or b"")]


@pytest.mark.parametrize("name", [*CODECS, "producer"])
@simulated()
async def test_batches_are_stored_under_the_topics_codec(s: Session, name: str) -> None:
    await s.create("t", compression_type=name)
    for codec in Codec:
        assert (await s.produce("t", records=batch(*VALUES, codec=codec))).error_code == 0
    expected = list(Codec) if name == "producer" else [CODECS[name]] * len(Codec)
    assert await stored_codecs(s) == expected
    assert await s.values("t") == VALUES * len(Codec)


@simulated()
async def test_the_codec_can_be_changed_at_run_time(s: Session) -> None:
    await s.create("t")
    await s.produce("t", *VALUES)
    for name in ("zstd", "lz4", "producer"):
        assert (await s.alter("t", compression_type=name)).error_code == 0
        await s.produce("t", *VALUES)
    assert await stored_codecs(s) == [Codec.NONE, Codec.ZSTD, Codec.LZ4, Codec.NONE]


@simulated()
async def test_order_is_kept_whatever_the_codecs_of_those_in_flight(s: Session) -> None:
    await s.create("t", compression_type="zstd")
    clients = [await s.connect() for _ in range(3)]
    answers = []
    for number in range(60):
        codec = (Codec.ZSTD, Codec.NONE, Codec.GZIP)[number % 3]
        records = batch(b"%06d" % number, *VALUES, codec=codec)
        answers.append((number, clients[number // 20].send(produce_request("t", records, acks=1), 12)))
    for _, answer in answers:
        assert (await answer).responses[0].partition_responses[0].error_code == 0
    values = [value for value in await s.values("t") if len(value) == 6]
    for client in range(3):
        mine = [value for value in values if client * 20 <= int(value) < client * 20 + 20]
        assert mine == sorted(mine)
        assert len(mine) == 20
    assert set(await stored_codecs(s)) == {Codec.ZSTD}


@simulated()
async def test_idempotence_holds_across_the_new_codec(s: Session) -> None:
    await s.create("t", compression_type="lz4")
    producer = await s.producer_id()
    sent = [batch(b"%d" % n, producer_id=producer, epoch=0, sequence=n) for n in range(4)]
    for number, records in enumerate(sent):
        assert (await s.produce("t", records=records)).base_offset == number
    for number in (3, 0):
        assert (await s.produce("t", records=sent[number])).base_offset == number
    gap = batch(b"9", producer_id=producer, epoch=0, sequence=9)
    assert (await s.produce("t", records=gap)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(await s.records("t")) == 4


@simulated({"penstock.decompression.request.bytes.max": str(MB)})
async def test_what_cannot_be_unfolded_is_refused_and_what_follows_is_not(s: Session) -> None:
    await s.create("t", compression_type="zstd")
    bomb = build_batch([Record(timestamp=1_750_001_000_000, value=bytes(20 * MB))], codec=Codec.GZIP)
    broken = bytearray(batch(*VALUES, codec=Codec.GZIP))
    broken[80] ^= 255
    for records in (bomb, bytes(broken), b"", batch(b"x")[:-1]):
        answer = await s.produce("t", records=records)
        assert answer.error_code in (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.MESSAGE_TOO_LARGE,
        )
        assert answer.error_message
    assert (await s.produce("t", *VALUES)).base_offset == 0


@simulated()
async def test_metrics_count_it_as_anything_else(s: Session) -> None:
    await s.create("t", compression_type="zstd")
    metrics = s.node.served.metrics
    records = batch(*VALUES)
    for _ in range(3):
        await s.produce("t", records=records)
    s.client.post(produce_request("t", records, acks=0), 12)
    await s.call(ApiVersionsRequest(), 0)
    await s.produce("t", records=batch(b"x", timestamp=1_900_000_000_000))
    assert metrics.messages_in == 4 * len(VALUES)
    assert metrics.bytes_in > 0
    assert metrics.failed_produce == 1


@simulated()
async def test_a_flood_without_acknowledgements_waits_in_the_socket(s: Session) -> None:
    """Without responses, only the connection's backpressure can slow it down."""
    await s.create("t", compression_type="zstd")
    partition = s.node.served.manager.table.find(b"t", 0)
    frame = produce_request("t", batch(bytes(50_000)), acks=0)
    for _ in range(200):
        s.client.post(frame, 12)
    held = 0
    for _ in range(200):
        await s.runtime.sleep(0.5)
        held = max(held, len(partition.preparing.waiting))
    assert held < 20
    await s.until(lambda: partition.log.end_offset == 200)


@simulated()
async def test_an_error_without_acknowledgement_closes_the_connection(s: Session) -> None:
    await s.create("t", compression_type="zstd")
    other = await s.connect()
    other.post(produce_request("t", batch(b"x", timestamp=1_900_000_000_000), acks=0), 12)
    began_ms = s.runtime.now_ms()
    await other.frames.closed()
    assert s.runtime.now_ms() - began_ms < 1_000


@simulated()
async def test_a_topic_may_go_while_its_records_are_compressed(s: Session) -> None:
    for _ in range(5):
        await s.create("t", compression_type="zstd")
        producers = [await s.connect() for _ in range(3)]
        answers = [producer.send(produce_request("t", batch(*VALUES)), 12) for _ in range(5) for producer in producers]
        await s.runtime.sleep(0.5)
        await s.delete("t")
        for answer in answers:
            (part,) = (await answer).responses[0].partition_responses
            assert part.error_code in (
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
        for producer in producers:
            producer.close()


@simulated()
async def test_the_timeout_covers_the_compression_and_the_commit(s: Session) -> None:
    await s.create("t", compression_type="zstd", flush_messages="1")
    s.node.host.disk.slowness = 5_000.0
    began_ms = s.runtime.now_ms()
    answer = await s.call(produce_request("t", batch(*VALUES), timeout_ms=300), 12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert s.runtime.now_ms() - began_ms < 500
    s.node.host.disk.slowness = 1.0
