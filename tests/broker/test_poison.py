"""Batches that no consumer could read are refused, each bad record is named, and later batches are served."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.session import Session, batch, dotted, produce_request, run_session, simulated
from penstock.broker.produce import preparing
from penstock.wire.compression import Codec, compress
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import Record, build_batch, iter_batches, read_header, seal
from support.poison import forged, plain_payload, poison

NOW = 1_750_001_000_000
MB = 1 << 20
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
LARGE = [b"%d" % n * 40 for n in range(5_000)]
"""Enough to be opened in a thread."""


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("topic", ["plain", "compacted", "recompressed", "stamped"])
@simulated()
async def test_every_kind_of_poison_is_refused_and_what_follows_is_not(s: Session, topic: str, version: int) -> None:
    configs = {
        "plain": {},
        "compacted": {"cleanup_policy": "compact"},
        "recompressed": {"compression_type": "zstd"},
        "stamped": {"message_timestamp_type": "LogAppendTime"},
    }
    await s.create(topic, **configs[topic])
    fine = build_batch([Record(timestamp=NOW, key=b"k", value=b"fine")])
    for number, (name, records) in enumerate(poison(NOW).items()):
        answer = await s.produce(topic, records=records, version=version)
        assert (name, answer.error_code) == (name, ErrorCode.INVALID_RECORD)
        assert version < 8 or answer.error_message
        assert (await s.produce(topic, records=fine, version=version)).base_offset == number
    assert await s.values(topic) == [b"fine"] * len(poison(NOW))


@pytest.mark.parametrize("version", [8, 9, 12])
@pytest.mark.parametrize("codec", list(Codec))
@simulated()
async def test_each_bad_record_is_named(s: Session, codec: Codec, version: int) -> None:
    await s.create("t", cleanup_policy="compact")
    records = [Record(timestamp=NOW, key=None if n % 10 == 3 else b"k", value=b"v") for n in range(100)]
    answer = await s.produce("t", records=build_batch(records, codec=codec), version=version)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == list(range(3, 100, 10))
    assert {error.batch_index_error_message for error in answer.record_errors} == {
        "Compacted topic cannot accept message without key"
    }
    assert answer.error_message.startswith("10 of 100 records were refused")
    late = [record if n % 7 else Record(timestamp=NOW * 2, key=b"k") for n, record in enumerate(records)]
    answer = await s.produce("t", records=build_batch(late, codec=codec), version=version)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert {error.batch_index for error in answer.record_errors} == {*range(3, 100, 10), *range(0, 100, 7)}


@simulated()
async def test_an_answer_names_no_more_bad_records_than_fit(s: Session) -> None:
    await s.create("t", partitions=30, cleanup_policy="compact")
    keyless = build_batch([Record(timestamp=NOW)] * 5_000, codec=Codec.ZSTD)
    parts = [PartitionProduceData(index=index, records=keyless) for index in range(30)]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t", partition_data=parts)])
    answers = (await s.call(request, 12)).responses[0].partition_responses
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_RECORD}
    assert len(answers[0].record_errors) == 1_000
    assert len(answers[29].record_errors) == 0
    assert answers[29].error_message.startswith("at least 1000 of 5000 records")


@pytest.mark.parametrize("codec", list(Codec))
@simulated()
async def test_the_largest_timestamp_of_the_records_is_what_the_log_goes_by(s: Session, codec: Codec) -> None:
    """An index entry with a timestamp that no record has would send a reader to the wrong place."""
    await s.create("t")
    payload = build_batch([Record(timestamp=NOW + n) for n in (0, 9, 4)])[61:]
    packed = payload if codec is Codec.NONE else compress(codec, payload)
    wrong = forged(packed, NOW, count=3, codec=codec, max_timestamp=NOW - 100_000)
    assert (await s.produce("t", records=wrong)).error_code == 0
    (header, _), *_ = iter_batches((await s.fetch("t")).records or b"")
    assert header.max_timestamp == NOW + 9
    assert await s.offset("t", NOW + 5) == 1


@simulated({dotted("penstock_produce_validation"): "header"})
async def test_validation_of_headers_alone_can_be_chosen_for_the_broker_or_a_topic(s: Session) -> None:
    miscounted = forged(plain_payload(NOW), NOW, count=2)
    await s.create("trusting")
    await s.create("careful", penstock_produce_validation="full")
    await s.create("keyed", cleanup_policy="compact")
    assert (await s.produce("trusting", records=miscounted)).error_code == 0
    assert (await s.produce("careful", records=miscounted)).error_code == ErrorCode.INVALID_RECORD
    assert (await s.produce("keyed", records=batch(b"no key"))).error_code == ErrorCode.INVALID_RECORD
    assert (await s.alter("trusting", penstock_produce_validation="full")).error_code == 0
    assert (await s.produce("trusting", records=miscounted)).error_code == ErrorCode.INVALID_RECORD
    assert (await s.alter("trusting", penstock_produce_validation="some")).error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("codec", COMPRESSED)
@simulated()
async def test_a_retry_is_checked_before_it_is_recognised_as_one(s: Session, codec: Codec) -> None:
    await s.create("t")
    producer = await s.producer_id()
    for values in ([b"small"], LARGE):
        first = batch(*values, codec=codec, producer_id=producer, epoch=0, sequence=0)
        sent = await s.produce("t", records=first)
        assert (await s.produce("t", records=first)).base_offset == sent.base_offset
        spoiled = bytearray(first)
        spoiled[61:] = compress(codec, b"other records altogether")
        spoiled[8:12] = (len(spoiled) - 12).to_bytes(4, "big")
        seal(spoiled)
        assert (await s.produce("t", records=bytes(spoiled))).error_code == ErrorCode.INVALID_RECORD
        producer = await s.producer_id()
    assert len(await s.records("t")) == 1 + len(LARGE)


@simulated()
async def test_batches_that_take_long_to_open_are_not_overtaken(s: Session) -> None:
    await s.create("t")
    clients = [await s.connect() for _ in range(3)]
    answers = []
    for number in range(30):
        values = [b"%06d" % number, *(LARGE if number % 3 == 0 else [])]
        records = batch(*values, codec=(Codec.ZSTD, Codec.NONE, Codec.GZIP)[number % 3])
        answers.append(clients[number // 10].send(produce_request("t", records), 12))
    for answer in answers:
        assert (await answer).responses[0].partition_responses[0].error_code == 0
    numbers = [int(value) for value in await s.values("t") if len(value) == 6]
    for client in range(3):
        mine = [number for number in numbers if number // 10 == client]
        assert mine == list(range(client * 10, client * 10 + 10))
    assert s.node.served.manager.table.find(b"t", 0).preparing is None


@pytest.mark.parametrize("compression_type", ["producer", "gzip"])
@simulated(stop=False)
async def test_an_unexpected_failure_is_answered_and_the_partition_keeps_working(
    s: Session, compression_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await s.create("t", compression_type=compression_type)
    large = batch(*LARGE, codec=Codec.ZSTD)
    others = [await s.connect() for _ in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr(preparing, "prepare", fails)
        answers = [other.send(produce_request("t", large), 12) for other in others]
        for answer in answers:
            (part,) = (await answer).responses[0].partition_responses
            assert part.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert s.node.served.metrics.unexpected_errors == 3
    assert s.node.events.named("unexpected error")
    assert (await s.produce("t", records=large)).base_offset == 0
    assert (await s.produce("t", b"fine")).base_offset == len(LARGE)
    s.node.served.metrics.unexpected_errors = 0
    s.node.events.all.clear()


def fails(*_: object) -> None:
    raise ZeroDivisionError("a bug")


@simulated({"penstock.decompression.request.bytes.max": str(8 * MB)})
async def test_decompression_bombs_exhaust_only_their_own_requests_limit(s: Session) -> None:
    await s.create("t", partitions=40)
    bomb = build_batch([Record(timestamp=NOW, value=bytes(20 * MB))], codec=Codec.ZSTD)
    fitting = build_batch([Record(timestamp=NOW, value=bytes(2 * MB))], codec=Codec.ZSTD)

    async def produce(batches: list[bytes]) -> list[int]:
        parts = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
        topic = TopicProduceData(name="t", partition_data=parts)
        answer = await s.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 12)
        return [part.error_code for part in answer.responses[0].partition_responses]

    assert set(await produce([bomb] * 40)) == {ErrorCode.MESSAGE_TOO_LARGE}
    assert await produce([fitting] * 3) == [0, 0, 0]
    codes = await produce([fitting] * 10)
    assert codes.count(0) <= 6
    assert set(codes) == {0, ErrorCode.MESSAGE_TOO_LARGE}
    assert await produce([fitting]) == [0]


@simulated({"penstock.decompression.bytes.max": str(2 * MB)})
async def test_batches_beyond_the_brokers_decompression_budget_wait(s: Session) -> None:
    await s.create("t", partitions=20)
    clients = [await s.connect() for _ in range(20)]
    large = batch(*LARGE, codec=Codec.ZSTD)
    answers = [client.send(produce_request("t", large, index), 12) for index, client in enumerate(clients)]
    for answer in answers:
        assert (await answer).responses[0].partition_responses[0].error_code == 0
    bomb = build_batch([Record(timestamp=NOW, value=bytes(3 * MB))], codec=Codec.ZSTD)
    assert (await s.produce("t", records=bomb)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@simulated()
async def test_copies_that_wait_are_bounded(s: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    large = batch(*LARGE, codec=Codec.ZSTD)
    monkeypatch.setattr(preparing.limits, "PREPARING_BYTES_MAX", 3 * len(large))
    await s.create("t")
    clients = [await s.connect() for _ in range(9)]
    answers = [await answer for answer in [client.send(produce_request("t", large), 12) for client in clients]]
    codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
    # Three fit at a time; one of those that come later may find that another is done.
    assert 3 <= codes.count(0) < len(clients)
    assert set(codes) == {0, ErrorCode.REQUEST_TIMED_OUT}
    assert (await s.produce("t", records=large)).error_code == 0


@simulated()
async def test_a_batch_is_refused_if_the_leadership_changed_while_it_was_opened(s: Session) -> None:
    await s.create("t")
    partition = s.node.served.manager.table.find(b"t", 0)
    answer = s.client.send(produce_request("t", batch(*LARGE, codec=Codec.ZSTD)), 12)
    await s.until(lambda: partition.preparing is not None, step_ms=0.1)
    partition.leader_epoch += 1
    (part,) = (await answer).responses[0].partition_responses
    partition.leader_epoch -= 1
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await s.produce("t", b"fine")).base_offset == 0


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(Codec)),
            st.lists(st.binary(max_size=60), min_size=1, max_size=5),
            st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=3),
            st.integers(-1, 1),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_is_acknowledged_can_be_read_to_the_last_record(
    sent: list[tuple[Codec, list[bytes], list[tuple[int, int]], int]],
) -> None:
    """Valid batches with changed bytes in their records, compressed and not, with a matching checksum."""

    async def scenario(s: Session) -> None:
        await s.create("t")
        acknowledged = 0
        for codec, values, changes, miscount in sent:
            payload = bytearray(build_batch([Record(timestamp=NOW, value=value) for value in values])[61:])
            for place, byte in changes:
                payload[place % len(payload)] = byte
            packed = payload if codec is Codec.NONE else bytearray(compress(codec, payload))
            if codec is not Codec.NONE and changes and changes[0][1] % 3 == 0:
                packed[changes[0][0] % len(packed)] ^= 1 + changes[0][1] % 255
            records = forged(bytes(packed), NOW, count=max(len(values) + (miscount if changes else 0), 1), codec=codec)
            answer = await s.produce("t", records=records)
            if answer.error_code == 0:
                assert answer.base_offset == acknowledged
                acknowledged += read_header(records).records_count
            else:
                assert changes
                assert answer.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
        assert [record.offset for record in await s.records("t")] == list(range(acknowledged))

    run_session(scenario)
