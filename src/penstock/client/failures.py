"""What a processor does with a record whose handler fails.

    Processor(consumer, handle)                                              # stops: nothing is skipped
    Processor(consumer, handle, attempts=5)                                  # retries first, with a back-off
    Processor(consumer, handle, on_failure=SKIP)                             # logs the failure and continues
Processor(consumer, handle, on_failure=DeadLetters(producer, "orders.dead"))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from confluent_kafka import Message

PREFIX: Final = "penstock.error."
"""The headers of the pipeline's dead letters, so that one tool reads both."""
REASON_CHARACTERS_MAX: Final = 1000


class Then(Enum):
    STOP = "stop"
    SKIP = "skip"


STOP: Final = Then.STOP
SKIP: Final = Then.SKIP

P = TypeVar("P")


@dataclass(frozen=True)
class DeadLetters(Generic[P]):
    """Sends failed records unchanged to another topic, with reason and origin in headers; they then count as done.

    `producer` is a `Producer` for a `Processor` and an `AsyncProducer` for an `AsyncProcessor`. `topic` is a name, or a
    function of the record's own topic.
    """

    producer: P
    topic: str | Callable[[str], str]

    def letter(self, message: Message, reason: BaseException, attempts: int) -> dict[str, Any]:
        """The arguments for the producer's `send`."""
        source = message.topic()
        assert source is not None
        facts = {
            "reason": f"{type(reason).__name__}: {reason}"[:REASON_CHARACTERS_MAX],
            "topic": source,
            "partition": str(message.partition()),
            "offset": str(message.offset()),
            "timestamp": str(message.timestamp()[1]),
            "attempts": str(attempts),
        }
        given = message.headers() or []
        headers: list[tuple[str, Any]] = list(given.items() if isinstance(given, dict) else given)
        headers += [(PREFIX + name, fact.encode()) for name, fact in facts.items()]
        topic = self.topic if isinstance(self.topic, str) else self.topic(source)
        return {"topic": topic, "value": message.value(), "key": message.key(), "headers": headers}


@dataclass(frozen=True)
class Backoff:
    """The wait before a retry: doubled each time, up to a limit."""

    first_ms: float = 100.0
    max_ms: float = 10_000.0

    def before(self, attempt: int) -> float:
        """The wait in ms before attempt number `attempt`; 0 before the first (1)."""
        if attempt <= 1:
            return 0.0
        return min(self.max_ms, self.first_ms * 2.0 ** min(attempt - 2, 60))
