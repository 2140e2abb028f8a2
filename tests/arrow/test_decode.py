"""The vectorised decoder against the one that goes record by record."""
# ruff: noqa: E402

from __future__ import annotations

import pickle
import random
import struct
from collections.abc import Sequence

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install penstock-streaming[spark]")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install penstock-streaming[spark]")

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow import CorruptBatch, RecordDecoder, arrow_schema, positions
from penstock.wire import records
from penstock.wire.compression import Codec
from penstock.wire.records import ControlRecordType, Record, TimestampType, build_batch, iter_batches, iter_records

Row = tuple[object, ...]

BLOBS = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=70) | st.just(bytes(9000))
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3)
RECORDS = st.lists(
    st.builds(Record, timestamp=st.integers(-1, 1 << 42), key=BLOBS, value=BLOBS, headers=HEADERS),
    min_size=1,
    max_size=30,
)


def rows(data: bytes, aborted: Sequence[tuple[int, int]] = (), **options: object) -> list[Row]:
    """(offset, timestamp in ms, timestamp type, key, value, headers) of all records that the decoder gives."""
    decoder = RecordDecoder("orders", 3, include_headers=True, **options)  # type: ignore[arg-type]
    found: list[Row] = []
    for batch in decoder.decode(data, aborted):
        batch.validate(full=True)
        assert batch.schema == arrow_schema(include_headers=True)
        assert batch.num_rows > 0
        # Column by column, and times as numbers: to make each a Python object costs more than all else here.
        assert batch["topic"].unique().to_pylist() == ["orders"]
        assert batch["partition"].unique().to_pylist() == [3]
        milliseconds = [time // 1000 for time in batch["timestamp"].cast(pa.int64()).to_pylist()]
        headers = [
            None if row is None else [(one["key"], one["value"]) for one in row] for row in batch["headers"].to_pylist()
        ]
        offsets, kinds, keys, values = (batch[name].to_pylist() for name in ("offset", "timestampType", "key", "value"))
        found += zip(offsets, milliseconds, kinds, keys, values, headers, strict=True)
    return found


def expected(data: bytes, start: int = 0, end: int = 1 << 62) -> list[Row]:
    """The same from the plain decoder."""
    return [
        (one.offset, one.timestamp, int(header.timestamp_type), one.key, one.value, list(one.headers) or None)
        for header, batch in iter_batches(data)
        if not header.is_control
        for one in iter_records(batch)
        if start <= one.offset < end
    ]


def numbered(count: int, size: int = 10, seed: int = 0) -> list[Record]:
    rng = random.Random(seed)
    return [
        Record(timestamp=1000 + n, key=b"k%d" % n, value=rng.randbytes(rng.randrange(size // 2, size * 2)))
        for n in range(count)
    ]


def log_of(*sizes: int, value_size: int = 10, codec: Codec = Codec.NONE) -> bytes:
    """Batches of so many records each, one after another."""
    data = b""
    offset = 0
    for index, count in enumerate(sizes):
        data += build_batch(numbered(count, value_size, index), base_offset=offset, codec=codec)
        offset += count
    return data


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A partition's log: gaps, every codec, both kinds of timestamps, markers, empty batches."""
    data = b""
    offset = draw(st.integers(0, 1 << 40))
    for given_records in draw(st.lists(RECORDS, max_size=6)):
        codec = draw(st.sampled_from(Codec))
        kind = draw(st.sampled_from(TimestampType))
        batch = build_batch(given_records, base_offset=offset, codec=codec, timestamp_type=kind)
        offset += len(given_records)
        if draw(st.booleans()):
            kept = [one for one in iter_records(batch) if draw(st.booleans())]
            batch = build_batch(
                kept,
                base_offset=offset - len(given_records),
                codec=codec,
                timestamp_type=kind,
                keep_offsets=True,
                last_offset_delta=len(given_records) - 1,
            )
        data += batch
        if draw(st.booleans()):
            data += marker(offset, 7, ControlRecordType.COMMIT)
            offset += 1
        offset += draw(st.integers(0, 100))
    return data


def marker(offset: int, producer_id: int, kind: ControlRecordType) -> bytes:
    record = Record(timestamp=5, key=records.control_key(kind), value=bytes(6))
    return build_batch(
        [record], base_offset=offset, producer_id=producer_id, producer_epoch=0, transactional=True, control=True
    )


def transactional(offset: int, producer_id: int, *values: bytes) -> bytes:
    return build_batch(
        [Record(timestamp=1, value=value) for value in values],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


@settings(max_examples=40, deadline=None, database=None)
@given(data=logs(), batch_bytes=st.sampled_from((1, 200, 1 << 20)))
def test_it_decodes_what_the_plain_decoder_does(data: bytes, batch_bytes: int) -> None:
    assert rows(data, batch_bytes=batch_bytes) == expected(data)


@settings(max_examples=25, deadline=None, database=None)
@given(data=logs(), draw=st.data())
def test_only_the_wanted_offsets_come(data: bytes, draw: st.DataObject) -> None:
    everything = expected(data)
    offsets = st.sampled_from([0, 1 << 61, *(row[0] for row in everything)])
    start, end = int(str(draw.draw(offsets))), int(str(draw.draw(offsets)))
    assert rows(data, start=start, end=end) == expected(data, start, end)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("sizes", [(3,) * 60, (5000,), (1, 900, 2, 900, 1), (1,) * 31, (700,) * 8])
@pytest.mark.parametrize("value_size", [4, 300])
def test_large_and_many_batches_take_the_fast_path_and_come_out_the_same(
    codec: Codec, sizes: tuple[int, ...], value_size: int
) -> None:
    data = log_of(*sizes, value_size=value_size, codec=codec)
    assert rows(data) == expected(data)


def test_values_that_look_like_records_do_not_mislead_it() -> None:
    inner = build_batch(numbered(3000, 8), base_offset=0)[records.HEADER_SIZE :]
    data = build_batch([Record(timestamp=1, value=inner[: 17 * n]) for n in range(1000)])
    assert rows(data) == expected(data)


def test_following_records_in_step_is_what_happens_with_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("the slow way was taken")

    monkeypatch.setattr(positions, "_one_by_one", forbidden)
    for data in (log_of(*(50,) * 100), log_of(20_000), log_of(9_000, 20, 9_000)):
        assert rows(data) == expected(data)


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_records_with_many_headers(count: int) -> None:
    rng = random.Random(count)
    some = [
        Record(timestamp=1, value=b"v", headers=[(f"h{n}", rng.randbytes(n)) for n in range(rng.randrange(count + 1))])
        for _ in range(100)
    ]
    some.append(Record(timestamp=2, value=None, headers=[("x" * 100, None)] * 500))
    data = build_batch(some)
    assert rows(data) == expected(data)


@pytest.mark.parametrize("records", [1, 40])
def test_header_names_that_are_not_utf8_are_read_as_java_reads_them(records: int) -> None:
    some = [Record(timestamp=1, value=b"v", headers=[("ü", b"0"), ("zz", b"1")]) for _ in range(records)]
    raw = bytearray(build_batch(some, base_offset=7))
    while (at := raw.find(b"zz")) >= 0:
        raw[at : at + 2] = b"a\xff"

    found = rows(bytes(raw), check_crcs=False)

    assert [row[-1] for row in found] == [[("ü", b"0"), ("a\ufffd", b"1")]] * records


def test_without_headers_the_column_is_not_there() -> None:
    (batch,) = RecordDecoder("t", 0).decode(log_of(3))
    assert batch.schema == arrow_schema()
    assert batch.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert batch.schema.field("timestamp").type == pa.timestamp("us", "UTC")


def test_nothing_comes_of_nothing() -> None:
    assert rows(b"") == []
    assert rows(build_batch([], last_offset_delta=4)) == []
    assert rows(marker(0, 1, ControlRecordType.COMMIT)) == []
    assert rows(log_of(5), start=5) == []


def test_a_record_batch_ends_when_it_is_large_enough() -> None:
    data = log_of(*(10,) * 50, value_size=100)
    sizes = [batch.num_rows for batch in RecordDecoder("t", 0, batch_bytes=5_000).decode(data)]
    assert sum(sizes) == 500
    assert len(sizes) > 10
    assert all(size % 10 == 0 for size in sizes)


def test_timestamps_beyond_what_arrow_can_say_are_cut_off() -> None:
    data = build_batch([Record(timestamp=-(1 << 61)), Record(timestamp=(1 << 61)), Record(timestamp=0)])
    (batch,) = RecordDecoder("t", 0).decode(data)
    limit = (2**63 - 1) // 1000 * 1000
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == [-limit, limit, 0]


# Transactions


def test_aborted_transactions_are_left_out_and_later_ones_of_the_producer_are_not() -> None:
    data = b"".join(
        [
            transactional(0, 1, b"a0", b"a1"),
            transactional(2, 2, b"b2"),
            build_batch([Record(timestamp=1, value=b"plain")], base_offset=3),
            transactional(4, 1, b"a4"),
            marker(5, 1, ControlRecordType.ABORT),
            transactional(6, 1, b"a6"),
            marker(7, 2, ControlRecordType.COMMIT),
            marker(8, 1, ControlRecordType.COMMIT),
        ]
    )
    values = [row[4] for row in rows(data, aborted=[(1, 0)])]
    assert values == [b"b2", b"plain", b"a6"]
    assert [row[4] for row in rows(data)] == [b"a0", b"a1", b"b2", b"plain", b"a4", b"a6"]


def test_a_transaction_aborted_later_hides_nothing_before_its_first_offset() -> None:
    data = transactional(0, 1, b"kept") + marker(1, 1, ControlRecordType.COMMIT) + transactional(2, 1, b"gone")
    assert [row[4] for row in rows(data, aborted=[(1, 2)])] == [b"kept"]


def test_two_aborted_transactions_of_one_producer_are_both_left_out() -> None:
    data = b"".join(
        [
            transactional(0, 1, b"a"),
            marker(1, 1, ControlRecordType.ABORT),
            transactional(2, 1, b"b"),
            marker(3, 1, ControlRecordType.ABORT),
            transactional(4, 1, b"c"),
        ]
    )
    assert [row[4] for row in rows(data, aborted=[(1, 2), (1, 0)])] == [b"c"]


def test_a_batch_of_an_idempotent_producer_outside_a_transaction_stays() -> None:
    data = build_batch([Record(timestamp=1, value=b"v")], producer_id=1, producer_epoch=0, base_sequence=0)
    assert [row[4] for row in rows(data, aborted=[(1, 0)])] == [b"v"]


# Damage


def test_a_wrong_checksum_names_partition_and_offset() -> None:
    data = bytearray(log_of(10, 10, 10))
    second = len(log_of(10))
    data[second + 90] ^= 1
    with pytest.raises(CorruptBatch, match=r"orders-3: the batch at offset 10 is corrupt: its checksum") as caught:
        rows(bytes(data))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 3, 10)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    # Whoever asks for it may look at what is there.
    assert len(list(RecordDecoder("orders", 3, check_crcs=False).decode(bytes(data)))) == 1


@pytest.mark.parametrize(
    ("position", "format_", "value"),
    [
        (8, ">i", 10),
        (8, ">i", -1),
        (8, ">i", 1 << 30),
        (16, "b", 1),
        (0, ">q", -5),
        (23, ">i", -1),
        (57, ">i", 100),
        (57, ">i", -1),
        (57, ">i", 9),
        (23, ">i", 5),
    ],
)
def test_headers_that_lie_are_found_out(position: int, format_: str, value: int) -> None:
    data = bytearray(log_of(10))
    struct.pack_into(format_, data, position, value)
    records.seal(data)
    with pytest.raises(CorruptBatch):
        rows(bytes(data))


def test_a_batch_that_is_cut_off_is_not_decoded() -> None:
    data = log_of(10, 10)
    for size in (1, 30, 61, 100, len(data) - 1):
        with pytest.raises(CorruptBatch):
            rows(data[:size])


def test_a_batch_that_unfolds_to_too_much_is_refused() -> None:
    data = build_batch([Record(timestamp=1, value=bytes(1_000_000))], codec=Codec.ZSTD)
    with pytest.raises(CorruptBatch, match="expand to more than the limit of 1000"):
        rows(data, max_decompressed_bytes=1000)


@settings(max_examples=100, deadline=None, database=None)
@given(sizes=st.sampled_from([(5,), (3,) * 40, (400,)]), seed=st.integers(0, 1 << 30))
def test_damage_behind_a_right_checksum_gives_an_error_or_records_but_nothing_else(
    sizes: tuple[int, ...], seed: int
) -> None:
    rng = random.Random(seed)
    data = bytearray(log_of(*sizes, value_size=20))
    header, _ = next(iter_batches(bytes(data)))
    size = header.size_bytes
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(records.HEADER_SIZE, size)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    first = memoryview(data)[:size]
    records.seal(first)
    try:
        wanted: list[Row] | None = expected(bytes(data))
    except records.WireError:
        wanted = None
    try:
        found: list[Row] | None = rows(bytes(data))
    except CorruptBatch:
        found = None
    assert found == wanted
