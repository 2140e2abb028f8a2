"""Hot partitions and hot keys (S7), with a simulation of the cure on sampled keys. Pure.

A partition is hot if it takes more than `SKEW_MIN` times the mean of its topic, and a quarter of its load. The sampled
keys tell why:

- many keys that happen to share a partition: more partitions spread them;
- one key with a large share of the records: no number of partitions helps, because a key has one partition. A composite
  key (with a field that varies within the key) or a salt (a small number behind the key) splits it, at the price of the
  order within the old key.

Each cure is tried on the sample: every record gets the partition that it would get, and the load of the busiest
partition is compared with today's mean.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.advise.items import Item, Urgency
from penstock.advise.situation import KeySample, Situation
from penstock.client.placement import crc32_partition, fnv1a_partition, murmur2_partition
from penstock.monitor.samples import Kind
from penstock.planning.partitions import round_up

SKEW_MIN: Final = 2.0
LOAD_MIN: Final = 0.25
"""The share of the topic's load from which a partition is worth a change."""
RATE_MIN: Final = 50.0
"""Records per second of a partition below which its share does not matter."""
SALTS: Final = (2, 4, 8, 16, 32)
SAMPLE_MIN: Final = 50
GOOD_SKEW: Final = 1.6
"""A cure is good enough if the hottest partition takes at most this multiple of the mean, in the sample."""
PARTITIONERS: Final = (murmur2_partition, crc32_partition, fnv1a_partition)
MATCH_MIN: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    name: str
    partitions: int
    skew: float
    """The load of the busiest partition after the change, as a multiple of today's mean."""
    field: str = ""
    salts: int = 0


def skew_of(counts: Sequence[int]) -> float:
    """The largest as a multiple of the mean."""
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 0.0


def simulate(sample: KeySample, partitions: int, multiple: int) -> tuple[float, float, list[Cure]]:
    """Skew of the sample now, the share of its most frequent key, and what each cure would make of it."""
    placed = [(key, number) for key, number in sample.keys if key]
    now = Counter(number for _, number in placed)
    current = skew_of([now[number] for number in range(partitions)])
    frequent = Counter(key for key, _ in placed).most_common(1)
    share = frequent[0][1] / len(placed) if placed else 0.0
    partitioner = _partitioner(placed, partitions)
    keys = [key for key, _ in placed]
    cures = [
        Cure(name="more partitions", partitions=count, skew=_skew(keys, count, partitioner, partitions))
        for count in (round_up(partitions * 2, multiple), round_up(partitions * 4, multiple))
    ]
    if (name := _varying_field(sample)) is not None:
        composite = [
            key + b"|" + found for (key, _), value in zip(sample.keys, sample.values, strict=False)
            if key and (found := _field(value, name)) is not None
        ]  # fmt: skip
        cures.append(
            Cure(
                name="composite key",
                partitions=partitions,
                skew=_skew(composite, partitions, partitioner, partitions),
                field=name,
            )
        )
    for salts in SALTS:
        salted = [key + b"#%d" % (place % salts) for place, (key, _) in enumerate(placed)]
        cure = Cure(
            name="salt", partitions=partitions, skew=_skew(salted, partitions, partitioner, partitions), salts=salts
        )
        cures.append(cure)
        if cure.skew <= GOOD_SKEW:
            break
    return current, share, cures


def best(cures: Sequence[Cure]) -> Cure:
    """The first that is good enough, in the order of how little it changes; otherwise the best."""
    for cure in cures:
        if cure.skew <= GOOD_SKEW:
            return cure
    return min(cures, key=lambda cure: cure.skew)


def hot(situation: Situation) -> Iterator[Item]:
    for topic in situation.names(Kind.TOPIC):
        rates = {
            number: rate
            for number in range(int(situation.value(Kind.TOPIC, topic, "partitions") or 0))
            if (rate := situation.sustained(Kind.PARTITION, f"{topic}-{number}", "messages_in_per_s")) is not None
        }
        skew = skew_of([int(rate * 1000) for rate in rates.values()]) if rates else None
        if not rates or skew is None:
            skew = situation.value(Kind.TOPIC, topic, "skew")
        rate = max(rates.values()) if rates else (situation.value(Kind.TOPIC, topic, "messages_in_per_s") or 0)
        partitions = int(situation.value(Kind.TOPIC, topic, "partitions") or 0)
        is_ours = topic.startswith(("__", "penstock."))
        if skew is None or partitions < 2 or is_ours or rate < RATE_MIN:
            continue
        if skew < SKEW_MIN or skew / partitions < LOAD_MIN:
            continue
        hottest = max(rates, key=lambda number: rates[number]) if rates else None
        evidence = [f"the busiest partition takes {skew:.1f} × the mean of {partitions}"]
        if hottest is not None:
            evidence.append(f"{topic}-{hottest}: {rates[hottest]:,.0f} records/s")
        yield _item(situation, topic, partitions, skew, evidence)


def _item(situation: Situation, topic: str, partitions: int, skew: float, evidence: list[str]) -> Item:
    sample = situation.keys.get(topic)
    keyed = [key for key, _ in sample.keys if key] if sample is not None else []
    what, effect = f"spread the load of {topic}", "an even load, once all records are like the newest"
    risk = "order across the change is lost for keys that move"
    command = f"penstock topics alter {topic} --partitions {partitions * 2}"
    code = "hot.partition"
    if sample is None or len(keyed) < SAMPLE_MIN:
        evidence.append("too few keys could be sampled to tell why")
        command = f"penstock topics describe {topic}"
    else:
        multiple = situation.catalogue.count("partitions.multiple")
        current, share, cures = simulate(sample, partitions, multiple)
        cure = best(cures)
        evidence.append(f"of {len(keyed):,} sampled records, the most frequent key has {share:.0%}")
        evidence += [
            f"{_told(one)}: the busiest takes {one.skew:.1f} × today's mean (now {current:.1f} ×)" for one in cures
        ]
        effect = f"the busiest partition takes {cure.skew:.1f} × today's mean, simulated on the sample"
        if cure.name == "more partitions":
            what = f"give {topic} {cure.partitions} partitions"
            command = f"penstock topics alter {topic} --partitions {cure.partitions}"
        else:
            code = "hot.key"
            key = Counter(keyed).most_common(1)[0][0].decode("utf-8", "replace")[:80]
            what = f"split the key {key!r} of {topic}: {_told(cure)}"
            command = (
                f'in the producer: key = f"{{key}}|{{record[{cure.field!r}]}}"'
                if cure.name == "composite key"
                else f'in the producer: key = f"{{key}}#{{random.randrange({cure.salts})}}"'
            )
            risk = (
                "records of the split key are no longer in one order; consumers that need its whole must join the parts"
            )
    return Item(
        code=code, urgency=Urgency.TODAY, subject=f"topic {topic}", what=what, evidence=tuple(evidence), effect=effect,
        risk=risk, command=command, source="000, Hot Partition Mitigation", weight=skew,
    )  # fmt: skip


def _told(cure: Cure) -> str:
    if cure.name == "more partitions":
        return f"{cure.partitions} partitions"
    return f"key with {cure.field}" if cure.field else f"{cure.salts} salts"


def _skew(keys: Sequence[bytes], partitions: int, partitioner: Callable[[bytes, int], int], today: int) -> float:
    counts = Counter(partitioner(key, partitions) for key in keys)
    return max(counts.values(), default=0) * today / max(1, len(keys))


def _partitioner(placed: Sequence[tuple[bytes, int]], partitions: int) -> Callable[[bytes, int], int]:
    """The one that explains where the keys are; Java's if none does."""
    distinct = dict(placed)
    for one in PARTITIONERS:
        if sum(one(key, partitions) == number for key, number in distinct.items()) >= MATCH_MIN * len(distinct):
            return one
    return murmur2_partition


def _varying_field(sample: KeySample) -> str | None:
    """A field of JSON values with many values within the most frequent key, but not one for each record."""
    keyed = [key for key, _ in sample.keys if key]
    if not keyed:
        return None
    hottest = Counter(keyed).most_common(1)[0][0]
    values = [value for (key, _), value in zip(sample.keys, sample.values, strict=False) if key == hottest]
    seen: dict[str, Counter[bytes]] = {}
    for value in values:
        for name, text in _fields(value):
            seen.setdefault(name, Counter())[text] += 1
    useful = {
        name: len(found)
        for name, found in seen.items()
        if sum(found.values()) >= 0.95 * len(values) and 8 <= len(found) <= len(values) / 2
    }
    return max(useful, key=lambda name: useful[name]) if useful else None


def _fields(value: bytes | None) -> Iterator[tuple[str, bytes]]:
    try:
        found = json.loads(value) if value is not None else None
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict):
        for name, item in list(found.items())[:50]:
            if isinstance(item, (str, int)):
                yield name, str(item).encode()


def _field(value: bytes | None, name: str) -> bytes | None:
    return next((text for one, text in _fields(value) if one == name), None)
