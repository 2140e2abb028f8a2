"""Offsets in the checkpoint: the same text for the same offset, and nothing that has to be looked up again."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")

from penstock.client import TopicPartition
from penstock.spark.errors import SourceError
from penstock.spark.offsets import Cut, SourceOffset

A0, A2, A10, B0 = (
    TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("a", 10), TopicPartition("b", 0),
)  # fmt: skip


def test_an_offset_reads_as_those_of_sparks_own_source_do() -> None:
    text = json.dumps(SourceOffset({B0: 5, A10: 3, A2: 1}).to_json())

    assert text == '{"$penstock": {}, "a": {"2": 1, "10": 3}, "b": {"0": 5}}'


def test_the_same_offset_is_the_same_text() -> None:
    one = SourceOffset({A0: 1, B0: 2}, {A0: 0, B0: 0}, {"a": "x", "b": "y"}, Cut(3, None))
    other = SourceOffset({B0: 2, A0: 1}, {B0: 0, A0: 0}, {"b": "y", "a": "x"}, Cut(3, None))

    assert json.dumps(one.to_json()) == json.dumps(other.to_json())
    again = SourceOffset.from_json(json.loads(json.dumps(one.to_json())))
    assert again == one
    assert json.dumps(again.to_json()) == json.dumps(one.to_json())


def test_an_initial_offset_is_its_own_beginning() -> None:
    initial = SourceOffset.initial({A0: 100}, {"a": "id"})

    assert initial.is_initial
    assert SourceOffset.from_json(initial.to_json()).is_initial
    assert not SourceOffset({A0: 100}).is_initial


def test_checkpoints_of_sparks_own_source_can_be_continued() -> None:
    assert SourceOffset.from_json({"a": {"0": 7}}) == SourceOffset({A0: 7})


@pytest.mark.parametrize(
    "foreign", [{"logOffset": 3}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"$penstock": 1}, {"a": [1]}]
)
def test_offsets_of_another_source_are_refused(foreign: dict[str, object]) -> None:
    with pytest.raises(SourceError, match="give this one a checkpointLocation of its own"):
        SourceOffset.from_json(foreign)
