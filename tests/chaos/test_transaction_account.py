"""The account of a transactional workload finds each way in which exactly-once can be missed."""

from __future__ import annotations

import pytest

from penstock.chaos.transaction_account import Output, Place, TransactionVerdict, check_money, check_stage

Stored = list[tuple[Place, Output | None]]
INPUTS: list[Place] = [(0, 0), (0, 1), (1, 0)]


def transfer(attempt: str, source: Place) -> list[Output]:
    return [Output(attempt, leg, 2, source, leg) for leg in (0, 1)]


def stored(*outputs: Output | None) -> Stored:
    """Debits in partition 0, credits in partition 1, in this order."""
    placed: Stored = []
    for output in outputs:
        partition = 0 if output is None else output.leg
        placed.append(((partition, sum(where[0] == partition for where, _ in placed)), output))
    return placed


A, B, C = transfer("a", (0, 0)), transfer("b", (0, 1)), transfer("c", (1, 0))
AGAIN = transfer("d", (0, 0))
WHOLE = stored(*A, *B, *C)


def violations(
    outputs: Stored, *, committed: set[str] | None = None, aborted: set[str] | None = None, seen: Stored | None = None
) -> dict[str, int]:
    verdict = TransactionVerdict()
    check_stage(
        verdict, "bank", INPUTS, outputs, legs=2, committed=committed or set(), aborted=aborted or set(), seen=seen
    )
    assert verdict.holds is (not verdict.violations)
    return dict(verdict.violations)


def test_everything_once_is_right() -> None:
    assert violations(WHOLE, committed={"a", "b"}, aborted={"x"}, seen=WHOLE[:4]) == {}


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (stored(*A, *B), {"lost": 1}),
        (stored(*A, *B, *C, *AGAIN), {"duplicate": 2, "reordered": 2}),
        (stored(*B, *A, *C), {"reordered": 2}),
        (stored(*A, *B, C[0]), {"torn": 1, "lost": 1}),
        (stored(*A, *B, *C, None), {"foreign": 1}),
        (stored(*A, *B, *C, *transfer("e", (7, 7))), {"foreign": 2}),
    ],
    ids=["lost", "twice", "reordered", "torn", "no header", "no input"],
)
def test_each_violation_is_found(outputs: Stored, expected: dict[str, int]) -> None:
    assert violations(outputs) == expected


def test_what_workers_knew_counts() -> None:
    assert violations(WHOLE, aborted={"b"}) == {"aborted-seen": 2}
    assert violations(WHOLE, committed={"z"}) == {"lost": 1}


def test_what_a_reader_saw_must_stay_and_must_be_all() -> None:
    assert violations(WHOLE, seen=[*WHOLE, ((0, 9), A[0])]) == {"vanished": 1}
    assert violations(WHOLE, seen=[WHOLE[0], WHOLE[4]]) == {"skipped": 1}


def test_money_that_does_not_add_up() -> None:
    verdict = TransactionVerdict()
    check_money(verdict, {"1": -5, "2": 5}, {"1": -5, "2": 5})
    assert verdict.holds
    check_money(verdict, {"1": -5, "2": 5}, {"1": -5, "2": 10})
    assert verdict.violations == {"money": 2}


def test_a_header_survives_the_round_trip() -> None:
    assert Output.decode(A[1].encode()) == A[1]
    assert Output.decode(b"[1, 2]") is None
    assert Output.decode(b"\xff") is None
