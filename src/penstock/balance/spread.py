"""Evens out the number of replicas with the fewest moves; shared by `grow` and `place`.

A broker below its share takes replicas, one at a time, from the broker with the most, until it has its share or no
other broker has at least two more. So nothing moves twice, nothing moves between brokers that have enough, and no plan
with fewer moves gives the new broker as much: of 1,000 partitions on 3 brokers, 84, 83 and 83 go to a fourth.

The replicas to move are picked evenly from the donor's list of partitions, so that every topic gives in proportion (a
topic with all its partitions on one new broker would be worse off than before). As many first replicas are among them
as it takes to even out leadership. A new broker takes the donor's place in the replica list. No move puts a partition's
replicas into fewer racks than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace

from penstock.balance.model import ClusterModel, keeps_racks

GOLDEN = 0.6180339887498949


class Assignment:
    """An assignment being changed: the partitions at `positions` of a model, and the brokers' counts."""

    def __init__(self, model: ClusterModel, positions: Sequence[int], brokers: Sequence[int]) -> None:
        self.model = model
        self.positions = positions
        self.replicas: dict[int, tuple[int, ...]] = {
            position: model.partitions[position].target for position in positions
        }
        self.held: dict[int, int] = dict.fromkeys(brokers, 0)
        self.led: dict[int, int] = dict.fromkeys(brokers, 0)
        for replicas in self.replicas.values():
            for broker in replicas:
                self.held[broker] = self.held.get(broker, 0) + 1
            if replicas:
                self.led[replicas[0]] = self.led.get(replicas[0], 0) + 1
        self.changed: dict[int, tuple[int, ...]] = {}
        """Changed positions, in the order of their first change."""

    def set(self, position: int, after: tuple[int, ...]) -> None:
        before = self.replicas[position]
        for broker in before:
            self.held[broker] -= 1
        for broker in after:
            self.held[broker] = self.held.get(broker, 0) + 1
        self.led[before[0]] -= 1
        self.led[after[0]] = self.led.get(after[0], 0) + 1
        self.replicas[position] = after
        self.changed[position] = after

    def replace(self, position: int, leaving: int, coming: int) -> None:
        """Puts `coming` in the place of `leaving`. A faster `set` for the common case."""
        before = self.replicas[position]
        after = tuple(coming if broker == leaving else broker for broker in before)
        self.held[leaving] -= 1
        self.held[coming] += 1
        if before[0] == leaving:
            self.led[leaving] -= 1
            self.led[coming] += 1
        self.replicas[position] = after
        self.changed[position] = after


def fill(assignment: Assignment, needy: int, donors: Sequence[int], share: int, lead_share: int) -> None:
    """Gives one broker its share of replicas, taken from the donors that have the most."""
    held, led = assignment.held, assignment.led
    offers = _offers(assignment, donors, needy)
    fullest = [(-held[donor], donor) for donor in donors]
    heapify(fullest)
    while fullest and held[needy] < share:
        count, donor = fullest[0]
        if -count - held[needy] < 2:
            return
        wants_lead = led[needy] < lead_share and led[donor] - led[needy] >= 2
        position = offers[donor].take(wants_lead)
        if position is None:
            heappop(fullest)
            continue
        assignment.replace(position, donor, needy)
        heapreplace(fullest, (count + 1, donor))


class _Offers:
    """A donor's candidates for one broker: first replicas and others, checked only when taken."""

    def __init__(
        self, assignment: Assignment, donor: int, needy: int, firsts: Sequence[int], others: Sequence[int]
    ) -> None:
        self._assignment = assignment
        self._donor = donor
        self._needy = needy
        self._firsts = scattered(firsts)
        self._others = scattered(others)

    def take(self, wants_lead: bool) -> int | None:
        """The position of a partition; None if no replica that may move is left."""
        order = (self._firsts, self._others) if wants_lead else (self._others, self._firsts)
        for offered in order:
            for position in offered:
                if self._may_move(position):
                    return position
        return None

    def _may_move(self, position: int) -> bool:
        replicas = self._assignment.replicas[position]
        if self._needy in replicas or self._donor not in replicas:
            return False
        model = self._assignment.model
        return not model.has_racks or keeps_racks(model, replicas, self._donor, self._needy)


def _offers(assignment: Assignment, donors: Sequence[int], needy: int) -> dict[int, _Offers]:
    firsts: dict[int, list[int]] = {donor: [] for donor in donors}
    others: dict[int, list[int]] = {donor: [] for donor in donors}
    for position, replicas in assignment.replicas.items():
        into = firsts
        for broker in replicas:
            if broker in into:
                into[broker].append(position)
            into = others
    return {donor: _Offers(assignment, donor, needy, firsts[donor], others[donor]) for donor in donors}


def scattered(items: Sequence[int]) -> Iterator[int]:
    """The items in an order in which every prefix is spread evenly over the whole (steps of the golden ratio)."""
    order = sorted(range(len(items)), key=lambda number: number * GOLDEN % 1.0)
    return (items[number] for number in order)
