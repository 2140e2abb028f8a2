"""Executes a plan in steps; can stop and resume.

The progress of a plan is read from the cluster (`assessment.state_of`), and every request is idempotent. So an
interruption loses nothing: executing the same file again resumes it, and cancelling ends the moves in progress and
keeps those that are done.

    assess → set rates → [ mark replicas → reassign a step → watch it → elect leaders → stable? ]… → unthrottle

A step is watched until all its partitions are where they should be. If nothing happens for `patience_s` (no byte
copied, no partition finished: a broker is gone, or a disk is full), the step is cancelled, the throttles are removed
and the reason is reported. The cluster is stable when every under-replicated partition was so at the beginning (or
misses only a broker that is being emptied) and brokers respond about as fast as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.balance import throttles
from penstock.balance.assessment import State, assess, check_moves, state_of
from penstock.balance.model import ClusterModel, Key
from penstock.balance.plan import Move, PlanRefused, steps
from penstock.balance.planfile import PlanFile, Rates
from penstock.balance.throttles import Throttled

PATIENCE_S = 300.0
POLL_S = 0.5
LATENCY_RATIO_MAX = 3.0
LATENCY_FLOOR_MS = 100.0
"""Latencies below this are always acceptable, whatever they were before."""
NAMED_MAX = 5
RATE_WINDOW_S = 10.0
STALE_AFTER_S = 10.0
"""Brokers may report outdated metadata for a moment, so a foreign change is believed only after this long."""


class ClusterPort(Protocol):
    """The cluster operations that executing a plan needs. Every request is idempotent."""

    def observe(self, topics: Iterable[str] | None = None, *, disks: bool = False) -> ClusterModel:
        """The cluster now: the named topics, or all; with sizes and free disk space if `disks`."""

    def copied_bytes(self, moves: Sequence[Move]) -> int:
        """The bytes that the new replicas of these moves hold so far."""

    def reassign(self, targets: Mapping[Key, tuple[int, ...] | None]) -> None:
        """Starts reassigning partitions; None cancels a reassignment in progress."""

    def elect(self, keys: Sequence[Key]) -> None:
        """Elects the first replica of each partition as its leader, where possible."""

    def rates(self, brokers: Sequence[int]) -> dict[int, Rates]:
        """The throttle rates of brokers; unreachable brokers are left out."""

    def set_rates(self, rates: Mapping[int, Rates]) -> None: ...

    def throttled(self, topics: Sequence[str]) -> dict[str, Throttled]:
        """The throttled replicas of these topics; topics that do not exist are left out."""

    def set_throttled(self, topics: Mapping[str, Throttled]) -> None: ...

    def latency_ms(self) -> float:
        """The latency of a small request on the slowest broker."""

    def now_s(self) -> float: ...

    def pause(self, seconds: float) -> None: ...


class Progress(msgspec.Struct, frozen=True):
    step: int
    steps: int
    moved: int
    """The number of moves that are done, of all in the plan."""
    moves: int
    copied_bytes: int
    total_bytes: int
    rate: float = 0.0
    """Recent bytes per second."""
    left_s: float | None = None


class Report(msgspec.Struct, frozen=True):
    moved: int
    already_done: int
    steps: int
    copied_bytes: int
    seconds: float
    latency_before_ms: float
    latency_after_ms: float
    unthrottled: bool


class Counts(msgspec.Struct, frozen=True):
    done: int = 0
    moving: int = 0
    pending: int = 0
    stale: int = 0


class ExecutionFailed(Exception):
    """The plan was started but not finished; the message says what happened and what state it left."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Executor:
    """Executes one plan. `save` writes the plan file again whenever a restart needs the new contents."""

    def __init__(
        self,
        port: ClusterPort,
        plan: PlanFile,
        *,
        save: Callable[[PlanFile], None],
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_note: Callable[[str], None] = lambda text: None,
        patience_s: float = PATIENCE_S,
        poll_s: float = POLL_S,
    ) -> None:
        self.plan = plan
        self._port = port
        self._save = save
        self._on_progress = on_progress
        self._on_note = on_note
        self._patience_s = patience_s
        self._poll_s = poll_s
        self._last = ClusterModel("", (), ())

    def check(self) -> ClusterModel:
        """The assessment: raises PlanRefused if the plan does not match the cluster, or the cluster is unhealthy."""
        model = self._observe(self.plan.moves, None, disks=True)
        refuse_misfits(self.plan, model)
        left = [move for move in self.plan.moves if state_of(move, model) is not State.DONE]
        stops = [one for one in assess(model, left, self.plan.leaving) if one.stops]
        if stops:
            raise PlanRefused("; ".join(one.text for one in stops), "; ".join(one.hint for one in stops if one.hint))
        return model

    def run(self) -> Report:
        """Executes all moves that are not done yet, step by step."""
        port = self._port
        model = self.check()
        started_s = port.now_s()
        latency_before_ms = port.latency_ms()
        tolerated = {one.key for one in model.partitions if one.under_replicated}
        done = [move for move in self.plan.moves if state_of(move, model) is State.DONE]
        moving = [move for move in self.plan.moves if state_of(move, model) is State.MOVING]
        pending = [move for move in self.plan.moves if state_of(move, model) is State.PENDING]
        pieces = ([moving] if moving else []) + steps(pending, self._step_of(len(pending)))
        if pieces and self.plan.throttle is not None:
            self._set_rates()
        copied = 0
        tracker = _Tracker(self.plan.moves, len(done), len(pieces), self._on_progress)
        for piece in pieces:
            tracker.next_step()
            if self.plan.throttle is not None:
                self._throttle(piece)
            begin = {move.key: move.after for move in piece} if piece is not moving else {}
            if begin:
                port.reassign(begin)
            self._watch(piece, tracker)
            port.elect([move.key for move in piece])
            self._wait_until_steady(piece, tolerated, latency_before_ms)
            copied += sum(move.bytes_to_move for move in piece)
            if self.plan.throttle is not None:
                self._unthrottle(piece)
        # A plan without a throttle leaves the existing throttles alone.
        unthrottled = self.plan.throttle is not None and self.release()
        return Report(
            moved=sum(map(len, pieces)),
            already_done=len(done),
            steps=len(pieces),
            copied_bytes=copied,
            seconds=port.now_s() - started_s,
            latency_before_ms=latency_before_ms,
            latency_after_ms=port.latency_ms(),
            unthrottled=unthrottled,
        )

    def cancel(self) -> Counts:
        """Cancels the moves in progress and removes the throttles; finished moves stay."""
        before = self.counts()
        moving = [move for move in self.plan.moves if state_of(move, self._last) is State.MOVING]
        self._end(moving)
        self.release()
        return before

    def counts(self) -> Counts:
        """The number of moves in each state."""
        self._last = self._observe(self.plan.moves, {move.topic for move in self.plan.moves})
        states = [state_of(move, self._last) for move in self.plan.moves]
        return Counts(
            done=states.count(State.DONE),
            moving=states.count(State.MOVING),
            pending=states.count(State.PENDING),
            stale=states.count(State.STALE),
        )

    def release(self) -> bool:
        """Removes this plan's throttles; returns whether there were any. Idempotent."""
        rates = self.plan.rates_before
        changed = self._unthrottle(self.plan.moves)
        if rates is None:
            return changed
        # Rates that are not ours were set by someone else since: keep them.
        ours: Rates = (self.plan.throttle, self.plan.throttle)
        now = self._port.rates(sorted(rates))
        back = {broker: rates[broker] for broker, pair in now.items() if pair == ours and rates[broker] != ours}
        if back:
            self._port.set_rates(back)
        # Brokers that could not be asked stay in the file; their rates are removed when the plan is next run.
        unasked = {broker: pair for broker, pair in rates.items() if broker not in now}
        self.plan = msgspec.structs.replace(self.plan, rates_before=unasked or None)
        self._save(self.plan)
        return changed or bool(back)

    def _observe(self, moves: Sequence[Move], topics: Iterable[str] | None, *, disks: bool = False) -> ClusterModel:
        since_s = self._port.now_s()
        while True:
            model = self._port.observe(topics, disks=disks)
            stale = any(state_of(move, model) is State.STALE for move in moves)
            if not stale or self._port.now_s() - since_s > STALE_AFTER_S:
                return model
            self._port.pause(self._poll_s)

    # ---- one step

    def _watch(self, piece: Sequence[Move], tracker: _Tracker) -> None:
        port = self._port
        topics = sorted({move.topic for move in piece})
        copying = [move for move in piece if move.coming]
        last_change_s = port.now_s()
        last: tuple[int, int] | None = None
        while True:
            model = self._observe(piece, topics)
            arrived = [move for move in piece if _arrived(move, model)]
            copied = port.copied_bytes(copying) if copying else 0
            tracker.tell(len(arrived), copied, sum(move.bytes_to_move for move in piece), port.now_s())
            if len(arrived) == len(piece):
                return
            stale = [move for move in piece if state_of(move, model) is State.STALE]
            if stale:
                self._give_up(piece, f"{_names(stale)} changed by someone else while the plan was executed")
            if (len(arrived), copied) != last:
                last = (len(arrived), copied)
                last_change_s = port.now_s()
            elif port.now_s() - last_change_s > self._patience_s:
                missing = [broker for broker in throttles.brokers_of(piece) if broker not in model.serving]
                why = f"broker {', '.join(map(str, missing))} is not in service" if missing else "see the brokers' logs"
                waiting = [move for move in piece if not _arrived(move, model)]
                self._give_up(piece, f"{_names(waiting)}: nothing has moved for {self._patience_s:,.0f} s ({why})")
            again = {move.key: move.after for move in piece if state_of(move, model) is State.PENDING}
            if again:
                # Cancelled by someone else, or lost with a controller that had not persisted it yet.
                port.reassign(again)
            port.pause(self._poll_s)

    def _wait_until_steady(self, piece: Sequence[Move], tolerated: set[Key], latency_before_ms: float) -> None:
        port = self._port
        limit_ms = max(LATENCY_FLOOR_MS, LATENCY_RATIO_MAX * latency_before_ms)
        since_s = port.now_s()
        while True:
            model = port.observe()
            unwell = [
                one.key
                for one in model.partitions
                if one.key not in tolerated
                and any(
                    broker not in one.in_sync
                    for broker in one.replicas
                    if broker not in one.adding and broker not in self.plan.leaving
                )
            ]  # fmt: skip
            latency_ms = port.latency_ms()
            if not unwell and latency_ms <= limit_ms:
                return
            if port.now_s() - since_s > self._patience_s:
                if unwell:
                    shown = ", ".join(map(str, unwell[:NAMED_MAX]))
                    self._give_up(piece, f"not all replicas are in sync after the step: {shown}")
                self._give_up(piece, f"brokers answer in {latency_ms:,.0f} ms, before in {latency_before_ms:,.0f} ms")
            port.pause(self._poll_s)

    def _give_up(self, piece: Sequence[Move], reason: str) -> None:
        """Cancels the step, so that no move is left half done."""
        model = self._port.observe({move.topic for move in piece})
        moving = [move for move in piece if state_of(move, model) is State.MOVING]
        self._end(moving)
        self.release()
        counts = self.counts()
        raise ExecutionFailed(
            f"{reason}. {len(moving):,} moves were cancelled, {counts.done:,} of {len(self.plan.moves):,} are done, "
            "the throttles are removed",
            "fix the problem and execute the same plan again: it resumes where it stopped",
        )

    def _end(self, moving: Sequence[Move]) -> None:
        if not moving:
            return
        self._port.reassign({move.key: None for move in moving})
        since_s = self._port.now_s()
        while True:
            model = self._port.observe({move.topic for move in moving})
            if not any(state_of(move, model) is State.MOVING for move in moving):
                break
            if self._port.now_s() - since_s > self._patience_s:
                raise ExecutionFailed("the cluster did not end the cancelled moves", "check the controller's log")
            self._port.pause(self._poll_s)
        # Cancelling removes the new replicas but keeps the plan's order of the others: restore the old order.
        disordered = [
            move
            for move in moving
            if state_of(move, model) is State.PENDING
            and model.by_key[(move.topic, move.index)].replicas != move.before
            and move.coming
        ]
        if disordered:
            self._port.reassign({move.key: move.before for move in disordered})
            self._port.elect([move.key for move in disordered])

    # ---- throttles

    def _set_rates(self) -> None:
        assert self.plan.throttle is not None
        wanted: Rates = (self.plan.throttle, self.plan.throttle)
        now = self._port.rates(throttles.brokers_of(self.plan.moves))
        known = self.plan.rates_before or {}
        # Saved first: after a crash in between, our rates must not be taken for those that were there before.
        before = {**{broker: pair for broker, pair in now.items() if pair != wanted}, **known}
        for broker in now:
            before.setdefault(broker, (None, None))
        if before != self.plan.rates_before:
            self.plan = msgspec.structs.replace(self.plan, rates_before=before)
            self._save(self.plan)
        foreign = [broker for broker, pair in now.items() if pair not in (wanted, (None, None)) and broker not in known]
        if foreign:
            self._on_note(f"brokers {', '.join(map(str, foreign))} have a throttle already; it is restored afterwards")
        self._port.set_rates({broker: wanted for broker, pair in now.items() if pair != wanted})

    def _throttle(self, moves: Sequence[Move]) -> None:
        ours = throttles.throttled_by(moves)
        now = self._port.throttled(sorted(ours))
        change = {topic: now[topic].plus(ours[topic]) for topic in now if now[topic].plus(ours[topic]) != now[topic]}
        if change:
            self._port.set_throttled(change)

    def _unthrottle(self, moves: Sequence[Move]) -> bool:
        ours = throttles.throttled_by(moves)
        now = self._port.throttled(sorted(ours))
        change = {topic: now[topic].minus(ours[topic]) for topic in now if now[topic].minus(ours[topic]) != now[topic]}
        if change:
            self._port.set_throttled(change)
        return bool(change)

    def _step_of(self, pending: int) -> float:
        """The share of the pending moves in a step, such that ten steps are ten steps of the whole plan."""
        return min(1.0, self.plan.step * len(self.plan.moves) / pending) if pending else 1.0


def refuse_misfits(plan: PlanFile, model: ClusterModel) -> None:
    """Raises PlanRefused if the plan does not match the current state of this cluster."""
    problems = check_moves(plan.moves, model)
    if problems:
        shown = "\n  ".join(problems[:NAMED_MAX])
        more = f"\n  and {len(problems) - NAMED_MAX:,} more" if len(problems) > NAMED_MAX else ""
        raise PlanRefused(f"the plan does not match the cluster:\n  {shown}{more}", "make a new plan")


class _Tracker:
    """Turns observations of a step into progress of the whole plan, with a rate and the bytes left."""

    def __init__(
        self, moves: Sequence[Move], done: int, step_count: int, on_progress: Callable[[Progress], None]
    ) -> None:
        self._moves = len(moves)
        self._total = sum(move.bytes_to_move for move in moves)
        self._done = done
        self._steps = step_count
        self._step = 0
        self._finished_bytes = 0
        self._finished = 0
        self._now = (0, 0)
        self._seen: list[tuple[float, int]] = []
        self._on_progress = on_progress

    def next_step(self) -> None:
        self._finished += self._now[0]
        self._finished_bytes += self._now[1]
        self._now = (0, 0)
        self._step += 1

    def tell(self, arrived: int, copied: int, step_bytes: int, now_s: float) -> None:
        # A topic may grow while it is copied, and may have grown since the plan was made.
        self._now = (arrived, min(copied, step_bytes))
        copied_bytes = self._finished_bytes + self._now[1]
        self._seen.append((now_s, copied_bytes))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > RATE_WINDOW_S:
            del self._seen[0]
        span_s = now_s - self._seen[0][0]
        rate = (copied_bytes - self._seen[0][1]) / span_s if span_s > 0 else 0.0
        left = self._total - copied_bytes
        self._on_progress(
            Progress(
                step=self._step,
                steps=self._steps,
                moved=self._done + self._finished + arrived,
                moves=self._moves,
                copied_bytes=copied_bytes,
                total_bytes=self._total,
                rate=rate,
                left_s=left / rate if rate > 0 else None,
            )
        )


def _arrived(move: Move, model: ClusterModel) -> bool:
    """Whether the partition has its new replicas and all are in sync."""
    if state_of(move, model) is not State.DONE:
        return False
    one = model.by_key[(move.topic, move.index)]
    return all(broker in one.in_sync for broker in move.after)


def _names(moves: Sequence[Move]) -> str:
    shown = ", ".join(str(move.key) for move in moves[:NAMED_MAX])
    return shown if len(moves) <= NAMED_MAX else f"{shown} and {len(moves) - NAMED_MAX:,} more"
