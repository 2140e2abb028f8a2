"""What is read next, and by which tasks: pure functions of offsets and options."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.client import TopicPartition
from penstock.spark.offsets import Cut, Positions, SourceOffset

OFFSET_MAX: Final = 2**63 - 1
GONE_MAX: Final = 1_000
"""So many partitions that are gone are remembered: a pattern may match topics that come and go for years."""


class Range(NamedTuple):
    """Offsets `start` to `end` (exclusive) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Snapshot:
    """The partitions that are selected now, where their logs end, and the ids of their topics."""

    ends: Positions
    topic_ids: Mapping[str, str]


@dataclass(frozen=True)
class Change:
    """What happened to the partitions of a query since an offset was taken."""

    added: tuple[TopicPartition, ...]
    """New ones, and all of a topic that was created again: their records are read from the earliest on."""
    returned: tuple[TopicPartition, ...]
    """They were gone, and are there again, of the same topic: what was read of them is not read again."""
    gone: tuple[TopicPartition, ...]
    recreated: tuple[str, ...]
    shorter: tuple[TopicPartition, ...]
    """The log ends before what was read already: it was cut off."""

    @property
    def is_loss(self) -> bool:
        return bool(self.gone or self.recreated or self.shorter)


def change_between(start: SourceOffset, now: Snapshot) -> Change:
    present = {key.topic for key in start.ends}
    recreated = {
        topic
        for topic, topic_id in now.topic_ids.items()
        if topic in present and start.topic_ids.get(topic, topic_id) != topic_id
    }
    known = {key: position for key, position in start.ends.items() if key.topic not in recreated}
    returned = {
        key: position
        for key, position in start.gone.items()
        if key in now.ends and key.topic in now.topic_ids and start.topic_ids.get(key.topic) == now.topic_ids[key.topic]
    }
    known |= returned
    return Change(
        added=tuple(key for key in sorted(now.ends) if key not in known),
        returned=tuple(sorted(returned)),
        gone=tuple(key for key in sorted(start.ends) if key not in now.ends),
        recreated=tuple(sorted(recreated)),
        shorter=tuple(key for key, end in sorted(now.ends.items()) if end < known.get(key, 0)),
    )


def losses(change: Change, start: SourceOffset, now: Snapshot, earliest: Positions) -> list[str]:
    """What Spark's own source would report, in its words where it has any."""
    found: list[str] = []
    known = start.known
    if change.gone:
        found.append(f"{names(change.gone)} are gone. Some data may have been missed")
    found += [
        f"Topic {topic} was deleted and created again: what the old one held behind "
        f"{names(key for key in sorted(start.ends) if key.topic == topic)} cannot be read any more"
        for topic in change.recreated
    ]
    found += [
        f"Partition {names([key])}'s offset was changed from {known[key]} to {now.ends[key]}, some data may have been "
        "missed"
        for key in change.shorter
    ]
    found += [
        f"Added partition {names([key])} starts from {earliest[key]} instead of 0. Some data may have been missed"
        for key in change.added
        if earliest[key] != 0
    ]
    return found


def next_end(
    start: SourceOffset, now: Snapshot, change: Change, earliest: Positions, *, offsets_max: int | None, cut: Cut
) -> SourceOffset | None:
    """The end of the micro-batch that starts there; None where it would have nothing to read.

    `earliest` has the added partitions. Partitions that got shorter go on from their new end.
    """
    known = start.known
    begins = {key: known[key] for key in now.ends if key in known}
    begins |= {key: now.ends[key] for key in change.shorter}
    begins |= {key: min(earliest[key], now.ends[key]) for key in change.added}
    ends = dict(now.ends) if offsets_max is None else prorated(offsets_max, begins, now.ends)
    if ends == start.ends and not change.recreated:
        return None
    newly_told = (*change.shorter, *change.added, *change.returned)
    told = begins if start.is_initial else {key: begins[key] for key in newly_told}
    # Of topics that are not there at all: a partition alone goes only with its topic, and comes back with another.
    present = {key.topic for key in now.ends}
    lost = start.topic_ids.keys() - present
    gone = {key: position for key, position in known.items() if key.topic in lost}
    if len(gone) > GONE_MAX:
        gone = {key: start.ends[key] for key in change.gone[:GONE_MAX] if key in gone}
    ids = {key.topic: start.topic_ids[key.topic] for key in gone}
    return SourceOffset(ends, dict(sorted(told.items())), {**ids, **now.topic_ids}, cut, gone)


def offsets_between(begins: Positions, ends: Positions) -> int:
    """How many offsets are to be read; not all of them need to hold a record."""
    return sum(max(0, end - begins.get(key, 0)) for key, end in ends.items())


def prorated(limit: int, begins: Positions, ends: Positions) -> dict[TopicPartition, int]:
    """Ends such that about `limit` offsets are read: each partition its share, and none that has some nothing."""
    sizes = {key: end - begins[key] for key, end in ends.items() if end > begins[key]}
    total = float(sum(sizes.values()))
    found = dict(ends)
    for key, size in sizes.items():
        share = limit * (size / total)
        offsets = math.ceil(share) if share < 1 else math.floor(share)
        found[key] = min(ends[key], begins[key] + offsets)
    return found


def ranges_between(start: SourceOffset, end: SourceOffset) -> tuple[list[Range], list[TopicPartition]]:
    """What a micro-batch reads, and the partitions of which neither offset says where they begin.

    The end is trusted over the start: a start may be an initial offset that was asked for again.
    """
    found: list[Range] = []
    unknown: list[TopicPartition] = []
    for key, stop in sorted(end.ends.items()):
        begin = end.begins.get(key, start.ends.get(key))
        if begin is None:
            unknown.append(key)
        elif begin < stop:
            found.append(Range(*key, begin, stop))
    return found, unknown


def cut_ranges(ranges: Iterable[Range], cut: Cut) -> list[Range]:
    """One task for each range, or more: as Spark cuts them, first by the largest size, then to the smallest number."""
    found = [one for one in ranges if one.size > 0]
    if cut.records_max is not None:
        found = [part for one in found for part in _parts(one, math.ceil(one.size / cut.records_max))]
    if cut.partitions_min is None or len(found) >= cut.partitions_min:
        return found
    total = sum(one.size for one in found)
    whole = [one for one in found if _share(one.size, total, cut.partitions_min) == 1]
    rest = total - sum(one.size for one in whole)
    wanted = max(cut.partitions_min - len(whole), 1)
    unsplit = set(whole)
    return [
        part for one in found for part in ([one] if one in unsplit else _parts(one, _share(one.size, rest, wanted)))
    ]


def names(keys: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in keys)


def _share(size: int, total: int, count: int) -> int:
    # As Java rounds: half up.
    return max(math.floor(size / total * count + 0.5), 1)


def _parts(one: Range, count: int) -> list[Range]:
    found: list[Range] = []
    start, left = one.start, one.size
    for index in range(count):
        size = left // (count - index)
        left -= size
        if size:
            found.append(one._replace(start=start, end=start + size))
        start += size
    return found
