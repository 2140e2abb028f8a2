"""Records that are stored twice: the headers of their batches tell whether the broker or the client is to blame."""

from __future__ import annotations

import pytest

from penstock.chaos.copies import Blame, Stamp, Stamps, blame, headers
from penstock.chaos.ledger import Kind, Ledger, Name, Verdict
from penstock.wire.records import SEQUENCE_MODULUS, BatchHeader, Record, build_batch

FIRST = Stamp(7, 0, 100)


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        (Stamp(7, 0, 100), Blame.BROKER),  # it had to know it as a duplicate
        (Stamp(7, 1, 0), Blame.CLIENT),
        (Stamp(7, 1, 100), Blame.CLIENT),
        (Stamp(8, 0, 0), Blame.CLIENT),
        (Stamp(8, 0, 100), Blame.CLIENT),
        (Stamp(7, 0, 105), Blame.UNKNOWN),
        (None, Blame.UNKNOWN),
    ],
)
def test_blame_follows_from_producer_id_epoch_and_sequence(again: Stamp | None, expected: Blame) -> None:
    assert blame(FIRST, again) is expected


def test_an_old_epoch_behind_a_new_one_is_the_brokers_fault() -> None:
    assert blame(Stamp(7, 1, 0), Stamp(7, 0, 100)) is Blame.BROKER


def batch(base_offset: int, count: int, producer_id: int, epoch: int, sequence: int) -> bytes:
    records = [Record(offset=0, timestamp=0, value=b"x") for _ in range(count)]
    built = build_batch(
        records, base_offset=base_offset, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return bytes(built)


def stamps_of(*batches: bytes) -> Stamps:
    stamps = Stamps()
    for header in headers(memoryview(b"".join(batches))):
        stamps.add(header)
    return stamps


def test_stamps_are_read_from_batch_headers_and_counted_on_within_a_batch() -> None:
    stamps = stamps_of(batch(0, 3, 7, 0, 0), batch(3, 2, -1, -1, -1), batch(10, 2, 7, 1, SEQUENCE_MODULUS - 1))
    assert stamps.at(2) == Stamp(7, 0, 2)
    assert stamps.at(4) is None  # no producer id
    assert stamps.at(7) is None  # no batch
    assert stamps.at(11) == Stamp(7, 1, 0)  # sequence numbers begin again at zero
    assert stamps.at(12) is None


def test_a_batch_that_a_second_fetch_begins_with_again_is_counted_once() -> None:
    one = BatchHeader(0, 100, 0, 2, 0, 0, 4, 0, 0, 7, 0, 0, 5)
    stamps = Stamps()
    stamps.add(one)
    stamps.add(one)
    assert stamps.at(4) == Stamp(7, 0, 4)


def judge(numbers: list[int], acknowledged: dict[int, int], stamps: Stamps) -> Verdict:
    """One partition and one producer: records with these numbers are stored, some acknowledged at an offset."""
    ledger = Ledger(1)
    for number in range(max(numbers) + 1):
        name = ledger.sent(0, 0)
        ledger.acknowledged(name, 0, acknowledged.get(number, number))
    reader = ledger.reader("group")
    reader.assigned("m", 0)
    stored = [(0, offset, Name(0, number)) for offset, number in enumerate(numbers)]
    for _, offset, found in stored:
        reader.read("m", 0, offset, found)
    return ledger.judge(stored, lambda: [stamps])


def test_records_resent_under_a_new_epoch_are_counted_separately_with_evidence() -> None:
    stamps = stamps_of(batch(0, 2, 7, 0, 0), batch(2, 3, 7, 0, 2), batch(5, 3, 7, 1, 0))
    # The answer to the first copy was lost: the client knows the second one.
    verdict = judge([0, 1, 2, 3, 4, 2, 3, 4], {2: 5, 3: 6, 4: 7}, stamps)
    assert verdict.holds
    assert verdict.counts.resent == 3
    (run,) = verdict.copies
    assert run.blame is Blame.CLIENT
    assert str(run) == (
        "records 2–4 of producer 0 at offsets 2–4 (producer id 7, epoch 0, sequence 2) "
        "and again at 5–7 (producer id 7, epoch 1, sequence 0)"
    )


def test_a_batch_that_the_broker_stored_twice_is_a_violation() -> None:
    stamps = stamps_of(batch(0, 2, 7, 0, 0), batch(2, 2, 7, 0, 0))
    verdict = judge([0, 1, 0, 1], {}, stamps)
    assert dict(verdict.violations) == {Kind.DUPLICATED: 2}
    assert verdict.counts.resent == 0
    assert len(verdict.examples) == 1
    assert "(blame: broker)" in verdict.examples[0].text


def test_both_kinds_of_duplicates_in_one_partition_are_distinguished() -> None:
    stamps = stamps_of(
        batch(0, 2, 7, 0, 0), batch(2, 2, 7, 0, 2), batch(4, 2, 7, 0, 0), batch(6, 2, 7, 1, 0),
    )  # fmt: skip
    verdict = judge([0, 1, 2, 3, 0, 1, 2, 3], {}, stamps)
    assert [(run.count, run.blame) for run in verdict.copies] == [(2, Blame.BROKER), (2, Blame.CLIENT)]
    assert verdict.violations[Kind.DUPLICATED] == 2
    assert verdict.counts.resent == 2


def test_a_record_that_was_acknowledged_at_neither_of_its_copies_has_moved() -> None:
    stamps = stamps_of(batch(0, 1, 7, 0, 0), batch(1, 1, 7, 1, 0), batch(2, 1, 7, 1, 1))
    verdict = judge([0, 0, 1], {0: 9, 1: 2}, stamps)
    assert dict(verdict.violations) == {Kind.MOVED: 1}
