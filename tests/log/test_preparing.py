"""Preparing batches off the loop: decompression, checks and recompression."""

from __future__ import annotations

import pytest

from penstock.log import LogConfig
from penstock.log.preparing import prepare
from penstock.wire.compression import Codec, DecompressedTooLarge
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.recompression import Recompression, codecs_in
from penstock.wire.records import Record, build_batch, iter_batches, iter_records
from support.poison import forged, plain_payload

NOW = 1_700_000_100_000
MB = 1 << 20
RECORDS = [Record(timestamp=NOW + n, key=b"k%d" % n, value=b"value %d" % n * 20) for n in range(50)]


def prepared(
    records: bytes,
    recompression: Recompression | None = None,
    *,
    config: LogConfig | None = None,
    bytes_max: int = MB,
) -> bytes:
    again, opened = prepare(bytearray(records), config or LogConfig(), recompression, NOW, bytes_max)
    assert opened <= bytes_max + len(records)
    return bytes(again)


@pytest.mark.parametrize("target", list(Codec))
@pytest.mark.parametrize("source", list(Codec))
def test_records_headers_and_sequences_survive_every_change_of_codec(source: Codec, target: Codec) -> None:
    first = build_batch(RECORDS, codec=source, producer_id=7, producer_epoch=1, base_sequence=3)
    second = build_batch(RECORDS[:5], codec=Codec.GZIP)
    again = prepared(first + second, Recompression(target))
    assert codecs_in(again) == 1 << target
    batches = list(iter_batches(again))
    assert (batches[0][0].producer_id, batches[0][0].producer_epoch, batches[0][0].base_sequence) == (7, 1, 3)
    assert [record.value for record in iter_records(batches[0][1])] == [record.value for record in RECORDS]
    assert [record.key for record in iter_records(batches[1][1])] == [record.key for record in RECORDS[:5]]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_compresses_better(codec: Codec) -> None:
    varied = [Record(value=b"%d %d %d" % (n, n * n % 1009, n * 7 % 31)) for n in range(5000)]
    batch = build_batch(varied)
    assert len(prepared(batch, Recompression(codec, 9))) < len(prepared(batch, Recompression(codec, 1)))


@pytest.mark.parametrize("codec", list(Codec))
def test_valid_batches_are_returned_unchanged(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    assert prepared(batch + batch) == batch + batch


@pytest.mark.parametrize("codec", list(Codec))
def test_the_largest_timestamp_is_put_into_the_header(codec: Codec) -> None:
    right = build_batch(RECORDS, codec=codec)
    wrong = forged(right[61:], NOW, count=len(RECORDS), codec=codec, max_timestamp=NOW - 5)
    (header, view), *_ = iter_batches(prepared(wrong))
    assert header.max_timestamp == NOW + 49
    assert len(list(iter_records(view))) == len(RECORDS)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_beyond_its_decompression_limit_can_be_retried_with_a_larger_one(codec: Codec) -> None:
    large = build_batch([Record(timestamp=NOW, value=bytes(3 * MB))], codec=codec)
    for granted in (0, 1, MB, 3 * MB):
        with pytest.raises(DecompressedTooLarge):
            prepared(large, bytes_max=granted)
    assert prepared(large, bytes_max=4 * MB) == large
    with pytest.raises(DecompressedTooLarge):
        prepared(large + large, bytes_max=4 * MB)


def test_a_count_that_cannot_fit_is_refused_before_anything_is_decompressed() -> None:
    liar = forged(b"no zstd at all", NOW, count=MB, codec=Codec.ZSTD)
    with pytest.raises(DecompressedTooLarge):
        prepared(liar)


def test_decompression_stops_when_a_batch_becomes_too_large_to_store_uncompressed() -> None:
    bomb = build_batch([Record(timestamp=NOW, value=bytes(20 * MB))], codec=Codec.ZSTD)
    with pytest.raises(KafkaError, match=r"max\.message\.bytes") as refused:
        prepared(bomb, Recompression(Codec.NONE), bytes_max=64 * MB)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_header_validation_decompresses_only_if_the_topic_needs_it() -> None:
    poison = forged(b"no zstd at all", NOW, count=3, codec=Codec.ZSTD)
    assert prepared(poison, config=LogConfig(validates_records=False)) == poison
    miscounted = forged(plain_payload(NOW), NOW, count=2)
    assert prepared(miscounted, config=LogConfig(validates_records=False)) == miscounted
    for config in (LogConfig(validates_records=False, cleanup_policy="compact"), LogConfig()):
        for records in (poison, miscounted):
            with pytest.raises(KafkaError) as refused:
                prepared(records, config=config)
            assert refused.value.code == ErrorCode.INVALID_RECORD
