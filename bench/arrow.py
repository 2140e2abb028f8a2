"""`python -m bench.arrow`: records per second from raw batches to Arrow, beside the way there is without numpy.

Batches as producers make them, 16 KB (Java's default) and 1 MB (librdkafka's), hold JSON events of 1,000 or 100 bytes
with a key; each is decoded from memory, over and over, on one core. The other side, *plain*, builds the same Arrow
columns from `penstock.wire.records.iter_records`, one Python object per record.

CPU time counts, not the clock, and of many rounds the median: what else the machine does meets both sides alike,
because they take turns. Checksums are verified on both. Nothing is asserted: a time is not a test.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from bench.payloads import write_payloads
from penstock.arrow import RecordDecoder, arrow_schema
from penstock.wire.compression import Codec
from penstock.wire.records import Record, build_batch, iter_batches, iter_records

MIB = 1024 * 1024
DATA_BYTES = 8 * MIB
PAYLOADS = 20_000
BATCH_BYTES = (16 * 1024, MIB)
RECORD_BYTES = (1000, 100)
BASE_TIMESTAMP_MS = 1_700_000_000_000


class Stored(NamedTuple):
    """What a fetch would have brought."""

    data: bytes
    records: int


def make(record_bytes: int, batch_bytes: int, codec: Codec) -> Stored:
    """Batches of these sizes (before compression), as many as fit into one large answer."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "payloads"
        write_payloads(path, record_bytes=max(record_bytes, 1000), record_count=PAYLOADS)
        text = path.read_bytes()
    per_batch = max(1, batch_bytes // (record_bytes + 30))
    batches: list[bytes] = []
    offset = size = 0
    while size < DATA_BYTES:
        records = []
        for number in range(offset, offset + per_batch):
            start = number * record_bytes % (len(text) - 2 * record_bytes)
            # Sizes that differ a little, as those of real events do.
            length = record_bytes * 9 // 10 + number * 7919 % (record_bytes // 5)
            key = b"user-%010d" % (number * 104_729 % 1_000_000)
            records.append(Record(number, BASE_TIMESTAMP_MS + number // 7, key, text[start : start + length]))
        batch = build_batch(records, base_offset=offset, codec=codec)
        batches.append(batch)
        offset += per_batch
        size += sum(len(record.value or b"") for record in records)
    return Stored(b"".join(batches), offset)


def vectorised(stored: Stored) -> int:
    return sum(batch.num_rows for batch in RecordDecoder("orders", 0).decode(stored.data))


def plain(stored: Stored) -> int:
    """The same columns, from one object per record."""
    rows = [record for _, batch in iter_batches(stored.data) for record in iter_records(batch)]
    return table_of([(row.key, row.value, row.offset, row.timestamp) for row in rows])


def table_of(rows: list[tuple[bytes | None, bytes | None, int, int]]) -> int:
    keys, values, offsets, timestamps = zip(*rows, strict=True)
    count = len(rows)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.repeat("orders", count),
        pa.repeat(pa.scalar(0, pa.int32()), count),
        pa.array(offsets, pa.int64()),
        pa.array([1000 * one for one in timestamps], pa.timestamp("us", "UTC")),
        pa.repeat(pa.scalar(0, pa.int32()), count),
    ]
    return int(pa.RecordBatch.from_arrays(columns, schema=arrow_schema()).num_rows)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.arrow", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--codecs", default="none,zstd", help="of none, gzip, snappy, lz4, zstd")
    options = parser.parse_args(arguments)
    print(f"{'record':>7} {'batch':>7} {'codec':>6}  {'Arrow':>13}  {'GB/s':>5}  {'plain':>13}  ratio")
    for codec in (Codec[name.upper()] for name in options.codecs.split(",")):
        for record_bytes in RECORD_BYTES:
            for batch_bytes in BATCH_BYTES:
                stored = make(record_bytes, batch_bytes, codec)
                ours, theirs = measure(stored, [vectorised, plain], options.rounds)
                what = f"{record_bytes:>5} B {batch_bytes // 1024:>4} KB {codec.name.lower():>6}"
                rates = f"{ours:>11,.0f}/s  {ours * record_bytes / 1e9:>5.2f}  {theirs:>11,.0f}/s"
                print(f"{what}  {rates}  {ours / theirs:>5.1f}", flush=True)


def measure(stored: Stored, sides: list[Callable[[Stored], int]], rounds: int) -> list[float]:
    """Records per second of CPU time of each side, the median of so many rounds after one that does not count."""
    rates: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for index, side in enumerate(sides):
            started_s = time.process_time()
            count = side(stored)
            spent_s = time.process_time() - started_s
            assert count == stored.records, "every side reads every record"
            if number:
                rates[index].append(count / spent_s)
    return [statistics.median(one) for one in rates]


if __name__ == "__main__":
    main(sys.argv[1:])
