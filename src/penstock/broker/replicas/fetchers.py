"""Copying partitions from their leaders: one `Fetcher` for each broker that leads what this one follows.

Here is what they share: the settings, the connections, the registration under which they ask, and the counters; and
what they learn about other brokers: a leader that ended its connections has most likely died, whether the controller
knows already or not.
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
"""A leader that ended its connection is not told to clients for so long, unless it answers again before."""


class Calls(Protocol):
    """What is needed of `penstock.broker.net.peers.Peers`."""

    async def call(
        self, target: int, request: Message, *, timeout_ms: float, silence_ms: float, channel: str = ""
    ) -> Any: ...


class Fetchers:
    """All that this broker follows."""

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
        """Settable at run time."""
        self.calls = calls
        self.settle = settle
        """Called when a log is free again that was being cut while the metadata changed."""
        self.broker_epoch = -1
        """Of this broker's registration. Nothing is fetched before it is known."""
        self._fetchers: dict[int, Fetcher] = {}
        self._gone_until_ms: dict[int, float] = {}
        self._closed = False
        self.failures = 0
        """Requests without a usable answer."""
        self.truncations = 0
        self.bytes_copied = 0
        self.bytes_copied_of_moved = 0
        """Of partitions that are being moved to this broker."""

    def registered(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        for fetcher in list(self._fetchers.values()):
            fetcher.start_over()

    def follow(self, partition: Partition) -> None:
        """Copy this partition from now on: its `follower` is set."""
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
        """Copy it no longer. An answer that is still on its way changes nothing."""
        follower = partition.follower
        if follower is None:
            return
        fetcher = self._fetchers.get(follower.leader_id)
        partition.unfollow()
        partition.on_follower_durable = None
        if fetcher is not None:
            fetcher.unfollow(partition)

    def gone(self, node_id: int) -> None:
        """A leader has ended its connection, or takes none."""
        self._gone_until_ms[node_id] = self.runtime.now_ms() + GONE_MS

    def there(self, node_id: int) -> None:
        self._gone_until_ms.pop(node_id, None)

    def is_gone(self, node_id: int) -> bool:
        """A leader that was left by its process a moment ago, whether the controller knows already or not."""
        return self._gone_until_ms.get(node_id, 0.0) > self.runtime.now_ms()

    def close(self) -> None:
        self._closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
