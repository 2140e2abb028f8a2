"""A read_committed reader that looks all the time, and says what it must never see.

The rows under test are `<batch>:<number>:<evaluation>:<random>`. Batch b holds the numbers b·n to (b+1)·n − 1, each
once, all of one evaluation: that is what "whole and once" means, and it is checked record by record as they become
visible. A transaction becomes visible partition by partition, so a batch may be seen in part, but not for long.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

SETTLE_S = 30.0
"""How long the commit of a transaction may take to reach all partitions, from when the broker is up."""


@dataclass
class SeenBatch:
    first_seen_s: float
    evaluations: set[str] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)


class CommittedReader:
    """Reads a topic from its beginning, in a thread, until it is closed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rows_per_batch: int) -> None:
        self.rows_per_batch = rows_per_batch
        self.batches: dict[int, SeenBatch] = {}
        self.violations: list[str] = []
        self.broker_is_down = False
        self._up_since_s = 0.0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "committed-reader",
                "enable.auto.commit": "false",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def check(self) -> None:
        """Nothing that must not be was seen so far."""
        assert self.violations == [], self.violations

    def wait_for(self, batches: int, timeout_s: float = 60.0) -> None:
        """Until this many batches are there, whole; and then nothing more may be."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and self._whole() < batches:
            self.check()
            time.sleep(0.05)
        time.sleep(0.3)
        self.check()
        assert sorted(self.batches) == list(range(batches))
        assert self._whole() == batches

    def _whole(self) -> int:
        return sum(len(seen.numbers) == self.rows_per_batch for seen in list(self.batches.values()))

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            now_s = time.monotonic()
            self._check_halves(now_s)
            if message is None:
                continue
            if message.error() is not None:
                if message.error().code() != KafkaError._ALL_BROKERS_DOWN and not message.error().retriable():
                    self.violations.append(f"reading failed: {message.error()}")
                continue
            self._take(message.value().decode(), now_s)

    def _take(self, text: str, now_s: float) -> None:
        batch_text, number_text, evaluation, _ = text.split(":")
        batch_id, number = int(batch_text), int(number_text)
        seen = self.batches.setdefault(batch_id, SeenBatch(now_s))
        if number in seen.numbers:
            self.violations.append(f"batch {batch_id} shows row {number} twice")
        if number // self.rows_per_batch != batch_id:
            self.violations.append(f"batch {batch_id} shows row {number}, which is not its own")
        seen.numbers.add(number)
        seen.evaluations.add(evaluation)
        if len(seen.evaluations) > 1:
            self.violations.append(f"batch {batch_id} is mixed from several evaluations: {seen.evaluations}")

    def _check_halves(self, now_s: float) -> None:
        if self.broker_is_down:
            self._up_since_s = now_s
            return
        for batch_id, seen in self.batches.items():
            if len(seen.numbers) < self.rows_per_batch and now_s - max(seen.first_seen_s, self._up_since_s) > SETTLE_S:
                self.violations.append(f"half of batch {batch_id} is visible: {len(seen.numbers)} rows")
                seen.first_seen_s = float("inf")
