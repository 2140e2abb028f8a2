"""A producer for threads.

with Producer("localhost:9092") as producer:
    producer.send("orders", b'{"order": 1}', key="berlin").add_callback(print).add_errback(log.error)
    producer.send("orders", b'{"order": 2}', key="berlin").result()
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka import Producer as NativeProducer

from penstock.client.delivery import SyncDelivery, log
from penstock.client.errors import BufferExhausted, ClientError, DeliveryFailed, RequestTimedOut
from penstock.client.metrics import ProducerMetrics
from penstock.client.partitioners import Partitioner
from penstock.client.rate_limit import RateLimit
from penstock.client.sending import ANY_PARTITION, SERVE_EVERY, Headers, Payload, Sending, header_bytes
from penstock.client.transactions import Transaction, Transactions

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer

FLUSH_STEP_S: Final = 0.25
"""flush is called in slices of this length, because librdkafka ignores Ctrl-C while it flushes."""
EVENT_STEP_S: Final = 0.01


class Producer:
    """Sends records in the background, in batches, until they are stored or `delivery.timeout.ms` has passed.

    `properties` and keywords are settings, under Java's or librdkafka's names (`linger_ms=0`); for the defaults see
    `penstock.client.defaults`. Thread-safe.

    - `partitioner`: a name that librdkafka knows, or a function; see `penstock.client.partitioners`.
    - `rate_limit`: an upper limit on the send rate; `send` waits to keep it.
    - `quota_bytes_per_s`: the broker's quota for this client, if you know it; 90 % of it is used. Otherwise it is
      estimated the first time the broker throttles.
    """

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
        self._sending = Sending(
            bootstrap_servers, properties, settings,
            partitioner=partitioner, rate_limit=rate_limit, quota_bytes_per_s=quota_bytes_per_s,
        )  # fmt: skip
        self._deliveries = self._sending.deliveries
        self._account = self._sending.account
        self._produce = self._sending.native.produce
        self._poll = self._sending.poll
        self._transactions = Transactions(self._sending)
        self._closed = False

    @property
    def metrics(self) -> ProducerMetrics:
        return self._sending.metrics

    @property
    def native(self) -> NativeProducer:
        """confluent-kafka's producer, for features that this class lacks: metadata, credentials."""
        return self._sending.native

    def __len__(self) -> int:
        """Records that are neither stored nor failed yet."""
        return len(self._sending.native)

    def __bool__(self) -> bool:
        return True

    def send(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        partition: int = ANY_PARTITION,
        *,
        headers: Headers | None = None,
        timestamp_ms: int = 0,
    ) -> SyncDelivery:
        """Sends a record and returns at once, unless the buffer is nearly full or a rate limit applies.

        Raises BufferExhausted if there is no room within `max.block.ms`, and DeliveryFailed for a record that cannot be
        sent at all (too large, say). Text is encoded as UTF-8; a None value deletes the key in a compacted topic.
        """
        if value.__class__ is str:
            value = value.encode()
        if key.__class__ is str:
            key = key.encode()
        size = (len(value) if value else 0) + (len(key) if key else 0)
        if headers:
            size += header_bytes(headers)
        if self._sending.careful:
            partition = self._careful(topic, value, key, partition, size)  # type: ignore[arg-type]
        delivery = SyncDelivery(topic, size, self._deliveries)
        account = self._account
        account.used_bytes = used = account.used_bytes + size
        account.total_bytes += size
        account.total_records = number = account.total_records + 1
        try:
            try:
                self._produce(topic, value, key, partition, delivery, None, timestamp_ms, headers)  # type: ignore[arg-type]
            except BufferError:
                self._when_there_is_room(delivery, value, key, partition, timestamp_ms, headers)
        except KafkaException as problem:
            account.put_back(size)
            raise self._sending.refusal(topic, problem) from problem
        except BaseException:
            account.put_back(size)
            raise
        if not number % SERVE_EVERY:
            self._poll(0)
        if used >= account.high_bytes:
            self._slow_down()
        return delivery

    def transaction(self, consumer: Consumer | None = None) -> Transaction:
        """A transaction for a `with` block: commits at its end, aborts if it raises. Needs a `transactional.id`.

        With a `consumer`, the offsets of all records that it has delivered are part of the transaction, and an abort
        makes it deliver them again. See `penstock.client.transactions` for errors.
        """
        return Transaction(self._transactions, consumer)

    def init_transactions(self) -> None:
        """Fences older producers with the same `transactional.id`, and waits until their transactions are resolved.

        The first `transaction` does the same. Call it at the start of a program to learn of problems early.
        """
        self._transactions.init()

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until all records are stored or have failed.

        Raises DeliveryFailed if records failed and neither a callback nor a caller saw it, and RequestTimedOut after
        `timeout_s`.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while left := self._sending.flush(FLUSH_STEP_S):
            if deadline_s is not None and time.monotonic() >= deadline_s:
                raise RequestTimedOut.for_records(left, timeout_s)
        self._deliveries.raise_unheard()

    def close(self, timeout_s: float | None = None) -> None:
        """Flushes, then stops the producer, even if the flush raises; raises what `flush` raises."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._transactions.fatal is None:
                self.flush(timeout_s)
        finally:
            self._sending.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close()
        except ClientError as problem:
            # The exception being raised is more useful than this one.
            log.error("%s", problem)

    def _careful(self, topic: str, value: bytes | None, key: bytes | None, partition: int, size: int) -> int:
        sending = self._sending
        wait_s = sending.wait_s(size)
        if partition == ANY_PARTITION and sending.decides_partition():
            count = sending.known_partitions(topic)
            partition = sending.place(topic, key, value, sending.ask_partitions(topic) if count is None else count)
        if wait_s > 0 and not sending.serves_here():
            time.sleep(wait_s)
        return partition

    def _when_there_is_room(
        self,
        delivery: SyncDelivery,
        value: Payload,
        key: Payload,
        partition: int,
        timestamp_ms: int,
        headers: Headers | None,
    ) -> None:
        started_s = time.monotonic()
        deadline_s = started_s + self._sending.max_block_s
        while True:
            now_s = time.monotonic()
            if now_s >= deadline_s or self._sending.serves_here():
                self.metrics.exhausted += 1
                blocked_ms = (now_s - started_s) * 1000
                raise BufferExhausted(delivery.topic, delivery.size_bytes, self._account.size_bytes, blocked_ms)
            self._wait_for_events(deadline_s - now_s)
            try:
                self._produce(delivery.topic, value, key, partition, delivery, None, timestamp_ms, headers)  # type: ignore[arg-type]
                return
            except BufferError:
                continue

    def _slow_down(self) -> None:
        """Waits a little because the buffer is nearly full; stops early if it empties."""
        if self._sending.serves_here():
            return
        self.metrics.slowed_records += 1
        pause_ms = self._account.next_pause_ms()
        if not pause_ms:
            return
        started_s = time.monotonic()
        deadline_s = started_s + pause_ms / 1000
        while (now_s := time.monotonic()) < deadline_s and self._account.used_bytes >= self._account.high_bytes:
            self._wait_for_events(deadline_s - now_s)
        self.metrics.slowed_ms += (time.monotonic() - started_s) * 1000

    def _wait_for_events(self, timeout_s: float) -> None:
        """Waits for a delivery event. Only briefly, since another thread may have received it."""
        metrics = self.metrics
        metrics.waiting += 1
        self._poll(min(timeout_s, EVENT_STEP_S))
        metrics.waiting -= 1


__all__ = ["DeliveryFailed", "Producer"]
