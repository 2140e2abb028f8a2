"""Copies partitions from their leaders, with one `Fetcher` per leading broker.

This class holds what the fetchers share: settings, connections, the broker epoch and counters. It also remembers which
leaders closed their connections: such a leader has most likely died, even if the controller does not know it yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.broker.replicas.fetcher import Fetcher
from penstock.broker.replicas.partition import Partition
from penstock.broker.replicas.throttles import Throttle
from penstock.config import BrokerConfig
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.codec import Message

GONE_MS = 1_000
"""How long clients are not sent to a leader that closed its connection, unless it responds again earlier."""


class Calls(Protocol):
    """The part of `penstock.broker.net.peers.Peers` that is needed."""

    async def call(
        self, target: int, request: Message, *, timeout_ms: float, silence_ms: float, channel: str = ""
    ) -> Any: ...


class Fetchers:
    """Manages all fetchers of this broker."""

    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        calls: Calls,
        settle: Callable[[Partition], None],
        throttle: Throttle,
    ) -> None:
        self.runtime = runtime
        self.events = events
        self.throttle = throttle
        self.config = config
        """Can be changed at run time."""
        self.calls = calls
        self.settle = settle
        """Called when a truncation ends during which the metadata changed."""
        self.broker_epoch = -1
        """The epoch of this broker's registration. Nothing is fetched before it is known."""
        self._fetchers: dict[int, Fetcher] = {}
        self._gone_until_ms: dict[int, float] = {}
        self._closed = False
        self.failures = 0
        """Requests without a usable response."""
        self.truncations = 0
        self.bytes_copied = 0
        self.bytes_copied_of_moved = 0
        """Bytes copied for partitions that are being moved to this broker."""

    def registered(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        for fetcher in list(self._fetchers.values()):
            fetcher.start_over()

    def follow(self, partition: Partition) -> None:
        """Start copying this partition, whose `follower` is set."""
        follower = partition.follower
        assert follower is not None
        if self._closed:
            return
        fetcher = self._fetchers.get(follower.leader_id)
        if fetcher is None:
            fetcher = self._fetchers[follower.leader_id] = Fetcher(self, follower.leader_id)
        partition.on_follower_durable = fetcher.ask_about
        fetcher.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        """Stop copying this partition. A response still in flight is ignored."""
        follower = partition.follower
        if follower is None:
            return
        fetcher = self._fetchers.get(follower.leader_id)
        partition.unfollow()
        partition.on_follower_durable = None
        if fetcher is not None:
            fetcher.unfollow(partition)

    def gone(self, node_id: int) -> None:
        """A leader closed its connection or refuses new ones."""
        self._gone_until_ms[node_id] = self.runtime.now_ms() + GONE_MS

    def there(self, node_id: int) -> None:
        self._gone_until_ms.pop(node_id, None)

    def is_gone(self, node_id: int) -> bool:
        """Whether a leader's process ended a moment ago, even if the controller does not know it yet."""
        return self._gone_until_ms.get(node_id, 0.0) > self.runtime.now_ms()

    def close(self) -> None:
        self._closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
