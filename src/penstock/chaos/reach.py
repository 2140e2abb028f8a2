"""Which nodes could reach each other at which time, and so whether the cluster could acknowledge at all. Pure.

A record is acknowledged when enough of its replicas have it, and a failed leader is replaced only by a controller that
a majority of voters follows. So a cluster is *able* to acknowledge on every partition while there is a group of running
nodes that all reach each other in both directions, include a majority of the voters, and are enough to hold
`min.insync.replicas` copies of any partition. A pause is unavoidable for the time in which no such group existed.

A restarted node counts as running immediately: how long it takes to become useful is the cluster's responsibility.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple


class Reach(NamedTuple):
    """The state of nodes and links at one moment."""

    down: frozenset[int]
    """Nodes that are down, stopped by SIGSTOP, or without network."""
    cuts: frozenset[tuple[int, int]]
    """(sender, receiver) pairs between which packets are lost."""


class Need(NamedTuple):
    """The conditions on a group of nodes that can acknowledge."""

    nodes: Collection[int]
    voters: Collection[int]
    group_min: int
    """The number of nodes that is sure to hold enough copies of any partition."""


def need(nodes: int, voters: int, copies: int, min_insync: int) -> Need:
    """For nodes numbered from 1, of which the first `voters` vote."""
    return Need(range(1, nodes + 1), range(1, voters + 1), nodes - copies + min_insync)


def able(reach: Reach, need: Need) -> bool:
    """Whether some group of nodes meets the conditions."""
    up = [node for node in need.nodes if node not in reach.down]
    majority = len(need.voters) // 2 + 1
    return any(
        sum(node in need.voters for node in group) >= majority and _all_connected(group, reach.cuts)
        for size in range(len(up), max(need.group_min, majority) - 1, -1)
        for group in combinations(up, size)
    )


def _all_connected(group: tuple[int, ...], cuts: frozenset[tuple[int, int]]) -> bool:
    return not any((one, two) in cuts or (two, one) in cuts for one, two in combinations(group, 2))


@dataclass(slots=True)
class Timeline:
    """When the cluster was able to acknowledge. The state is reported repeatedly, in order of time."""

    need: Need
    _last: Reach | None = None
    _able: bool = True
    _changes: list[tuple[float, bool]] = field(default_factory=list)

    def saw(self, reach: Reach, now_s: float) -> None:
        if reach == self._last:
            return
        self._last = reach
        is_able = able(reach, self.need)
        if is_able != self._able:
            self._able = is_able
            self._changes.append((now_s, is_able))

    def unable_s(self, start_s: float, end_s: float) -> float:
        """For how much of this interval no group of nodes could acknowledge."""
        total_s, since_s = 0.0, None
        for at_s, is_able in (*self._changes, (end_s, True)):
            if not is_able:
                since_s = at_s if since_s is None else since_s
            elif since_s is not None:
                total_s += max(0.0, min(at_s, end_s) - max(since_s, start_s))
                since_s = None
        return total_s
