"""Avro values ↔ rows, with a schema that the pipeline file gives; on workers, through Arrow.

Spark's own `from_avro` is in a jar that has to be found and fits one version of Spark. fastavro reads some hundred
thousand records per second and core, and says what is wrong with one that it cannot read.

Registries put five bytes before each value: a zero and the id of a schema. `confluent` framing strips them, `plain`
leaves values alone, and `auto` reads a value that begins with a zero as plain first and stripped second: whichever
reading uses up all the bytes is taken. Both rarely do; whoever cannot live with "rarely" names the framing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    # Avro's JSON: an object, the name of a type, or a list for a union.
    Json = Any

CONFLUENT_PREFIX_BYTES = 5
REASON_CHARACTERS_MAX = 500

_PRIMITIVES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}
_LOGICAL = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}
# fastavro makes objects of these that Arrow does not take for the plain type that a column has.
_PLAIN = ("uuid", "time-millis", "time-micros", "timestamp-nanos", "local-timestamp-nanos", "duration")


class AvroSchemaError(ValueError):
    """A schema that is none, or that has no counterpart among columns."""


@dataclass(frozen=True)
class AvroField:
    name: str
    type: str
    """In Spark's words."""
    nullable: bool


def fields_of(schema_text: str) -> tuple[AvroField, ...]:
    """The columns of a record's schema; AvroSchemaError says why there are none."""
    schema = _parse(schema_text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise AvroSchemaError('the schema of a topic\'s values is a record: {"type": "record", …}')
    if not schema.get("fields"):
        raise AvroSchemaError("the record has no fields")
    return tuple(_record_fields(schema, {schema["name"]: schema}, ()))


def _record_fields(schema: Mapping[str, Json], named: dict[str, Json], inside: tuple[str, ...]) -> list[AvroField]:
    """`inside` has the records that this one is a part of."""
    found = []
    inside = (*inside, schema["name"])
    for field in schema["fields"]:
        try:
            type_text, nullable = _type_of(field["type"], named, inside)
        except AvroSchemaError as error:
            raise AvroSchemaError(f"field {field['name']}: {error}") from None
        found.append(AvroField(field["name"], type_text, nullable))
    return found


def _type_of(schema: Json, named: dict[str, Json], inside: tuple[str, ...]) -> tuple[str, bool]:
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise AvroSchemaError("a union has a column only if it is of null and one other type")
        return _type_of(others[0], named, inside)[0], len(others) != len(schema)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema], False
        if schema in inside:
            raise AvroSchemaError(f"the record {schema} contains itself, and columns cannot")
        if schema in named:
            return _type_of(named[schema], named, inside)
        raise AvroSchemaError(f"the type {schema} is not known")
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _type_of(kind, named, inside)
    if "name" in schema:
        named[schema["name"]] = schema
    if schema.get("logicalType") == "decimal":
        return f"DECIMAL({schema['precision']},{schema.get('scale', 0)})", False
    if logical := _LOGICAL.get((kind, schema.get("logicalType", ""))):
        return logical, False
    if kind == "record":
        parts = [
            f"`{field.name}`: {field.type}{'' if field.nullable else ' NOT NULL'}"
            for field in _record_fields(schema, named, inside)
        ]
        return f"STRUCT<{', '.join(parts)}>", False
    if kind == "array":
        return f"ARRAY<{_type_of(schema['items'], named, inside)[0]}>", False
    if kind == "map":
        return f"MAP<STRING, {_type_of(schema['values'], named, inside)[0]}>", False
    if kind == "enum":
        return "STRING", False
    if kind == "fixed":
        return "BINARY", False
    return _type_of(kind, named, inside)


def _parse(schema_text: str) -> Json:
    """The schema in fastavro's form, with every name written out."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        given = json.loads(schema_text)
    except ValueError as error:
        raise AvroSchemaError(f"the schema is not JSON: {error}") from None
    try:
        return parse_schema(_without_objects(given), _write_hint=False)
    except UnknownType as error:
        raise AvroSchemaError(f"the schema names a type that it does not define: {error.name}") from None
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as error:
        raise AvroSchemaError(f"this is no Avro schema: {error}") from None


def _without_objects(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_without_objects(one) for one in schema]
    if isinstance(schema, dict):
        return {
            name: _without_objects(value)
            for name, value in schema.items()
            if not (name == "logicalType" and value in _PLAIN)
        }
    return schema


@lru_cache(maxsize=32)
def _parsed(schema_text: str) -> Json:
    return _parse(schema_text)


@dataclass(frozen=True)
class AvroDecoder:
    """Values → a column of rows and a column of reasons; picklable, for Spark's workers."""

    schema_text: str
    framing: str
    type: pa.DataType
    """A struct of the record's columns."""

    def decode(self, values: pa.Array) -> pa.Array:
        """A struct of `row` (null where a value cannot be read) and `reason` (null where it can)."""
        import pyarrow as pa

        rows: list[dict[str, object] | None] = []
        reasons: list[str | None] = []
        for value in values:
            row, reason = self.decode_one(value.as_py())
            rows.append(row)
            reasons.append(reason)
        try:
            column = pa.array(rows, type=self.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
            # One value that Arrow does not take (a date of year 20000) must not cost the others.
            for index, row in enumerate(rows):
                try:
                    pa.array([row], type=self.type)
                except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as error:
                    rows[index], reasons[index] = None, _short(f"a value that no column can hold: {error}")
            column = pa.array(rows, type=self.type)
        return pa.StructArray.from_arrays([column, pa.array(reasons, pa.string())], names=["row", "reason"])

    def decode_one(self, value: bytes | None) -> tuple[dict[str, object] | None, str | None]:
        """One value, or the reason why it cannot be read."""
        if value is None:
            return None, None
        starts = [0]
        if self.framing == "confluent":
            if len(value) < CONFLUENT_PREFIX_BYTES or value[0] != 0:
                return None, "not in Confluent's framing: the first byte is not 0, or fewer than 5 bytes"
            starts = [CONFLUENT_PREFIX_BYTES]
        elif self.framing == "auto" and value[:1] == b"\0" and len(value) >= CONFLUENT_PREFIX_BYTES:
            starts = [0, CONFLUENT_PREFIX_BYTES]
        reason: str | None = None
        for start in starts:
            try:
                return _read(self.schema_text, value, start), None
            except Exception as error:
                # fastavro raises nearly anything on bytes that are not of the schema.
                reason = reason or _short(f"not Avro of this schema: {str(error) or type(error).__name__}")
        return None, reason


def _read(schema_text: str, value: bytes, start: int) -> dict[str, object]:
    from fastavro import schemaless_reader

    stream = io.BytesIO(value)
    stream.seek(start)
    row = schemaless_reader(stream, _parsed(schema_text), None)
    if (left := len(value) - stream.tell()) > 0:
        raise ValueError(f"{left} bytes are left over")
    assert isinstance(row, dict), "the schema is a record's"
    return row


@dataclass(frozen=True)
class AvroEncoder:
    """Rows → values; picklable, for Spark's workers."""

    schema_text: str

    def encode(self, rows: pa.Array) -> pa.Array:
        import pyarrow as pa
        from fastavro import schemaless_writer

        schema = _parsed(self.schema_text)
        values: list[bytes] = []
        for row in rows:
            stream = io.BytesIO()
            schemaless_writer(stream, schema, row.as_py())
            values.append(stream.getvalue())
        return pa.array(values, pa.binary())


def _short(text: str) -> str:
    return text if len(text) <= REASON_CHARACTERS_MAX else text[: REASON_CHARACTERS_MAX - 1] + "…"
