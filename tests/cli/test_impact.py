"""What more partitions would do."""

from __future__ import annotations

import pytest

from penstock.cli.impact import (
    DependentGroup,
    crc32_partition,
    fnv1a_partition,
    murmur2,
    murmur2_partition,
    report,
)

KEYS = [f"key-{number}".encode() for number in range(2000)]


def text_of(sample: list[tuple[bytes | None, int]], now: int = 4, then: int = 8) -> str:
    return "\n".join(report("t", now, then, sample, []).lines())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # From Kafka's own test of its hash, as signed numbers of 32 bits.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(text: bytes, expected: int) -> None:
    assert murmur2(text) == expected & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("partitioner", "name"),
    [(murmur2_partition, "murmur2"), (crc32_partition, "crc32"), (fnv1a_partition, "fnv1a")],
)
def test_the_partitioner_is_recognised_by_where_keys_are(partitioner: object, name: str) -> None:
    assert callable(partitioner)
    found = report("t", 5, 10, [(key, partitioner(key, 5)) for key in KEYS], [])
    assert found.partitioner is not None
    assert found.partitioner.startswith(name)
    assert found.keys_moved == sum(partitioner(key, 5) != partitioner(key, 10) for key in KEYS)
    assert found.keys_moved == pytest.approx(len(KEYS) / 2, rel=0.1)
    assert found.keeps_order_by_key is False


def test_keys_placed_by_an_unknown_partitioner() -> None:
    found = report("t", 4, 8, [(key, number % 4) for number, key in enumerate(KEYS)], [])
    assert (found.partitioner, found.keys_moved) == (None, None)
    assert found.keeps_order_by_key is False
    assert "not known here" in "\n".join(found.lines())


def test_without_keys_order_is_kept() -> None:
    found = report("t", 4, 8, [(None, 0), (b"", 1)], [])
    assert found.keeps_order_by_key is True
    assert "so none can move" in text_of([(None, 0)])


def test_an_empty_topic_has_nothing_to_lose() -> None:
    found = report("t", 4, 8, [], [])
    assert found.keeps_order_by_key is None
    assert "50% of them" in text_of([])


def test_repeated_keys_count_once() -> None:
    found = report("t", 1, 2, [(b"a", 0), (b"a", 0), (b"b", 0), (None, 0)], [])
    assert (found.records_sampled, found.keys_sampled) == (4, 2)


def test_groups_are_named_and_not_knowing_them_is_told() -> None:
    groups = [DependentGroup(name="billing", state="stable", members=3)]
    found = report("t", 1, 2, [], groups)
    assert "    billing (stable, members: 3)" in found.lines()
    assert found.as_json()["groups"] == [{"name": "billing", "state": "stable", "members": 3}]
    assert "not known (no groups here)" in "\n".join(report("t", 1, 2, [], [], "no groups here").lines())
