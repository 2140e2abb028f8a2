"""Avro values: schemas as columns, framing, and values that are none."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.pipeline.avro import AvroDecoder, AvroEncoder, AvroSchemaError, fields_of
from penstock.pipeline.model import Column, Format, Place, Source
from penstock.pipeline.source_columns import check_columns, columns_of

pa = pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "amount", "type": ["null", DECIMAL]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)
TYPE = pa.struct(
    [
        ("id", pa.string()),
        ("amount", pa.decimal128(6, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
ORDER = {"id": "a", "amount": Decimal("1.50"), "at": datetime(2026, 1, 31, tzinfo=UTC), "tags": ["x"]}


def encoded(row: dict[str, Any] = ORDER) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(SCHEMA)), row)
    return stream.getvalue()


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": fields})


def decoder(framing: str = "auto") -> AvroDecoder:
    return AvroDecoder(SCHEMA, framing, TYPE)


def test_a_schema_becomes_columns() -> None:
    assert [(one.name, one.type, one.nullable) for one in fields_of(SCHEMA)] == [
        ("id", "STRING", False),
        ("amount", "DECIMAL(6,2)", True),
        ("at", "TIMESTAMP", False),
        ("tags", "ARRAY<STRING>", False),
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("boolean", "BOOLEAN"), ("int", "INT"), ("long", "BIGINT"), ("float", "FLOAT"), ("double", "DOUBLE"),
        ("bytes", "BINARY"), ({"type": "fixed", "name": "f", "size": 4}, "BINARY"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "STRING"),
        ({"type": "map", "values": "long"}, "MAP<STRING, BIGINT>"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "TIMESTAMP_NTZ"),
        ({"type": "string", "logicalType": "uuid"}, "STRING"),
        ({"type": "long", "logicalType": "time-micros"}, "BIGINT"),
        ({"type": "record", "name": "n", "fields": [{"name": "x", "type": ["int", "null"]}]}, "STRUCT<`x`: INT>"),
    ],
)  # fmt: skip
def test_types_have_counterparts(kind: object, expected: str) -> None:
    assert fields_of(record({"name": "x", "type": kind}))[0].type == expected


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "not JSON"),
        ('"string"', "is a record"),
        (record({"name": "x", "type": "strng"}), "does not define: strng"),
        (record({"name": "x", "type": ["string", "int"]}), "field x: a union"),
        ('{"type": "record", "name": "r"}', "no fields"),
        (record({"name": "x", "type": ["null", "r"]}), "contains itself"),
    ],
)
def test_a_schema_without_columns_is_refused(schema: str, message: str) -> None:
    with pytest.raises(AvroSchemaError, match=message):
        fields_of(schema)


def test_values_become_rows() -> None:
    assert decoder().decode(pa.array([encoded(), None])).to_pylist() == [
        {"row": ORDER, "reason": None},
        {"row": None, "reason": None},
    ]


@pytest.mark.parametrize("framing", ["auto", "confluent"])
def test_the_five_bytes_of_a_registry_are_stripped(framing: str) -> None:
    row, reason = decoder(framing).decode_one(b"\0\0\0\0\x07" + encoded())
    assert (row, reason) == (ORDER, None)


def test_a_plain_value_that_begins_with_zero_is_read_as_it_is() -> None:
    value = encoded({**ORDER, "id": ""})
    assert value[0] == 0
    assert decoder("auto").decode_one(value)[0] == {**ORDER, "id": ""}
    assert decoder("plain").decode_one(value)[0] == {**ORDER, "id": ""}


@pytest.mark.parametrize(
    ("value", "framing", "reason"),
    [
        (b"", "auto", "not Avro of this schema"),
        (b"junk", "plain", "not Avro of this schema"),
        (encoded() + b"more", "auto", "4 bytes are left over"),
        (encoded()[:-1], "plain", "not Avro of this schema"),
        (encoded(), "confluent", "not in Confluent's framing"),
        (b"\0\0\0\0\1junk", "confluent", "not Avro of this schema"),
        (b"\xff" * 40, "auto", "not Avro of this schema"),
    ],
)
def test_what_is_no_value_has_a_reason(value: bytes, framing: str, reason: str) -> None:
    row, found = decoder(framing).decode_one(value)
    assert row is None
    assert found is not None
    assert reason in found


def test_one_value_that_no_column_holds_does_not_cost_the_others() -> None:
    narrow = AvroDecoder(SCHEMA, "plain", pa.struct([("id", pa.string()), ("amount", pa.decimal128(3, 2))]))
    large = encoded({**ORDER, "amount": Decimal("999.99")})
    good, bad = narrow.decode(pa.array([encoded(), large])).to_pylist()
    assert (good["row"]["id"], good["reason"]) == ("a", None)
    assert bad["row"] is None
    assert "no column can hold" in bad["reason"]


def test_rows_become_values() -> None:
    rows = pa.array([ORDER], type=TYPE)
    assert AvroEncoder(SCHEMA).encode(rows).to_pylist() == [encoded()]


def test_columns_come_from_the_schema_unless_some_are_declared() -> None:
    source = Source(name="s", topic="s", format=Format.AVRO, avro_schema=SCHEMA)
    assert [one.name for one in columns_of(source)] == ["id", "amount", "at", "tags"]
    some = Source(name="s", format=Format.AVRO, avro_schema=SCHEMA, columns=(Column(name="at", type="timestamp"),))
    assert check_columns(some) == []
    assert [one.name for one in columns_of(some)] == ["at"]


def test_declared_columns_must_be_the_schemas() -> None:
    columns = (
        Column(name="idd", type="STRING", place=Place(2, 1)),
        Column(name="amount", type="DOUBLE", place=Place(3, 1)),
    )
    unknown, wrong = check_columns(Source(name="s", format=Format.AVRO, avro_schema=SCHEMA, columns=columns))
    assert "no field idd; did you mean id?" in unknown.message
    assert "amount is DECIMAL(6,2), not DOUBLE" in wrong.message
    assert (unknown.line, wrong.line) == (2, 3)
