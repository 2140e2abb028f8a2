"""Who goes on with a chunk of a replay waits until none of the tasks that wrote it can write any more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.pipeline.builtin import replaying
from penstock.pipeline.builtin.replay_plan import Order, PlanFile, ReplayError, ReplayPlan
from penstock.pipeline.builtin.replaying import DELIVERY_S, LEASE_S, SETTLE_S, ReplayTask

ORDER = Order("orders", "again", 0, 1_000, keep_partitions=True, keep_timestamps=True, trace=True)
NOW_S = 1_767_600_000.0
Places = set[tuple[int, int]]


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = NOW_S

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(replaying, "time", made)
    return made


class Target:
    """A topic that is written by tasks, of which some fail, and some live on: a record of theirs arrives later."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.records: list[tuple[float, tuple[int, int]]] = []
        self.attempts: list[tuple[float, Places]] = []

    def arrives(self, place: tuple[int, int], at_s: float) -> None:
        self.records.append((at_s, place))

    def found(self) -> Places:
        return {place for at_s, place in self.records if at_s <= self.clock.now_s}


class Job(replaying._Job):
    """Without Spark and brokers."""

    def __init__(self, file: PlanFile, target: Target, attempt: Callable[[ReplayPlan, Places], int]) -> None:
        super().__init__(None, ORDER, {}, {}, file, 10, None)  # type: ignore[arg-type]
        self.target = target
        self.attempt = attempt

    def _look(self, plan: ReplayPlan, target: Any, topic: Any) -> Places:  # type: ignore[override]
        return self.target.found()

    def _write_once(self, plan: ReplayPlan, arrived: Places) -> int:
        self.target.attempts.append((self.target.clock.now_s, arrived))
        return self.attempt(plan, arrived)

    def write(self, plan: ReplayPlan, *, interrupted: bool = False) -> int:
        return self._write(plan, None, None, interrupted)  # type: ignore[arg-type]


def chunk() -> ReplayPlan:
    return ReplayPlan.new(ORDER, {0: 0, 1: 0}, {0: 1, 1: 1}).next_chunk(10, {0: 0, 1: 0})


def test_what_a_task_writes_after_another_one_failed_is_not_written_again(tmp_path: Path, clock: Clock) -> None:
    target = Target(clock)

    def attempt(plan: ReplayPlan, arrived: Places) -> int:
        if len(target.attempts) == 1:
            target.arrives((0, 0), clock.now_s + LEASE_S)  # by a task that nobody has ended yet
            raise RuntimeError("the task of partition 1 failed")
        for place in {(0, 0), (1, 0)} - arrived:
            target.arrives(place, clock.now_s)
        return 2 - len(arrived)

    assert Job(PlanFile(tmp_path / "plan.json"), target, attempt).write(chunk()) == 2
    assert sorted(place for _, place in target.records) == [(0, 0), (1, 0)]
    assert target.attempts == [(NOW_S, set()), (NOW_S + LEASE_S + SETTLE_S, {(0, 0)})]


def test_the_file_says_until_when_tasks_write_before_the_first_one_starts(tmp_path: Path, clock: Clock) -> None:
    file = PlanFile(tmp_path / "plan.json")
    target = Target(clock)

    def killed(plan: ReplayPlan, arrived: Places) -> int:
        noted = file.load(ORDER)
        assert noted is not None
        assert noted.chunk is not None
        assert noted.chunk.leased_until_ms == round((NOW_S + LEASE_S) * 1000)
        target.arrives((0, 0), clock.now_s + LEASE_S)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Job(file, target, killed).write(chunk())
    clock.sleep(10)
    plan = file.load(ORDER)
    assert plan is not None
    assert Job(file, target, lambda plan, arrived: 2 - len(arrived)).write(plan, interrupted=True) == 2
    assert target.attempts[-1] == (NOW_S + LEASE_S + SETTLE_S, {(0, 0)})
    # A day later there is nothing to wait for; and no clock that was wrong makes anyone wait for days.
    clock.sleep(86_400)
    Job(file, target, lambda plan, arrived: 0).write(plan, interrupted=True)
    assert target.attempts[-1][0] == NOW_S + LEASE_S + SETTLE_S + 86_400
    clock.now_s = NOW_S - 86_400
    Job(file, target, lambda plan, arrived: 0).write(plan, interrupted=True)
    assert target.attempts[-1][0] == NOW_S - 86_400 + LEASE_S + SETTLE_S


def test_a_chunk_that_fails_is_tried_again_as_long_as_it_gets_on(tmp_path: Path, clock: Clock) -> None:
    target = Target(clock)

    def attempt(plan: ReplayPlan, arrived: Places) -> int:
        if len(target.attempts) <= 10:
            target.arrives((0, len(target.attempts)), clock.now_s)
        raise RuntimeError("out of time")

    with pytest.raises(RuntimeError):
        Job(PlanFile(tmp_path / "plan.json"), target, attempt).write(chunk())
    assert len(target.attempts) == 10 + replaying.ATTEMPTS_MAX


class SlowProducer:
    """Each record takes its time; `settings` are what it was made with."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.sent: list[float] = []
        self.settings: dict[str, object] = {}

    def produce(self, topic: str, value: bytes, key: bytes, **extra: object) -> None:
        self.sent.append(self.clock.now_s)
        self.clock.sleep(40)

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        return 0


def test_a_task_gives_its_producer_nothing_that_could_be_sent_after_its_lease(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    producer = SlowProducer(clock)

    def opened(settings: dict[str, object], deliveries: object) -> SlowProducer:
        producer.settings = settings
        return producer

    monkeypatch.setattr("penstock.spark.producing.open_producer", opened)
    rows = pa.RecordBatch.from_pylist(
        [{"partition": 0, "offset": n, "key": b"k", "value": b"v", "time_ms": 0, "headers": None} for n in range(9)]
    )
    properties = {"bootstrap.servers": "b:1", "message.timeout.ms": "900000"}
    task = ReplayTask(ORDER, properties, "id", frozenset(), NOW_S + LEASE_S)
    with pytest.raises(ReplayError, match=r"was not written within 90 s: the rest of it follows"):
        list(task.run(iter([rows])))
    assert producer.sent == [NOW_S, NOW_S + 40, NOW_S + 80]
    assert producer.settings == {"bootstrap.servers": "b:1", "delivery.timeout.ms": str(DELIVERY_S * 1000)}
    assert producer.sent[-1] + DELIVERY_S < NOW_S + LEASE_S
