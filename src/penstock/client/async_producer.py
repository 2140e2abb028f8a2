"""A producer for asyncio.

async with AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send("orders", b'{"order": 1}', key="berlin")     # handed over
        stored = await delivery                                                     # acknowledged
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as NativeProducer

from penstock.client.delivery import Delivery, RecordMetadata, log
from penstock.client.errors import BufferExhausted, ClientError, RequestTimedOut
from penstock.client.metrics import ProducerMetrics
from penstock.client.partitioners import Partitioner
from penstock.client.rate_limit import RateLimit
from penstock.client.sending import ANY_PARTITION, SERVE_EVERY, Headers, Payload, Sending, header_bytes
from penstock.client.transactions import AsyncTransaction, Transactions

if TYPE_CHECKING:
    from penstock.client.async_consumer import AsyncConsumer

FLUSH_STEP_S: Final = 0.25
ROOM_STEP_S: Final = 0.05


class AsyncDelivery(Delivery, gc=False, eq=False):
    """The delivery of one record; awaiting it gives its `RecordMetadata`. Callbacks run in the event loop."""

    _owner: AsyncProducer | None = None
    _outcome: tuple[KafkaError | None, Message] | None = None

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            assert self._owner is not None
            told: asyncio.Future[None] = self._owner._loop.create_future()

            def tell(_: object) -> None:
                if not told.done():
                    told.set_result(None)

            self._listen(tell, tell)
            yield from told
        return self.metadata()

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Called by librdkafka in its own thread; does only what must be done there."""
        self._shared.account.used_bytes -= self.size_bytes
        self._outcome = (error, message)
        assert self._owner is not None
        self._owner._has_arrived(self)

    def settle(self) -> None:
        """Completes the delivery in the event loop."""
        assert self._outcome is not None
        error, message = self._outcome
        self._outcome = self._owner = None
        if error is None:
            self._message = message
        else:
            self._fail(error)
        if self._listeners is not None:
            self._tell()


class AsyncProducer:
    """Like `penstock.client.Producer`, but never blocks the event loop. Create and use it in one loop."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        properties: Mapping[str, object] | None = None,
        *,
        partitioner: Partitioner | str | None = None,
        rate_limit: RateLimit | None = None,
        quota_bytes_per_s: float | None = None,
        **settings: Any,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sending = Sending(
            bootstrap_servers, properties, settings,
            partitioner=partitioner, rate_limit=rate_limit, quota_bytes_per_s=quota_bytes_per_s,
        )  # fmt: skip
        self._account = self._sending.account
        self._produce = self._sending.native.produce
        self._arrived: deque[AsyncDelivery] = deque()
        self._told = False
        self._room = asyncio.Event()
        self._transactions = Transactions(self._sending)
        self._closed = False

    @property
    def metrics(self) -> ProducerMetrics:
        return self._sending.metrics

    @property
    def native(self) -> NativeProducer:
        """confluent-kafka's producer, for features that this class lacks; its calls may block."""
        return self._sending.native

    def __len__(self) -> int:
        """Records that are neither stored nor failed yet."""
        return len(self._sending.native)

    def __bool__(self) -> bool:
        return True

    async def send(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        partition: int = ANY_PARTITION,
        *,
        headers: Headers | None = None,
        timestamp_ms: int = 0,
    ) -> AsyncDelivery:
        """Hands a record over; waits only if the buffer is nearly full or a rate limit applies. See `Producer.send`."""
        if isinstance(value, str):
            value = value.encode()
        if isinstance(key, str):
            key = key.encode()
        size = (len(value) if value else 0) + (len(key) if key else 0)
        if headers:
            size += header_bytes(headers)
        if self._sending.careful:
            partition = await self._careful(topic, value, key, partition, size)
        delivery = AsyncDelivery(topic, size, self._sending.deliveries, _owner=self)
        account = self._account
        account.take(size)
        used, number = account.used_bytes, account.total_records
        try:
            await self._hand_over(delivery, value, key, partition, timestamp_ms, headers)
        except KafkaException as problem:
            account.put_back(size)
            raise self._sending.refusal(topic, problem) from problem
        except BaseException:
            account.put_back(size)
            raise
        if not number % SERVE_EVERY:
            self._sending.poll(0)
        if used >= account.high_bytes:
            await self._slow_down()
        return delivery

    async def send_and_wait(
        self, topic: str, value: Payload = None, key: Payload = None, **options: Any
    ) -> RecordMetadata:
        """Sends a record and waits until it is stored."""
        return await (await self.send(topic, value, key, **options))

    def transaction(self, consumer: AsyncConsumer | None = None) -> AsyncTransaction:
        """A transaction for an `async with` block; see `Producer.transaction`."""
        return AsyncTransaction(self._transactions, consumer)

    async def init_transactions(self) -> None:
        """See `Producer.init_transactions`."""
        await asyncio.to_thread(self._transactions.init)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Waits until all records are stored or have failed; raises what `Producer.flush` raises."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while left := await self._loop.run_in_executor(None, self._sending.flush, FLUSH_STEP_S):
            if deadline_s is not None and time.monotonic() >= deadline_s:
                raise RequestTimedOut.for_records(left, timeout_s)
        self._settle()
        self._sending.deliveries.raise_unheard()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flushes, then stops the producer, even if the flush raises; raises what `flush` raises."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._transactions.fatal is None:
                await self.flush(timeout_s)
        finally:
            await self._loop.run_in_executor(None, self._sending.stop)
            self._settle()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
            return
        try:
            await self.close()
        except ClientError as problem:
            log.error("%s", problem)

    async def _careful(self, topic: str, value: bytes | None, key: bytes | None, partition: int, size: int) -> int:
        sending = self._sending
        wait_s = sending.wait_s(size)
        if partition == ANY_PARTITION and sending.decides_partition():
            count = sending.known_partitions(topic)
            if count is None:
                count = await self._loop.run_in_executor(None, sending.ask_partitions, topic)
            partition = sending.place(topic, key, value, count)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        return partition

    async def _hand_over(
        self,
        delivery: AsyncDelivery,
        value: Payload,
        key: Payload,
        partition: int,
        timestamp_ms: int,
        headers: Headers | None,
    ) -> None:
        started_s = time.monotonic()
        while True:
            try:
                self._produce(delivery.topic, value, key, partition, delivery, None, timestamp_ms, headers)  # type: ignore[arg-type]
                return
            except BufferError:
                blocked_s = time.monotonic() - started_s
                if blocked_s >= self._sending.max_block_s:
                    self.metrics.exhausted += 1
                    raise BufferExhausted(
                        delivery.topic, delivery.size_bytes, self._account.size_bytes, blocked_s * 1000
                    ) from None
            await self._wait_for_arrivals(min(ROOM_STEP_S, self._sending.max_block_s - blocked_s))

    async def _slow_down(self) -> None:
        self.metrics.slowed_records += 1
        pause_ms = self._account.next_pause_ms()
        if not pause_ms:
            return
        started_s = time.monotonic()
        deadline_s = started_s + pause_ms / 1000
        while (now_s := time.monotonic()) < deadline_s and self._account.used_bytes >= self._account.high_bytes:
            await self._wait_for_arrivals(deadline_s - now_s)
        self.metrics.slowed_ms += (time.monotonic() - started_s) * 1000

    async def _wait_for_arrivals(self, timeout_s: float) -> None:
        self._room.clear()
        self.metrics.waiting += 1
        try:
            await asyncio.wait_for(self._room.wait(), timeout_s)
        except TimeoutError:
            pass
        finally:
            self.metrics.waiting -= 1

    def _has_arrived(self, delivery: AsyncDelivery) -> None:
        """Runs in librdkafka's thread. Wakes the loop once for all pending deliveries: each wake-up is a write."""
        self._arrived.append(delivery)
        if not self._told:
            self._told = True
            try:
                self._loop.call_soon_threadsafe(self._settle)
            except RuntimeError:
                log.debug("the event loop is closed; dropped the delivery report for %s", delivery.topic)

    def _settle(self) -> None:
        # Cleared before the queue is read: deliveries from here on wake the loop again.
        self._told = False
        while self._arrived:
            self._arrived.popleft().settle()
        self._room.set()
