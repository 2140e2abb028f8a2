"""kio's classes seen as ours: kio was generated from Kafka's schemas, so it says what is right."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import uuid

from penstock.wire.schema import Message, layout
from penstock.wire.uuids import ZERO_UUID

TIME_TYPES = ("timedelta_i32", "timedelta_i64", "datetime_i64")


def kio_class(module: str, kind: str, version: int, cls: type[Message]) -> type:
    found = getattr(importlib.import_module(f"kio.schema.{module}.v{version}.{kind}"), cls.__name__)
    assert isinstance(found, type)
    return found


def as_ours(theirs: object, cls: type[Message], version: int) -> Message:
    """The message of ours that says the same as this entity of kio's."""
    schema_fields = {field.name: field for field in cls.schema.fields}
    tagged = {field.name for field in layout(cls, version).tagged}
    values = {}
    for field in dataclasses.fields(theirs):  # type: ignore[arg-type]
        kio_kind = field.metadata.get("kafka_type")
        name = field.name + "_ms" if kio_kind in TIME_TYPES else field.name
        value = getattr(theirs, field.name)
        if value is not None or not schema_fields[name].array:
            value = _value(value, schema_fields[name].type, kio_kind, version)
        is_struct = isinstance(value, Message)
        values[name] = None if is_struct and name in tagged and value == type(value)() else value
    return cls(**values)


def _value(value: object, kind: str | type[Message], kio_kind: str | None, version: int) -> object:
    if isinstance(value, tuple):
        return [_value(item, kind, kio_kind, version) for item in value]
    if value is None:
        return ZERO_UUID if kio_kind == "uuid" else -1 if kio_kind == "datetime_i64" else None
    if not isinstance(kind, str):
        return as_ours(value, kind, version)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if kio_kind == "error_code":
        return int(value)  # type: ignore[call-overload, no-any-return]
    return value
