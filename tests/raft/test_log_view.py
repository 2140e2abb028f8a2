"""`LogView` against the plain list of batches that it describes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.raft.log_view import LogView
from penstock.raft.messages import LogBatch, Voters
from penstock.raft.types import OffsetAndEpoch, Voter, VoterSet

BOOTSTRAP = VoterSet.of([Voter(1, b"a" * 16)])


class Model:
    """Batches in a list, and the newest snapshot."""

    def __init__(self) -> None:
        self.batches: list[LogBatch] = []
        self.start = 0
        self.snapshot = OffsetAndEpoch(0, 0)
        self.snapshot_voters = BOOTSTRAP

    @property
    def end(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start

    @property
    def voter_set(self) -> VoterSet:
        found = [record.voter_set for b in self.batches for record in b.control if isinstance(record, Voters)]
        return found[-1] if found else self.snapshot_voters

    def epoch_before(self, offset: int) -> int:
        if offset == self.snapshot.offset:
            return self.snapshot.epoch
        return next(b.epoch for b in self.batches if b.base_offset <= offset - 1 < b.end_offset)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3), st.integers(0, 1)),
        st.tuples(st.just("voters"), st.integers(2, 9), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("snapshot"), st.integers(0, 9), st.integers(0, 9)),
    ),
    max_size=40,
)


@given(operations)
def test_it_knows_what_the_list_knows(steps: list[tuple[str, int, int]]) -> None:
    view = LogView(0, OffsetAndEpoch(0, 0), BOOTSTRAP)
    model = Model()
    epoch = 1
    for name, a, b in steps:
        if name == "append":
            epoch += b
            batch = LogBatch(model.end, a, epoch, values=(b"",) * a)
            view.append(batch)
            model.batches.append(batch)
        elif name == "voters":
            voter_set = VoterSet.of([Voter(i, b"a" * 16) for i in range(1, a)])
            batch = LogBatch(model.end, 1, epoch, control=(Voters(voter_set),))
            view.append(batch)
            model.batches.append(batch)
        elif name == "truncate":
            removable = [x for x in model.batches if x.base_offset >= model.snapshot.offset]
            if removable:
                offset = removable[-1 - a % len(removable)].base_offset
                view.truncate_to(offset)
                model.batches = [x for x in model.batches if x.end_offset <= offset]
        else:
            covered = [x for x in model.batches if x.end_offset >= model.snapshot.offset]
            if covered:
                last = covered[a % len(covered)]
                snapshot = OffsetAndEpoch(last.end_offset, last.epoch)
                starts = [x.base_offset for x in model.batches if x.base_offset <= snapshot.offset]
                start = starts[b % len(starts)]
                before = [x for x in model.batches if x.end_offset <= snapshot.offset]
                found = [r.voter_set for x in before for r in x.control if isinstance(r, Voters)]
                model.snapshot_voters = found[-1] if found else model.snapshot_voters
                view.snapshot_taken(snapshot, start)
                model.snapshot = snapshot
                model.start = start
                model.batches = [x for x in model.batches if x.base_offset >= start]
        check(view, model)
        check(LogView.recover(model.start, model.batches, model.snapshot, model.snapshot_voters), model)


def check(view: LogView, model: Model) -> None:
    assert (view.start_offset, view.end_offset) == (model.start, model.end)
    assert view.voter_set == model.voter_set
    if model.batches:
        assert view.last_epoch == model.batches[-1].epoch
    for batch in model.batches:
        # A replica that ends with any batch we have is a prefix of us; one that ends there with another epoch is not.
        assert view.diverging(batch.end_offset, batch.epoch) is None
        assert not view.needs_snapshot(batch.end_offset, batch.epoch)
        assert view.diverging(batch.end_offset, batch.epoch + 100) is not None
        if batch.end_offset >= model.snapshot.offset:
            assert view.epoch_at(batch.end_offset) == batch.epoch
    assert view.needs_snapshot(model.start - 1, 0) or model.start == 0


def test_a_log_that_ends_before_its_snapshot_gives_way_to_it() -> None:
    log = [LogBatch(0, 2, 1, values=(b"", b""))]
    view = LogView.recover(0, log, OffsetAndEpoch(9, 3), BOOTSTRAP)
    assert (view.start_offset, view.end_offset, view.last_epoch) == (9, 9, 3)


def test_a_divergence_names_the_end_of_the_last_common_epoch() -> None:
    view = LogView.recover(
        0,
        [LogBatch(0, 5, 1, values=(b"",) * 5), LogBatch(5, 5, 3, values=(b"",) * 5)],
        OffsetAndEpoch(0, 0),
        BOOTSTRAP,
    )
    assert view.diverging(8, 1) == OffsetAndEpoch(5, 1)
    assert view.diverging(7, 2) == OffsetAndEpoch(5, 1)
    assert view.diverging(12, 3) == OffsetAndEpoch(10, 3)
    assert view.diverging(10, 3) is None
    assert view.diverging(0, 0) is None
