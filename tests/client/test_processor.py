"""Work side by side, in order of keys, against brokers; with threads and with asyncio."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable

import pytest
from confluent_kafka import Message

from client.test_consumer import committed, number, reader
from penstock.client import (
    SKIP,
    AsyncConsumer,
    AsyncIdempotent,
    AsyncProcessor,
    AsyncProducer,
    Backoff,
    Consumer,
    DeadLetters,
    Idempotent,
    Order,
    ProcessingFailed,
    Processor,
    Producer,
    RecentIds,
)
from penstock.client.idempotence import header
from support.waiting import wait_until

KEYS = 7


def fill(bootstrap: str, topic: str, count: int, *, start: int = 0) -> None:
    with Producer(bootstrap) as producer:
        for one in range(start, start + count):
            producer.send(topic, str(one), f"key {one % KEYS}", headers=[("id", str(one // 2).encode())])


def group_name() -> str:
    return f"g-{uuid.uuid4().hex[:10]}"


class Log:
    """What handlers did, in the order in which they finished."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_key: dict[bytes | None, list[int]] = defaultdict(list)
        self.numbers: list[int] = []
        self.at_once: dict[bytes | None, int] = defaultdict(int)
        self.most_at_once = 0

    def begin(self, message: Message) -> None:
        with self._lock:
            self.at_once[message.key()] += 1
            assert self.at_once[message.key()] == 1, "two records of a key at once"
            self.most_at_once = max(self.most_at_once, sum(self.at_once.values()))

    def end(self, message: Message) -> None:
        with self._lock:
            self.at_once[message.key()] -= 1
            self.by_key[message.key()].append(number(message))
            self.numbers.append(number(message))

    def handle(self, message: Message) -> None:
        self.begin(message)
        self.end(message)

    async def handle_async(self, message: Message) -> None:
        self.begin(message)
        await asyncio.sleep(0)
        self.end(message)

    def in_order(self) -> bool:
        return all(numbers == sorted(numbers) for numbers in self.by_key.values())


def run_until(processor: Processor, done: Callable[[], object]) -> None:
    """Runs it in this thread; another one stops it when that is true."""

    def watch() -> None:
        try:
            wait_until(done)
        finally:
            processor.stop()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        processor.run()
    finally:
        processor.stop()
        watcher.join()


def test_all_records_are_done_in_the_order_of_their_keys_and_committed(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic, group, log = create_topic(3), group_name(), Log()
    fill(bootstrap, topic, 300)
    together = threading.Barrier(2, timeout=20)

    def handle(message: Message) -> None:
        log.begin(message)
        if number(message) < 2:
            together.wait()  # two keys at the same time, or never
        log.end(message)

    with reader(bootstrap, topic, group) as consumer:
        run_until(Processor(consumer, handle, workers=4), lambda: len(log.numbers) == 300)
    assert sorted(log.numbers) == list(range(300))
    assert log.in_order()
    assert log.most_at_once >= 2
    assert sum(committed(bootstrap, group, topic, 3)) == 300


def test_nothing_behind_a_record_in_work_is_committed(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, group, log = create_topic(), group_name(), Log()
    fill(bootstrap, topic, 50)
    release = threading.Event()

    def handle(message: Message) -> None:
        if number(message) == 10:
            assert release.wait(30)
        log.handle(message)

    def look() -> bool:
        if release.is_set():
            return len(log.numbers) == 50
        # Those of its key wait behind it; all others are done.
        if len(log.numbers) == 50 - len(range(10, 50, KEYS)) and committed(bootstrap, group, topic) == [10]:
            release.set()
        return False

    with reader(bootstrap, topic, group) as consumer:
        run_until(Processor(consumer, handle, workers=4, commit_interval_ms=10), look)
    assert release.is_set()
    assert committed(bootstrap, group, topic) == [50]


def test_a_full_queue_pauses_the_consumer(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, log = create_topic(), Log()
    fill(bootstrap, topic, 200)
    release = threading.Event()
    most: list[int] = []

    def handle(message: Message) -> None:
        assert release.wait(30)
        log.handle(message)

    with reader(bootstrap, topic) as consumer:
        processor = Processor(consumer, handle, workers=2, queue_limit=20)

        def look() -> bool:
            most.append(processor.queued)
            if processor.paused:
                release.set()
            return len(log.numbers) == 200

        run_until(processor, look)
        assert release.is_set(), "it never paused"
    assert max(most) <= 20
    assert sorted(log.numbers) == list(range(200))
    assert log.in_order()


def test_a_record_that_fails_stops_the_processor_and_is_not_committed(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic, group, log = create_topic(), group_name(), Log()
    fill(bootstrap, topic, 30)
    attempts: list[int] = []

    def handle(message: Message) -> None:
        if number(message) == 9:
            attempts.append(1)
            raise ZeroDivisionError("no")
        log.handle(message)

    with reader(bootstrap, topic, group) as consumer:
        processor = Processor(consumer, handle, attempts=3, backoff=Backoff(first_ms=1))
        with pytest.raises(ProcessingFailed, match=r"@9 failed 3 times: ZeroDivisionError") as failed:
            processor.run()
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert len(attempts) == 3
    assert committed(bootstrap, group, topic)[0] in (-1001, *range(10))
    with reader(bootstrap, topic, group) as consumer:
        run_until(Processor(consumer, log.handle), lambda: set(log.numbers) == set(range(30)))


def test_a_record_that_fails_may_be_skipped_or_kept_elsewhere(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, dead, log = create_topic(), create_topic(), Log()
    fill(bootstrap, topic, 20)

    def handle(message: Message) -> None:
        if number(message) % 5 == 0:
            raise ZeroDivisionError("five")
        log.handle(message)

    with reader(bootstrap, topic) as consumer:
        processor = Processor(consumer, handle, on_failure=SKIP)
        run_until(processor, lambda: processor.finished == 20)
    assert processor.skipped == 4
    with reader(bootstrap, topic) as consumer, Producer(bootstrap) as producer:
        processor = Processor(consumer, handle, on_failure=DeadLetters(producer, dead), attempts=2, backoff=Backoff(1))
        run_until(processor, lambda: processor.finished == 20)
    with reader(bootstrap, dead) as consumer:
        letters = []
        for message in consumer:
            letters.append(message)
            if len(letters) == 4:
                break
    assert sorted(number(letter) for letter in letters) == [0, 5, 10, 15]
    first = min(letters, key=number)
    facts = dict(first.headers() or [])
    assert first.key() == b"key 0"
    assert facts["id"] == b"0", "its own headers stay"
    assert facts["penstock.error.reason"] == b"ZeroDivisionError: five"
    assert (facts["penstock.error.topic"], facts["penstock.error.offset"]) == (topic.encode(), b"0")
    assert facts["penstock.error.attempts"] == b"2"


def test_a_second_processor_takes_over_partitions_without_doing_anything_twice(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic, group, log, others = create_topic(4), group_name(), Log(), Log()
    fill(bootstrap, topic, 200)
    gained: list[object] = []

    def done() -> bool:
        return len(log.numbers) + len(others.numbers) >= 400

    def second() -> None:
        wait_until(lambda: len(log.numbers) >= 50)
        with reader(bootstrap, topic, group, on_assign=gained.extend) as two:
            run_until(Processor(two, others.handle, workers=2), done)

    def more() -> None:
        wait_until(lambda: len(gained) == 2)
        fill(bootstrap, topic, 200, start=200)

    with reader(bootstrap, topic, group) as one:
        threads = [threading.Thread(target=target, daemon=True) for target in (second, more)]
        for thread in threads:
            thread.start()
        run_until(Processor(one, log.handle, workers=2, queue_limit=30), done)
        for thread in threads:
            thread.join()
    assert log.numbers
    assert others.numbers
    assert sorted(log.numbers + others.numbers) == list(range(400)), "an orderly rebalance loses and repeats nothing"
    assert log.in_order()
    assert others.in_order()
    assert sum(committed(bootstrap, group, topic, 4)) == 400


def test_records_that_were_processed_are_skipped(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, log = create_topic(), Log()
    fill(bootstrap, topic, 40)  # every id twice
    handle = Idempotent(log.handle, RecentIds(100), id_of=header("id"))
    with reader(bootstrap, topic) as consumer:
        processor = Processor(consumer, handle, workers=4)
        run_until(processor, lambda: processor.finished == 40)
    assert handle.skipped == 20
    assert sorted(one // 2 for one in log.numbers) == list(range(20))


def test_the_same_with_asyncio(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, dead, group, log = create_topic(3), create_topic(), group_name(), Log()
    fill(bootstrap, topic, 300)

    async def handle(message: Message) -> None:
        await log.handle_async(message)
        if number(message) == 7:
            raise ZeroDivisionError

    async def main() -> None:
        settings = {"auto.offset.reset": "earliest"}
        async with AsyncConsumer(bootstrap, topic, group, settings) as consumer, AsyncProducer(bootstrap) as producer:
            processor = AsyncProcessor(
                consumer, handle, concurrency=10, queue_limit=50, on_failure=DeadLetters(producer, dead)
            )

            async def stop() -> None:
                await asyncio.to_thread(wait_until, lambda: processor.finished == 300)
                processor.stop()

            await asyncio.gather(processor.run(), stop())
            assert processor.skipped == 1

    asyncio.run(main())
    assert sorted(log.numbers) == list(range(300))
    assert log.in_order()
    assert log.most_at_once >= 2
    assert sum(committed(bootstrap, group, topic, 3)) == 300
    with reader(bootstrap, dead) as consumer:
        assert [number(message) for message in consumer.poll(20)] == [7]


def test_an_async_processor_stops_at_a_failure_too(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, group = create_topic(), group_name()
    fill(bootstrap, topic, 10)

    async def handle(message: Message) -> None:
        if number(message) == 3:
            raise ZeroDivisionError

    async def main() -> None:
        async with AsyncConsumer(bootstrap, topic, group, {"auto.offset.reset": "earliest"}) as consumer:
            with pytest.raises(ProcessingFailed, match="@3"):
                await AsyncProcessor(consumer, handle, order=Order.PARTITION).run()

    asyncio.run(main())
    assert committed(bootstrap, group, topic) == [3]


def test_an_async_handler_that_is_idempotent_does_a_record_once() -> None:
    done: list[str] = []

    class Record:
        def __init__(self, record_id: str) -> None:
            self.record_id = record_id

        def headers(self) -> list[tuple[str, bytes]]:
            return [("id", self.record_id.encode())]

    async def handle(message: Message) -> str:
        await asyncio.sleep(0)
        if message.record_id == "bad" and "bad" not in done:  # type: ignore[attr-defined]
            done.append("bad")
            raise ZeroDivisionError
        done.append(message.record_id)  # type: ignore[attr-defined]
        return "done"

    async def main() -> list[object]:
        once = AsyncIdempotent(handle, id_of=header("id"))
        records = [Record("a"), Record("b"), Record("a"), Record("bad"), Record("bad"), Record("b")]
        return await asyncio.gather(*(once(record) for record in records), return_exceptions=True)  # type: ignore[arg-type]

    results = asyncio.run(main())
    assert [str(one) for one in results] == ["done", "done", "None", "", "done", "None"]
    assert sorted(done) == ["a", "b", "bad", "bad"], "what failed is not taken for processed"


def test_ids_are_forgotten_in_the_order_of_their_use() -> None:
    ids = RecentIds(2)
    ids.remember("a")
    ids.remember("b")
    assert ids.seen("a")
    ids.remember("c")
    assert (ids.seen("a"), ids.seen("b"), ids.seen("c"), len(ids)) == (True, False, True, 2)


def test_workers_and_limits_are_at_least_one(bootstrap: str) -> None:
    with Consumer(bootstrap) as consumer, pytest.raises(ValueError, match="at least 1"):
        Processor(consumer, print, workers=0)
