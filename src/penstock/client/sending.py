"""Shared by `Producer` and `AsyncProducer`: librdkafka's producer, the thread that polls it, limits and counters.

Nothing here waits for room: it returns how long to wait, and each producer waits in its own way.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from penstock.client.buffer import BufferAccount
from penstock.client.delivery import Deliveries
from penstock.client.errors import DeliveryFailed, UnknownTopic
from penstock.client.metrics import ProducerMetrics
from penstock.client.options import Options, producer_options, refused
from penstock.client.partitioners import Partitioner
from penstock.client.quota import QuotaKeeper
from penstock.client.rate_limit import RateLimit, RateLimiter
from penstock.wire.errors import ErrorCode

log = logging.getLogger("penstock.client")

ANY_PARTITION: Final = -1
SERVE_STEP_S: Final = 0.2
"""How long one poll of the thread lasts before it checks other things; an event ends it early."""
SERVE_EVERY: Final = 64
"""A sender polls too, every time this many records were sent since the last poll. A power of two."""
BUSY_RECORDS_PER_S: Final = 5_000.0
STAND_BACK_S: Final = 0.01
PARTITIONS_KEPT_S: Final = 300.0
"""Kafka's metadata.max.age.ms: how long a partition count is cached for the partitioner."""
METADATA_STEP_S: Final = 5.0

Headers = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]
Payload = bytes | str | None


class Sending:
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        properties: Mapping[str, object] | None,
        keywords: Mapping[str, object],
        *,
        partitioner: Partitioner | str | None,
        rate_limit: RateLimit | None,
        quota_bytes_per_s: float | None,
    ) -> None:
        if isinstance(partitioner, str):
            keywords = {**keywords, "partitioner": partitioner}
            partitioner = None
        self.options: Options = producer_options(bootstrap_servers, properties, keywords)
        self.max_block_s = self.options.number("max.block.ms") / 1000
        now_s = time.monotonic()
        self.account = BufferAccount(self.options.number("buffer.memory", smallest=1024))
        self.deliveries = Deliveries(self.account)
        self._lock = threading.Lock()
        self.metrics = ProducerMetrics(self.options.client_id, self.account)
        self._partitioner = partitioner
        self._partitions: dict[str, tuple[int, float]] = {}
        self._limiter = None if rate_limit is None else RateLimiter(rate_limit, now_s)
        self._quota = QuotaKeeper(now_s, quota_bytes_per_s=quota_bytes_per_s)
        self.careful = False
        """Whether limits or a partitioner apply, so that more than the buffer must be checked before a record."""
        self._look()
        try:
            self.native = confluent_kafka.Producer(self._native_settings())
        except KafkaException as problem:
            raise refused(problem) from problem
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name=self.options.client_id, daemon=True)
        self._thread.start()

    def serves_here(self) -> bool:
        """Whether this is the polling thread, which must not wait for delivery events: it delivers them."""
        return threading.current_thread() is self._thread

    def wait_s(self, size_bytes: int) -> float:
        """Accounts for a record in limits and quota; returns how long to wait before sending it."""
        now_s = time.monotonic()
        with self._lock:
            wait_s = 0.0 if self._limiter is None else self._limiter.take(size_bytes, now_s)
            quota_s = self._quota.take(size_bytes, now_s)
        if quota_s > 0:
            self.metrics.slowed_records += 1
            self.metrics.slowed_ms += quota_s * 1000
        return max(wait_s, quota_s)

    def decides_partition(self) -> bool:
        return self._partitioner is not None

    def known_partitions(self, topic: str) -> int | None:
        """The cached number of partitions of a topic; None if it is not known or too old."""
        count, until_s = self._partitions.get(topic, (0, 0.0))
        return count if time.monotonic() < until_s else None

    def ask_partitions(self, topic: str) -> int:
        """The number of partitions of a topic; waits for the response, up to `max.block.ms`."""
        deadline_s = time.monotonic() + self.max_block_s
        while True:
            left_s = max(0.001, deadline_s - time.monotonic())
            reason: str
            try:
                found = self.native.list_topics(topic, timeout=min(left_s, METADATA_STEP_S)).topics[topic]
            except KafkaException as problem:
                reason = problem.args[0].str()
            else:
                if found.error is None and found.partitions:
                    self._partitions[topic] = (len(found.partitions), time.monotonic() + PARTITIONS_KEPT_S)
                    return len(found.partitions)
                reason = found.error.str() if found.error is not None else "it has no partitions"
            if time.monotonic() >= deadline_s:
                raise UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason, topic=topic)
            time.sleep(min(0.1, left_s))

    def place(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        assert self._partitioner is not None
        partition = self._partitioner(topic, key, value, partitions)
        if not 0 <= partition < partitions:
            raise ValueError(f"the partitioner chose partition {partition} of {topic}, which has {partitions}")
        return partition

    def flush(self, timeout_s: float) -> int:
        """Sends queued records without lingering; returns how many are left after `timeout_s`."""
        try:
            if not self.native.flush(timeout_s):
                return 0
        except (KafkaException, SystemError) as problem:
            log.debug("while flushing: %s", problem)
        # librdkafka's count includes undelivered events, such as errors, which are not records.
        self.poll(0)
        return len(self.native)

    def poll(self, timeout_s: float) -> int:
        """Delivers events; returns their number.

        confluent-kafka raises a fatal error (a fenced producer) out of whichever poll comes first, besides passing it
        to `error_cb`. The records in flight are reported by the polls after that one.
        """
        try:
            return self.native.poll(timeout_s)
        except (KafkaException, SystemError) as problem:
            log.debug("while polling: %s", problem)
            return 1

    def stop(self) -> None:
        """Ends the thread; records that were not sent are dropped."""
        if self._closing:
            return
        self._closing = True
        if not self.serves_here():
            self._thread.join()
        self.native.purge()
        self.flush(1)
        # Older supported versions of confluent-kafka lack it; there, the connections close with the object.
        close = getattr(self.native, "close", None)
        if close is not None:
            with warnings.catch_warnings():
                # It warns if an open transaction cannot be aborted. Whoever left it open was told why.
                warnings.simplefilter("ignore", RuntimeWarning)
                close()

    def refusal(self, topic: str, problem: KafkaException) -> DeliveryFailed:
        """The error for a record that librdkafka did not accept at all."""
        self.account.failed_records += 1
        return DeliveryFailed.of(topic, problem.args[0])

    def _serve(self) -> None:
        """Polls for delivery callbacks, unless senders do it.

        Two threads that compete for the interpreter at every record would spend more time switching than sending. So
        this thread holds back while senders are fast enough to poll with every `SERVE_EVERY` records.
        """
        account = self.account
        sampled_s = looked_s = time.monotonic()
        looked = 0
        while not self._closing:
            now_s, sent = time.monotonic(), account.total_records
            busy = sent - looked > BUSY_RECORDS_PER_S * (now_s - looked_s)
            looked_s, looked = now_s, sent
            if busy:
                time.sleep(STAND_BACK_S)
            elif not self.poll(SERVE_STEP_S) and not len(self.native) and account.total_records == sent:
                account.settle()
            if now_s - sampled_s >= 1.0:
                sampled_s = now_s
                with self._lock:
                    self._quota.sample(account.total_bytes, now_s)
                    self._look()

    def _look(self) -> None:
        self.careful = self._limiter is not None or self._partitioner is not None or self._quota.active
        self.metrics.quota_bytes_per_s = self._quota.quota_bytes_per_s

    def _native_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {**self.options.native, **self.options.callbacks}
        stats_cb: Any = self.options.callbacks.get("stats_cb")
        throttle_cb: Any = self.options.callbacks.get("throttle_cb")
        error_cb: Any = self.options.callbacks.get("error_cb")

        def statistics(text: str) -> None:
            self.metrics.take_statistics(text)
            if stats_cb is not None:
                stats_cb(text)

        def throttled(event: confluent_kafka.ThrottleEvent) -> None:
            with self._lock:
                self._quota.throttled(event.throttle_time, self.account.total_bytes, time.monotonic())
                self._look()
            if throttle_cb is not None:
                throttle_cb(event)

        def complaint(error: KafkaError) -> None:
            if error_cb is not None:
                error_cb(error)
            else:
                log.log(logging.ERROR if error.fatal() else logging.WARNING, "%s", error.str())

        return {**settings, "stats_cb": statistics, "throttle_cb": throttled, "error_cb": complaint}


def header_bytes(headers: Headers) -> int:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return sum(len(name) + len(value or b"") for name, value in pairs)
