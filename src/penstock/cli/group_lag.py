"""Collects the offsets and timestamps from which `penstock.lag` computes the lag of groups."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.group_history import CommitReader, Event, Unreadable, open_readers
from penstock.cli.group_views import GroupView, Place
from penstock.lag import (
    DEFAULT_RULES,
    GroupLag,
    History,
    MembersChange,
    Memberships,
    Observation,
    Position,
    Rules,
    Source,
    assess_group,
    assess_partition,
)
from penstock.lag.history import RECENT_MS

if TYPE_CHECKING:
    from penstock.cli.library import OffsetSpec

HEAD_SLACK_MS = 1_000
"""The end of the log at a commit is looked for this long before it: a record's time is when its producer made it, and
it may still have been on its way when a consumer that had read everything committed."""
UNREAD_FETCH_BYTES = 65_536
UNREAD_SECONDS_MAX = 5.0
CONSUME_RECORDS = 1_000
CONSUME_TIMEOUT_S = 0.2

Key = tuple[str, Place]


class LagWatch:
    """Measures the lag of some groups, once or repeatedly; known facts are not requested again."""

    def __init__(self, cluster: Cluster, *, window_ms: int, rules: Rules = DEFAULT_RULES) -> None:
        self._cluster = cluster
        self._window_ms = window_ms
        self._rules = rules
        self._readers: list[CommitReader] = []
        self._read: list[str] = []
        """The groups whose history is read."""
        self._histories: dict[Key, History] = {}
        self._unread: dict[Place, tuple[int, int]] = {}
        """Offset and timestamp of the first unread record, where it was read."""
        self._source = Source.COMMITS
        self._memberships = Memberships()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def read_history(self, groups: Sequence[GroupView]) -> None:
        """Fills the windows from the commits in `__consumer_offsets`, or adds what came since. Raises Unreadable."""
        names = [group.name for group in groups]
        if names == self._read:
            for reader in self._readers:
                self._take(reader.read_on())
            return
        self._close()
        self._readers = open_readers(self._cluster, names)
        self._read = names
        now_ms = _now_ms()
        lagging = {group.name: self._lagging(group) for group in groups}
        for reader in self._readers:
            wanted = {(name, place) for name in reader.groups for place in lagging[name]}
            tail = reader.read_back(now_ms - self._window_ms, partial(_is_enough, wanted, self._rules))
            self._take(tail.events)
            for key in wanted:
                self._history(key).silent_since_ms = tail.since_ms

    def sample(self, groups: Sequence[GroupView]) -> None:
        """Adds where the groups are now to the windows, where commits cannot be read."""
        if self._source is not Source.SAMPLES:
            self._source = Source.SAMPLES
            self._histories.clear()
        now_ms = _now_ms()
        for group in groups:
            for position in self._positions(group):
                if position.committed is not None:
                    seen = Observation(
                        position.committed, now_ms, position.lag_records, is_from_outside=not group.is_active
                    )
                    self._history((group.name, (position.topic, position.partition))).add(seen)

    def measure(self, group: GroupView) -> GroupLag:
        """Figures and verdicts as of now."""
        positions = self._positions(group)
        ends = {(one.topic, one.partition): one.end for one in positions if one.end is not None}
        if self._source is Source.COMMITS:
            self._fill_lags(group.name, ends)
        positions = self._with_unread(positions)
        now_ms = _now_ms()
        assessed = []
        for position in positions:
            history = self._histories.get((group.name, (position.topic, position.partition)))
            if history is not None:
                _catch_up(history, position, now_ms)
            assessed.append(assess_partition(position, history, now_ms))
        return assess_group(group.name, assessed)

    def _close(self) -> None:
        for reader in self._readers:
            reader.close()
        self._readers, self._read = [], []
        self._memberships = Memberships()
        self._histories.clear()

    def _history(self, key: Key) -> History:
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = History(source=self._source, rules=self._rules)
        return history

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, MembersChange):
                self._memberships.take(event)
                continue
            history = self._history((event.group, (event.topic, event.partition)))
            if event.offset is None:
                history.clear()
            else:
                from_outside = self._memberships.is_empty(event.group)
                history.add(Observation(event.offset, event.timestamp_ms, is_from_outside=from_outside))

    def _lagging(self, group: GroupView) -> set[Place]:
        """The partitions whose verdict depends on the history."""
        return {
            (one.topic, one.partition)
            for one in self._positions(group)
            if one.committed is not None and (one.lag_records is None or one.lag_records > self._rules.allowed_lag)
        }

    def _positions(self, group: GroupView) -> list[Position]:
        committed = committed_offsets(self._cluster, group.name)
        owners = group.owners
        places = sorted({*committed, *owners})
        starts = earliest_offsets(self._cluster, places)
        ends = latest_offsets(self._cluster, places)
        return [
            Position(
                topic=place[0],
                partition=place[1],
                committed=committed.get(place),
                start=starts.get(place),
                end=ends.get(place),
                is_owned=place in owners,
            )
            for place in places
        ]

    def _with_unread(self, positions: Sequence[Position]) -> list[Position]:
        """Adds the timestamps of the first unread records. A record does not change: each is read once."""
        import msgspec

        wanted: dict[Place, int] = {}
        for one in positions:
            if one.committed is not None and one.lag_records:
                wanted[one.topic, one.partition] = max(one.committed, one.start or 0)
        unknown = {place: offset for place, offset in wanted.items() if self._unread.get(place, (-1,))[0] != offset}
        for place, timestamp in timestamps_at(self._cluster, unknown).items():
            self._unread.pop(place, None)
            if timestamp is not None:
                self._unread[place] = (unknown[place], timestamp)
        return [
            msgspec.structs.replace(one, unread_timestamp_ms=self._unread[place][1])
            if (place := (one.topic, one.partition)) in wanted and place in self._unread
            else one
            for one in positions
        ]

    def _fill_lags(self, group: str, ends: Mapping[Place, int]) -> None:
        """Finds out where the logs ended when the commits were made, and where they ended a short while ago."""
        histories = {place: history for (name, place), history in self._histories.items() if name == group}
        histories = {place: history for place, history in histories.items() if place in ends}
        for index in range(self._rules.intervals):
            asked = {
                place: _time_of_end(history.observations[index])
                for place, history in histories.items()
                if index < len(history.observations) and history.observations[index].lag is None
            }
            for place, end in _ends_at(self._cluster, asked, ends).items():
                histories[place].set_lag(index, end)
        recent_ms = _now_ms() - RECENT_MS
        for place, end in _ends_at(self._cluster, dict.fromkeys(histories, recent_ms), ends).items():
            histories[place].recent_end = end


def committed_offsets(cluster: Cluster, group: str) -> dict[Place, int]:
    """Where a group has committed, by topic and partition."""
    from penstock.cli.library import ConsumerGroupTopicPartitions

    found = cluster.wait_for_coordinator(
        lambda: cluster.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=cluster.timeout_s
        )[group],
        f"ask for the offsets of {group}",
    )
    committed = {}
    for one in found.topic_partitions or []:
        if one.error is not None:
            raise cluster.failure(one.error, f"ask for the offset of {group} in {one.topic}-{one.partition}")
        if one.offset >= 0:
            committed[one.topic, one.partition] = one.offset
    return committed


def earliest_offsets(cluster: Cluster, places: Iterable[Place]) -> dict[Place, int]:
    from penstock.cli.library import OffsetSpec

    spec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    assert spec is not None
    return _list_offsets(cluster, dict.fromkeys(places, spec))


def latest_offsets(cluster: Cluster, places: Iterable[Place]) -> dict[Place, int]:
    from penstock.cli.library import OffsetSpec

    spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    assert spec is not None
    return _list_offsets(cluster, dict.fromkeys(places, spec))


def offsets_at(cluster: Cluster, times_ms: Mapping[Place, int]) -> dict[Place, int]:
    """The first offset whose record is not older; −1 if all are older. Unreachable partitions are omitted."""
    from penstock.cli.library import OffsetSpec

    specs = {place: OffsetSpec.for_timestamp(max(0, when)) for place, when in times_ms.items()}
    return _list_offsets(cluster, specs)


def timestamps_at(cluster: Cluster, offsets: Mapping[Place, int]) -> dict[Place, int | None]:
    """The timestamp of the first record at or after an offset; None if none could be read in time."""
    from penstock.cli.library import KafkaException, TopicPartition

    if not offsets:
        return {}
    found: dict[Place, int | None] = dict.fromkeys(offsets)
    waiting = set(offsets)
    consumer = cluster.consumer(
        {
            "enable.partition.eof": True,
            "max.partition.fetch.bytes": UNREAD_FETCH_BYTES,
            "fetch.wait.max.ms": 50,
            "auto.offset.reset": "earliest",
        }
    )
    deadline_s = time.monotonic() + min(UNREAD_SECONDS_MAX, cluster.timeout_s)
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()])
        while waiting and time.monotonic() < deadline_s:
            for message in consumer.consume(CONSUME_RECORDS, CONSUME_TIMEOUT_S):
                topic, partition = message.topic(), message.partition()
                assert topic is not None
                assert partition is not None
                if (topic, partition) not in waiting:
                    continue
                waiting.discard((topic, partition))
                if message.error() is None:
                    found[topic, partition] = message.timestamp()[1]
                consumer.incremental_unassign([TopicPartition(topic, partition)])
    except KafkaException:
        # The figure is a help and not worth a failure: reading may be forbidden where describing is not.
        return found
    finally:
        consumer.close()
    return found


def _list_offsets(cluster: Cluster, specs: Mapping[Place, OffsetSpec]) -> dict[Place, int]:
    """Offsets by partition; one that is gone, has no leader or may not be seen is left out."""
    from penstock.cli.library import TopicPartition

    if not specs:
        return {}
    asked = {TopicPartition(topic, partition): spec for (topic, partition), spec in specs.items()}
    found = {}
    for one, future in cluster.admin.list_offsets(asked, request_timeout=cluster.timeout_s).items():
        try:
            found[one.topic, one.partition] = cluster.wait(future, f"ask for the offsets of {one.topic}").offset
        except CliError as error:
            if error.code in (exit_codes.UNREACHABLE, exit_codes.TIMED_OUT):
                raise
    return found


def _ends_at(cluster: Cluster, times_ms: Mapping[Place, int], ends: Mapping[Place, int]) -> dict[Place, int]:
    """Where logs ended at some time: at the first record that is not older, or where they end now."""
    return {place: end if end >= 0 else ends[place] for place, end in offsets_at(cluster, times_ms).items()}


def _time_of_end(observation: Observation) -> int:
    """When to look for the end of the log that an observation's lag is measured against."""
    # Nobody reads while offsets are set from outside: no record can have been on its way to the consumer.
    return observation.lag_at_ms - (0 if observation.is_from_outside else HEAD_SLACK_MS)


def _is_enough(wanted: Iterable[Key], rules: Rules, events: Sequence[Event]) -> bool:
    """Whether every partition whose verdict depends on it has a full window."""
    histories: dict[Key, History] = {}
    for commit in events:
        if isinstance(commit, MembersChange):
            continue
        history = histories.setdefault((commit.group, (commit.topic, commit.partition)), History(rules=rules))
        if commit.offset is not None:
            history.add(Observation(commit.offset, commit.timestamp_ms))
    return all(key in histories and histories[key].complete >= 1 for key in wanted)


def _catch_up(history: History, position: Position, now_ms: int) -> None:
    """A commit that was made after the history was read, and is seen in the committed offset only."""
    seen = history.observations
    if seen and position.committed is not None and seen[-1].offset != position.committed:
        history.add(Observation(position.committed, now_ms, position.lag_records))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


__all__ = ["LagWatch", "Unreadable", "committed_offsets", "earliest_offsets", "latest_offsets", "offsets_at"]
