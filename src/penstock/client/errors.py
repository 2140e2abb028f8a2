"""The client's errors. Each message names the cause and what to do about it.

ClientError
├─ SettingsError               a property cannot be understood, or contradicts another
│  └─ UnsupportedSetting       a valid property that only librdkafka supports: fall back to confluent-kafka
├─ ConnectionFailed            connection refused, TLS failed, or the connection broke
│  └─ AuthenticationFailed     the broker or this client failed authentication: login, certificate or TLS mismatch
├─ RequestTimedOut             no answer, or no success, within the time given
├─ ProtocolError               the bytes received are not a valid response
├─ UnsupportedApi              client and broker have no version of the request in common
├─ BufferExhausted             a producer's buffer stayed full
├─ DeliveryFailed              a record was not stored
├─ ConsumeFailed               a consumer cannot continue: not authorised, no offset to start from
├─ CommitFailed                offsets were not committed
├─ ProcessingFailed            a processor stopped because its handler failed on a record
├─ OffsetConflict              another consumer has saved results and offsets of the same partition
├─ TransactionError            a transaction did not commit, or was used wrongly
│  ├─ TransactionTimedOut      retriable: the brokers did not answer in time; nothing has changed, call again
│  ├─ TransactionAborted       abortable: it was aborted and nothing of it is visible; run it again
│  └─ TransactionFatal         fatal: this producer can do nothing more; close it and open a new one
│     ├─ ProducerFenced        a newer producer with the same transactional.id has taken over
│     └─ OutcomeUnknown        the commit was requested, and its outcome is not known here
└─ BrokerError                 an error code of the protocol, with the topic and partition if there is one
   ├─ UnknownTopic             the topic or the partition does not exist
   │  └─ TopicRecreated        the topic was deleted and created again under the same name
   ├─ OffsetOutOfRange         the offset is not in the log; the message gives the log's range
   └─ RangeUnavailable         the log ends before the range does, and does not grow
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from penstock.wire.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_CODES = frozenset(int(code) for code in ErrorCode)


class ClientError(Exception):
    """The base class of this package's errors."""


class SettingsError(ClientError):
    """An invalid client property; the message names it and the fix."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"{name}: {reason}")

    def __reduce__(self) -> tuple[type[SettingsError], tuple[str, str]]:
        return type(self), (self.name, self.reason)


class UnsupportedSetting(SettingsError):
    """A property that librdkafka supports and this client does not: fall back to confluent-kafka."""


class ConnectionFailed(ClientError):
    """The connection could not be opened, or broke."""


class AuthenticationFailed(ConnectionFailed):
    """The broker or this client failed authentication. Not retriable."""


class RequestTimedOut(ClientError):
    """No response in time, or only retriable errors until the deadline."""

    @classmethod
    def for_records(cls, count: int, timeout_s: float | None) -> Self:
        what = f"{count} records were" if count > 1 else "a record was"
        return cls(f"{what} not acknowledged within {timeout_s:g} s; they may still arrive")


class ProtocolError(ClientError):
    """The bytes received are not a valid response to the request."""


class UnsupportedApi(ClientError):
    """The broker does not support a request, or no version that this client knows."""


class BufferExhausted(ClientError):
    """Records came faster than the brokers took them, for longer than `max.block.ms`."""

    def __init__(self, topic: str, size_bytes: int, buffer_bytes: int, blocked_ms: float) -> None:
        self.topic = topic
        super().__init__(
            f"no room for a record of {size_bytes} bytes for {topic}: the buffer (buffer.memory={buffer_bytes}) stayed "
            f"full for {blocked_ms:.0f} ms (max.block.ms). Are the brokers up? If so, send less, or raise buffer.memory"
        )


class _FromLibrdkafka(ClientError):
    """An error with librdkafka's cause attached."""

    code: int = 0
    retriable: bool = False

    @classmethod
    def of(cls, about: str, error: KafkaError) -> Self:
        made = cls(f"{about}: {error.str()} ({error.name()})")
        made.code = error.code()
        made.retriable = error.retriable()
        return made


class DeliveryFailed(_FromLibrdkafka):
    """A record was not stored, or its fate is unknown, after all retries; `code` is librdkafka's."""


class ConsumeFailed(_FromLibrdkafka):
    """The consumer hit an error that is not retriable."""


class CommitFailed(_FromLibrdkafka):
    """Offsets were not committed; records since the last commit may be read again."""


class ProcessingFailed(ClientError):
    """A handler failed on a record in every attempt allowed. The record is not committed."""

    def __init__(self, topic: str, partition: int, offset: int, attempts: int, reason: BaseException) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason
        super().__init__(
            f"{topic}[{partition}]@{offset} failed {attempts} time{'s' if attempts > 1 else ''}: {reason!r}. It is not "
            "committed and will be delivered again; use on_failure=SKIP or a DeadLetters to continue without it"
        )


class OffsetConflict(ClientError):
    """A partition's saved offset changed since this consumer read it: another consumer took over. Nothing was saved."""

    def __init__(self, topic: str, partition: int, expected: int | None, found: int | None) -> None:
        self.topic = topic
        self.partition = partition
        super().__init__(
            f"{topic}[{partition}] was saved up to {found} by another consumer, this one expected {expected}; its "
            "results were not saved. Stop this consumer, or let it rejoin the group and load the offset again"
        )


class TransactionError(_FromLibrdkafka):
    """A transaction did not commit, or its outcome is unknown; the subclass tells which."""


class TransactionTimedOut(TransactionError):
    """Only retriable errors, or no answer, within `max.block.ms`. Nothing has changed: call again."""


class TransactionAborted(TransactionError):
    """The transaction was aborted: nothing of it is visible to readers of committed records.

    The producer is ready for the next transaction, and a consumer that took part delivers its records again.
    """

    permanent: bool = False
    """The same records would fail again: one is too large, or this client may not write them."""


class TransactionFatal(TransactionError):
    """The producer can do nothing more. Close it, and the consumers that took part, and open new ones."""


class ProducerFenced(TransactionFatal):
    """A newer producer with the same `transactional.id` has taken over; it has ended this one's transaction.

    Unless that is a mistake (two running instances with one id), stop this instance.
    """


class OutcomeUnknown(TransactionFatal):
    """The commit was requested but not answered: the transaction is visible as a whole or not at all.

    A new producer with the same `transactional.id` waits until it is resolved; committed offsets tell which it was.
    """


class BrokerError(ClientError):
    """An error code in a response."""

    def __init__(
        self,
        code: int,
        message: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        doing: str = "",
    ) -> None:
        self.code = error_code(code)
        self.message = message or self.code.message
        self.topic = topic
        self.partition = partition
        self.doing = doing
        super().__init__(self._text())

    def _text(self) -> str:
        where = "" if self.topic is None else self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        head = ": ".join(part for part in (self.doing, where) if part)
        return f"{head}: {self.message} ({self.code.name})" if head else f"{self.message} ({self.code.name})"

    def __reduce__(self) -> tuple[object, ...]:
        # The default would lose keyword arguments; Spark tasks send their errors to the driver pickled.
        return _rebuild, (type(self), self.__dict__.copy())


class UnknownTopic(BrokerError):
    """The topic or partition does not exist, or no longer does."""


class TopicRecreated(UnknownTopic):
    """The topic was deleted and created again under the same name (KIP-516)."""


class OffsetOutOfRange(BrokerError):
    """The offset is not in the partition's log: older data was deleted, or the log was truncated."""

    def __init__(self, topic: str, partition: int, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not in the log, which holds {log_start_offset} to {log_end_offset} (exclusive)",
            topic=topic,
            partition=partition,
        )


class RangeUnavailable(BrokerError):
    """A range ends beyond the readable end: records were lost, or a transaction is open."""

    def __init__(
        self,
        topic: str,
        partition: int,
        position: int,
        end: int,
        readable_end: int,
        *,
        open_transaction: bool = False,
    ) -> None:
        self.position = position
        self.end = end
        self.readable_end = readable_end
        self.open_transaction = open_transaction
        """Whether an open transaction is the cause. If so, nothing is lost: the rest can be read once it ends."""
        reason = "the log ends there: records were lost, or the topic was created again"
        if open_transaction:
            reason = "a transaction that is still open holds the rest back"
        super().__init__(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"offsets {position} to {end} (exclusive) were requested, but the readable end is {readable_end}: {reason}",
            topic=topic,
            partition=partition,
        )


def error_code(code: int) -> ErrorCode:
    """The code of that number; UNKNOWN_SERVER_ERROR for one that this client does not know."""
    return ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR


def _rebuild(cls: type[BrokerError], state: dict[str, object]) -> BrokerError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    Exception.__init__(error, error._text())
    return error
