"""The epoch cache: OffsetForLeaderEpoch's answers as Kafka gives them, and its checkpoint file."""

from __future__ import annotations

import pytest

from penstock.log.epochs import EpochCache, EpochsDamaged, decode_epochs


def cache() -> EpochCache:
    epochs = EpochCache()
    for epoch, start in ((2, 10), (4, 30), (7, 50)):
        epochs.assign(epoch, start)
    return epochs


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (7, (7, 80)),  # the latest: it has not ended
        (4, (4, 50)),
        (5, (4, 50)),  # one that never wrote: the one before it
        (2, (2, 30)),
        (1, (1, 10)),  # older than all that is known: where the oldest known begins
        (8, (-1, -1)),
        (-1, (-1, -1)),
    ],
)
def test_where_an_epoch_ended(asked: int, answer: tuple[int, int]) -> None:
    assert cache().end_offset(asked, 80) == answer


def test_an_empty_cache_knows_nothing() -> None:
    assert EpochCache().end_offset(0, 5) == (-1, -1)
    assert EpochCache().latest_epoch == -1


def test_epoch_of_an_offset() -> None:
    epochs = cache()
    assert [epochs.epoch_of(offset) for offset in (9, 10, 29, 30, 49, 50, 1000)] == [-1, 2, 2, 4, 4, 7, 7]


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next() -> None:
    epochs = cache()
    epochs.assign(8, 80)
    epochs.assign(9, 80)
    assert epochs.entries[-2:] == [(7, 50), (9, 80)]


def test_assigning_the_same_epoch_again_changes_nothing() -> None:
    epochs = cache()
    epochs.is_dirty = False
    epochs.assign(7, 60)
    assert epochs.entries[-1] == (7, 50)
    assert not epochs.is_dirty


def test_cutting_the_end() -> None:
    epochs = cache()
    epochs.truncate_end(50)
    assert epochs.entries == [(2, 10), (4, 30)]
    epochs.truncate_end(31)
    assert epochs.entries == [(2, 10), (4, 30)]


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        (5, [(2, 10), (4, 30), (7, 50)]),
        (10, [(2, 10), (4, 30), (7, 50)]),
        (20, [(2, 20), (4, 30), (7, 50)]),
        (30, [(4, 30), (7, 50)]),
        (60, [(7, 60)]),
    ],
)
def test_truncating_the_start_keeps_the_epoch_that_contains_it(start: int, entries: list[tuple[int, int]]) -> None:
    epochs = cache()
    epochs.truncate_start(start)
    assert epochs.entries == entries


def test_the_file_is_kafkas() -> None:
    data = cache().encode()
    plain = b"0\n3\n2 10\n4 30\n7 50\n"
    assert data.startswith(plain[:-1])
    assert [line.split() for line in data.splitlines()] == [line.split() for line in plain.splitlines()]
    assert decode_epochs(data) == decode_epochs(plain)
    assert decode_epochs(b"0\n3\n2 10\n4 30\n7 50\n") == [(2, 10), (4, 30), (7, 50)]
    assert decode_epochs(b"0\n0\n") == []


def test_a_file_with_one_wrong_bit_is_refused() -> None:
    data = cache().encode()
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(EpochsDamaged):
                decode_epochs(bytes(flipped))


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n0\n", b"0\n2\n1 1\n", b"0\n1\nx y\n", b"0\n2\n5 10\n4 20\n", b"\xff\xff"]
)
def test_a_malformed_file_is_refused(data: bytes) -> None:
    with pytest.raises(EpochsDamaged):
        decode_epochs(data)
