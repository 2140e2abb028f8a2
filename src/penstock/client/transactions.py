"""Transactions of a producer: records to several partitions, and a consumer's offsets, all or nothing.

    producer = Producer(servers, transactional_id="shipping-1")
    consumer = Consumer(servers, "orders", "shipping")
    while True:
        messages = consumer.poll()
        with producer.transaction(consumer):
            for message in messages:
                producer.send("shipments", ship(message))

The block commits when it ends, and aborts if it raises. With a consumer, the offsets of all records that it has
delivered are part of the transaction, and an abort makes it deliver the same records again.

librdkafka reports three kinds of errors; here each has its class (`penstock.client.errors`):

| error | what is done here | what the application sees |
|---|---|---|
| retriable | called again until `max.block.ms` has passed | `TransactionTimedOut`, or `OutcomeUnknown` for a commit |
| abortable | the transaction is aborted, the consumer goes back | `TransactionAborted`: run it again |
| fatal | nothing more can be done with this producer | `ProducerFenced`, `OutcomeUnknown` or `TransactionFatal` |

Once a commit was requested, only a clear answer tells its outcome. If a first request went unanswered and a repeated
one is refused, the first may have taken effect: this is reported as `OutcomeUnknown` and never as an abort.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as NativePartition

from penstock.client.delivery import log
from penstock.client.errors import (
    ClientError,
    DeliveryFailed,
    OutcomeUnknown,
    ProducerFenced,
    SettingsError,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
    TransactionTimedOut,
)

if TYPE_CHECKING:
    from penstock.client.async_consumer import AsyncConsumer
    from penstock.client.cluster import TopicPartition
    from penstock.client.consumer import Consumer, Offsets
    from penstock.client.sending import Sending

CALL_TIMEOUT_S: Final = 5.0
"""Of one call into librdkafka; a call that is not done by then is retriable, and made again."""

FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
PERMANENT: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.POLICY_VIOLATION, KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)  # fmt: skip
"""Abortable errors that the same records would meet again."""


class Transactions:
    """The transactional side of one producer. Its calls block; one thread at a time."""

    def __init__(self, sending: Sending) -> None:
        self.id = sending.options.properties.get("transactional.id")
        self._sending = sending
        self._native = sending.native
        self._timeout_s = sending.max_block_s
        self._initialised = False
        self._fatal: TransactionFatal | None = None
        self.open = False

    def init(self) -> None:
        """Fences older producers with this id and waits until their transactions are resolved. Once is enough."""
        self._check()
        if self._initialised:
            return
        self._repeat(self._native.init_transactions, "initialise")
        self._initialised = True

    def begin(self) -> None:
        if self.open:
            raise TransactionError(f"{self.id}: a transaction is already open; a producer has one at a time")
        self.init()
        self._sending.deliveries.forget()
        self._once(self._native.begin_transaction, "begin a transaction")
        self.open = True

    def send_offsets(self, consumer: Consumer, offsets: Mapping[TopicPartition, int]) -> None:
        """Makes these offsets of the consumer's group part of the transaction."""
        self._check()
        if not offsets:
            return
        placed = [NativePartition(*where, offset) for where, offset in offsets.items()]
        metadata = consumer.native.consumer_group_metadata()
        self._repeat(
            lambda timeout_s: self._native.send_offsets_to_transaction(placed, metadata, timeout_s), "send offsets"
        )

    def commit(self) -> None:
        self._check()
        asked = 0

        def ask(timeout_s: float) -> None:
            nonlocal asked
            asked += 1
            self._native.commit_transaction(timeout_s)

        try:
            self._repeat(ask, "commit")
        except TransactionTimedOut as problem:
            raise self._fail(self._unknown(str(problem), problem)) from problem
        except TransactionAborted as problem:
            if asked > 1:
                raise self._fail(self._unknown(str(problem), problem)) from problem
            raise
        except ProducerFenced:
            raise
        except TransactionFatal as problem:
            raise self._fail(self._unknown(str(problem), problem)) from problem
        self.open = False
        self._sending.deliveries.forget()

    def abort(self) -> None:
        self._check()
        try:
            self._repeat(self._native.abort_transaction, "abort")
        except (TransactionAborted, TransactionTimedOut) as problem:
            raise self._fail(
                TransactionFatal(
                    f"{problem}. The brokers abort the transaction after transaction.timeout.ms, or when a producer "
                    "with the same transactional.id starts: close this producer and open a new one"
                )
            ) from problem
        self.open = False
        # Records of an aborted transaction are reported as failed; that is what an abort means.
        self._sending.deliveries.forget()

    def give_up(self) -> None:
        """Leaves the open transaction to the brokers, for a producer that is interrupted in the middle of a commit."""
        self._fail(self._unknown("the commit was interrupted"))

    @property
    def fatal(self) -> TransactionFatal | None:
        return self._fatal

    # Calls to librdkafka, and what its errors mean

    def _check(self) -> None:
        if self.id is None:
            raise SettingsError("transactional.id", "transactions need one: Producer(…, transactional_id=…)")
        if self._fatal is not None:
            raise self._fatal

    def _once(self, call: Callable[[], object], doing: str) -> None:
        try:
            call()
        except KafkaException as problem:
            raise self._judge(problem.args[0], doing) from problem

    def _repeat(self, call: Callable[[float], object], doing: str) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            left_s = max(0.001, deadline_s - time.monotonic())
            try:
                call(min(left_s, CALL_TIMEOUT_S))
                return
            except KafkaException as problem:
                error: KafkaError = problem.args[0]
                if not error.retriable() or error.txn_requires_abort() or error.fatal():
                    raise self._judge(error, doing) from problem
                if time.monotonic() >= deadline_s:
                    raise TransactionTimedOut.of(
                        f"{self.id}: could not {doing} within {self._timeout_s:g} s (max.block.ms)", error
                    ) from problem

    def _judge(self, error: KafkaError, doing: str) -> TransactionError:
        about = f"{self.id}: could not {doing}"
        if error.txn_requires_abort() and not error.fatal():
            aborted = TransactionAborted.of(about, error)
            aborted.permanent = error.code() in PERMANENT
            return aborted
        if error.code() in FENCED:
            return self._fail(ProducerFenced.of(about, error))
        return self._fail(TransactionFatal.of(about, error))

    def _unknown(self, problem: str, cause: TransactionError | None = None) -> OutcomeUnknown:
        made = OutcomeUnknown(
            f"{problem}. The commit was requested, so the transaction is visible as a whole or not at all; which of "
            "the two is not known here. Open a new producer with the same transactional.id and a new consumer: the "
            "committed offsets tell"
        )
        if cause is not None:
            made.code = cause.code
        return made

    def _fail(self, error: TransactionFatal) -> TransactionFatal:
        self._fatal = error
        self.open = False
        self._sending.deliveries.forget()
        return error


class Transaction:
    """One transaction, as a context manager: `with producer.transaction(consumer):`."""

    def __init__(self, transactions: Transactions, consumer: Consumer | None) -> None:
        self._transactions = transactions
        self._consumers: list[Consumer] = []
        self._sent: list[tuple[Consumer, dict[TopicPartition, int]]] = []
        self._automatic = consumer
        self._ended = False

    def send_offsets(self, consumer: Consumer, offsets: Offsets | None = None) -> None:
        """Makes offsets of the consumer's group part of the transaction: these, or those of all delivered records.

        Not needed for the consumer that was passed to `transaction`. Raises TransactionAborted if a partition whose
        records were delivered since the last commit belongs to another member now.
        """
        self._join(consumer)
        wanted = consumer._transaction_offsets(offsets)
        self._transactions.send_offsets(consumer, wanted)
        self._sent.append((consumer, wanted))

    def abort(self) -> None:
        """Aborts now; the block may go on, but must not send any more. Consumers deliver their records again."""
        if self._ended:
            return
        self._ended = True
        try:
            self._transactions.abort()
        except TransactionFatal as problem:
            self._unsettle(problem)
            raise
        self._go_back()

    def __enter__(self) -> Self:
        if self._automatic is not None:
            self._join(self._automatic)
        self._transactions.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if not self._ended:
                self._commit()
            return
        self._after(error)

    def _commit(self) -> None:
        try:
            if self._automatic is not None:
                self.send_offsets(self._automatic)
            self._transactions.commit()
        except TransactionAborted:
            self.abort()
            raise
        except TransactionTimedOut as problem:
            # Offsets could not be sent in time; the commit itself never raises this.
            self.abort()
            raise TransactionAborted(f"{problem}; the transaction was aborted") from problem
        except TransactionFatal as problem:
            self._unsettle(problem)
            raise
        except BaseException:
            # Interrupted while the commit may be under way (Ctrl-C): its outcome is not known here.
            self._transactions.give_up()
            if self._transactions.fatal is not None:
                self._unsettle(self._transactions.fatal)
            raise
        self._ended = True
        for consumer, offsets in self._sent:
            consumer._transaction_committed(offsets)

    def _after(self, error: BaseException) -> None:
        """The block raised: aborts. Errors of the client become TransactionAborted, others are raised as they are."""
        refused = isinstance(error, DeliveryFailed | TransactionAborted | TransactionTimedOut)
        try:
            self.abort()
        except (ClientError, KafkaException) as problem:
            if refused:
                raise problem from error
            # The exception being raised is more useful than this one; the next transaction raises it again.
            log.error("%s", problem)
            return
        if refused and not isinstance(error, TransactionAborted):
            assert isinstance(error, DeliveryFailed | TransactionTimedOut)
            aborted = TransactionAborted(f"{self._transactions.id}: {error}; the transaction was aborted")
            aborted.code, aborted.retriable = error.code, error.retriable
            aborted.permanent = error.code in PERMANENT
            raise aborted from error

    def _join(self, consumer: Consumer) -> None:
        if consumer not in self._consumers:
            consumer._join_transaction()
            self._consumers.append(consumer)

    def _go_back(self) -> None:
        for consumer in self._consumers:
            consumer._transaction_aborted()

    def _unsettle(self, problem: TransactionFatal) -> None:
        for consumer in self._consumers:
            consumer._transaction_unsettled(problem)


class AsyncTransaction:
    """The same for asyncio: `async with producer.transaction(consumer):`. Blocking calls run in threads."""

    def __init__(self, transactions: Transactions, consumer: AsyncConsumer | None) -> None:
        self._inner = Transaction(transactions, None if consumer is None else consumer._sync)
        self._consumer = consumer

    async def send_offsets(self, consumer: AsyncConsumer, offsets: Offsets | None = None) -> None:
        self._consumer = consumer
        await consumer._call(self._inner.send_offsets, consumer._sync, offsets)

    async def abort(self) -> None:
        await self._run(self._inner.abort)

    async def __aenter__(self) -> Self:
        await self._run(self._inner.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._run(lambda: self._inner.__exit__(kind, error, trace))

    async def _run(self, call: Callable[[], object]) -> None:
        """Runs in the consumer's thread if there is one, because it reads and moves the consumer's positions.

        Not cancelled half-way: a commit that was begun is finished, and then the cancellation goes on.
        """
        if self._consumer is None:
            running: asyncio.Future[object] = asyncio.ensure_future(asyncio.to_thread(call))
        else:
            running = asyncio.ensure_future(self._consumer._call(call))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.done():
                await asyncio.wait([running])
            raise
