"""The one place that turns an error into an answer.

A handler raises `KafkaError` when it refuses a whole request. Every API has a place for that: an `error_code` of the
answer, or one in each of its elements. `refusal` finds the place in the schema of the response. Where elements carry
the error there is one for each element of the request, named as the request named it.

Errors of single elements are data: handlers put them where they belong, and `element` makes the answer that a
coordinator gives for one group of many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, TypeVar

from penstock.wire.apis import ApiKey, ServedApi
from penstock.wire.codec import Message
from penstock.wire.commits import PlainCommit
from penstock.wire.errors import ErrorCode
from penstock.wire.schema import Field, is_nullable, layout

M = TypeVar("M", bound=Message)
Error = tuple[ErrorCode, str | None]

ERROR_FIELDS: Final = ("error_code", "partition_error_code")

ABSENT: Final[dict[str, int | None]] = {
    "committed_offset": -1,
    "entries": None,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
    "producer_epoch": -1,
    "protocol_name": None,
}
"""Values that Kafka uses for empty fields of an error answer, where they differ from the schema's default."""

ECHOED: Final[dict[ApiKey, tuple[str, ...]]] = {
    ApiKey.JOIN_GROUP: ("member_id",),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("allow_replication_factor_change",),
}
"""Fields of the request that are repeated in an answer with one error for the whole request."""

NAMES: Final = frozenset(
    {
        "entity",
        "entity_name",
        "entity_type",
        "group_id",
        "name",
        "partition",
        "partition_index",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
    }
)
"""Fields that identify an element, in requests and answers."""

ELEMENTS: Final[dict[ApiKey, Callable[[Any], Sequence[Any]]]] = {
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda body: [topic for directory in body.dirs for topic in directory.topics],
    ApiKey.DESCRIBE_LOG_DIRS: lambda body: [],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda body: [*body.deletions, *body.upsertions],
}
"""The elements of requests whose layout differs from that of their answers."""


def refusal(row: ServedApi, version: int, body: Message, code: ErrorCode, message: str | None = None) -> Message:
    """The answer that refuses a whole request."""
    if isinstance(body, PlainCommit):
        body = body.request()
    version = max(version, 0)
    response = row.response
    error = (code, message)
    if _has_error(response, version):
        refused = _error_of(response, version, error)
        for name in ECHOED.get(row.key, ()):
            refused[name] = getattr(body, name)
        return response(**refused)
    return response(**_elements(response, version, body, error, ELEMENTS.get(row.key)))


def element(cls: type[M], **names: object) -> Callable[[ErrorCode], M]:
    """Builds the element for one of many groups that a coordinator refuses, with the error."""
    return lambda code: cls(error_code=code, **names)


def _error_of(cls: type[Message], version: int, error: Error) -> dict[str, Any]:
    code, message = error
    values = {_error_field(cls, version): code, **_absent(cls, version)}
    if "error_message" in values:
        values["error_message"] = code.message if message is None else message
    return values


@cache
def _absent(cls: type[Message], version: int) -> dict[str, Any]:
    """Fields besides the error code that an error answer fills, and their values; the message is added later."""
    values: dict[str, Any] = {}
    for field in _fields(cls, version):
        if field.name == "error_message":
            values["error_message"] = None
        elif field.name in ABSENT and (ABSENT[field.name] is not None or is_nullable(field, version)):
            values[field.name] = ABSENT[field.name]
    return values


def _elements(
    cls: type[Message],
    version: int,
    source: Message,
    error: Error,
    choose: Callable[[Any], Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """The array of `cls` that carries errors, with one element for each element of the request's array."""
    field = next((field for field in _fields(cls, version) if _carries_error(field, version)), None)
    if field is None:
        return {}
    sources: Sequence[Any]
    if choose is not None:
        sources = choose(source)
    else:
        arrays = [other.name for other in _fields(type(source), version) if other.array]
        name = field.name if field.name in arrays else arrays[0]
        sources = getattr(source, name) or ()
    assert not isinstance(field.type, str)
    return {field.name: [_element(field.type, version, one, error) for one in sources]}


def _element(cls: type[Message], version: int, source: Any, error: Error) -> Message:
    values = _named(cls, version, source)
    if _has_error(cls, version):
        values |= _error_of(cls, version, error)
    else:
        values |= _elements(cls, version, source, error)
    return cls(**values)


def _named(cls: type[Message], version: int, source: Any) -> dict[str, Any]:
    """The fields that identify an element: those that both have or, if there are none, the first of each."""
    own = [field for field in _fields(cls, version) if not field.name.startswith("error_")]
    if not isinstance(source, Message):
        return {own[0].name: source}
    known = {field.name for field in _fields(type(source), version)} & NAMES
    values = {
        field.name: _copied(field, version, getattr(source, field.name))
        for field in own
        if field.name in known and (getattr(source, field.name) is not None or is_nullable(field, version))
    }
    if not values and own and not own[0].array:
        values[own[0].name] = getattr(source, _fields(type(source), version)[0].name)
    return values


def _copied(field: Field, version: int, value: Any) -> Any:
    if isinstance(field.type, str):
        return value
    return [field.type(**_named(field.type, version, one)) for one in value]


@cache
def _fields(cls: type[Message], version: int) -> tuple[Field, ...]:
    found = layout(cls, version)
    return found.fields + found.tagged


@cache
def _has_error(cls: type[Message], version: int) -> bool:
    return bool(_error_field(cls, version))


@cache
def _error_field(cls: type[Message], version: int) -> str:
    """The name of the field with the error code; empty if there is none."""
    return next((field.name for field in _fields(cls, version) if field.name in ERROR_FIELDS), "")


def _carries_error(field: Field, version: int) -> bool:
    if not field.array or isinstance(field.type, str):
        return False
    inner = field.type
    return _has_error(inner, version) or any(_carries_error(deeper, version) for deeper in _fields(inner, version))
