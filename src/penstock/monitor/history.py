"""Reads back what monitors have written: raw samples and roll-ups of a time span. Bounded in bytes.

Records of other programs in these topics are skipped, and a sample that was written twice is returned once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar

from penstock.client import LATEST, Cluster, TopicPartition, fetch_range
from penstock.monitor.rollups import Rollups
from penstock.monitor.samples import (
    RAW_TOPIC,
    ROLLUP_TOPIC,
    WIDTHS_MS,
    Kind,
    MetricSample,
    Rollup,
    decode_rollup,
    decode_sample,
)
from penstock.wire.records import iter_batches, iter_records

READ_BYTES_MAX: Final = 256 * 1024 * 1024
"""More is not read: the newest partitions' worth of it is enough for advice; a forecast reads the table."""

R = TypeVar("R", bound="Keyed")


class Keyed(Protocol):
    @property
    def key(self) -> bytes: ...


class Span(NamedTuple):
    """The samples of a time span, and how much of it they cover."""

    samples: list[MetricSample]
    first_ms: int | None
    """The time of the oldest sample; None if there are none."""
    is_cut: bool
    """Whether there was more than could be read."""

    def series(self, kind: Kind, metric: str) -> dict[str, list[tuple[int, float]]]:
        """Values over time, by name."""
        found: dict[str, list[tuple[int, float]]] = {}
        for one in self.samples:
            if one.kind is kind and one.metric == metric:
                found.setdefault(one.name, []).append((one.time_ms, one.value))
        for values in found.values():
            values.sort()
        return found


def read_samples(cluster: Cluster, since_ms: int, bytes_max: int = READ_BYTES_MAX) -> Span:
    """The raw samples since a time. Empty if there is no such topic."""
    found: dict[tuple[bytes, int], MetricSample] = {}
    read = _Read(bytes_max)
    for one in read.records(cluster, RAW_TOPIC, since_ms, decode_sample):
        if one.time_ms >= since_ms:
            found[one.key, one.time_ms] = one
    samples = sorted(found.values(), key=lambda one: one.time_ms)
    return Span(samples, samples[0].time_ms if samples else None, read.is_cut)


def read_rollups(cluster: Cluster, since_ms: int, bytes_max: int = READ_BYTES_MAX) -> list[Rollup]:
    """The last roll-up of every window that begins at or after a time, oldest first."""
    found: dict[bytes, Rollup] = {}
    for one in _Read(bytes_max).records(cluster, ROLLUP_TOPIC, since_ms, decode_rollup):
        if one.start_ms >= since_ms:
            found[one.key] = one
    return sorted(found.values(), key=lambda one: one.start_ms)


def resume(rollups: Rollups, cluster: Cluster, cluster_id: str, now_ms: int) -> int:
    """Continues the windows that an earlier monitor left open. Returns how many."""
    count = 0
    for one in read_rollups(cluster, now_ms - max(WIDTHS_MS)):
        if one.cluster == cluster_id and one.start_ms + one.width_ms > now_ms:
            rollups.resume(one)
            count += 1
    return count


class _Read:
    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self.is_cut = False

    def records(
        self, cluster: Cluster, topic: str, since_ms: int, decode: Callable[[bytes | None], R | None]
    ) -> Iterator[R]:
        if topic not in cluster.existing_topics([topic]):
            return
        places = [TopicPartition(topic, one.partition) for one in cluster.known_topic(topic).partitions]
        starts = cluster.list_offsets(dict.fromkeys(places, max(0, since_ms)))
        ends = cluster.list_offsets(dict.fromkeys(places, LATEST))
        for place in places:
            start, end = starts[place].offset, ends[place].offset
            if start < 0 or start >= end:
                continue
            for fetched in fetch_range(cluster, topic, place.partition, start, end):
                self._left -= len(fetched.records)
                if self._left < 0:
                    self.is_cut = True
                    return
                for header, batch in iter_batches(fetched.records, partial_tail=True):
                    if header.is_control:
                        continue
                    for record in iter_records(batch):
                        one = decode(record.value)
                        if one is not None:
                            yield one
