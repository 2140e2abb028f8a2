"""Turns: who is served next, and for how long. A clock that only requests move."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.broker.net.turns import BUSY_MS, BUSY_MS_MAX, FRESH_MS, ROUND_MS, SLICE_MS, Turns


class Loop:
    """Passes of an event loop, with time that passes only where somebody works."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._soon: deque[Callable[[], object]] = deque()
        self.turns = Turns(lambda: self.now_ms, lambda: self.now_ms, self._soon.append)

    def pass_once(self) -> float:
        """Run what is due, and return how long it took."""
        began_ms = self.now_ms
        for _ in range(len(self._soon)):
            self._soon.popleft()()
        return self.now_ms - began_ms

    def is_idle(self) -> bool:
        return not self._soon


class Client:
    """A connection with requests that take `cost_ms` each."""

    def __init__(self, loop: Loop, requests: float, cost_ms: float = 0.05, weight: float = 1.0) -> None:
        self._loop = loop
        self.requests = requests
        self.cost_ms = cost_ms
        self.weight = weight
        self.closed = False
        self.busy_until_ms = 0.0
        self.virtual_ms = 0.0
        self.served = 0
        self.turns_ms: list[float] = []

    def take_turn(self, now_ms: float, until_ms: float) -> bool:
        while self.requests and self._loop.now_ms < until_ms:
            self._loop.now_ms += self.cost_ms
            self.requests -= 1
            self.served += 1
        self.turns_ms.append(self._loop.now_ms - now_ms)
        return self.requests > 0


def greedy(loop: Loop, count: int, **parameters: float) -> list[Client]:
    clients = [Client(loop, float("inf"), **parameters) for _ in range(count)]
    for client in clients:
        loop.turns.queue(client, more=True)
    return clients


def test_a_polite_client_waits_one_pass_beside_two_hundred_greedy_ones() -> None:
    loop = Loop()
    greedy(loop, 200)
    waits_ms = []
    polite = Client(loop, 0)
    for _ in range(500):
        loop.pass_once()
        polite.requests = 1
        came_ms = loop.now_ms
        loop.turns.queue(polite)
        while polite.requests:
            loop.pass_once()
        waits_ms.append(loop.now_ms - came_ms)
    assert max(waits_ms) < 2 * ROUND_MS


def test_a_polite_client_is_no_worse_off_when_it_asks_for_more_than_its_share() -> None:
    """200 greedy clients leave it half a percent of the loop. It uses five times as much, a little at a time."""
    loop = Loop()
    greedy(loop, 200)
    polite = Client(loop, 0)
    for _ in range(100):
        polite.requests = 2
        loop.turns.queue(polite)
        loop.pass_once()
        assert not polite.requests
    assert polite.served * polite.cost_ms > 0.02 * loop.now_ms


def test_greedy_clients_share_the_rest_equally() -> None:
    loop = Loop()
    cheap = greedy(loop, 10, cost_ms=0.01)
    dear = greedy(loop, 10, cost_ms=0.2)
    huge = greedy(loop, 2, cost_ms=7.0)
    while loop.now_ms < 20_000:
        loop.pass_once()
    shares = [client.served * client.cost_ms for client in (*cheap, *dear, *huge)]
    assert min(shares) > 0.9 * max(shares), shares


def test_a_weight_makes_a_share_larger() -> None:
    loop = Loop()
    others = greedy(loop, 20)
    (follower,) = greedy(loop, 1, weight=10.0)
    while loop.now_ms < 5_000:
        loop.pass_once()
    assert 8 * others[0].served < follower.served < 12 * others[0].served


def test_a_pass_of_the_loop_is_short_and_turns_are_too() -> None:
    loop = Loop()
    clients = greedy(loop, 50)
    assert all(loop.pass_once() <= ROUND_MS + SLICE_MS + 0.05 for _ in range(200))
    assert max(max(client.turns_ms) for client in clients) <= SLICE_MS + 0.05
    fresh = Client(loop, float("inf"))
    loop.turns.queue(fresh)
    loop.pass_once()
    assert fresh.turns_ms[0] <= FRESH_MS + 0.05


def test_fresh_clients_leave_a_quarter_to_busy_ones() -> None:
    loop = Loop()
    (busy,) = greedy(loop, 1)
    while loop.now_ms < 1_000:
        for _ in range(200):
            loop.turns.queue(Client(loop, 1))
        loop.pass_once()
    assert busy.served * busy.cost_ms > 200


def test_nobody_saves_up_a_share_by_being_silent() -> None:
    loop = Loop()
    others = greedy(loop, 10)
    while loop.now_ms < 10_000:
        loop.pass_once()
    before = others[0].served
    (late,) = greedy(loop, 1)
    while loop.now_ms < 10_500:
        loop.pass_once()
    assert late.served < 1.2 * (others[0].served - before)


def test_one_request_that_takes_long_makes_a_client_a_busy_one_for_a_while() -> None:
    loop = Loop()
    greedy(loop, 1)
    slow = Client(loop, 1, cost_ms=30.0)
    loop.turns.queue(slow)
    loop.pass_once()
    assert loop.now_ms + BUSY_MS < slow.busy_until_ms <= loop.now_ms + BUSY_MS_MAX


def test_clients_with_one_long_request_after_the_other_do_not_become_fresh_by_waiting_for_each_other() -> None:
    loop = Loop()
    slow = [Client(loop, 1, cost_ms=5.0) for _ in range(300)]
    for client in slow:
        loop.turns.queue(client)
    while any(client.requests for client in slow):
        loop.pass_once()  # each has been new once
    waits_ms = []
    polite = Client(loop, 0)
    for _ in range(300):
        for client in slow:
            if not client.requests:
                client.requests = 1
                loop.turns.queue(client)
        polite.requests = 1
        came_ms = loop.now_ms
        loop.turns.queue(polite)
        while polite.requests:
            loop.pass_once()
        waits_ms.append(loop.now_ms - came_ms)
    assert max(waits_ms) < 2 * (ROUND_MS + 5.0)


def test_while_the_loop_keeps_up_nobody_queues() -> None:
    loop = Loop()
    turns = loop.turns
    for _ in range(1_000):
        assert loop.now_ms < turns.until_ms or turns.opens(loop.now_ms)
        loop.now_ms += 0.05
        loop.pass_once()
    assert turns.waiting == 0
    assert loop.is_idle()


def test_one_pass_serves_at_once_for_no_longer_than_a_round() -> None:
    loop = Loop()
    turns = loop.turns
    served = 0
    while loop.now_ms < turns.until_ms or turns.opens(loop.now_ms):
        loop.now_ms += 0.05
        served += 1
    assert served * 0.05 <= ROUND_MS + 0.05
    waiting = Client(loop, 1)
    turns.queue(waiting)
    assert not turns.opens(loop.now_ms), "nobody overtakes those who wait"
    loop.pass_once()
    assert waiting.served == 1
    assert loop.now_ms < turns.until_ms, "there is a new round"


def test_a_client_that_left_has_no_turn() -> None:
    loop = Loop()
    gone, stays = Client(loop, 1), Client(loop, 1)
    loop.turns.queue(gone, more=True)
    loop.turns.queue(stays)
    gone.closed = True
    loop.pass_once()
    assert (gone.served, stays.served) == (0, 1)
    assert loop.turns.waiting == 0
