"""Where a group's offsets shall go. Pure: what the cluster says in, changes out.

The meaning of each way is that of Kafka's `kafka-consumer-groups --reset-offsets`: an offset beyond the log is put at
the end that it is beyond; a time after the last record means the end; `--to-current` takes the end for a partition
that has no offset yet.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

Place = tuple[str, int]


class Way(Enum):
    """How the new offset is found."""

    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    CURRENT = "--to-current"
    TIME = "--to-datetime"
    SHIFT = "--shift-by"
    OFFSET = "--to-offset"
    FILE = "--from-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the cluster says about one partition."""

    start: int
    end: int
    committed: int | None
    at_time: int | None = None
    """The first offset that is not older than the wanted time; −1 if all are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    topic: str
    partition: int
    before: int | None
    after: int
    note: str = ""
    """What had to be done differently from what was asked."""

    @property
    def difference(self) -> int | None:
        """How many records are skipped, or read again if negative."""
        return None if self.before is None else self.after - self.before


class Impossible(Exception):
    """The offsets cannot be set that way; the message says why."""


def plan(
    way: Way,
    facts: Mapping[Place, Facts],
    *,
    amount: int = 0,
    offsets: Mapping[Place, int] | None = None,
) -> list[Change]:
    """The changes, by topic and partition. `amount` is the shift or the offset, `offsets` what the file says."""
    return [_change(way, place, facts[place], amount, offsets or {}) for place in sorted(facts)]


def _change(way: Way, place: Place, fact: Facts, amount: int, offsets: Mapping[Place, int]) -> Change:
    topic, partition = place
    note = ""
    match way:
        case Way.EARLIEST:
            wanted = fact.start
        case Way.LATEST:
            wanted = fact.end
        case Way.CURRENT:
            wanted = fact.end if fact.committed is None else fact.committed
            note = "has no offset yet: the end" if fact.committed is None else ""
        case Way.TIME:
            assert fact.at_time is not None
            wanted = fact.end if fact.at_time < 0 else fact.at_time
            note = "all records are older: the end" if fact.at_time < 0 else ""
        case Way.SHIFT:
            if fact.committed is None:
                raise Impossible(f"{topic}-{partition} has no offset that could be shifted")
            wanted = fact.committed + amount
        case Way.OFFSET:
            wanted = amount
        case Way.FILE:
            wanted = offsets[place]
    if wanted < fact.start:
        return _made(place, fact, fact.start, f"{wanted:,} is before the first record")
    if wanted > fact.end:
        return _made(place, fact, fact.end, f"{wanted:,} is beyond the end")
    return _made(place, fact, wanted, note)


def _made(place: Place, fact: Facts, after: int, note: str) -> Change:
    return Change(topic=place[0], partition=place[1], before=fact.committed, after=after, note=note)


def parse_file(text: str, group: str) -> dict[Place, int]:
    """Offsets of a CSV file in the form of Kafka's --export: `topic,partition,offset`, or with the group first.

    Lines of other groups are passed over, as are empty ones and a head line.
    """
    offsets: dict[Place, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or [cell.lower() for cell in cells[-3:]] == ["topic", "partition", "offset"]:
            continue
        if len(cells) == 4:
            if cells[0] != group:
                continue
            cells = cells[1:]
        try:
            topic, partition, offset = cells[0], int(cells[1]), int(cells[2])
            if len(cells) != 3 or not topic or partition < 0:
                raise ValueError
        except (ValueError, IndexError):
            raise Impossible(f"line {number} is not of the form topic,partition,offset: {','.join(row)}") from None
        if offsets.setdefault((topic, partition), offset) != offset:
            raise Impossible(f"line {number}: {topic}-{partition} has another offset in a line before")
    return offsets


def export(changes: Iterable[Change]) -> str:
    """The new offsets as Kafka's --export writes them for one group, for --from-file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for change in changes:
        writer.writerow((change.topic, change.partition, change.after))
    return out.getvalue()


def parse_topic(text: str) -> tuple[str, Sequence[int] | None]:
    """`orders`, or `orders:0,3` for some of its partitions."""
    topic, colon, partitions = text.partition(":")
    if not colon:
        return topic, None
    try:
        numbers = [int(number) for number in partitions.split(",")]
    except ValueError:
        numbers = [-1]
    if not topic or any(number < 0 for number in numbers):
        raise Impossible(f"--topic {text}: partitions are numbers with commas between them, as in {topic or 'T'}:0,3")
    return topic, list(dict.fromkeys(numbers))
