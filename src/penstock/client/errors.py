"""What can go wrong between a client and a cluster, each with what it names and what to do about it.

    ClientError
    ├─ SettingsError               a property cannot be understood, or contradicts another
    │  └─ UnsupportedSetting       it is fine, but only librdkafka can do it: fall back to confluent-kafka
    ├─ ConnectionFailed            nothing there, TLS failed, or the connection broke
    │  └─ AuthenticationFailed     one side does not accept who the other is: login, certificate, TLS or none
    ├─ RequestTimedOut             no answer, or no success, within the time given
    ├─ ProtocolError               what came is not an answer
    ├─ UnsupportedApi              the broker does not serve this request in a version that we know
    ├─ BufferExhausted             a producer's buffer stayed full
    ├─ DeliveryFailed              a record was not stored
    ├─ ConsumeFailed               a consumer cannot go on: not allowed, no offset to start from
    ├─ CommitFailed                offsets were not committed
    ├─ ProcessingFailed            a processor stopped at a record that its handler cannot handle
    ├─ OffsetConflict              another consumer has saved results and offsets of the same partition
    └─ BrokerError                 an error code of the protocol, with the topic and partition where there is one
       ├─ UnknownTopic             the topic, or the partition, is not there
       │  └─ TopicRecreated        there is one of that name, but it is another one
       ├─ OffsetOutOfRange         the log does not hold the offset; it says what it holds
       └─ RangeUnavailable         the log ends before the range does, and does not grow
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from penstock.wire.errors import ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_CODES = frozenset(int(code) for code in ErrorCode)


class ClientError(Exception):
    """Anything that this package raises."""


class SettingsError(ClientError):
    """A client property that cannot be used; the message names it and the fix."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"{name}: {reason}")

    def __reduce__(self) -> tuple[type[SettingsError], tuple[str, str]]:
        return type(self), (self.name, self.reason)


class UnsupportedSetting(SettingsError):
    """A property that librdkafka knows and this client does not: fall back to confluent-kafka."""


class ConnectionFailed(ClientError):
    """No connection, or one that broke."""


class AuthenticationFailed(ConnectionFailed):
    """Who or what is at the other end is not who was expected, or we are not; trying again does not help."""


class RequestTimedOut(ClientError):
    """No answer in time, or none but errors that should have passed."""

    @classmethod
    def for_records(cls, count: int, timeout_s: float | None) -> Self:
        what = f"{count} records were" if count > 1 else "a record was"
        return cls(f"{what} not acknowledged within {timeout_s:g} s; they may still arrive")


class ProtocolError(ClientError):
    """Bytes that are no answer to what was asked."""


class UnsupportedApi(ClientError):
    """The broker does not serve a request, or not in a version that both sides know."""


class BufferExhausted(ClientError):
    """Records came faster than the brokers took them, for longer than `max.block.ms`."""

    def __init__(self, topic: str, size_bytes: int, buffer_bytes: int, blocked_ms: float) -> None:
        self.topic = topic
        super().__init__(
            f"no room for a record of {size_bytes} bytes for {topic}: the buffer (buffer.memory={buffer_bytes}) stayed "
            f"full for {blocked_ms:.0f} ms (max.block.ms). Are the brokers up? If so, send less, or raise buffer.memory"
        )


class _FromLibrdkafka(ClientError):
    """With librdkafka's error, and what it is about."""

    code: int = 0
    retriable: bool = False

    @classmethod
    def of(cls, about: str, error: KafkaError) -> Self:
        made = cls(f"{about}: {error.str()} ({error.name()})")
        made.code = error.code()
        made.retriable = error.retriable()
        return made


class DeliveryFailed(_FromLibrdkafka):
    """A record was not stored, or nobody knows: `code` is librdkafka's, retries are over."""


class ConsumeFailed(_FromLibrdkafka):
    """Reading cannot go on by itself."""


class CommitFailed(_FromLibrdkafka):
    """Offsets were not committed; records since the last commit may be read again."""


class ProcessingFailed(ClientError):
    """A handler failed on a record, as often as it was to be tried. The record is not committed."""

    def __init__(self, topic: str, partition: int, offset: int, attempts: int, reason: BaseException) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason
        super().__init__(
            f"{topic}[{partition}]@{offset} failed {attempts} time{'s' if attempts > 1 else ''}: {reason!r}. It is not "
            "committed and comes again; give on_failure=SKIP or a DeadLetters to go on without it"
        )


class OffsetConflict(ClientError):
    """A partition's saved offset is not where this consumer left it: another one took over. Nothing was saved."""

    def __init__(self, topic: str, partition: int, expected: int | None, found: int | None) -> None:
        self.topic = topic
        self.partition = partition
        super().__init__(
            f"{topic}[{partition}] was saved up to {found} by another consumer, this one had it at {expected}: its "
            "results are not saved. Stop this consumer, or let it rejoin the group and load the offset again"
        )


class BrokerError(ClientError):
    """An error code in an answer."""

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
        # With keyword arguments the default would lose them; tasks send their errors to the driver pickled.
        return _rebuild, (type(self), self.__dict__.copy())


class UnknownTopic(BrokerError):
    """The topic or partition does not exist, or not any more."""


class TopicRecreated(UnknownTopic):
    """The topic was deleted, and there is another one of the same name (KIP-516)."""


class OffsetOutOfRange(BrokerError):
    """The partition's log does not hold the offset: older data was deleted, or the log is shorter than it was."""

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
    """A range ends beyond what can be read: records were lost, or a transaction is open."""

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
        """Nothing is lost: the rest can be read when the transaction has ended."""
        reason = "the log ends there: records were lost, or the topic was created again"
        if open_transaction:
            reason = "a transaction that is still open holds the rest back"
        super().__init__(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"offsets {position} to {end} (exclusive) were asked for, but only {readable_end} can be reached: {reason}",
            topic=topic,
            partition=partition,
        )


def error_code(code: int) -> ErrorCode:
    """The code of that number; a newer broker may have some that we do not know."""
    return ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR


def _rebuild(cls: type[BrokerError], state: dict[str, object]) -> BrokerError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    Exception.__init__(error, error._text())
    return error
