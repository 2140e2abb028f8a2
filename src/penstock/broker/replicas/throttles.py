"""Limits on copying partitions that are being moved, so that capacity remains for producers and consumers.

There are two limits: on what this broker sends to followers, and on what it copies from leaders. Each has its own rate
(a broker setting) and its own list of replicas (a topic setting). In-sync replicas on the list count towards the rate
but are never delayed: a limit must not remove a replica from an ISR.

A delayed copy continues when its time has come, or when the limits change (`on_change`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.broker.replicas.partition import Partition
from penstock.config import BrokerConfig, TopicConfig
from penstock.replication import ReplicationQuota
from penstock.runtime import Runtime, Timer

EVERY_REPLICA = "*"
PAUSE_MIN_MS = 1.0
"""The minimum time before the rate is checked again: rounding must not cause a busy loop."""

Numbers = Mapping[int, None]
ALL: Numbers = {-1: None}


class Throttle:
    """One of the two limits."""

    def __init__(self, runtime: Runtime, quota: ReplicationQuota) -> None:
        self._runtime = runtime
        self.quota = quota
        self._topics: dict[str, Numbers] = {}
        """The indexes of throttled partitions by topic."""
        self._timer: Timer | None = None
        self._waiting: list[Callable[[], None]] = []

    def names(self, partition: Partition) -> bool:
        """Whether the partition is on the list."""
        topics = self._topics
        if not topics:
            return False
        numbers = topics.get(partition.topic)
        return numbers is not None and (numbers is ALL or partition.index in numbers)

    def holds_up(self, partition: Partition) -> bool:
        """Whether copying must wait. Must not be called for an in-sync replica."""
        return self.names(partition) and self.quota.is_exceeded(self._runtime.now_ms())

    def count(self, partition: Partition, size_bytes: int) -> None:
        if size_bytes and self.names(partition):
            self.quota.record(size_bytes, self._runtime.now_ms())

    def when_free(self, release: Callable[[], None]) -> None:
        """Call `release` once, when copying may continue."""
        if release not in self._waiting:
            self._waiting.append(release)
        if self._timer is None:
            pause_ms = max(self.quota.pause_ms(self._runtime.now_ms()), PAUSE_MIN_MS)
            self._timer = self._runtime.call_later(pause_ms, self.release)

    def release(self) -> None:
        """Let all waiting copies check again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for release in waiting:
            release()

    def configure(self, rate_bytes: int) -> None:
        if rate_bytes != self.quota.limit_bytes:
            self.quota.limit_bytes = rate_bytes
            self.release()

    def configure_topic(self, topic: str, replicas: tuple[str, ...], node_id: int) -> None:
        numbers = throttled_partitions(replicas, node_id)
        if numbers == self._topics.get(topic, {}):
            return
        if numbers:
            self._topics[topic] = numbers
        else:
            self._topics.pop(topic, None)
        self.release()

    def close(self) -> None:
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()


class Throttles:
    """Both."""

    def __init__(self, runtime: Runtime, config: BrokerConfig) -> None:
        self._node_id = config.node_id
        self.leader, self.follower = (
            Throttle(
                runtime,
                ReplicationQuota(
                    rate_bytes,
                    windows=config.replication_quota_window_num,
                    window_ms=config.replication_quota_window_size_seconds * 1000,
                ),
            )
            for rate_bytes in (config.leader_replication_throttled_rate, config.follower_replication_throttled_rate)
        )

    def configure(self, config: BrokerConfig) -> None:
        self.leader.configure(config.leader_replication_throttled_rate)
        self.follower.configure(config.follower_replication_throttled_rate)

    def configure_topic(self, topic: str, config: TopicConfig) -> None:
        """Apply the settings of this topic; the defaults if it was deleted."""
        self.leader.configure_topic(topic, config.leader_replication_throttled_replicas, self._node_id)
        self.follower.configure_topic(topic, config.follower_replication_throttled_replicas, self._node_id)

    def close(self) -> None:
        self.leader.close()
        self.follower.close()


def throttled_partitions(replicas: tuple[str, ...], node_id: int) -> Numbers:
    """The partitions in a topic's list that are on this broker. The list was validated when it was set."""
    if replicas == (EVERY_REPLICA,):
        return ALL
    numbers: dict[int, None] = {}
    for item in replicas:
        partition, _, broker = item.partition(":")
        if int(broker) == node_id:
            numbers[int(partition)] = None
    return numbers
