"""The receive budget: what it lets in, in which order, and that it always holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

import pytest

from penstock.broker import limits
from penstock.broker.net.receiving import LARGE_FRAME_BYTES, ReceiveBudget

MB = 1 << 20


class Clock:
    """Callbacks in the order of their time."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._soon: deque[Callable[[], object]] = deque()
        self._later: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> None:
        self._later.append((self.now_ms + delay_ms, callback))

    def settle(self) -> None:
        while self._soon:
            self._soon.popleft()()

    def wait(self, duration_ms: float) -> None:
        end_ms = self.now_ms + duration_ms
        self.settle()
        while due := sorted((at, number) for number, (at, _) in enumerate(self._later) if at <= end_ms):
            self.now_ms, number = due[0]
            self._later.pop(number)[1]()
            self.settle()
        self.now_ms = end_ms

    def budget(self, total: int, frame_max: int) -> ReceiveBudget:
        budget = ReceiveBudget(lambda: self.now_ms, self._soon.append, self.call_later)
        budget.configure(total, frame_max)
        return budget


class Peer:
    """A connection as the budget sees it: it asks for one frame after the other."""

    def __init__(self, budget: ReceiveBudget) -> None:
        self._budget = budget
        self.closed = False
        self.progress_ms = 0.0
        self.active_ms = 0.0
        self.mid_request = False
        self.held = 0
        self.wanted = 0
        self.is_idle = False

    def ask(self, count: int) -> bool:
        if self._budget.take(self, count):
            self.held += count
            return True
        self.wanted = count
        return False

    def memory_granted(self) -> None:
        self.held += self.wanted
        self.wanted = 0

    def finish(self) -> None:
        count, self.held = self.held, 0
        self._budget.give(self, count, 0)

    def shrink(self) -> None:
        if self.is_idle and self.held:
            self.finish()

    def overdue(self) -> None:
        self.closed = True
        count, self.held = self.held, 0
        self._budget.leave(self, count)


def test_frames_are_let_in_whole_and_in_the_order_in_which_they_came() -> None:
    clock = Clock()
    budget = clock.budget(100 * MB, 10 * MB)
    peers = [Peer(budget) for _ in range(30)]
    admitted = [peer for peer in peers if peer.ask(10 * MB)]
    assert budget.used <= 100 * MB
    assert admitted == peers[: len(admitted)]
    for done, peer in enumerate(peers[:20]):
        peer.finish()
        clock.settle()
        assert peers[done + len(admitted)].held == 10 * MB, "the next in line"
        assert budget.used <= 100 * MB


@pytest.mark.parametrize("seed", range(20))
def test_the_budget_always_holds_and_everyone_is_served_in_the_end(seed: int) -> None:
    rng = Random(seed)
    clock = Clock()
    frame_max = 8 * MB
    budget = clock.budget(rng.choice((1, 16, 40, 100)) * MB, frame_max)
    most = max(2 * (frame_max + 4), 100 * MB)
    waiting = [Peer(budget) for _ in range(60)]
    for peer in waiting:
        peer.ask(rng.choice((8 * 1024, 64 * 1024, MB, 3 * MB, frame_max)))
    for _ in range(10_000):
        assert budget.used <= most
        holders = [peer for peer in waiting if peer.held]
        if not holders:
            break
        peer = rng.choice(holders)
        waiting.remove(peer)
        peer.finish()
        clock.settle()
    assert not waiting
    assert budget.used == 0
    assert not budget.short


def test_large_frames_leave_room_for_ordinary_ones() -> None:
    clock = Clock()
    budget = clock.budget(1024 * MB, 100 * MB)
    greedy = [Peer(budget) for _ in range(40)]
    for peer in greedy:
        peer.ask(100 * MB)
    assert any(peer.wanted for peer in greedy)
    assert all(Peer(budget).ask(LARGE_FRAME_BYTES) for _ in range(24))


def test_one_frame_goes_on_when_everything_is_held_by_others() -> None:
    clock = Clock()
    budget = clock.budget(20 * MB, 10 * MB)
    stuck = [Peer(budget) for _ in range(100)]
    for peer in stuck:
        peer.ask(MB)
    assert budget.used <= 20 * MB + 8
    assert sum(bool(peer.held) for peer in stuck) < 100
    for peer in stuck:
        if peer.held:
            peer.held = 0
            budget.leave(peer, MB)
            break
    clock.settle()
    assert sum(bool(peer.held) for peer in stuck) >= 10, "one that left made room for another"


def test_idle_buffers_are_taken_back_when_someone_waits() -> None:
    clock = Clock()
    budget = clock.budget(20 * MB, 10 * MB)
    idle = [Peer(budget) for _ in range(12)]
    for peer in idle:
        peer.is_idle = peer.ask(MB)
    late = Peer(budget)
    late.ask(MB)
    clock.settle()
    assert late.held == MB


def test_a_peer_that_holds_memory_and_finishes_nothing_is_closed_when_others_wait() -> None:
    clock = Clock()
    budget = clock.budget(40 * MB, 10 * MB)
    stuck, *slow = (Peer(budget) for _ in range(3))
    assert stuck.ask(10 * MB)
    clock.wait(10 * limits.REQUEST_SILENCE_MS)
    assert not stuck.closed, "nobody waits"
    assert all(peer.ask(10 * MB) for peer in slow)
    waits = Peer(budget)
    assert not waits.ask(10 * MB)
    clock.wait(limits.REQUEST_SILENCE_MS - 2_000)
    assert not stuck.closed
    for peer in slow:
        peer.progress_ms = clock.now_ms
    clock.wait(4_000)
    assert stuck.closed
    assert not any(peer.closed for peer in slow), "they finish requests"
    assert waits.held == 10 * MB


def test_a_peer_that_stops_in_the_middle_of_a_request_is_closed_sooner() -> None:
    clock = Clock()
    budget = clock.budget(40 * MB, 10 * MB)
    stopped, *going_on = (Peer(budget) for _ in range(3))
    for peer in (stopped, *going_on):
        assert peer.ask(10 * MB)
        peer.mid_request = True
    waits = Peer(budget)
    assert not waits.ask(10 * MB)
    for _ in range(4):
        clock.wait(limits.RECEIVE_STALL_MS / 3)
        for peer in going_on:
            peer.active_ms = clock.now_ms
    assert stopped.closed
    assert not any(peer.closed for peer in going_on)
    assert waits.held == 10 * MB


def test_one_that_leaves_the_line_takes_nothing() -> None:
    clock = Clock()
    budget = clock.budget(20 * MB, 10 * MB)
    first, second, third = Peer(budget), Peer(budget), Peer(budget)
    assert first.ask(10 * MB)
    assert not second.ask(10 * MB)
    assert not third.ask(10 * MB)
    budget.leave(second, 0)
    first.finish()
    clock.settle()
    assert (second.held, third.held) == (0, 10 * MB)


def test_a_larger_budget_lets_those_in_who_wait() -> None:
    clock = Clock()
    budget = clock.budget(20 * MB, 10 * MB)
    peers = [Peer(budget) for _ in range(10)]
    for peer in peers:
        peer.ask(10 * MB)
    budget.configure(500 * MB, 10 * MB)
    clock.settle()
    assert all(peer.held for peer in peers)
    assert not budget.short
