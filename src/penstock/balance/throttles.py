"""The replicas that a plan throttles, as Kafka's topic settings list them (KIP-73). Pure.

A topic's `leader.replication.throttled.replicas` lists the throttled senders as `partition:broker`: every replica that
may lead while the partition moves. `follower.replication.throttled.replicas` lists the throttled receivers: the new
replicas only, so that in-sync replicas stay in sync. Entries that others put there are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from penstock.balance.plan import Move

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
ALL = "*"


class Throttled(msgspec.Struct, frozen=True):
    """The two lists of a topic."""

    leaders: tuple[str, ...] = ()
    followers: tuple[str, ...] = ()

    def plus(self, more: Throttled) -> Throttled:
        return Throttled(_plus(self.leaders, more.leaders), _plus(self.followers, more.followers))

    def minus(self, less: Throttled) -> Throttled:
        return Throttled(_minus(self.leaders, less.leaders), _minus(self.followers, less.followers))


def throttled_by(moves: Iterable[Move]) -> dict[str, Throttled]:
    """The replicas that these moves throttle, by topic. A move that copies nothing throttles nothing."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for move in moves:
        if move.coming:
            leaders.setdefault(move.topic, []).extend(f"{move.index}:{broker}" for broker in move.before)
            followers.setdefault(move.topic, []).extend(f"{move.index}:{broker}" for broker in move.coming)
    return {topic: Throttled(tuple(leaders[topic]), tuple(followers[topic])) for topic in leaders}


def brokers_of(moves: Iterable[Move]) -> list[int]:
    """The brokers that take part in copying."""
    return sorted({broker for move in moves if move.coming for broker in (*move.before, *move.after)})


def _plus(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    if ALL in first:
        return tuple(first)
    return tuple(dict.fromkeys((*first, *second)))


def _minus(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    gone = frozenset(second)
    return tuple(one for one in first if one not in gone)
