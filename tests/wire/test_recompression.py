"""The same records under another codec."""

from __future__ import annotations

import pytest

from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.recompression import codecs_of, recompress
from penstock.wire.records import Record, build_batch, iter_batches, iter_records

RECORDS = [Record(timestamp=1_700_000_000_000 + n, key=b"k%d" % n, value=b"value %d" % n * 20) for n in range(50)]


@pytest.mark.parametrize("target", list(Codec))
@pytest.mark.parametrize("source", list(Codec))
def test_records_headers_and_sequences_survive_every_change_of_codec(source: Codec, target: Codec) -> None:
    first = build_batch(RECORDS, codec=source, producer_id=7, producer_epoch=1, base_sequence=3)
    second = build_batch(RECORDS[:5], codec=Codec.GZIP, base_offset=50)
    again = recompress(first + second, target, None, 1 << 20)
    assert codecs_of(again) == [target, target]
    batches = list(iter_batches(again))
    assert (batches[0][0].producer_id, batches[0][0].producer_epoch, batches[0][0].base_sequence) == (7, 1, 3)
    assert [record.value for record in iter_records(batches[0][1])] == [record.value for record in RECORDS]
    assert [record.key for record in iter_records(batches[1][1])] == [record.key for record in RECORDS[:5]]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_compresses_better(codec: Codec) -> None:
    varied = [Record(value=b"%d %d %d" % (n, n * n % 1009, n * 7 % 31)) for n in range(5000)]
    batch = build_batch(varied)
    assert len(recompress(batch, codec, 9, 1 << 20)) < len(recompress(batch, codec, 1, 1 << 20))


def test_a_bomb_and_a_damaged_batch_are_refused() -> None:
    bomb = build_batch([Record(value=bytes(10_000_000))], codec=Codec.ZSTD)
    damaged = bytearray(build_batch(RECORDS, codec=Codec.LZ4))
    damaged[-1] ^= 1
    for records in (bomb, bytes(damaged)):
        with pytest.raises(KafkaError) as refused:
            recompress(records, Codec.GZIP, None, 1 << 20)
        assert refused.value.code == ErrorCode.CORRUPT_MESSAGE
