"""The account of transactions: what it accepts, and each violation that it must report."""

from __future__ import annotations

import pytest

from penstock.sim.trials.load import Violation
from penstock.sim.trials.transaction_ledger import Fate, Transaction, TransactionLedger


@pytest.fixture
def ledger() -> TransactionLedger:
    return TransactionLedger("x", 2)


def run(ledger: TransactionLedger, *fates: Fate, instance: int = 1) -> tuple[Transaction, list[bytes]]:
    """A transaction with a record in both partitions that goes through these fates."""
    made = ledger.begin("w", instance)
    values = [ledger.send(made, 0), ledger.send(made, 1)]
    made.offset_sent = True
    for fate in fates:
        ledger.end(made, fate)
    return made, values


def test_what_was_committed_is_there_and_what_was_aborted_is_not(ledger: TransactionLedger) -> None:
    _, (a, b) = run(ledger, Fate.ASKED, Fate.COMMITTED)
    run(ledger, Fate.ABORTED)
    _, (c, d) = run(ledger, Fate.ASKED, Fate.UNKNOWN)
    ledger.saw(0, 0, a)
    ledger.saw_offset("w", 1, at_least=1)
    ledger.saw_offset("w", 3, at_least=1)
    ledger.check({0: [a], 1: [b]}, {"w": 1})
    ledger.check({0: [a, c], 1: [b, d]}, {"w": 3})


@pytest.mark.parametrize("fates", [(), (Fate.ABORTED,)], ids=["open", "aborted"])
def test_a_record_without_a_requested_commit_may_not_be_seen(
    ledger: TransactionLedger, fates: tuple[Fate, ...]
) -> None:
    _, (value, _) = run(ledger, *fates)
    with pytest.raises(Violation, match="read as committed"):
        ledger.saw(0, 0, value)


def test_a_commit_that_was_clearly_refused_may_not_have_been_seen(ledger: TransactionLedger) -> None:
    transaction, (value, _) = run(ledger, Fate.ASKED)
    ledger.saw(0, 0, value)
    with pytest.raises(Violation, match="read as committed before"):
        ledger.end(transaction, Fate.ABORTED)


def test_a_rogue_record_may_not_be_seen(ledger: TransactionLedger) -> None:
    with pytest.raises(Violation, match="outside a transaction"):
        ledger.saw(0, 0, ledger.rogue("w", 0))


def test_violations_at_the_end(ledger: TransactionLedger) -> None:
    _, (a, b) = run(ledger, Fate.ASKED, Fate.COMMITTED)
    _, (c, d) = run(ledger, Fate.ASKED, Fate.COMMITTED)
    both = {0: [a, c], 1: [b, d]}
    ledger.check(both, {"w": 2})
    for found, offset, reason in (
        ({0: [a, c], 1: [b]}, 2, "torn"),
        ({0: [a], 1: [b]}, 1, "is not there"),
        ({0: [c, a], 1: [b, d]}, 2, "comes after"),
        ({0: [a, c, a], 1: [b, d]}, 2, "twice"),
        (both, 1, "offset is 1"),
        (both, 3, "offset is 3"),
    ):
        with pytest.raises(Violation, match=reason):
            ledger.check(found, {"w": offset})
    ledger.saw(0, 5, c)
    _, (e, _) = run(ledger, Fate.ASKED, Fate.UNKNOWN)
    ledger.saw(0, 7, e)
    with pytest.raises(Violation, match="not there any more"):
        ledger.check(both, {"w": 2})


def test_offsets_outside_what_was_requested_and_acknowledged(ledger: TransactionLedger) -> None:
    run(ledger, Fate.ASKED, Fate.COMMITTED)
    run(ledger)
    for offset in (0, 2):
        with pytest.raises(Violation, match="offset"):
            ledger.saw_offset("w", offset, at_least=1)


def test_the_last_stable_offset_goes_forward_within_an_epoch_and_stays_below_the_high_watermark(
    ledger: TransactionLedger,
) -> None:
    ledger.stable(0, 3, 10, 12)
    ledger.stable(0, 4, 8, 12)
    with pytest.raises(Violation, match="from 10 to 9"):
        ledger.stable(0, 3, 9, 12)
    with pytest.raises(Violation, match="high watermark"):
        ledger.stable(0, 4, 13, 12)
