"""The commits of groups and the changes of their members, read from the end of `__consumer_offsets` backwards.

Backwards, because only the last commits count, and a busy cluster writes thousands a second: pieces are read from
the end on, each twice as long as the one before, until there is enough for every group, or the oldest wanted time is
reached, or the budget of bytes and seconds is used up. What is read later continues where that began.

The topic is compacted, but not its newest segment, and the last commit of each partition is never compacted away: what
is not found since a point in time was committed before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.lag import Commit, MembersChange, decode_commit, decode_members_change, partition_of_group
from penstock.lag.commits import OFFSETS_TOPIC

FIRST_PIECE_RECORDS = 2_000
READ_BYTES_MAX = 64_000_000
READ_SECONDS_MAX = 5.0
FETCH_RECORDS = 2_000
FETCH_TIMEOUT_S = 0.2


class Unreadable(Exception):
    """The history cannot be had; the message says why."""


Event = Commit | MembersChange


class Tail(NamedTuple):
    """The events that were read, oldest first, and since when none can have been missed."""

    events: list[Event]
    since_ms: int | None


class CommitReader:
    """Reads the commits of some groups from one partition of `__consumer_offsets`."""

    def __init__(self, cluster: Cluster, partition: int, groups: Iterable[str]) -> None:
        self.partition = partition
        self._cluster = cluster
        self.groups = tuple(groups)
        self._consumer = cluster.consumer({"enable.partition.eof": True, "isolation.level": "read_committed"})
        self._next = -1
        self._bytes = 0
        self._deadline_s = 0.0

    def close(self) -> None:
        self._consumer.close()

    def read_back(self, oldest_ms: int, is_enough: Callable[[list[Event]], bool]) -> Tail:
        """From the end backwards, at most to the first commit that is not older than `oldest_ms`."""
        from penstock.cli.library import KafkaException

        self._bytes = 0
        self._deadline_s = time.monotonic() + min(READ_SECONDS_MAX, self._cluster.timeout_s)
        try:
            floor, end = self._bounds(oldest_ms)
            self._next = end
            events: list[Event] = []
            piece = FIRST_PIECE_RECORDS
            begin = end
            oldest_read_ms: int | None = None
            while begin > floor and not self._is_spent() and (begin == end or not is_enough(events)):
                stop, begin = begin, max(floor, begin - piece)
                piece *= 2
                more, first_ms, is_whole = self._read(begin, stop)
                if not is_whole:
                    # It would have a hole between what was read now and before: only the newer part can be used.
                    return Tail(events, oldest_read_ms)
                events = more + events
                oldest_read_ms = first_ms if first_ms is not None else oldest_read_ms
        except KafkaException as error:
            raise Unreadable(self._cluster.failure(error.args[0], f"read {OFFSETS_TOPIC}").message) from None
        return Tail(events, oldest_ms if begin <= floor else oldest_read_ms)

    def read_on(self) -> list[Event]:
        """The events since the last reading."""
        from penstock.cli.library import KafkaException

        assert self._next >= 0, "read_back comes first"
        self._bytes = 0
        self._deadline_s = time.monotonic() + min(READ_SECONDS_MAX, self._cluster.timeout_s)
        try:
            _, end = self._bounds(0)
            events, _, _ = self._read(self._next, end) if end > self._next else ([], None, True)
        except KafkaException as error:
            raise Unreadable(self._cluster.failure(error.args[0], f"read {OFFSETS_TOPIC}").message) from None
        self._next = end
        return events

    def _bounds(self, oldest_ms: int) -> tuple[int, int]:
        from penstock.cli.library import TopicPartition

        place = TopicPartition(OFFSETS_TOPIC, self.partition)
        first, end = self._consumer.get_watermark_offsets(place, timeout=self._cluster.timeout_s)
        if oldest_ms <= 0:
            return first, end
        wanted = TopicPartition(OFFSETS_TOPIC, self.partition, oldest_ms)
        (found,) = self._consumer.offsets_for_times([wanted], timeout=self._cluster.timeout_s)
        if found.error is not None:
            raise Unreadable(self._cluster.failure(found.error, f"read {OFFSETS_TOPIC}").message)
        return (found.offset if found.offset >= 0 else end), end

    def _read(self, begin: int, stop: int) -> tuple[list[Event], int | None, bool]:
        """Events of the groups in [begin, stop), the time of the first record, and whether all was read."""
        from penstock.cli.library import KafkaError, TopicPartition

        events: list[Event] = []
        first_ms: int | None = None
        self._consumer.assign([TopicPartition(OFFSETS_TOPIC, self.partition, begin)])
        while not self._is_spent():
            for message in self._consumer.consume(FETCH_RECORDS, FETCH_TIMEOUT_S):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return events, first_ms, True
                    raise Unreadable(self._cluster.failure(error, f"read {OFFSETS_TOPIC}").message)
                offset, key, value = message.offset(), message.key(), message.value()
                assert offset is not None
                if offset >= stop:
                    return events, first_ms, True
                assert key is None or isinstance(key, bytes)
                assert value is None or isinstance(value, bytes)
                self._bytes += len(key or b"") + len(value or b"")
                if first_ms is None:
                    first_ms = message.timestamp()[1]
                event = decode_commit(key, value) or decode_members_change(key, value)
                if event is not None and event.group in self.groups:
                    events.append(event)
                if offset == stop - 1:
                    return events, first_ms, True
        return events, first_ms, False

    def _is_spent(self) -> bool:
        return self._bytes > READ_BYTES_MAX or time.monotonic() > self._deadline_s


def open_readers(cluster: Cluster, groups: Iterable[str]) -> list[CommitReader]:
    """One reader for each partition of `__consumer_offsets` that holds some of the groups."""
    try:
        partitions = cluster.partition_count(OFFSETS_TOPIC)
    except CliError as error:
        raise Unreadable(error.message) from None
    by_partition: dict[int, list[str]] = {}
    for group in groups:
        by_partition.setdefault(partition_of_group(group, partitions), []).append(group)
    return [CommitReader(cluster, partition, names) for partition, names in by_partition.items()]
