"""What a Python process of Spark keeps from one task to the next."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'penstock-streaming[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'penstock-streaming[spark]'")

from pyspark import TaskContext

from penstock.pipeline.lake.files import FileTask
from penstock.pipeline.lake.locations import Location
from penstock.spark import reading, sink
from penstock.spark.backend import SourcePartition
from penstock.spark.worker_process import settle


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    calls: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(1))
    settle.cache_clear()
    yield calls
    settle.cache_clear()


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())


def read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "read_range", lambda *_: iter(()))
    assert list(reading.read_partition(None, SourcePartition("t", 0, 0, 1))) == []  # type: ignore[arg-type]


def write_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sender:
        sent_count = 0

        def __init__(self, *_: object) -> None: ...

        def flush(self) -> None: ...

    class Producers:
        def take(self, _: object) -> sink.Kept:
            return sink.Kept(None, None)  # type: ignore[arg-type]

        def keep(self, *_: object) -> None: ...

    monkeypatch.setattr(sink, "RecordSender", Sender)
    monkeypatch.setattr(sink, "producers", Producers())
    sink.WriteTask(None, None).run(iter(()))  # type: ignore[arg-type]


def write_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(FileTask(Location("memory")).write(iter(()))) == []


@pytest.mark.parametrize("task", [read, write_topic, write_table])
def test_what_is_there_after_the_first_task_is_not_looked_through_again(
    frozen: list[int], in_task: None, monkeypatch: pytest.MonkeyPatch, task: Callable[[pytest.MonkeyPatch], None]
) -> None:
    task(monkeypatch)
    task(monkeypatch)
    assert frozen == [1], "once: what tasks leave behind later is still found"


def test_a_process_that_is_not_sparks_is_left_alone(frozen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    read(monkeypatch)
    assert not frozen
