"""What can go wrong between a client and a cluster, each with what it names and what to do about it.

    ClientError
    ├─ SettingsError               a property cannot be understood, or contradicts another
    │  └─ UnsupportedSetting       it is fine, but only librdkafka can do it: fall back to confluent-kafka
    ├─ ConnectionFailed            nothing there, TLS failed, or the connection broke
    │  └─ AuthenticationFailed     one side does not accept who the other is: login, certificate, TLS or none
    ├─ RequestTimedOut             no answer, or no success, within the time given
    ├─ ProtocolError               what came is not an answer
    ├─ UnsupportedApi              the broker does not serve this request in a version that we know
    └─ BrokerError                 an error code of the protocol, with the topic and partition where there is one
       ├─ UnknownTopic             the topic, or the partition, is not there
       │  └─ TopicRecreated        there is one of that name, but it is another one
       ├─ OffsetOutOfRange         the log does not hold the offset; it says what it holds
       └─ RangeUnavailable         the log ends before the range does, and does not grow
"""

from __future__ import annotations

from penstock.wire.errors import ErrorCode

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


class ProtocolError(ClientError):
    """Bytes that are no answer to what was asked."""


class UnsupportedApi(ClientError):
    """The broker does not serve a request, or not in a version that both sides know."""


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

    def __init__(self, topic: str, partition: int, position: int, end: int, readable_end: int, reason: str) -> None:
        self.position = position
        self.end = end
        self.readable_end = readable_end
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
