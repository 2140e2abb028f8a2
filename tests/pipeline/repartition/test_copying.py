"""A task of the copy leaves no gaps, and writes nothing after its lease. Without Spark and brokers."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from penstock.pipeline.builtin.replay_plan import Order, ReplayError
from penstock.pipeline.builtin.replaying import HEADER
from penstock.pipeline.repartition.copying import CopyTask
from penstock.pipeline.repartition.driving import Progress
from penstock.pipeline.repartition.plan import Phase

ORDER = Order("old", "new", -2, -1, keep_partitions=False, keep_timestamps=True, trace=True)


class Producer:
    """Holds what it is given until it is purged."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.sent: list[tuple[bytes, list[tuple[str, bytes]]]] = []
        self.purged = threading.Event()
        self.flushes = 0

    def produce(self, topic: str, value: bytes, key: bytes, **extra: object) -> None:
        headers = extra["headers"]
        assert isinstance(headers, list)
        self.sent.append((value, headers))

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        self.flushes += 1
        return 0

    def purge(self) -> None:
        self.purged.set()


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    made = Producer()

    def opened(settings: dict[str, str], deliveries: object) -> Producer:
        made.settings = settings
        return made

    monkeypatch.setattr("penstock.spark.producing.open_producer", opened)
    return made


def rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"partition": 3, "offset": n, "key": b"k", "value": b"%d" % n, "time_ms": 0, "headers": None}
            for n in range(count)
        ]
    )


def task(until_s: float, arrived: frozenset[tuple[int, int]] = frozenset()) -> CopyTask:
    return CopyTask(ORDER, {"bootstrap.servers": "b:1", "message.timeout.ms": "1"}, "id", arrived, until_s)


def test_what_arrived_before_is_left_out_and_the_rest_says_where_it_came_from(producer: Producer) -> None:
    (result,) = task(time.time() + 60, frozenset({(3, 0), (3, 1)})).run(iter([rows(4)]))
    assert result.to_pylist() == [{"written": 2}]
    assert [(value, dict(headers)[HEADER]) for value, headers in producer.sent] == [
        (b"2", b"id/3/2"),
        (b"3", b"id/3/3"),
    ]
    assert not producer.purged.is_set()


def test_records_do_not_time_out_one_by_one_but_are_purged_together_at_the_end_of_the_lease(producer: Producer) -> None:
    until_s = time.time() + 0.2

    def slow() -> object:
        yield rows(2)
        assert producer.purged.wait(30), "the task waits for Spark, and its lease ends"
        yield rows(2)

    with pytest.raises(ReplayError, match="within its lease"):
        list(task(until_s).run(slow()))  # type: ignore[arg-type]
    assert time.time() >= until_s
    assert len(producer.sent) == 2, "nothing is added after the lease"
    assert producer.settings["enable.gapless.guarantee"] == "true"
    assert "message.timeout.ms" not in producer.settings
    assert int(producer.settings["delivery.timeout.ms"]) / 1000 > 0.2, "later than the purge"


def test_a_task_that_fails_drops_what_it_has_not_sent(producer: Producer) -> None:
    def broken() -> object:
        yield rows(2)
        raise OSError("the disk of the worker is full")

    with pytest.raises(OSError, match="disk"):
        list(task(time.time() + 60).run(broken()))  # type: ignore[arg-type]
    assert producer.purged.is_set()


def test_the_estimate_counts_what_producers_add_meanwhile() -> None:
    assert Progress(Phase.COPYING, 0, 1_000, 100.0, 50.0).left_s == 20.0
    behind = Progress(Phase.COPYING, 0, 1_000, 100.0, 100.0)
    assert behind.left_s is None
    assert behind.falls_behind
    assert not Progress(Phase.COPYING, 0, 1_000, 0.0, 100.0).falls_behind
