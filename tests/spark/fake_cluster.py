"""A cluster in memory, for the questions that the source's driver side asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.client import EARLIEST, LATEST, ConnectionFailed, TopicPartition, UnknownTopic
from penstock.spark.backend import Topic
from penstock.spark.lookup import Lookup
from penstock.spark.options import SourceOptions
from penstock.wire.errors import ErrorCode


@dataclass
class Log:
    """One partition: its first offset, and the timestamps of its records from there on."""

    timestamps: list[int] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.timestamps)


@dataclass
class FakeCluster:
    logs: dict[str, list[Log]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    internal: frozenset[str] = frozenset()
    failures: int = 0
    """So many questions fail before one is answered."""
    asked: int = 0
    closed: int = 0
    behind: dict[TopicPartition, int] = field(default_factory=dict)
    """How often a partition's end is told too small: by a leader that has not caught up."""

    hidden: dict[str, int] = field(default_factory=dict)
    """How often a topic is left out of an answer: by a broker that has not heard of it yet."""

    def create(self, topic: str, *counts: int, topic_id: str | None = None) -> None:
        self.logs[topic] = [Log([0] * count) for count in counts]
        self.ids[topic] = topic_id or f"id-of-{topic}"

    def append(self, topic: str, partition: int, count: int) -> None:
        self.logs[topic][partition].timestamps += [0] * count

    def topics(self, names: tuple[str, ...] | None) -> dict[str, Topic]:
        self._ask()
        hidden = {name for name, times in self.hidden.items() if times > 0}
        self.hidden = {name: times - 1 for name, times in self.hidden.items()}
        return {
            name: Topic(tuple(range(len(logs))), self.ids.get(name), name in self.internal)
            for name, logs in self.logs.items()
            if (names is None or name in names) and name not in hidden
        }

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self._ask()
        return {key: self._offset(key, timestamp) for key, timestamp in wanted.items()}

    def close(self) -> None:
        self.closed += 1

    def _offset(self, key: TopicPartition, timestamp: int) -> int:
        logs = self.logs.get(key.topic, [])
        if key.partition >= len(logs):
            raise UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=key.topic, partition=key.partition)
        log = logs[key.partition]
        if timestamp == EARLIEST:
            return log.start
        if timestamp == LATEST:
            if self.behind.get(key, 0):
                self.behind[key] -= 1
                return log.start
            return log.end
        return next((log.start + index for index, one in enumerate(log.timestamps) if one >= timestamp), -1)

    def _ask(self) -> None:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise ConnectionFailed("the connection broke")


def lookup_of(options: SourceOptions, cluster: FakeCluster, slept: list[float] | None = None) -> Lookup:
    return Lookup(options, connect=lambda _: cluster, sleep=(slept if slept is not None else []).append)
