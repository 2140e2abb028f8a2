"""A producer that sends at a steady rate and remembers when each record was sent and acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaError, Message, Producer

END_TIMEOUT_S: Final = 60
RECORD: Final = b"x" * 100


@dataclass(frozen=True, slots=True)
class Delivery:
    sent_s: float
    told_s: float
    failed: bool


class SteadyProducer:
    """Sends to some partitions in turn, in a thread of its own, while the `with` block lasts."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: list[int], rate: float, properties: Mapping[str, Any]
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._pause_s = 1 / rate
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0, **properties}
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.deliveries: list[Delivery] = []
        """In the order in which they were told."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        next_s, count = time.monotonic(), 0
        while not self._stopping.is_set():
            partition = self._partitions[count % len(self._partitions)]
            count += 1
            try:
                self._send(partition)
            except BufferError:
                self._producer.poll(self._pause_s)
            next_s += self._pause_s
            while (left_s := next_s - time.monotonic()) > 0 and not self._stopping.is_set():
                self._producer.poll(left_s)
        self._producer.flush(END_TIMEOUT_S)

    def _send(self, partition: int) -> None:
        sent_s = time.monotonic()

        def told(error: KafkaError | None, _: Message) -> None:
            self.deliveries.append(Delivery(sent_s, time.monotonic(), error is not None))

        self._producer.produce(self._topic, RECORD, partition=partition, on_delivery=told)

    def wait_for_success(self, sent_after_s: float, timeout_s: float) -> float | None:
        """When the first record was acknowledged that was sent after this; None if that took too long."""
        seen, deadline_s = 0, time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            while seen < len(self.deliveries):
                one = self.deliveries[seen]
                seen += 1
                if one.sent_s > sent_after_s and not one.failed:
                    return one.told_s
            time.sleep(0.002)
        return None


def longest_pause_s(deliveries: list[Delivery], from_s: float, to_s: float) -> float:
    """The longest time without a successful answer in this span; one that begins before or ends after it counts."""
    told_s = [one.told_s for one in deliveries if not one.failed]
    pauses = [(a, b) for a, b in pairwise(told_s) if b >= from_s and a <= to_s]
    return max((b - a for a, b in pauses), default=to_s - from_s)
