"""Replication as a whole: whatever happens, nothing that was committed is lost or replaced; and mistakes are found."""

from __future__ import annotations

from random import Random

import pytest

from penstock.replication import Leader
from replication.model import NO_LEADER, Entry, ListLog, Model, Replica, State, Violation

STEPS = 600


def run(seed: int, kind: type[Model] = Model, **options: bool) -> Model:
    model = kind(Random(seed), **options)
    for _ in range(STEPS):
        model.step()
    return model


@pytest.mark.parametrize("flush", [False, True])
def test_what_is_committed_is_never_lost(flush: bool) -> None:
    total: dict[str, int] = {}
    for seed in range(120):
        try:
            model = run(seed, flush=flush)
        except Violation as violation:
            raise AssertionError(f"seed {seed}: {violation}") from violation
        for name, count in model.counts.items():
            total[name] = total.get(name, 0) + count
    # Something must have happened for this to mean anything.
    assert all(total.values()), total
    assert total["committed"] > 1000, total


def test_replicas_that_may_talk_end_with_equal_logs() -> None:
    for seed in range(30):
        model = run(seed)
        settle(model)
        if model.state.leader == NO_LEADER:
            continue  # the last that had everything came back without proof of it
        leader = model.replicas[model.state.leader]
        assert leader.leader is not None
        assert leader.leader.high_watermark == leader.log.end
        for replica in model.replicas.values():
            assert replica.log.entries == leader.log.entries, f"seed {seed}: node {replica.node}"
        assert sorted(model.state.isr) == sorted(model.nodes)


def settle(model: Model) -> None:
    """All live, all hear everything, nothing is lost any more."""
    for replica in model.replicas.values():
        if not replica.alive:
            model.some_restart()
    while any(not replica.alive for replica in model.replicas.values()):
        model.some_restart()
    while model.state.fenced:
        model.some_fencing()
    for _ in range(2000):
        model.now_ms += 10
        for replica in model.replicas.values():
            if replica.known < len(model.history):
                model.adopt(replica)
        model.some_ask()
        model.some_deliver()
        if model.rng.random() < 0.05:
            model.some_tick()
            model.some_append()
        model.check()
    for _ in range(400):
        model.some_ask()
        while model.messages:
            model.some_deliver()
        for replica in model.replicas.values():
            if replica.known < len(model.history):
                model.adopt(replica)


# ---- mistakes that must be found


class NoMaximalIsr(Leader):
    """Counts the recorded ISR only."""

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.isr if self.proposed is None else self.proposed


class NotFrozen(Leader):
    """Goes on below the minimum."""

    def _advance(self) -> int:
        self.under_min_isr = False
        return super()._advance()


class CountsAnything(Leader):
    """Takes a follower for in sync because it is in the ISR."""

    def _recount(self) -> int:
        super()._recount()
        self._counted = self._counted[:-1]
        return self._advance()


def with_leader(kind: type[Leader]) -> type[Model]:
    class Planted(Model):
        def new_leader(self, replica: Replica, state: State, ends: object, high_watermark: int) -> Leader:
            made = super().new_leader(replica, state, ends, high_watermark)  # type: ignore[arg-type]
            return kind(
                made.node_id,
                made.replicas,
                made.isr,
                leader_epoch=made.leader_epoch,
                partition_epoch=made.partition_epoch,
                end=made.end,
                stable_end=made.stable_end,
                high_watermark=high_watermark,
                min_isr=made.min_isr,
                lag_time_max_ms=made.lag_time_max_ms,
                now_ms=self.now_ms,
            )

    return Planted


class NoComparison(Model):
    """The leader takes a follower's offset for a prefix of its own log."""

    def compare(self, log: ListLog, offset: int, last_epoch: int) -> tuple[int, int] | None:
        return (log.epochs.latest_epoch, log.end) if offset > log.end else None


class KeepsUncleanReplicas(Model):
    """A broker that lost its tail stays in the ISR."""

    def without(self, state: State, node: int, *, unclean: bool) -> State:
        if not unclean:
            return super().without(state, node, unclean=False)
        return self.elect(state)


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        (with_leader(NoMaximalIsr), 400),
        (with_leader(NotFrozen), 200),
        (with_leader(CountsAnything), 50),
        (NoComparison, 100),
        (KeepsUncleanReplicas, 100),
    ],
    ids=["no maximal isr", "not frozen", "counts anything", "no comparison", "keeps unclean"],
)
def test_a_planted_bug_is_found(kind: type[Model], seeds: int) -> None:
    for seed in range(seeds):
        try:
            run(seed, kind)
        except (Violation, AssertionError):
            return
    raise AssertionError(f"not found in {seeds} seeds")


def test_a_record_is_told_by_its_epoch_and_offset() -> None:
    """The property that comparing epochs rests on: two logs that agree on an epoch at an offset agree before it."""
    for seed in range(60):
        model = run(seed)
        logs: list[list[Entry]] = [replica.log.entries for replica in model.replicas.values()]
        for one in logs:
            for two in logs:
                shared = [i for i in range(min(len(one), len(two))) if one[i][0] == two[i][0]]
                if shared:
                    assert one[: shared[-1] + 1] == two[: shared[-1] + 1], f"seed {seed}"
