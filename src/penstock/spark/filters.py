"""Filters on topic, partition, offset and timestamp → less to read.

A timestamp only moves the beginning: the broker knows the first offset of a record that is as young, and all before it
are older. Where the last one is that is old enough, it cannot know: producers choose timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from penstock.client import TopicPartition
from penstock.spark.planning import OFFSET_MAX, Range


class OffsetsByTime(Protocol):
    def first_since(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset that is as young; −1 where there is none."""


@dataclass(frozen=True)
class Bounds:
    """What the rows that are wanted have in common."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int = 0
    offset_max: int = OFFSET_MAX
    timestamp_min_ms: int | None = None

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Bounds:
        """Filters that say nothing here are passed over: Spark evaluates all of them again."""
        bounds = cls()
        for one in filters:
            bounds = _narrow(bounds, one)
        return bounds

    def has(self, key: TopicPartition) -> bool:
        if self.topics is not None and key.topic not in self.topics:
            return False
        return self.partitions is None or key.partition in self.partitions

    def narrowed(self, one: Range) -> Range:
        start = max(one.start, self.offset_min)
        return one._replace(start=start, end=max(start, min(one.end, self.offset_max + 1)))

    def narrowed_by_time(self, ranges: list[Range], lookup: OffsetsByTime) -> list[Range]:
        assert self.timestamp_min_ms is not None, "ask only where there is a timestamp"
        keys = [TopicPartition(one.topic, one.partition) for one in ranges]
        found = lookup.first_since(dict.fromkeys(keys, self.timestamp_min_ms))
        first = {key: offset if offset >= 0 else OFFSET_MAX for key, offset in found.items()}
        return [
            one._replace(start=min(one.end, max(one.start, first[key]))) for one, key in zip(ranges, keys, strict=True)
        ]


def _narrow(bounds: Bounds, one: Filter) -> Bounds:
    if not isinstance(one, (EqualTo, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)):
        return bounds
    if one.attribute == ("topic",) and isinstance(one, (EqualTo, In)):
        return replace(bounds, topics=_both(bounds.topics, _values(one, str)))
    if one.attribute == ("partition",) and isinstance(one, (EqualTo, In)):
        return replace(bounds, partitions=_both(bounds.partitions, _values(one, int)))
    if one.attribute == ("offset",):
        smallest, largest = _span(one)
        return replace(bounds, offset_min=max(bounds.offset_min, smallest), offset_max=min(bounds.offset_max, largest))
    if one.attribute == ("timestamp",) and (since_ms := _since_ms(one)) is not None:
        return replace(bounds, timestamp_min_ms=max(bounds.timestamp_min_ms or 0, since_ms))
    return bounds


def _values(one: EqualTo | In, kind: type) -> frozenset | None:  # type: ignore[type-arg]  # of str or of int
    values = one.value if isinstance(one, In) else (one.value,)
    return frozenset(values) if all(type(value) is kind for value in values) else None


def _both(known: frozenset | None, more: frozenset | None) -> frozenset | None:  # type: ignore[type-arg]
    if known is None or more is None:
        return known if more is None else more
    return known & more


def _span(one: EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual) -> tuple[int, int]:
    """(smallest, largest) offset that can pass."""
    values = one.value if isinstance(one, In) else (one.value,)
    if not values or not all(type(value) is int for value in values):
        return 0, OFFSET_MAX
    match one:
        case GreaterThan():
            return values[0] + 1, OFFSET_MAX
        case GreaterThanOrEqual():
            return values[0], OFFSET_MAX
        case LessThan():
            return 0, values[0] - 1
        case LessThanOrEqual():
            return 0, values[0]
    return min(values), max(values)


def _since_ms(one: EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual) -> int | None:
    if isinstance(one, (LessThan, LessThanOrEqual)):
        return None
    values = one.value if isinstance(one, In) else (one.value,)
    if not values or not all(isinstance(value, datetime) for value in values):
        return None
    oldest = min(value if value.tzinfo else value.replace(tzinfo=UTC) for value in values)
    # Records have milliseconds: one of the same millisecond may pass.
    return max(0, int(oldest.timestamp() * 1000) - 1)
