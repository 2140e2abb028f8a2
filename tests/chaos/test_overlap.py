"""Overlapping faults: as many at once as allowed, each undone in time, whatever happens to the others."""

from __future__ import annotations

from random import Random

from penstock.chaos.faults import FaultFailed, Hold, Steps, Until
from penstock.chaos.overlap import Overlap, Planned


class Stage:
    """Faults that record when they begin and end."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.told: list[str] = []
        self.active: set[str] = set()
        self.most_at_once = 0
        self.done: dict[str, str] = {}

    def fault(self, name: str, hold_s: float = 5.0, *, alone: bool = False, never: bool = False) -> Planned:
        def run() -> Steps:
            self.active.add(name)
            self.most_at_once = max(self.most_at_once, len(self.active))
            try:
                yield Hold(hold_s)
                if never:
                    yield Until(lambda: False, "ever be so", 3.0)
            finally:
                self.active.discard(name)
                self.told.append(name)
            return f"held {name}"

        def done(what: str) -> None:
            self.done[name] = what

        return Planned(run, alone, done, lambda error: self.done.update({name: error}))

    def play(self, overlap: Overlap, *, until_s: float = 1_000.0) -> None:
        while self.now_s < until_s and overlap.tick(self.now_s):
            self.now_s += 0.1


def test_one_at_a_time_is_one_after_another() -> None:
    stage = Stage()
    stage.play(Overlap([stage.fault(name) for name in "abc"], 1, Random(1)))
    assert stage.told == ["a", "b", "c"]
    assert stage.most_at_once == 1
    assert stage.done == {name: f"held {name}" for name in "abc"}


def test_several_are_under_way_at_once_and_never_more_than_allowed() -> None:
    stage = Stage()
    stage.play(Overlap([stage.fault(name) for name in "abcdefgh"], 3, Random(1)))
    assert sorted(stage.told) == list("abcdefgh")
    assert stage.most_at_once == 3


def test_an_exclusive_fault_never_overlaps_others() -> None:
    stage = Stage()
    faults = [stage.fault("a"), stage.fault("b"), stage.fault("roll", alone=True), stage.fault("c")]
    overlap = Overlap(faults, 3, Random(1))
    seen = []
    while overlap.tick(stage.now_s):
        stage.now_s += 0.1
        seen.append(frozenset(stage.active))
    assert frozenset({"a", "b"}) in seen
    assert all(active == {"roll"} for active in seen if "roll" in active)


def test_a_fault_that_times_out_is_undone_and_the_others_continue() -> None:
    stage = Stage()
    stage.play(Overlap([stage.fault("stuck", never=True), stage.fault("b"), stage.fault("c")], 2, Random(1)))
    assert "did not ever be so within 3 s" in stage.done["stuck"]
    assert stage.done["b"] == "held b"
    assert stage.done["c"] == "held c"
    assert not stage.active


def test_an_interrupt_undoes_all_running_faults() -> None:
    stage = Stage()
    overlap = Overlap([stage.fault(name, 100.0) for name in "abc"], 3, Random(1))
    stage.play(overlap, until_s=20.0)
    assert overlap.running == 3
    overlap.close()
    assert not stage.active
    assert not overlap.tick(stage.now_s)


def test_a_fault_that_cannot_be_applied_is_reported() -> None:
    stage = Stage()

    def run() -> Steps:
        yield Hold(0.0)
        raise FaultFailed("no leader anywhere")

    told: list[str] = []
    stage.play(Overlap([Planned(run, False, lambda _: None, told.append)], 2, Random(1)))
    assert told == ["no leader anywhere"]
