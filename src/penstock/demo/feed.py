"""The generator's events on their way to the broker, at the time they are due."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from penstock.demo.accounts import Sent
from penstock.demo.generator import Generator, Outgoing

TICK_S: Final = 0.02
FLUSH_TIMEOUT_S: Final = 20.0
BATCH_MAX: Final = 2_000
"""Events between two looks at the clock, so that a stop is noticed when the feed is behind."""

SETTINGS: Final = {
    "client.id": "shop",
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 20,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",
    "log_level": 0,
}


class Feed:
    """Sends in a thread of its own until it is stopped. Only what the broker acknowledged counts as sent."""

    def __init__(
        self,
        address: str,
        generator: Generator,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._generator = generator
        self._events: Iterator[Outgoing] = iter(generator)
        self._next = next(self._events)
        self._clock = clock
        self._producer = Producer({"bootstrap.servers": address, **SETTINGS})
        self._sent = Sent()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-feed", daemon=True)
        self._started_s = 0.0
        self._ended_s: float | None = None
        self.ends_s: float | None = None
        """How long events will have been sent when they end, once that is known."""
        self.error: BaseException | None = None

    def start(self) -> None:
        self._started_s = self._clock()
        self._thread.start()

    @property
    def elapsed_s(self) -> float:
        """How long events have been sent."""
        return (self._ended_s or self._clock()) - self._started_s

    @property
    def finished(self) -> bool:
        return not self._thread.is_alive()

    def sent(self) -> Sent:
        """The books as they are now."""
        with self._lock:
            return deepcopy(self._sent)

    def end_in(self, seconds: float) -> None:
        """Send for so long from now on, and no longer."""
        self.ends_s = self.elapsed_s + seconds

    def stop(self) -> None:
        """No further events; what is under way arrives, and its count with it."""
        self._stopping.set()
        self._thread.join(FLUSH_TIMEOUT_S + 5)

    def close_windows(self) -> None:
        """Sends the heartbeat that closes every window; it is no event of the shop and not in the books."""
        assert self.finished, "events that come after the heartbeat would be late"
        closing = self._generator.closing(self.elapsed_s)
        self._producer.produce(closing.topic, closing.value, closing.key)
        self._producer.flush(FLUSH_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                now_s = self._clock() - self._started_s
                if self.ends_s is not None and now_s >= self.ends_s:
                    self._send_until(self.ends_s)
                    break
                self._send_until(now_s)
                self._producer.poll(0)
                self._stopping.wait(TICK_S)
        except BaseException as error:
            self.error = error
        finally:
            self._producer.flush(FLUSH_TIMEOUT_S)
            self._ended_s = self._clock()

    def _send_until(self, elapsed_s: float) -> None:
        for _ in range(BATCH_MAX):
            event = self._next
            if event.send_at_s > elapsed_s:
                return
            try:
                self._producer.produce(event.topic, event.value, event.key, on_delivery=self._on_delivery(event))
            except BufferError:
                # The broker is slower than the shop: wait for it, as every producer must.
                self._producer.poll(0.1)
                return
            self._next = next(self._events)
            self._producer.poll(0)

    def _on_delivery(self, event: Outgoing) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            with self._lock:
                if error is None:
                    self._sent.add(event)
                else:
                    self._sent.failed += 1

        return delivered
