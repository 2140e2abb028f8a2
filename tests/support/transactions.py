"""A model of Kafka's transactions, as small as it can be, for tests of what writes with them.

One transactional id, one log. A transaction is in the log as a whole when it is committed; `init_transactions` bumps
the epoch, aborts what an older epoch left open, and fences it. Faults are told to a producer's calls in advance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from penstock.pipeline.markers import Marker
from penstock.spark.producing import Deliveries, Header, Payload

MARKERS = "markers"


class Killed(BaseException):
    """The process is gone: no code of it runs after this, not even a `finally`."""


class Written(NamedTuple):
    topic: str
    key: Payload
    value: Payload


@dataclass
class Fault:
    """What a call meets: an error, before it had any effect or after it had all of it; or the end of its process."""

    error: KafkaError | None = None
    after: bool = False

    def strike(self) -> None:
        if self.error is None:
            raise Killed
        raise KafkaException(self.error)


@dataclass
class FakeKafka:
    """The cluster: outlives its producers."""

    epoch: int = 0
    transactions: list[list[Written]] = field(default_factory=list)
    open: list[Written] | None = None
    aborted_count: int = 0
    name: str = MARKERS

    def records(self) -> list[Written]:
        return [record for one in self.transactions for record in one if record.topic != MARKERS]

    def read(self, key: bytes) -> Marker | None:
        found = [record for one in self.transactions for record in one if (record.topic, record.key) == (MARKERS, key)]
        if not found:
            return None
        assert isinstance(found[-1].value, bytes)
        return Marker.decode(key, found[-1].value)


@dataclass
class FakeProducer:
    """One producer of one process. `faults` are taken by call, in order; None lets a call pass."""

    kafka: FakeKafka
    deliveries: Deliveries
    faults: dict[str, list[Fault | None]] = field(default_factory=dict)
    on_call: Callable[[str], None] = lambda name: None
    epoch: int = -1
    in_transaction: bool = False
    dead: bool = False
    calls: list[str] = field(default_factory=list)
    undelivered: list[KafkaError] = field(default_factory=list)
    """Errors that `flush` reports, one for each record that did not arrive."""
    fatal_in_flush: str = "reported"
    """Or `raised`, `wrapped` in a SystemError, or `mute` and then never told again by `flush`: what a real one does
    depends on what else it has to report."""

    def init_transactions(self, timeout: float = -1) -> None:
        with _Call(self, "init", fenced=False):
            self.kafka.epoch += 1
            self.epoch = self.kafka.epoch
            self._drop()

    def begin_transaction(self) -> None:
        with _Call(self, "begin"):
            assert not self.in_transaction
            self.in_transaction = True

    def produce(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        partition: int = -1,
        *,
        headers: list[Header] | None = None,
    ) -> None:
        with _Call(self, "mark" if topic == MARKERS else "produce"):
            assert self.in_transaction
            self.kafka.open = [*(self.kafka.open or []), Written(topic, key, value)]

    def poll(self, timeout: float = -1) -> int:
        return 0

    def flush(self, timeout: float = -1) -> int:
        """What did not arrive is told to `deliveries`."""
        try:
            with _Call(self, "flush"):
                while self.undelivered:
                    self.deliveries(self.undelivered.pop(0), None)
        except KafkaException as error:
            if error.args[0].fatal() and self.fatal_in_flush == "raised":
                raise
            if error.args[0].fatal() and self.fatal_in_flush == "wrapped":
                raise SystemError("a callback returned a result with an exception set") from error
            if error.args[0].fatal() and self.fatal_in_flush in ("mute", "muted"):
                if self.fatal_in_flush == "muted":
                    return 0
                self.fatal_in_flush = "muted"
                raise SystemError("flush returned NULL without setting an exception") from None
            self.deliveries(error.args[0], None)
        return 0

    def commit_transaction(self, timeout: float = -1) -> None:
        with _Call(self, "commit"):
            if self.in_transaction:
                self.kafka.transactions.append(self.kafka.open or [])
                self.kafka.open = None
                self.in_transaction = False

    def abort_transaction(self, timeout: float = -1) -> None:
        with _Call(self, "abort"):
            self._drop()
            self.in_transaction = False

    def let_go(self) -> None:
        if self.dead:
            raise Killed

    def _drop(self) -> None:
        if self.kafka.open is not None:
            self.kafka.aborted_count += 1
            self.kafka.open = None


class _Call:
    """A call to the producer: dead processes make none, fenced producers fail, and faults strike before or after."""

    def __init__(self, producer: FakeProducer, name: str, *, fenced: bool = True) -> None:
        self._producer = producer
        self._name = name
        self._can_be_fenced = fenced

    def __enter__(self) -> None:
        producer = self._producer
        if producer.dead:
            raise Killed
        producer.calls.append(self._name)
        producer.on_call(self._name)
        faults = producer.faults.get(self._name, [])
        self._fault = faults.pop(0) if faults else None
        if self._fault is not None and not self._fault.after:
            self._fault.strike()
        if self._can_be_fenced and producer.epoch != producer.kafka.epoch:
            raise KafkaException(FENCED)

    def __exit__(self, *what: object) -> None:
        if what[0] is None and self._fault is not None:
            self._fault.strike()


def kafka_error(code: int, *, fatal: bool = False, retriable: bool = False, abort: bool = False) -> KafkaError:
    return KafkaError(code, f"error {code}", fatal, retriable, abort)


FENCED = kafka_error(KafkaError._FENCED, fatal=True)
TIMED_OUT = kafka_error(KafkaError._TIMED_OUT, retriable=True)
ABORTABLE = kafka_error(KafkaError.NOT_ENOUGH_REPLICAS, abort=True)
TOO_LARGE = kafka_error(KafkaError.MSG_SIZE_TOO_LARGE, abort=True)
FATAL = kafka_error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True)
STRANGE = kafka_error(KafkaError._STATE)
