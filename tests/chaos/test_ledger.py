"""The account of records: every kind of violation is found, and permitted outcomes are not reported."""

from __future__ import annotations

import pytest

from penstock.chaos.ledger import Kind, Ledger, Name, Reader

PRODUCER = 3


class Scene:
    """A topic of one partition to which producer 3 sends; the stored records are given at the end."""

    def __init__(self, acknowledged: int) -> None:
        self.ledger = Ledger(1)
        self.group = self.ledger.reader("group")
        for offset in range(acknowledged):
            self.ledger.acknowledged(self.send(), 0, offset)

    def send(self) -> Name:
        return self.ledger.sent(PRODUCER, 0)

    def read(self, *offsets: int, member: str = "m", reader: Reader | None = None) -> None:
        for offset in offsets:
            (reader or self.group).read(member, 0, offset, Name(PRODUCER, offset))

    def judge(self, *numbers: int, first: int = 0) -> dict[Kind, int]:
        """The violations if these records are stored, from offset `first` on."""
        stored = [(0, first + place, Name(PRODUCER, number)) for place, number in enumerate(numbers)]
        return dict(self.ledger.judge(stored).violations)


def test_there_is_no_violation_if_every_record_is_stored_once_in_order_and_was_read() -> None:
    scene = Scene(acknowledged=4)
    scene.group.assigned("m", 0)
    scene.read(0, 1, 2, 3)
    verdict = scene.ledger.judge([(0, offset, Name(PRODUCER, offset)) for offset in range(4)])
    assert verdict.holds
    counts = verdict.counts
    assert (counts.sent, counts.acknowledged, counts.stored, counts.read) == (4, 4, 4, 4)


def test_an_acknowledged_record_that_is_not_stored_is_lost() -> None:
    scene = Scene(acknowledged=3)
    scene.group.assigned("m", 0)
    scene.read(0, 1)
    assert scene.judge(0, 1) == {Kind.LOST: 1}


def test_a_record_that_failed_may_be_stored_or_not() -> None:
    for stored in ((0, 1), (0,)):
        scene = Scene(acknowledged=1)
        scene.ledger.failed(scene.send(), 0)
        scene.group.assigned("m", 0)
        scene.read(*range(len(stored)))
        assert scene.judge(*stored) == {}


def test_a_record_that_is_stored_twice_is_a_duplicate() -> None:
    scene = Scene(acknowledged=2)
    scene.group.assigned("m", 0)
    for offset, number in enumerate((0, 1, 0)):
        scene.group.read("m", 0, offset, Name(PRODUCER, number))
    assert scene.judge(0, 1, 0) == {Kind.DUPLICATED: 1}


def test_records_in_another_order_are_found_and_so_is_that_they_moved() -> None:
    scene = Scene(acknowledged=3)
    scene.group.assigned("m", 0)
    for offset, number in enumerate((0, 2, 1)):
        scene.group.read("m", 0, offset, Name(PRODUCER, number))
    assert scene.judge(0, 2, 1) == {Kind.REORDERED: 1, Kind.MOVED: 2}


def test_where_a_retry_was_stored_need_not_be_known() -> None:
    scene = Scene(acknowledged=1)
    scene.ledger.acknowledged(scene.send(), 0, -1)
    scene.group.assigned("m", 0)
    scene.read(0, 1)
    assert scene.judge(0, 1) == {}


@pytest.mark.parametrize("name", [None, Name(PRODUCER, 7), Name(99, 0)])
def test_a_record_that_nobody_sent_is_foreign(name: Name | None) -> None:
    scene = Scene(acknowledged=1)
    scene.group.assigned("m", 0)
    scene.read(0)
    stored: list[tuple[int, int, Name | None]] = [(0, 0, Name(PRODUCER, 0)), (0, 1, name)]
    assert dict(scene.ledger.judge(stored).violations) == {Kind.FOREIGN: 1}


def test_a_reader_that_goes_past_a_record_has_skipped_it() -> None:
    scene = Scene(acknowledged=4)
    scene.group.assigned("m", 0)
    scene.read(0, 1, 3)
    assert scene.judge(0, 1, 2, 3)[Kind.SKIPPED] >= 1


def test_a_record_that_the_group_never_reads_is_skipped_though_each_member_went_on_without_a_gap() -> None:
    scene = Scene(acknowledged=4)
    scene.group.assigned("a", 0)
    scene.read(0, 1, member="a")
    scene.group.revoked("a", 0)
    scene.group.assigned("b", 0)
    scene.read(3, member="b")
    assert scene.judge(0, 1, 2, 3)[Kind.SKIPPED] >= 1


def test_a_gap_without_records_is_not_a_skip() -> None:
    scene = Scene(acknowledged=1)
    scene.ledger.acknowledged(scene.send(), 0, 5)
    scene.group.assigned("m", 0)
    scene.group.read("m", 0, 0, Name(PRODUCER, 0))
    scene.group.read("m", 0, 5, Name(PRODUCER, 1))
    stored = [(0, 0, Name(PRODUCER, 0)), (0, 5, Name(PRODUCER, 1))]
    assert scene.ledger.judge(stored).holds


def test_a_record_that_was_read_and_is_gone_has_vanished() -> None:
    scene = Scene(acknowledged=2)
    scene.ledger.failed(scene.send(), 0)
    scene.group.assigned("m", 0)
    scene.read(0, 1, 2)
    assert scene.judge(0, 1) == {Kind.VANISHED: 1}


def test_an_offset_that_held_something_else_before_is_found_when_it_is_read_again() -> None:
    scene = Scene(acknowledged=1)
    scene.ledger.failed(scene.send(), 0)
    scene.ledger.acknowledged(scene.send(), 0, 1)
    scene.group.assigned("a", 0)
    scene.read(0, 1, member="a")
    scene.group.revoked("a", 0)
    scene.group.assigned("b", 0)
    scene.group.read("b", 0, 1, Name(PRODUCER, 2))
    stored = [(0, 0, Name(PRODUCER, 0)), (0, 1, Name(PRODUCER, 2))]
    assert set(scene.ledger.judge(stored).violations) == {Kind.VANISHED}


def test_reading_again_after_a_reassignment_is_at_least_once_and_no_violation() -> None:
    scene = Scene(acknowledged=3)
    scene.group.assigned("a", 0)
    scene.read(0, 1, 2, member="a")
    scene.group.committed(0, 1)
    scene.group.revoked("a", 0)
    scene.group.assigned("b", 0)
    scene.read(1, 2, member="b")
    assert scene.judge(0, 1, 2) == {}
    assert scene.ledger.counts.read_again == 2


def test_a_group_that_begins_before_what_it_committed_has_lost_a_commit() -> None:
    scene = Scene(acknowledged=3)
    scene.group.assigned("a", 0)
    scene.read(0, 1, 2, member="a")
    scene.group.committed(0, 3)
    scene.group.revoked("a", 0)
    scene.group.assigned("b", 0)
    scene.read(2, member="b")
    assert scene.judge(0, 1, 2) == {Kind.COMMIT_LOST: 1}


def test_a_commit_reported_after_the_assignment_does_not_count() -> None:
    scene = Scene(acknowledged=3)
    scene.group.assigned("a", 0)
    scene.read(0, 1, 2, member="a")
    scene.group.assigned("b", 0)
    scene.group.committed(0, 3)
    scene.read(2, member="b")
    assert scene.judge(0, 1, 2) == {}


def test_a_reader_that_is_given_something_again_without_a_reassignment_went_back() -> None:
    scene = Scene(acknowledged=3)
    scene.group.assigned("m", 0)
    scene.read(0, 1, 2, 1, 2)
    assert scene.judge(0, 1, 2)[Kind.WENT_BACK] >= 1


def test_readers_are_judged_each_for_itself() -> None:
    scene = Scene(acknowledged=2)
    alone = scene.ledger.reader("alone")
    scene.group.assigned("m", 0)
    alone.assigned("r", 0)
    scene.read(0, 1)
    scene.read(0, member="r", reader=alone)
    assert scene.judge(0, 1) == {Kind.SKIPPED: 1}


def test_all_violations_are_counted_and_some_are_shown() -> None:
    scene = Scene(acknowledged=500)
    verdict = scene.ledger.judge([])
    assert verdict.violations[Kind.LOST] == 500
    assert 0 < len(verdict.examples) < 20
    assert "record 0 of producer 3 was acknowledged at offset 0, but is not stored" in verdict.examples[0].text


def test_records_of_a_probe_have_counts_of_their_own_and_no_order() -> None:
    ledger = Ledger(1, probes=[9])
    group = ledger.reader("group")
    group.assigned("m", 0)
    ledger.acknowledged(ledger.sent(PRODUCER, 0), 0, 0)
    late, later = ledger.sent(9, 0), ledger.sent(9, 0)
    ledger.failed(late, 0)
    ledger.acknowledged(later, 0, 1)
    stored = [Name(PRODUCER, 0), later, late]
    for offset, name in enumerate(stored):
        group.read("m", 0, offset, name)
    verdict = ledger.judge((0, offset, name) for offset, name in enumerate(stored))
    assert verdict.holds
    counts, probes = ledger.counts, ledger.probe_counts
    assert (counts.sent, counts.acknowledged, counts.stored, counts.read) == (1, 1, 1, 1)
    assert (probes.sent, probes.acknowledged, probes.failed, probes.stored, probes.read) == (2, 1, 1, 2, 2)


def test_a_record_of_a_probe_that_was_acknowledged_must_be_there_too() -> None:
    ledger = Ledger(1, probes=[9])
    ledger.acknowledged(ledger.sent(9, 0), 0, 0)
    assert dict(ledger.judge([]).violations) == {Kind.LOST: 1}
