"""What a task makes of what happened to its data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'penstock-streaming[spark]'")

from pyspark.sql.datasource import InputPartition

from penstock.arrow import CorruptBatch
from penstock.client import ConnectionFailed, OffsetOutOfRange, RangeUnavailable, TopicRecreated, UnknownTopic
from penstock.spark.backend import SourcePartition
from penstock.spark.errors import DataLossError, SourceError
from penstock.spark.options import SourceOptions, batch_options
from penstock.spark.reading import read_partition, read_range
from penstock.wire.errors import ErrorCode

PART = SourcePartition("a", 0, 10, 20)
GONE = UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic="a", partition=0)
AGAIN = TopicRecreated(ErrorCode.INCONSISTENT_TOPIC_ID, topic="a", partition=0)


class ScriptedReader:
    """Gives out, in turn, (what stands for record batches, next position), or raises."""

    def __init__(self, *script: tuple[str, int] | Exception) -> None:
        self.script = list(script)
        self.started_at: list[int] = []

    def read(self, part: SourcePartition, start: int) -> Iterator[tuple[Iterable[Any], int]]:
        self.started_at.append(start)
        while self.script:
            step = self.script.pop(0)
            if isinstance(step, Exception):
                raise step
            yield [step[0]], step[1]

    def close(self) -> None: ...


def options_of(**given: str) -> SourceOptions:
    return batch_options({"kafka.bootstrap.servers": "x:1", "subscribe": "a"} | given)


def read(reader: ScriptedReader, **given: str) -> list[object]:
    return list(read_range(options_of(**given), PART, lambda _: reader))


def test_a_range_is_read_to_its_end() -> None:
    assert read(ScriptedReader(("x", 15), ("y", 20))) == ["x", "y"]


LOSSES = [OffsetOutOfRange("a", 0, 10, 12, 30), RangeUnavailable("a", 0, 12, 20, 12), GONE, AGAIN]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_what_is_lost_is_an_error_that_names_the_range_and_the_option(loss: Exception) -> None:
    with pytest.raises(DataLossError) as told:
        read(ScriptedReader(("x", 12), loss))

    assert "Cannot read offsets 10 to 20 (exclusive) of a-0" in str(told.value)
    assert 'set the source option "failOnDataLoss" to "false"' in str(told.value)


def test_where_loss_is_accepted_reading_goes_on_at_what_is_left() -> None:
    reader = ScriptedReader(("x", 12), OffsetOutOfRange("a", 0, 12, 17, 30), ("y", 20))

    assert read(reader, failOnDataLoss="false") == ["x", "y"]
    assert reader.started_at == [10, 17]


@pytest.mark.parametrize(
    "loss", [*LOSSES[1:], OffsetOutOfRange("a", 0, 10, 0, 5), OffsetOutOfRange("a", 0, 10, 25, 30)]
)
def test_where_nothing_is_left_the_task_ends(loss: Exception) -> None:
    assert read(ScriptedReader(("x", 12), loss), failOnDataLoss="false") == ["x"]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_broken_network_is_no_loss(fail: str) -> None:
    with pytest.raises(ConnectionFailed):
        read(ScriptedReader(("x", 12), ConnectionFailed("nobody there")), failOnDataLoss=fail)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_corrupt_batch_is_named(fail: str) -> None:
    with pytest.raises(SourceError, match=r"a-0: the batch at offset 12 is corrupt: bad checksum") as told:
        read(ScriptedReader(CorruptBatch("a", 0, 12, "bad checksum")), failOnDataLoss=fail)
    for way_out in ("move the leadership", "a batch read with startingOffsets", "a stream, of which the checkpoint"):
        assert way_out in str(told.value)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_open_transaction_is_no_loss(fail: str) -> None:
    held = RangeUnavailable("a", 0, 12, 20, 12, open_transaction=True)

    with pytest.raises(SourceError, match=r"read_committed; the producer of that transaction has to end it") as told:
        read(ScriptedReader(held), failOnDataLoss=fail)
    assert not isinstance(told.value, DataLossError)


def test_where_spark_makes_up_a_partition_nothing_is_read() -> None:
    assert list(read_partition(options_of(), InputPartition(None))) == []
