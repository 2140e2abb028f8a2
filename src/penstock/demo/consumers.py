"""The pipeline without Spark: a consumer group, a counter, a producer of results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from penstock.demo.counting import ShopCounter, Verdict
from penstock.demo.pipelines import Dropped, PipelineFailed, Stage, TableCounts
from penstock.demo.topics import DEAD_LETTERS, EVENTS, REVENUE, SESSIONS, TOP_PRODUCTS, origin_of
from penstock.pipeline.dead_letter_headers import dead_letter_headers

GROUP: Final = "shop-figures"
BATCH_MAX: Final = 2_000
BATCH_WAIT_S: Final = 0.25
REQUEST_TIMEOUT_S: Final = 5.0


class ConsumerPipeline:
    """One member of a group reads every topic; offsets are committed behind the results."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = ""
        self._clock = clock
        self._counter = ShopCounter()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-consumer", daemon=True)
        self._error = ""
        self._committed_s: float | None = None
        self._batch = -1
        self._rows = 0
        self._rows_per_s = 0.0
        self._took_ms = 0
        self._lag: int | None = None
        self._positions: dict[tuple[str, int], int] = {}

    @property
    def title(self) -> str:
        return "a consumer group in plain Python"

    @property
    def doing(self) -> str:
        if self._error:
            return "stopped"
        return "running" if self._batch >= 0 else "joining its group"

    @property
    def committed_s(self) -> float | None:
        return self._committed_s

    @property
    def start_times(self) -> None:
        """It reads as soon as it is started."""

    @property
    def closes_after_s(self) -> float:
        return BATCH_WAIT_S

    def prepare(self) -> None:
        pass

    def start(self, address: str) -> None:
        self._address = address
        self._thread.start()

    def stages(self) -> list[Stage]:
        with self._lock:
            return [
                Stage(
                    name=GROUP,
                    batch=self._batch,
                    rows=self._rows,
                    rows_per_s=self._rows_per_s,
                    lag=self._lag,
                    took_ms=self._took_ms,
                    state_rows=self._counter.open_events(),
                )
            ]

    def dropped(self) -> Dropped:
        with self._lock:
            verdicts = self._counter.verdicts
            return Dropped(late=verdicts[Verdict.LATE], duplicates=verdicts[Verdict.DUPLICATE])

    def count_tables(self) -> TableCounts | None:
        return None

    def check(self) -> None:
        if self._error:
            raise PipelineFailed(self._error)

    def finish(self, timeout_s: float) -> bool:
        deadline_s = self._clock() + timeout_s
        ends = _end_offsets(self._address)
        while self._clock() < deadline_s:
            self.check()
            with self._lock:
                if all(self._positions.get(place, 0) >= end for place, end in ends.items()):
                    return True
            self._stopping.wait(0.05)
        return False

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(REQUEST_TIMEOUT_S * 2)

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "client.id": GROUP,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        producer = Producer({"bootstrap.servers": self._address, "client.id": GROUP, "linger.ms": 5, "log_level": 0})
        try:
            consumer.subscribe(list(EVENTS))
            while not self._stopping.is_set():
                messages = consumer.consume(BATCH_MAX, BATCH_WAIT_S)
                self._counter.expect((place.topic, place.partition) for place in consumer.assignment())
                self._take(messages, producer)
                if messages:
                    producer.flush(REQUEST_TIMEOUT_S)
                    consumer.commit(asynchronous=True)
                    self._committed_s = self._committed_s or self._clock()
                self._look_at(consumer)
        except KafkaException as error:
            self._error = f"the consumer group stopped: {error.args[0].str()}"
        finally:
            consumer.close()

    def _take(self, messages: list[Message], producer: Producer) -> None:
        began_s = self._clock()
        with self._lock:
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                topic, partition, offset = origin_of(message)
                verdict, reason = self._counter.take(message.value(), (topic, partition))
                self._positions[topic, partition] = offset + 1
                if verdict is Verdict.BAD:
                    headers = dead_letter_headers(topic, partition, offset, reason)
                    producer.produce(DEAD_LETTERS, message.value(), message.key(), headers=headers)
            self._counter.close()
            for hour in self._counter.finished_hours():
                figures = hour.revenue()
                key = str(figures["hour"])
                producer.produce(REVENUE, msgspec.json.encode(figures), key)
                producer.produce(TOP_PRODUCTS, msgspec.json.encode(hour.top()), key)
            for session in self._counter.finished_sessions():
                producer.produce(SESSIONS, msgspec.json.encode(session.result()), session.customer)
                producer.poll(0)
            if messages:
                took_s = max(self._clock() - began_s, 1e-6)
                self._batch += 1
                self._rows += len(messages)
                self._took_ms = round(took_s * 1000)
                self._rows_per_s = len(messages) / max(took_s, BATCH_WAIT_S)

    def _look_at(self, consumer: Consumer) -> None:
        lag = 0
        for place in consumer.assignment():
            # What the last fetches told; asking would cost a request each.
            _, end = consumer.get_watermark_offsets(place, cached=True)
            position = self._positions.get((place.topic, place.partition), 0)
            if end >= 0:
                lag += max(0, end - position)
        with self._lock:
            self._lag = lag


def _end_offsets(address: str) -> dict[tuple[str, int], int]:
    """Where the topics of events end now."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "shop-ends", "log_level": 0})
    try:
        topics = consumer.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        return {
            (name, partition): consumer.get_watermark_offsets(
                TopicPartition(name, partition), timeout=REQUEST_TIMEOUT_S
            )[1]
            for name in EVENTS
            for partition in topics[name].partitions
        }
    finally:
        consumer.close()
