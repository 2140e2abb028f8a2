"""Runs that meet: whatever one of them acted on is known to the one that goes on. Pure, in every order of steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from penstock.pipeline.repartition.claims import Claim, Claims, claim_in
from penstock.pipeline.repartition.plan import RepartitionOrder, RepartitionPlan

PLAN = RepartitionPlan.new(RepartitionOrder("orders", 3), "", 0)


class Log:
    def __init__(self) -> None:
        self.records: list[tuple[Claim, RepartitionPlan]] = []


class Run:
    """Claims, then writes plan after plan; each may act only as `ledger` says. Its writes may be late."""

    def __init__(self, name: str, log: Log, acted: list[int]) -> None:
        self.name, self.log, self.acted = name, log, acted
        self.claims = Claims()
        self.position = 0

    def steps(self) -> Iterator[None]:
        """Yields between any two messages to the log."""
        self._read()
        found = self.claims.plan
        claim = self.claims.next_claim(self.name)
        yield
        while True:
            plan = found or PLAN
            self._write(claim, plan)
            yield
            if not self._holds(claim):
                return
            inherited = self.claims.inherited(claim)
            if inherited == found:
                break
            found = inherited
            yield
        # It begins with everything that others have acted on: else it would copy it a second time. The last of it may
        # have been planned and not done: that is the chunk of a run that was interrupted.
        assert plan.written in (len(self.acted), len(self.acted) + 1), f"{self.name} begins with {plan.written}"
        if plan.written > len(self.acted):
            self.acted.append(plan.written)
        for _ in range(2):
            plan = plan.changed(written=plan.written + 1)
            yield
            self._write(claim, plan)
            yield
            if not self._holds(claim):
                return
            assert plan.written == len(self.acted) + 1, f"{self.name} acts on what another did already"
            self.acted.append(plan.written)

    def _holds(self, claim: Claim) -> bool:
        self._read()
        return self.claims.highest == claim

    def _read(self) -> None:
        for offset in range(self.position, len(self.log.records)):
            self.claims.see(offset, *self.log.records[offset])
        self.position = len(self.log.records)

    def _write(self, claim: Claim, plan: RepartitionPlan) -> None:
        self.log.records.append((claim, plan))


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_no_order_of_steps_lets_two_runs_do_the_same_or_forget_what_was_done(names: str) -> None:
    """Each order of nine steps of two runs; then both go on in turns until they end, and a third one takes over."""
    for order in itertools.product((0, 1), repeat=9):
        log, acted = Log(), list[int]()
        runs = [Run(name, log, acted).steps() for name in names]
        for number in (*order, *(0, 1) * 12):
            next(runs[number], None)
        for _ in Run("z", log, acted).steps():
            pass
        assert acted == list(range(1, len(acted) + 1))
        assert len(acted) >= 2


def test_a_key_of_the_ledger_names_topic_and_claim() -> None:
    claim = Claim(12, "abc")
    assert claim_in(claim.key("orders"), "orders") == claim
    assert claim_in(claim.key("orders"), "order") is None
    for wrong in (b"orders", b"orders/x/abc", b"\xff", b"orders/1/2/3"):
        assert claim_in(wrong, "orders") is None


def test_a_late_record_of_a_lower_claim_does_not_count() -> None:
    claims = Claims()
    claims.see(0, Claim(1, "a"), PLAN)
    claims.see(1, Claim(2, "b"), PLAN.changed(written=5))
    claims.see(2, Claim(1, "a"), PLAN.changed(written=9))
    assert claims.plan == PLAN.changed(written=5)
    assert claims.inherited(Claim(2, "b")) == PLAN
    claims.see(3, Claim(1, "a"), None)
    assert claims.superseded(Claim(2, "b")) == []
    assert claims.next_claim("c") == Claim(3, "c")
