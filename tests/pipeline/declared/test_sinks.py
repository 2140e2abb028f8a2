"""The gate in front of a sink: a run stops between writes, and not in one."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest

from penstock.pipeline.model import Delivery, Pipeline
from penstock.pipeline.sinks import Gate, Stopped, topic_writer

BATCH: Any = object()


class Writer:
    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.written: list[int] = []
        self.closed = False

    def __call__(self, batch: object, batch_id: int) -> None:
        self.began.set()
        assert self.may_end.wait(10)
        self.written.append(batch_id)

    def close(self) -> None:
        self.closed = True


def test_a_write_that_goes_on_is_waited_for_and_none_begins_after_it() -> None:
    writer = Writer()
    gate = Gate(writer)
    writing = threading.Thread(target=gate, args=(BATCH, 0))
    writing.start()
    assert writer.began.wait(10)
    assert not gate.close(0.01), "it did not wait for the write"
    assert not writer.closed
    writer.may_end.set()
    with pytest.raises(Stopped):
        gate(BATCH, 1)
    writing.join(10)
    assert gate.close(10)
    assert writer.written == [0]
    assert writer.closed


def test_a_write_that_fails_is_not_hidden() -> None:
    def fail(batch: object, batch_id: int) -> None:
        raise ValueError("no space")

    gate = Gate(fail)
    with pytest.raises(ValueError, match="no space"):
        gate(BATCH, 0)
    assert gate.close(1)


def _remember(batch: object, batch_id: int) -> None:
    pass


def test_it_can_be_sent_to_another_process() -> None:
    """As Spark Connect does with what is given to foreachBatch."""
    copy = pickle.loads(pickle.dumps(Gate(_remember)))
    copy(BATCH, 0)
    assert copy.close(1)


def test_a_topics_own_properties_come_before_the_pipelines() -> None:
    pipeline = Pipeline(name="p", bootstrap_servers="a:1", properties={"client.id": "p", "linger.ms": "5"})
    options = {"kafka.client.id": "t", "rows": "5"}
    writer: Any = topic_writer(pipeline, "out", Delivery.AT_LEAST_ONCE, options)
    assert writer._options == {
        "topic": "out", "kafka.bootstrap.servers": "a:1", "kafka.client.id": "t", "kafka.linger.ms": "5",
    }  # fmt: skip
    exact: Any = topic_writer(pipeline, "out", Delivery.EXACTLY_ONCE, options)
    assert exact.topic == "out"
    exact.close()
