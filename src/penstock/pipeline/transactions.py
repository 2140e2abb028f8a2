"""One query's batches as transactions of one producer: the order of steps, and what each error leads to.

    opened → initialised → marker read ─┬─ batch ≤ marker: evaluated, nothing written
                                        └─ batch > marker: evaluated once, then
         begun → produced → flushed → marked → committed
           └──────────┴─────────┴────────┴── an abortable error: aborting → aborted, and again from `begun`

What librdkafka says of an error decides (it tells three kinds apart, and "treat any other error as a fatal error"):

| the error | is met by |
|---|---|
| retriable (initialising, committing, aborting) | calling again, until a deadline |
| requires abort | aborting, and writing the same rows again: they are in memory, the plan is not evaluated again |
| requires abort, and would come again (a record too large, no permission, …) | aborting; the query fails |
| fatal: fenced | the query fails: another driver has taken over, and this one must not write again |
| fatal, or none of these | the producer is given up; the query fails, and a restart asks the marker what was written |

From the moment a commit is asked for, only a clear answer says what became of the batch: an answer may get lost on its
way, and what librdkafka tells then is about its next question. So an error of the commit that is no plain refusal is
told as an outcome that is not known, and nothing is aborted or written again on such a word.

Nothing is remembered across a failure but what the marker says: a writer whose producer was given up initialises again
before it writes again. The marker goes last, after all rows are acknowledged, because from then until the commit its
partition is held back for everyone who reads markers.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import KafkaError, KafkaException

from penstock.pipeline.markers import Marker
from penstock.pipeline.topic_errors import DriverFenced, OutcomeUnknown, TopicSinkError, TransactionFailed
from penstock.spark.producing import (
    Deliveries,
    DeliveryFailed,
    ProducerLike,
    RecordColumns,
    RecordSender,
    telling,
    told_by_librdkafka,
)

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPTS_MAX: Final = 3
CALL_TIMEOUT_S: Final = 10.0
"""Of one call; a call that is not done by then is retriable, and made again."""
INITIALISE_TIMEOUT_S: Final = 120.0
COMMIT_TIMEOUT_S: Final = 120.0
ABORT_TIMEOUT_S: Final = 60.0

NOTHING_WRITTEN: Final = -1

FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
WOULD_COME_AGAIN: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)

log = logging.getLogger("penstock.pipeline")


class Step(enum.Enum):
    """Where a writer is; whoever watches is told right after each."""

    OPENED = "opened"
    INITIALISED = "initialised"
    MARKER_READ = "marker read"
    PASSED_OVER = "passed over"
    """The batch was in its topic already: evaluated, and nothing written."""
    EVALUATED = "evaluated"
    BEGUN = "begun"
    PRODUCED = "produced"
    FLUSHED = "flushed"
    MARKED = "marked"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


Watch = Callable[[Step, int], None]
"""Called with each step and the batch it belongs to."""


class TransactionalProducer(ProducerLike, Protocol):
    """A producer with transactions, as confluent-kafka's is, and an end."""

    def init_transactions(self, timeout: float = -1) -> None: ...

    def begin_transaction(self) -> None: ...

    def commit_transaction(self, timeout: float = -1) -> None: ...

    def abort_transaction(self, timeout: float = -1) -> None: ...

    def let_go(self) -> None:
        """Ends it at once: whatever it still holds is dropped."""
        ...


class MarkerStore(Protocol):
    """Where markers are kept."""

    @property
    def name(self) -> str: ...

    def read(self, key: bytes) -> Marker | None: ...


class Batch(Protocol):
    """What one micro-batch can be asked for, once."""

    def evaluate(self) -> tuple[RecordColumns, Iterable[pa.RecordBatch]]:
        """All rows. They can be iterated over several times, and always are the same."""
        ...

    def pass_over(self) -> None:
        """Evaluates the plan and drops the rows."""
        ...


class QueryTransactions:
    """Writes the batches of one query, each once. Not for several threads."""

    def __init__(
        self,
        transactional_id: str,
        key: bytes,
        open_producer: Callable[[Deliveries], TransactionalProducer],
        markers: MarkerStore,
        *,
        watch: Watch = lambda step, batch_id: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transactional_id = transactional_id
        self._key = key
        self._open_producer = open_producer
        self._markers = markers
        self._watch = watch
        self._clock = clock
        self._deliveries = Deliveries()
        self._producer: TransactionalProducer | None = None
        self._written = NOTHING_WRITTEN

    def write(self, batch_id: int, batch: Batch) -> bool:
        """Writes the batch, or finds that it was written before; True if it was written now.

        After an error nothing of the batch is visible; or, if the error came after the commit was asked for
        (OutcomeUnknown, or a DriverFenced that says so), all of it or nothing. Calling again is always safe.
        """
        producer = self._producer or self._open(batch_id)
        if batch_id <= self._written:
            # Its state must come to be even so: a stateful query's next batch builds on what this one leaves behind.
            batch.pass_over()
            log.info("batch %d of %s was written before: passed over", batch_id, self.transactional_id)
            self._watch(Step.PASSED_OVER, batch_id)
            return False
        columns, rows = batch.evaluate()
        self._watch(Step.EVALUATED, batch_id)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                self._attempt(producer, batch_id, columns, rows)
            except _Abortable as problem:
                self._abort(producer, batch_id, problem)
                if problem.would_come_again or attempt == ATTEMPTS_MAX:
                    raise problem.outward(batch_id, attempt) from problem.__cause__
                log.warning("batch %d of %s is written again: %s", batch_id, self.transactional_id, problem)
            else:
                self._written = batch_id
                self._watch(Step.COMMITTED, batch_id)
                return True
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Gives the producer up. Between batches nothing is open; within one, the next start aborts what is."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.let_go()

    # Starting

    def _open(self, batch_id: int) -> TransactionalProducer:
        self._deliveries = Deliveries()
        producer = self._open_producer(self._deliveries)
        try:
            self._watch(Step.OPENED, batch_id)
            self._repeat(producer.init_transactions, INITIALISE_TIMEOUT_S, "initialise transactions")
            self._watch(Step.INITIALISED, batch_id)
            marker = self._markers.read(self._key)
            self._watch(Step.MARKER_READ, batch_id)
        except (_Abortable, _OutOfTime, _Fatal) as problem:
            producer.let_go()
            raise self._failed(f"could not {problem}") from problem.__cause__
        except DriverFenced as error:
            producer.let_go()
            raise self._fenced() from error.__cause__
        except BaseException:
            producer.let_go()
            raise
        # Not before all of this has happened: a producer that is there is one that may write.
        self._written = NOTHING_WRITTEN if marker is None else marker.batch_id
        self._producer = producer
        return producer

    # One transaction

    def _attempt(
        self, producer: TransactionalProducer, batch_id: int, columns: RecordColumns, rows: Iterable[pa.RecordBatch]
    ) -> None:
        started_s = self._clock()
        asked_count = 0

        def commit(timeout_s: float) -> None:
            nonlocal asked_count
            asked_count += 1
            producer.commit_transaction(timeout_s)

        try:
            self._call(lambda: producer.poll(0), "go on")  # what an aborted attempt still had to tell
            self._deliveries.reset()
            self._call(producer.begin_transaction, "begin a transaction")
            self._watch(Step.BEGUN, batch_id)
            sender = RecordSender(producer, columns, self._deliveries)
            for batch in rows:
                sender.send(batch)
            self._watch(Step.PRODUCED, batch_id)
            sender.flush()
            self._watch(Step.FLUSHED, batch_id)
            marker = Marker(batch_id, sender.sent_count).encode()
            self._call(lambda: producer.produce(self._markers.name, marker, self._key), "write the marker")
            self._watch(Step.MARKED, batch_id)
            self._repeat(commit, COMMIT_TIMEOUT_S, f"commit batch {batch_id}")
        except DeliveryFailed as error:
            raise _Abortable(str(error), would_come_again=error.code in WOULD_COME_AGAIN) from error
        except DriverFenced as error:
            raise self._fenced(self._clock() - started_s, commit_asked=asked_count > 0) from error.__cause__
        except (_OutOfTime, _Fatal) as problem:
            raise self._failed(f"could not {problem}", commit_asked=asked_count > 0) from problem.__cause__
        except _Abortable as problem:
            problem.commit_asked = asked_count > 0
            if asked_count > 1:  # an earlier call was not answered: it may have committed
                raise self._failed(f"could not {problem}", commit_asked=True) from problem.__cause__
            raise
        except BaseException:
            # The rows themselves, the user (Ctrl-C) or the machine: the transaction must not stay open.
            if asked_count:
                self.close()
            else:
                self._abort_quietly(producer, batch_id)
            raise

    def _abort(self, producer: TransactionalProducer, batch_id: int, problem: _Abortable) -> None:
        self._watch(Step.ABORTING, batch_id)
        try:
            self._repeat(producer.abort_transaction, ABORT_TIMEOUT_S, f"abort batch {batch_id}")
        except DriverFenced as error:
            raise self._fenced(commit_asked=problem.commit_asked) from error.__cause__
        except (_Abortable, _OutOfTime, _Fatal) as error:
            # This is also how a commit looks that took effect and was refused when librdkafka asked for it again.
            both = f"{problem}; and could not {error}"
            raise self._failed(both, commit_asked=problem.commit_asked) from error.__cause__
        self._watch(Step.ABORTED, batch_id)

    def _abort_quietly(self, producer: TransactionalProducer, batch_id: int) -> None:
        try:
            self._abort(producer, batch_id, _Abortable("the batch failed", would_come_again=False))
        except (TopicSinkError, KafkaException) as error:
            log.warning("%s: the transaction of batch %d is left open: %s", self.transactional_id, batch_id, error)
            self.close()

    # Calls to the producer, and what librdkafka says of their errors

    def _call(self, call: Callable[[], object], doing: str) -> None:
        queue_is_full = False
        while True:
            try:
                if queue_is_full:
                    assert self._producer is not None
                    self._producer.poll(CALL_TIMEOUT_S)
                telling(call)
                return
            except BufferError:
                queue_is_full = True
            except (KafkaException, SystemError) as error:
                told = self._told(error)
                raise self._judged(told, doing) from told

    def _repeat(self, call: Callable[[float], object], timeout_s: float, doing: str) -> None:
        """Calls until it is done or cannot be, or no time is left (_OutOfTime)."""
        deadline_s = self._clock() + timeout_s
        while True:
            try:
                telling(lambda: call(CALL_TIMEOUT_S))
                return
            except (KafkaException, SystemError) as error:
                told = self._told(error)
                reason: KafkaError = told.args[0]
                if not reason.retriable() or reason.txn_requires_abort() or reason.fatal():
                    raise self._judged(told, doing) from told
                if self._clock() >= deadline_s:
                    raise _OutOfTime(f"{doing} within {timeout_s:.0f} s: {_text(reason)}") from told

    @staticmethod
    def _told(error: KafkaException | SystemError) -> KafkaException:
        told = told_by_librdkafka(error)
        if told is None:
            raise error
        return told

    def _judged(self, error: KafkaException, doing: str) -> Exception:
        reason: KafkaError = error.args[0]
        if reason.txn_requires_abort() and not reason.fatal():
            return _Abortable(f"{doing}: {_text(reason)}", would_come_again=reason.code() in WOULD_COME_AGAIN)
        self.close()
        if reason.code() in FENCED:
            return DriverFenced()
        return _Fatal(f"{doing}: {_text(reason)}")

    def _failed(self, problem: str, *, commit_asked: bool = False) -> TopicSinkError:
        self.close()
        told = f"{self.transactional_id}: {problem}"
        if commit_asked:
            return OutcomeUnknown(
                f"{told}; whether the batch was committed is not known here. "
                "Start the query again: it asks its marker, and goes on behind what was written"
            )
        return TransactionFailed(
            f"{told}. Nothing of the batch is visible; start the query again once the cause is gone"
        )

    def _fenced(self, open_s: float | None = None, *, commit_asked: bool = False) -> DriverFenced:
        self.close()
        how_long = "" if open_s is None else f" (this one had been open for {open_s:.0f} s)"
        became = (
            "its batch, whose commit had been asked for, is visible as a whole or not at all: the marker says which"
            if commit_asked
            else "nothing of its batch is visible"
        )
        return DriverFenced(
            f"{self.transactional_id} was taken over: another driver runs the same query from the same checkpoint. "
            f"This one must end, and {became}. If there is no other driver, the transaction "
            f"was open for longer than transaction.timeout.ms{how_long}: raise it, or lower the cap per trigger; "
            "and two writers of one query need different names (to_topic(…, name=…))"
        )


class _OutOfTime(Exception):
    """A call that was repeated for as long as it may be."""


class _Fatal(Exception):
    """What ended the producer."""


class _Abortable(Exception):
    """The transaction must be aborted; then all is as before."""

    def __init__(self, text: str, *, would_come_again: bool) -> None:
        super().__init__(text)
        self.would_come_again = would_come_again
        self.commit_asked = False

    def outward(self, batch_id: int, attempts: int) -> TransactionFailed:
        tried = "" if attempts == 1 else f" ({attempts} times)"
        return TransactionFailed(f"batch {batch_id} was aborted{tried}, nothing of it is visible: {self}")


def _text(error: KafkaError) -> str:
    return f"{error.str()} ({error.name()})"
