"""Codecs on a user's data: batches like a producer's, measured, and advice with its reason."""

from __future__ import annotations

import os
from itertools import count

import pytest

from penstock.perf.codecs import CANDIDATES, Candidate, Clocks, Measured, Situation, advise, batches, measure
from penstock.wire.compression import Codec
from penstock.wire.records import HEADER_SIZE, Record, build_batch, iter_records

TICKS = count()
CLOCKS = Clocks(wall=lambda: next(TICKS) * 0.5, cpu=lambda: next(TICKS) * 0.5)


def records(number: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(b"customer-%d" % (n % 7), b'{"order": %d, "item": "book"}' % n) for n in range(number)]


def test_batches_hold_what_a_producers_would() -> None:
    found = list(batches(records(2000), 4096))
    assert all(HEADER_SIZE + len(batch) <= 4096 for batch in found)
    assert all(HEADER_SIZE + len(batch) > 3900 for batch in found[:-1])
    whole = build_batch([Record(0, n, *record, ()) for n, record in enumerate(records(40))])
    (one,) = batches(records(40), 1 << 20)
    assert whole[HEADER_SIZE:] == one
    assert sum(1 for _ in iter_records(memoryview(whole), max_decompressed_bytes=1 << 20)) == 40


def test_a_record_larger_than_a_batch_is_a_batch_of_its_own() -> None:
    found = list(batches([(None, b"x" * 5000), (None, b"y"), (None, None)], 1000))
    assert [len(batch) > 5000 for batch in found] == [True, False]
    assert list(batches([])) == []


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda candidate: candidate.name)
def test_every_candidate_is_measured(candidate: Candidate) -> None:
    plain = list(batches(records(3000)))
    found = measure(candidate, plain, CLOCKS, enough_s=0.1)
    assert found.plain_bytes == sum(map(len, plain)) + HEADER_SIZE * len(plain)
    assert (found.ratio > 2) == (candidate.codec != Codec.NONE)
    assert found.compress_mb_s > 0
    assert found.decompress_mb_s > 0


def test_higher_levels_pack_tighter() -> None:
    plain = list(batches(records(5000)))
    sizes = {one.name: measure(one, plain, CLOCKS, enough_s=0.1).packed_bytes for one in CANDIDATES}
    assert sizes["zstd level 15"] < sizes["zstd level 1"] < sizes["none"]
    assert sizes["gzip level 9"] <= sizes["gzip level 1"]


def made(codec: Codec, ratio: float, compress_mb_s: float, level: int | None = None) -> Measured:
    return Measured(
        candidate=Candidate(codec, level),
        plain_bytes=1_000_000,
        packed_bytes=round(1_000_000 / ratio),
        compress_mb_s=compress_mb_s,
        decompress_mb_s=compress_mb_s * 3,
        compress_cpu_ms_per_mb=1000 / compress_mb_s,
        decompress_cpu_ms_per_mb=1000 / compress_mb_s / 3,
    )


MEASURED = [
    made(Codec.NONE, 1.0, 5000),
    made(Codec.LZ4, 2.0, 600),
    made(Codec.ZSTD, 3.0, 300, 1),
    made(Codec.ZSTD, 4.0, 8, 15),
]


def test_advice_depends_on_what_is_scarce() -> None:
    advice = {one.case: one for one in advise(MEASURED, Situation())}
    assert list(advice) == ["balanced", "network-bound", "CPU-bound"]
    assert advice["CPU-bound"].candidate.name == "lz4"
    assert advice["network-bound"].candidate.name == "zstd level 1"
    assert "300 MB/s" in advice["network-bound"].reason
    assert advice["balanced"].candidate.name == "zstd level 1"
    assert advice["balanced"].candidate.settings == "compression.type=zstd, compression.zstd.level=1"


def test_a_slow_link_is_worth_more_compression_and_a_fast_one_less() -> None:
    slow = advise(MEASURED, Situation(network_mbit=10))
    assert slow[0].candidate.name == "zstd level 15"
    assert slow[1].candidate.name == "zstd level 15"
    fast = advise(MEASURED, Situation(network_mbit=100_000, copies=1))
    assert fast[0].candidate.name == "none"


def test_data_that_is_dense_already_is_left_alone_where_the_processor_is_scarce() -> None:
    plain = list(batches([(None, os.urandom(1000)) for _ in range(100)]))
    found = [measure(one, plain, CLOCKS, enough_s=0.1) for one in CANDIDATES]
    advice = advise(found, Situation())[2]
    assert advice.candidate.codec == Codec.NONE
    assert "dense already" in advice.reason
