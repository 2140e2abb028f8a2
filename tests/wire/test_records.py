"""Record batches: our own round trips, two foreign implementations as oracles, and damaged batches."""

from __future__ import annotations

import random
import struct
import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire import records
from penstock.wire.compression import Codec, DecompressedTooLarge
from penstock.wire.errors import WireError
from penstock.wire.records import Record, TimestampType, build_batch, build_keyed_batch, iter_batches, iter_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    from kafka.record.default_records import DefaultRecordBatch as PythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder

BLOBS = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=70)
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=st.integers(0, 1 << 42),
        key=BLOBS,
        value=BLOBS,
        headers=st.lists(st.tuples(st.text(max_size=5), BLOBS), max_size=3),
    ),
    min_size=1,
    max_size=20,
)
SOME = [Record(0, 1000 + 7 * n, b"key%d" % n, b"value" * n, [("trace", b"x"), ("none", None)]) for n in range(50)]


def contents(found: list[Record]) -> list[tuple[object, ...]]:
    return [(r.timestamp, r.key, r.value, list(r.headers)) for r in found]


@settings(max_examples=60, deadline=None, database=None)
@given(given_records=RECORDS, codec=st.sampled_from(Codec), base_offset=st.integers(0, 1 << 60))
def test_a_batch_gives_back_what_went_in(given_records: list[Record], codec: Codec, base_offset: int) -> None:
    batch = build_batch(given_records, base_offset=base_offset, codec=codec, leader_epoch=3)
    header = records.check_batch(batch)
    assert header.codec == codec
    assert header.partition_leader_epoch == 3
    assert header.size_bytes == len(batch)
    assert header.max_timestamp == max(record.timestamp for record in given_records)
    found = list(iter_records(batch))
    assert contents(found) == contents(given_records)
    assert [record.offset for record in found] == list(range(base_offset, header.next_offset))


@pytest.mark.parametrize("codec", Codec)
def test_a_client_reads_what_we_write(codec: Codec) -> None:
    batch = build_batch(SOME, base_offset=10, codec=codec, producer_id=7, producer_epoch=1, base_sequence=5)
    theirs = AioBatch(bytearray(batch))
    assert theirs.validate_crc()
    found = [Record(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in theirs]
    assert contents(found) == contents(SOME)
    assert [record.offset for record in found] == list(range(10, 60))


@pytest.mark.parametrize("codec", Codec)
def test_we_read_what_a_client_writes(codec: Codec) -> None:
    builder = AioBuilder(2, codec, 1, 7, 1, 5, 1_000_000)
    for offset, record in enumerate(SOME):
        assert builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = records.check_batch(batch)
    assert (header.codec, header.is_transactional, header.producer_id, header.base_sequence) == (codec, True, 7, 5)
    assert contents(list(iter_records(batch))) == contents(SOME)


def test_kafka_python_writes_and_reads_the_same_bytes() -> None:
    builder = PythonBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1_000_000,
    )  # fmt: skip
    for offset, record in enumerate(SOME):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    # The base offset and the leader epoch are the broker's to write; clients differ in what they leave there.
    assert bytes(builder.build())[16:] == build_batch(SOME)[16:]
    theirs = PythonBatch(build_batch(SOME, codec=Codec.GZIP))
    assert theirs.validate_crc()
    assert [record.value for record in theirs] == [record.value for record in SOME]


def test_a_batch_of_one_record_byte_by_byte() -> None:
    batch = build_batch(
        [Record(0, 0x0102030405, b"k", None, [("h", b"")])],
        base_offset=9,
        leader_epoch=2,
        producer_id=3,
        producer_epoch=4,
        base_sequence=5,
        transactional=True,
    )
    record = bytes.fromhex("14" + "00 00 00" + "02 6b" + "01" + "02" + "02 68" + "00")
    assert record[0] >> 1 == len(record) - 1
    covered = bytes.fromhex(
        "0010 00000000 0000000102030405 0000000102030405 0000000000000003 0004 00000005 00000001"
    ) + record  # fmt: skip
    length = struct.pack(">i", 4 + 1 + 4 + len(covered))
    crc = records.crc32c(covered).to_bytes(4, "big")
    uncovered = bytes.fromhex("0000000000000009") + length + bytes.fromhex("00000002 02") + crc
    assert batch.hex() == (uncovered + covered).hex()


def test_the_checksum_is_crc32c() -> None:
    assert records.crc32c(b"123456789") == 0xE3069283


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = build_batch(SOME[:3], timestamp_type=TimestampType.LOG_APPEND_TIME)
    header = records.read_header(batch)
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in iter_records(batch)] == [header.max_timestamp] * 3


def test_a_compacted_batch_keeps_its_offsets_and_its_end() -> None:
    kept = [Record(12, 5, b"a", b"b"), Record(15, 6, b"c", b"d")]
    batch = build_batch(kept, base_offset=10, keep_offsets=True, last_offset_delta=9, delete_horizon_ms=77)
    header = records.check_batch(batch)
    assert (header.last_offset, header.records_count, header.delete_horizon_ms) == (19, 2, 77)
    assert [(r.offset, r.timestamp) for r in iter_records(batch)] == [(12, 5), (15, 6)]
    empty = build_batch([], base_offset=10, last_offset_delta=9)
    assert list(iter_records(empty)) == []
    assert records.read_header(empty).next_offset == 20


def test_control_batches_say_what_they_are() -> None:
    key = records.control_key(records.ControlRecordType.LEADER_CHANGE)
    batch = build_batch([Record(key=key, value=b"")], control=True)
    assert records.read_header(batch).is_control
    assert records.parse_control_key(next(iter_records(batch)).key) == records.ControlRecordType.LEADER_CHANGE
    with pytest.raises(WireError):
        records.parse_control_key(b"\0")
    with pytest.raises(WireError):
        records.parse_control_key(None)


def test_sequence_numbers_wrap() -> None:
    batch = build_batch(SOME[:3], producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2)
    assert records.read_header(batch).last_sequence == 0
    assert records.read_header(build_batch(SOME[:3])).last_sequence == -1


def test_batches_stand_one_after_another() -> None:
    first, second = build_batch(SOME[:2]), build_batch(SOME[:3], base_offset=2)
    data = first + second
    assert [bytes(view) for _, view in iter_batches(data)] == [first, second]
    cut = data[:-1]
    assert [header.base_offset for header, _ in iter_batches(cut, partial_tail=True)] == [0]
    assert [header.base_offset for header, _ in iter_batches(data[: len(first) + 20], partial_tail=True)] == [0]
    with pytest.raises(WireError, match="bytes left"):
        list(iter_batches(cut))
    with pytest.raises(WireError, match="too few"):
        list(iter_batches(data + b"x"))


@pytest.mark.parametrize("codec", Codec)
def test_a_damaged_batch_is_refused_by_its_checksum(codec: Codec) -> None:
    batch = bytearray(build_batch(SOME, codec=codec))
    for place in range(records.CRC_START, len(batch), 7):
        damaged = bytearray(batch)
        damaged[place] ^= 0x10
        with pytest.raises(WireError, match=r"checksum|records with last offset delta"):
            records.check_batch(damaged)


def test_damage_under_a_valid_checksum_is_refused_too() -> None:
    @settings(max_examples=150, deadline=None, database=None)
    @given(codec=st.sampled_from(Codec), seed=st.integers(0, 1 << 64))
    def attack(codec: Codec, seed: int) -> None:
        rng = random.Random(seed)
        batch = bytearray(build_batch(SOME[:5], codec=codec))
        for _ in range(rng.randint(1, 3)):
            batch[rng.randrange(records.ATTRIBUTES_POSITION, len(batch))] = rng.randrange(256)
        records.seal(batch)
        try:
            found = list(iter_records(batch, max_decompressed_bytes=100_000))
        except WireError:
            return
        assert len(found) <= 100_000 // records.RECORD_SIZE_MIN

    attack()


@pytest.mark.parametrize("count", [-1, 2, 6, 1 << 30])
def test_a_records_count_that_lies_is_refused(count: int) -> None:
    batch = bytearray(build_batch(SOME[:5]))
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">i", batch, records.LAST_OFFSET_DELTA_POSITION, max(count, 5))
    records.seal(batch)
    with pytest.raises(WireError):
        list(iter_records(batch))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("0c 00 00 00 01 01 00", None),
        ("0e 00 00 00 01 01 00 00", "of 7 bytes has fields of 6"),
        ("0c 00 00 00 02 61 01", "truncated"),
        ("0c 00 00 00 02 61 01 00", "of 6 bytes has fields of 7"),
        ("0c 00 00 00 10 01 00 0000000000000000", "a field of 8 bytes exceeds the 2 bytes left"),
        ("0c 00 00 00 01 03 00", "invalid length -2"),
        ("0c 00 00 00 01 01 0e 0000000000000000", "7 record headers cannot fit into 0 bytes"),
        ("10 00 00 00 01 01 02 01 01", "has no name"),
        ("0c 00 00 0e 01 01 00", "offset delta 7"),
        ("0a 00 00 00 01 01 00", "a record of 5 bytes"),
        ("7e 00 00 00 01 01 00", "a record of 63 bytes"),
    ],
)
def test_records_that_contradict_their_own_lengths_are_refused(record: str, reason: str | None) -> None:
    batch = bytearray(build_batch([Record()])[: records.HEADER_SIZE] + bytes.fromhex(record))
    struct.pack_into(">i", batch, records.LENGTH_POSITION, len(batch) - records.LENGTH_OVERHEAD)
    records.seal(batch)
    if reason is None:
        assert len(list(iter_records(batch))) == 1
        return
    with pytest.raises(WireError, match=reason):
        list(iter_records(batch))


def test_a_header_name_that_is_not_utf_8_is_read_as_javas_clients_do() -> None:
    batch = bytearray(build_batch([Record()])[: records.HEADER_SIZE] + bytes.fromhex("12 00 00 00 01 01 02 02 ff 01"))
    struct.pack_into(">i", batch, records.LENGTH_POSITION, len(batch) - records.LENGTH_OVERHEAD)
    records.seal(batch)
    assert [record.headers for record in iter_records(batch)] == [[("\ufffd", None)]]


def test_a_header_that_is_cut_off_or_of_another_magic_is_refused() -> None:
    batch = build_batch(SOME[:1])
    with pytest.raises(WireError, match="61 bytes, but only 60 are left"):
        records.read_header(batch[:60])
    old = bytearray(batch)
    old[records.MAGIC_POSITION] = 1
    with pytest.raises(WireError, match="magic 1"):
        records.check_batch(old)
    with pytest.raises(WireError, match="magic 1"):
        list(iter_batches(old))
    with pytest.raises(WireError, match="unknown compression type 7"):
        records.codec_of(0x0F)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_a_batch_that_unfolds_too_far_is_refused(codec: Codec) -> None:
    batch = build_batch([Record(value=bytes(5_000_000))], codec=codec)
    assert len(batch) < 300_000
    with pytest.raises(DecompressedTooLarge):
        list(iter_records(batch, max_decompressed_bytes=1_000_000))
    assert len(next(iter_records(batch)).value or b"") == 5_000_000


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
@settings(database=None, deadline=None)
def test_varints_round_trip(value: int) -> None:
    out = bytearray()
    records.write_varint(out, value)
    assert records.read_varlong(out, 0) == (value, len(out))
    if -(1 << 31) <= value < 1 << 31:
        assert records.read_varint(out, 0) == (value, len(out))


@pytest.mark.parametrize(("value", "text"), [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (300, "d804")])
def test_varints_are_zigzag_coded(value: int, text: str) -> None:
    out = bytearray()
    records.write_varint(out, value)
    assert out.hex() == text


def test_endless_varints_are_refused() -> None:
    with pytest.raises(WireError):
        records.read_varint(b"\xff" * 20, 0)
    with pytest.raises(WireError):
        records.read_varlong(b"\xff" * 20, 0)
    with pytest.raises(WireError):
        records.read_varint(b"\xff\xff\xff\xff\x7f", 0)


@given(
    st.lists(st.tuples(st.binary(max_size=1000), st.none() | st.binary(max_size=1000)), min_size=1, max_size=20),
    st.sampled_from(Codec),
)
def test_a_batch_of_keys_and_values_is_what_the_general_builder_makes(
    pairs: list[tuple[bytes, bytes | None]], codec: Codec
) -> None:
    records = [Record(timestamp=77, key=key, value=value) for key, value in pairs]
    assert build_keyed_batch(pairs, timestamp=77, codec=codec) == build_batch(records, codec=codec)
