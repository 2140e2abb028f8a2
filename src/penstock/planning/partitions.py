"""How many partitions a topic needs (L1), and what growing it does to its keys."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, lcm
from typing import Final, NamedTuple

from penstock.planning.catalogue import Answer, Catalogue, PlanError, Rule, not_negative, notes, positive, units

PARTITION_COUNT: Final = Rule(
    name="partition-count",
    source="002, Partition Count Calculation",
    formula="max(⌈peak ÷ throughput of one partition⌉, consumers × 2, 6), rounded up to a multiple of 6",
    text="A topic needs enough partitions for its bytes and for its consumers. "
    "Each partition is read by one member of a group.",
    inputs=units(peak_mb_s="MB/s", per_partition_mb_s="MB/s", consumers="members of the largest group"),
    slip="002's script divides with integers, which floors, and calls rounding up 'nearest'. Here both round up.",
    values=("partitions.minimum", "partitions.multiple", "partitions.consumer_multiple"),
)
PARTITION_CLASSES: Final = Rule(
    name="partition-classes",
    source="002, Partition Scaling Guidelines",
    formula="a table: class by MB/s → partitions to start with, to grow to, and to add at a time",
    text="A second opinion, by traffic alone. Bounds belong to the higher class: 50 MB/s is High.",
    inputs=units(peak_mb_s="MB/s"),
    slip="Its increment of 3 leaves the multiples of 6, and at 100 MB/s it says 24 where the formula of the same "
    "document gives 12.",
)
PARTITION_HEADROOM: Final = Rule(
    name="partition-headroom",
    source="000, Partition Scaling; 003, Scaling Partitions",
    formula="2 to 3 × what the throughput needs",
    text="Partitions cannot be taken away, and adding some moves keys. So both documents advise to start with more.",
    inputs=units(current_mb_s="MB/s", per_partition_mb_s="MB/s"),
    values=("partitions.headroom_low", "partitions.headroom_high"),
)
PARTITION_SIMPLE: Final = Rule(
    name="partition-simple",
    source="000, Partition Scaling",
    formula="max(consumers, throughput ÷ 100 MB/s)",
    text="A quick estimate that takes 100 MB/s for one partition.",
    inputs=units(peak_mb_s="MB/s", consumers="members of the largest group"),
    slip="The documents give 10 (002, 003), 50 (003) and 100 MB/s (000, 004) for one partition: it depends on the "
    "machine and the batches, so it is a required input, best measured with `penstock perf produce`.",
    values=("partitions.simple_mb_s",),
)
PARTITION_LIMITS: Final = Rule(
    name="partition-limits",
    source="000, Partition Scaling; 004, Partition Strategy",
    formula="a warning above 50 partitions, and to split the topic above 1,000",
    text="10 to 100 partitions are typical. Each one costs memory, files and time to elect a leader.",
    inputs=units(partitions="partitions of one topic"),
    values=("partitions.diminishing", "partitions.maximum"),
)
KEY_MOVES: Final = Rule(
    name="key-moves",
    source="000, Partition Scaling; 003, Scaling Partitions",
    formula="1 − min(before, after) ÷ lcm(before, after)",
    text="The share of keys that get another partition when the count changes, because a partition is hash(key) modulo "
    "the count. The order of such a key's records is not kept across the change.",
    inputs=units(before="partitions", after="partitions"),
)


@dataclass(frozen=True, slots=True)
class PartitionClass:
    name: str
    from_mb_s: float
    start: int
    maximum: int
    increment: int


CLASSES: Final = (
    PartitionClass("low", 0, 6, 12, 3),
    PartitionClass("medium", 10, 12, 24, 6),
    PartitionClass("high", 50, 24, 48, 12),
    PartitionClass("very high", 100, 48, 96, 24),
)


def class_of(mb_s: float) -> PartitionClass:
    """The class of a topic with this peak. 002's last class begins *above* 100 MB/s."""
    fitting = [one for one in CLASSES if mb_s >= one.from_mb_s]
    last = CLASSES[-1]
    return CLASSES[-2] if fitting[-1] is last and mb_s == last.from_mb_s else fitting[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan(Answer):
    needed: int
    partitions: int
    """`needed`, rounded up."""
    throughput_factor: int
    consumer_factor: int
    binding: str
    """Which factor decided."""
    class_name: str
    class_partitions: int
    """What 002's table starts with."""
    class_maximum: int
    class_increment: int
    generous_low: int
    """003's, with room for growth."""
    generous_high: int
    simple: int
    """000's quick estimate."""


class PartitionCount(NamedTuple):
    needed: int
    partitions: int
    throughput_factor: int
    consumer_factor: int
    binding: str


def count_partitions(
    catalogue: Catalogue, *, peak_mb_s: float, per_partition_mb_s: float, consumers: int
) -> PartitionCount:
    """The count alone, for plans of many topics."""
    positive(peak_mb_s=peak_mb_s, per_partition_mb_s=per_partition_mb_s)
    not_negative(consumers=consumers)
    throughput_factor = ceil_ratio(peak_mb_s, per_partition_mb_s)
    consumer_factor = ceil(consumers * catalogue["partitions.consumer_multiple"])
    minimum = catalogue.count("partitions.minimum")
    needed, binding = throughput_factor, "throughput"
    if consumer_factor > needed:
        needed, binding = consumer_factor, "consumers"
    if minimum > needed:
        needed, binding = minimum, "the minimum"
    partitions = round_up(needed, catalogue.count("partitions.multiple"))
    return PartitionCount(needed, partitions, throughput_factor, consumer_factor, binding)


def plan_partitions(
    catalogue: Catalogue,
    *,
    per_partition_mb_s: float,
    peak_mb_s: float | None = None,
    current_mb_s: float | None = None,
    consumers: int = 0,
) -> PartitionPlan:
    """`peak_mb_s` is taken as it is; `current_mb_s` gets headroom. One of the two is needed."""
    if (peak_mb_s is None) == (current_mb_s is None):
        raise PlanError("give either the peak or the current throughput in MB/s, and not both")
    headroom = 1.0
    if peak_mb_s is None:
        assert current_mb_s is not None
        headroom = catalogue["partitions.headroom_low"]
        positive(current_mb_s=current_mb_s)
        peak_mb_s = current_mb_s * headroom
    needed, partitions, throughput_factor, consumer_factor, binding = count_partitions(
        catalogue, peak_mb_s=peak_mb_s, per_partition_mb_s=per_partition_mb_s, consumers=consumers
    )
    minimum, multiple = catalogue.count("partitions.minimum"), catalogue.count("partitions.multiple")
    by_class = class_of(peak_mb_s)
    simple = max(consumers, ceil_ratio(peak_mb_s, catalogue["partitions.simple_mb_s"]))
    low, high = catalogue["partitions.headroom_low"], catalogue["partitions.headroom_high"]
    return PartitionPlan(
        needed=needed,
        partitions=partitions,
        throughput_factor=throughput_factor,
        consumer_factor=consumer_factor,
        binding=binding,
        class_name=by_class.name,
        class_partitions=by_class.start,
        class_maximum=by_class.maximum,
        class_increment=by_class.increment,
        generous_low=ceil(throughput_factor * low),
        generous_high=ceil(throughput_factor * high),
        simple=simple,
        reasons=notes(
            f"current load × {headroom:g} = {peak_mb_s:g} MB/s" if headroom != 1 else None,
            f"throughput: {peak_mb_s:g} MB/s ÷ {per_partition_mb_s:g} MB/s per partition = {throughput_factor}",
            f"consumers: {consumers} × {catalogue['partitions.consumer_multiple']:g} = {consumer_factor}",
            f"minimum: {minimum}",
            f"the largest is {needed} ({binding}), rounded up to a multiple of {multiple}: {partitions}",
        ),
        notes=notes(
            f"002's table puts this topic in the class {by_class.name}: start with {by_class.start}, grow by "
            f"{by_class.increment} to {by_class.maximum}.",
            f"003 would start with {ceil(throughput_factor * low)}–{ceil(throughput_factor * high)}, "
            "to leave room for growth.",
            f"000's quick estimate, at {catalogue['partitions.simple_mb_s']:g} MB/s per partition: {simple}.",
            _count_warning(catalogue, partitions),
        ),
        rules=("partition-count", "partition-classes", "partition-headroom", "partition-simple", "partition-limits"),
    )


def _count_warning(catalogue: Catalogue, partitions: int) -> str | None:
    if partitions > catalogue["partitions.maximum"]:
        return f"More than {catalogue['partitions.maximum']:g} partitions: split the topic instead (000)."
    if partitions > catalogue["partitions.diminishing"]:
        return f"Beyond {catalogue['partitions.diminishing']:g} partitions a topic gains little from more (004)."
    return None


def share_moved(before: int, after: int) -> float:
    """The share of keys that go to another partition when the count changes from `before` to `after`.

    A partition is hash(key) modulo the count. Of `lcm` hashes in a row, exactly the first `min(before, after)` have the
    same remainder under both counts.
    """
    positive(before=before, after=after)
    return 1 - min(before, after) / lcm(before, after)


def ceil_ratio(amount: float, per_unit: float) -> int:
    """Rounded up, with a grain of tolerance: 0.3 ÷ 0.1 is 3 and not 4."""
    return ceil(round(amount / per_unit, 9))


def round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
