"""Exactly once, as a state machine: crashes at every call, zombies at every step, every kind of error at every call."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from penstock.pipeline.topic_errors import DriverFenced, OutcomeUnknown, TransactionFailed
from penstock.pipeline.transactions import ATTEMPTS_MAX, QueryTransactions, Step
from penstock.spark.producing import BadRow, Deliveries, RecordColumns
from support.transactions import (
    ABORTABLE,
    FATAL,
    FENCED,
    MARKERS,
    STRANGE,
    TIMED_OUT,
    TOO_LARGE,
    FakeKafka,
    FakeProducer,
    Fault,
    Killed,
    kafka_error,
)

KEY = b"query"
ROWS_PER_BATCH = 5
CALLS = ("init", "begin", "produce", "flush", "mark", "commit")


class RandomBatch:
    """A batch with a column that differs at every evaluation, and a count of them."""

    def __init__(self, batch_id: int, serial: itertools.count[int]) -> None:
        self._batch_id = batch_id
        self._serial = serial
        self.evaluations = 0
        self.passes = 0

    def evaluate(self) -> tuple[RecordColumns, Iterable[pa.RecordBatch]]:
        self.evaluations += 1
        serial = next(self._serial)
        values = [f"{self._batch_id}:{row}:{serial}".encode() for row in range(ROWS_PER_BATCH)]
        batches = [pa.RecordBatch.from_arrays([pa.array(part)], ["value"]) for part in (values[:3], values[3:])]
        return RecordColumns(value=0, fixed_topic="out"), batches

    def pass_over(self) -> None:
        self.passes += 1


class Driver:
    """Spark's part: batches one after another, a commit log, and a process that can be killed and started again."""

    def __init__(self) -> None:
        self.kafka = FakeKafka()
        self.producers: list[FakeProducer] = []
        self.done = -1
        self.faults: dict[str, list[Fault | None]] = {}
        self.on_call = lambda name: None
        self.watch = lambda step, batch_id: None
        self.clock_s = 0.0
        self._serial = itertools.count()
        self.process = self.start()

    def start(self) -> QueryTransactions:
        for producer in self.producers:
            producer.dead = True
        self.process = self.beside()
        return self.process

    def beside(self) -> QueryTransactions:
        """Another process of the same query; the one that runs is not ended."""
        return QueryTransactions(
            "penstock-query",
            KEY,
            self._producer,
            self.kafka,
            watch=lambda step, batch_id: self.watch(step, batch_id),
            clock=self._tick,
        )

    def run(self, last: int) -> None:
        """Batches until this one is in Spark's commit log."""
        while self.done < last:
            self.one(self.process, self.done + 1)
            self.done += 1

    def one(self, process: QueryTransactions, batch_id: int) -> RandomBatch:
        batch = RandomBatch(batch_id, self._serial)
        process.write(batch_id, batch)
        assert batch.evaluations + batch.passes == 1, "a batch is evaluated once, and never skipped"
        return batch

    def check(self) -> None:
        """What a read_committed reader sees: whole batches, once, each of one evaluation, in order."""
        seen = []
        for transaction in self.kafka.transactions:
            rows = [
                str(cast(bytes, record.value), "ascii").split(":") for record in transaction if record.topic == "out"
            ]
            assert len({(batch, serial) for batch, _, serial in rows}) == 1, f"a mixed transaction: {transaction}"
            assert [row for _, row, _ in rows] == [str(row) for row in range(ROWS_PER_BATCH)], "half a batch"
            assert Counter(record.topic for record in transaction)[MARKERS] == 1
            seen.append(int(rows[0][0]))
        assert seen == list(range(len(seen))), f"batches are there as {seen}"

    def _producer(self, deliveries: Deliveries) -> FakeProducer:
        self.producers.append(FakeProducer(self.kafka, deliveries, self.faults, lambda name: self.on_call(name)))
        return self.producers[-1]

    def _tick(self) -> float:
        self.clock_s += 1.0
        return self.clock_s


def test_batches_are_written_with_their_markers_and_in_order() -> None:
    driver = Driver()
    driver.run(3)
    driver.check()
    assert len(driver.kafka.records()) == 4 * ROWS_PER_BATCH
    marker = driver.kafka.read(KEY)
    assert marker is not None
    assert (marker.batch_id, marker.records) == (3, ROWS_PER_BATCH)
    assert driver.producers[0].calls.count("init") == 1


def test_the_marker_goes_last_and_after_all_rows_are_acknowledged() -> None:
    driver = Driver()
    driver.run(0)
    assert driver.producers[0].calls == ["init", "begin", *["produce"] * ROWS_PER_BATCH, "flush", "mark", "commit"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_driver_killed_at_any_call_and_again_at_any_call_leaves_every_batch_whole_and_once(after: bool) -> None:
    calls = 2 * (len(CALLS) - 1 + ROWS_PER_BATCH)
    deaths = 0
    for first, second in itertools.product(range(calls), range(calls)):
        driver = Driver()
        for death in (first, second):
            deaths += _run_until_killed(driver, death, after)
            driver.check()
            driver.start()
        driver.on_call = lambda name: None
        driver.faults.clear()
        driver.run(2)
        driver.check()
        assert len(driver.kafka.records()) == 3 * ROWS_PER_BATCH
    assert deaths > calls * calls, "most runs must have been killed at least once"


def _run_until_killed(driver: Driver, death: int, after: bool) -> bool:
    """Runs to batch 2, unless the process dies at its call number `death`."""
    made = itertools.count()

    def on_call(name: str) -> None:
        driver.check()
        if next(made) == death:
            driver.faults[name] = [Fault(after=after)]

    driver.on_call = on_call
    try:
        driver.run(2)
    except Killed:
        return True
    return False


@pytest.mark.parametrize("step", list(Step))
def test_a_driver_killed_at_any_step_leaves_every_batch_whole_and_once(step: Step) -> None:
    driver = Driver()
    if step in (Step.ABORTING, Step.ABORTED):
        driver.faults["commit"] = [Fault(ABORTABLE)]
    if step is Step.PASSED_OVER:
        driver.run(0)
        driver.done = -1
        driver.start()
    killed: list[Any] = []

    def watch(reached: Step, batch_id: int) -> None:
        driver.check()
        if reached is step and not killed:
            killed.append(batch_id)
            driver.producers[-1].dead = True
            raise Killed

    driver.watch = watch
    with pytest.raises(Killed):
        driver.run(2)
    driver.check()
    driver.start()
    driver.run(2)
    driver.check()
    assert len(driver.kafka.transactions) == 3
    assert killed


def test_killed_between_the_commit_and_sparks_commit_log_the_batch_is_evaluated_but_not_written_again() -> None:
    driver = Driver()
    driver.run(1)
    driver.done = 0  # Spark never heard that batch 1 was done
    batch = driver.one(driver.start(), 1)
    assert (batch.evaluations, batch.passes) == (0, 1)
    driver.check()
    assert len(driver.kafka.transactions) == 2


@pytest.mark.parametrize("step", [step for step in Step if step not in (Step.PASSED_OVER, Step.ABORTING, Step.ABORTED)])
def test_a_zombie_that_is_overtaken_at_any_step_writes_nothing_more(step: Step) -> None:
    driver = Driver()
    zombie = driver.process
    overtaken: list[Any] = []

    def watch(reached: Step, batch_id: int) -> None:
        driver.check()
        if reached is step and not overtaken:
            overtaken.append(step)
            other = driver.beside()
            driver.one(other, 0)
            driver.one(other, 1)

    driver.watch = watch
    if step is Step.OPENED:
        # It had opened its producer, but the other was first to initialise: then the other is the zombie.
        assert driver.one(zombie, 0).passes == 1
        assert driver.one(zombie, 1).passes == 1
        assert driver.one(zombie, 2).evaluations == 1
    else:
        with pytest.raises(DriverFenced, match="taken over"):
            [driver.one(zombie, batch_id) for batch_id in range(3)]
    driver.check()
    assert overtaken


def test_a_driver_that_was_fenced_initialises_again_before_it_writes_again() -> None:
    driver = Driver()
    driver.run(0)
    other = driver.beside()
    driver.one(other, 1)
    with pytest.raises(DriverFenced):
        driver.one(driver.process, 1)
    assert driver.one(driver.process, 1).passes == 1
    assert driver.one(driver.process, 2).evaluations == 1
    driver.check()
    with pytest.raises(DriverFenced):
        driver.one(other, 3)


@pytest.mark.parametrize("call", ["init", "commit"])
def test_retriable_errors_are_met_by_calling_again(call: str) -> None:
    driver = Driver()
    driver.faults[call] = [Fault(TIMED_OUT), Fault(TIMED_OUT), None]
    driver.run(0)
    driver.check()
    assert len(driver.kafka.transactions) == 1
    assert driver.producers[0].calls.count(call) == 3


def test_a_commit_whose_answer_was_lost_is_asked_for_again_and_done_once() -> None:
    driver = Driver()
    driver.faults["commit"] = [Fault(TIMED_OUT, after=True)]
    driver.run(0)
    driver.check()
    assert len(driver.kafka.transactions) == 1


@pytest.mark.parametrize("call", ["produce", "flush", "mark", "commit"])
def test_an_abortable_error_aborts_and_writes_the_same_rows_again(call: str) -> None:
    driver = Driver()
    driver.faults[call] = [Fault(ABORTABLE)]
    driver.run(1)
    driver.check()
    assert driver.producers[0].calls.count("abort") == 1
    assert all(str(cast(bytes, record.value), "ascii").endswith((":0", ":1")) for record in driver.kafka.records()), (
        "evaluated once"
    )


def test_an_abortable_error_that_stays_fails_the_query_after_a_few_attempts() -> None:
    driver = Driver()
    driver.faults["commit"] = [Fault(ABORTABLE)] * ATTEMPTS_MAX
    with pytest.raises(TransactionFailed, match=f"batch 0 was aborted \\({ATTEMPTS_MAX} times\\).*nothing of it"):
        driver.run(0)
    assert driver.kafka.transactions == []
    assert driver.kafka.open is None
    driver.run(1)
    driver.check()


def test_an_error_that_would_come_again_is_not_tried_again() -> None:
    driver = Driver()
    driver.faults["commit"] = [Fault(TOO_LARGE)]
    with pytest.raises(TransactionFailed, match="batch 0 was aborted, nothing of it is visible"):
        driver.run(0)
    assert driver.producers[0].calls.count("commit") == 1
    assert driver.kafka.open is None


def test_a_record_that_is_not_delivered_fails_its_batch_by_name() -> None:
    driver = Driver()
    process = driver.process

    def on_call(name: str) -> None:
        if name == "flush":
            driver.producers[-1].undelivered = [kafka_error(KafkaError.MSG_SIZE_TOO_LARGE)] * 3

    driver.on_call = on_call
    with pytest.raises(TransactionFailed, match=r"MSG_SIZE_TOO_LARGE.*max\.message\.bytes.*and 2 more"):
        driver.one(process, 0)
    assert driver.kafka.transactions == []
    assert driver.producers[0].calls.count("abort") == 1


@pytest.mark.parametrize("error", [FATAL, STRANGE], ids=["fatal", "unclassified"])
@pytest.mark.parametrize("call", ["init", "begin", "mark"])
def test_any_other_error_gives_the_producer_up_and_a_restart_goes_on(call: str, error: KafkaError) -> None:
    driver = Driver()
    driver.faults[call] = [Fault(error)]
    with pytest.raises(TransactionFailed, match=r"penstock-query.*Nothing of the batch is visible"):
        driver.run(0)
    assert driver.kafka.transactions == []
    driver.run(2)
    driver.check()
    assert len(driver.producers) == 2


@pytest.mark.parametrize("happened", [False, True], ids=["not committed", "committed"])
@pytest.mark.parametrize("error", [FATAL, STRANGE, ABORTABLE], ids=["fatal", "unclassified", "abortable"])
def test_an_error_after_a_commit_that_was_not_answered_is_told_as_unknown_and_nothing_is_written_again(
    error: KafkaError, happened: bool
) -> None:
    """The broker may have committed; what is told next is about the second call."""
    driver = Driver()
    driver.faults["commit"] = [Fault(TIMED_OUT, after=happened), Fault(error)]
    with pytest.raises(OutcomeUnknown, match="whether the batch was committed is not known here"):
        driver.run(0)
    assert driver.producers[0].calls.count("begin") == 1
    assert len(driver.kafka.transactions) == int(happened)
    driver.run(1)
    driver.check()
    assert len(driver.kafka.transactions) == 2


@pytest.mark.parametrize("happened", [False, True], ids=["not committed", "committed"])
@pytest.mark.parametrize("error", [FATAL, STRANGE], ids=["fatal", "unclassified"])
def test_a_commit_that_fails_is_told_as_unknown(error: KafkaError, happened: bool) -> None:
    """librdkafka asks again by itself within one call, so its first word may be about a second question."""
    driver = Driver()
    driver.faults["commit"] = [Fault(error, after=happened)]
    with pytest.raises(OutcomeUnknown, match="could not commit batch 0"):
        driver.run(0)
    driver.run(1)
    driver.check()
    assert len(driver.kafka.transactions) == 2


@pytest.mark.parametrize("happened", [False, True], ids=["not committed", "committed"])
def test_a_driver_fenced_at_its_commit_does_not_say_what_it_cannot_know(happened: bool) -> None:
    driver = Driver()
    driver.faults["commit"] = [Fault(TIMED_OUT, after=happened), Fault(FENCED)]
    with pytest.raises(DriverFenced, match=r"taken over.*is visible as a whole or not at all: the marker says which"):
        driver.run(0)
    driver.run(0)
    driver.check()


@pytest.mark.parametrize("happened", [False, True], ids=["not committed", "committed"])
def test_a_user_who_stops_a_commit_finds_the_batch_once(happened: bool) -> None:
    driver = Driver()

    def stop(name: str) -> None:
        if name == "commit":
            driver.on_call = lambda name: None
            if happened:
                driver.producers[0].commit_transaction()
            raise KeyboardInterrupt

    driver.on_call = stop
    with pytest.raises(KeyboardInterrupt):
        driver.run(0)
    driver.run(1)
    driver.check()
    assert len(driver.kafka.transactions) == 2


@pytest.mark.parametrize("step", [Step.OPENED, Step.INITIALISED, Step.MARKER_READ])
def test_a_start_that_failed_half_way_is_made_again_from_its_beginning(step: Step) -> None:
    driver = Driver()
    failures = [step]

    def watch(reached: Step, batch_id: int) -> None:
        if reached in failures:
            failures.remove(reached)
            raise RuntimeError("stopped")

    driver.watch = watch
    with pytest.raises(RuntimeError):
        driver.run(0)
    driver.run(1)
    driver.check()
    assert [producer.calls.count("init") for producer in driver.producers] == [int(step is not Step.OPENED), 1]


def test_fenced_during_an_abort_is_told_as_fenced() -> None:
    driver = Driver()
    driver.faults["commit"] = [Fault(ABORTABLE)]
    driver.faults["abort"] = [Fault(FENCED)]
    with pytest.raises(DriverFenced, match=r"transaction\.timeout\.ms"):
        driver.run(0)


@pytest.mark.parametrize("how", ["reported", "raised", "wrapped", "mute"])
def test_fenced_while_rows_are_acknowledged_is_told_as_fenced(how: str) -> None:
    driver = Driver()
    driver.run(0)
    driver.producers[0].fatal_in_flush = how

    def overtake(name: str) -> None:
        if name == "flush" and len(driver.producers) == 1:
            driver.one(driver.beside(), 1)

    driver.on_call = overtake
    with pytest.raises(DriverFenced, match="was taken over: another driver"):
        driver.one(driver.process, 1)
    assert len(driver.kafka.transactions) == 2
    driver.check()


@pytest.mark.parametrize(("call", "told"), [("mark", TransactionFailed), ("commit", OutcomeUnknown)])
def test_an_abort_that_fails_gives_the_producer_up(call: str, told: type[Exception]) -> None:
    driver = Driver()
    driver.faults[call] = [Fault(ABORTABLE)]
    driver.faults["abort"] = [Fault(TIMED_OUT), Fault(FATAL)]
    with pytest.raises(told, match="and could not abort batch 0"):
        driver.run(0)
    driver.run(1)
    driver.check()


@pytest.mark.parametrize("happened", [False, True])
def test_a_commit_that_is_never_confirmed_is_told_as_unknown_and_the_next_start_finds_out(happened: bool) -> None:
    driver = Driver()
    driver.faults["commit"] = [Fault(TIMED_OUT, after=happened)] * 200
    with pytest.raises(OutcomeUnknown, match="Start the query again"):
        driver.run(0)
    driver.check()
    assert len(driver.kafka.transactions) == int(happened)
    driver.faults.clear()
    driver.run(1)
    driver.check()
    assert len(driver.kafka.transactions) == 2


def test_brokers_that_do_not_answer_are_not_waited_for_without_end() -> None:
    driver = Driver()
    driver.faults["init"] = [Fault(TIMED_OUT)] * 1000
    with pytest.raises(TransactionFailed, match="initialise transactions within"):
        driver.run(0)


def test_rows_that_are_no_records_abort_the_transaction_and_keep_the_producer() -> None:
    driver = Driver()

    class Bad(RandomBatch):
        def evaluate(self) -> tuple[RecordColumns, Iterable[pa.RecordBatch]]:
            rows = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), pa.array(["out", None])], ["value", "topic"])
            return RecordColumns(value=0, topic=1), [rows]

    with pytest.raises(BadRow, match="null topic"):
        driver.process.write(0, Bad(0, itertools.count()))
    assert driver.kafka.open is None
    assert driver.kafka.aborted_count == 1
    driver.run(0)
    driver.check()
    assert len(driver.producers) == 1


def test_an_empty_batch_is_a_transaction_of_its_marker_alone() -> None:
    driver = Driver()

    class Empty(RandomBatch):
        def evaluate(self) -> tuple[RecordColumns, Iterable[pa.RecordBatch]]:
            return RecordColumns(value=0, fixed_topic="out"), []

    driver.process.write(7, Empty(7, itertools.count()))
    marker = driver.kafka.read(KEY)
    assert marker is not None
    assert (marker.batch_id, marker.records) == (7, 0)
    assert driver.one(driver.start(), 7).passes == 1
