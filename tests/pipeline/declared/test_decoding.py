"""Records → rows and dead letters, on a real Spark."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from penstock.pipeline.model import Column, Format, Nulls, Role, Source, Unparsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

RAW = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDERS = Source(
    name="orders",
    topic="orders",
    columns=(
        Column(name="id", type="STRING", nullable=False),
        Column(name="amount", type="DECIMAL(10,2)"),
        Column(name="place", type="STRUCT<x: INT>"),
        Column(name="offset", type="BIGINT", role=Role.METADATA, metadata="offset"),
        Column(name="who", type="STRING", role=Role.KEY),
    ),
    dead_letters="dead",
)
GOOD = [
    b'{"id": "a", "amount": 1.5, "place": {"x": 1}, "unknown": true}',
    b'{"id": "b"}',
    b' {"id": "c", "amount": null} ',
    b'{"id": "d", "amount": 1.999}',
]
BAD = {
    b"not json": "not JSON: Expecting value",
    b"": "an empty value",
    b"null": "not a JSON object but null",
    b'["id"]': "not a JSON object but an array",
    b'[{"id": "x"}]': "not a JSON object but an array",
    b'"id"': "not a JSON object but text",
    b"5": "not a JSON object but a number",
    b'{"id": "x"': "not JSON: Expecting ',' delimiter",
    b'{"id": "x"} and more': "not JSON: Extra data",
    b'{"id": "x"}{"id": "y"}': "not JSON: Extra data",
    b'{"id": "x"}, "more": 5': "not JSON: Extra data",
    b'{"id": "x"}, "r": {"id": "y"}': "not JSON: Extra data",
    b'{"id": "x"}} and more {"id": "y"}': "not JSON: Extra data",
    b'{"id": "x"}], [{"id": "y"}': "not JSON: Extra data",
    b'{"id": "\xff"}': "not UTF-8: byte 8 is 0xff",
    b'{"amount": 5}': "id is missing, and is NOT NULL",
    b'{"ID": "x"}': "id is missing, and is NOT NULL",
    b'{"id": null}': "id is null, and is NOT NULL",
    b'{"id": "x", "amount": "free"}': 'amount is not a DECIMAL(10,2): "free"',
    b'{"id": "x", "amount": 1e12}': "amount is not a DECIMAL(10,2): 1000000000000.0",
    b'{"id": "x", "place": 5}': "place is not a STRUCT<x: INT>: 5",
    b'{"id": "x", "place": {"x": "y"}}': "does not fit the columns",
}


def raw(spark: SparkSession, values: list[bytes | None], key: bytes | None = b"k") -> DataFrame:
    header = [("trace", bytearray(b"1"))]
    rows = [
        (_array(key), _array(value), "orders", 3, offset, AT, 0, header if offset % 2 else None)
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RAW)


def _array(value: bytes | None) -> bytearray | None:
    return None if value is None else bytearray(value)


def letters(
    spark: SparkSession, source: Source, values: list[bytes | None], key: bytes | None = b"k"
) -> dict[Any, str]:
    from penstock.pipeline.dead_letters import dead_letter_rows
    from penstock.pipeline.decoding import decode

    found = {}
    for row in dead_letter_rows(decode(raw(spark, values, key), source), "shop").collect():
        facts = {header.key: bytes(header.value).decode() for header in row.headers}
        found[None if row.value is None else bytes(row.value)] = facts["penstock.error.reason"]
    return found


def test_json_becomes_rows_and_what_is_none_becomes_dead_letters(spark: SparkSession) -> None:
    from penstock.pipeline.decoding import decode

    values: list[bytes | None] = [*GOOD, *BAD, None]
    rows = decode(raw(spark, values), ORDERS).rows().orderBy("offset").collect()
    assert [(row.id, None if row.amount is None else str(row.amount), row.offset, row.who) for row in rows] == [
        ("a", "1.50", 0, "k"), ("b", None, 1, "k"), ("c", None, 2, "k"), ("d", "2.00", 3, "k"),
    ]  # fmt: skip
    assert rows[0].place.x == 1
    found = letters(spark, ORDERS, values)
    assert found.pop(None) == "no value (a tombstone)"
    assert {value: reason for value, reason in found.items() if not reason.startswith(BAD[value])} == {}
    assert sorted(found) == sorted(BAD)


@pytest.mark.parametrize("options", [{}, {"allowComments": "true", "allowUnquotedFieldNames": "true"}])
def test_nothing_may_follow_an_object(spark: SparkSession, options: dict[str, str]) -> None:
    """Neither what would close and open again whatever the value is parsed in, nor anything else."""
    from penstock.pipeline.decoding import decode

    chance = random.Random(4)
    objects = ('{"a": 1}', '{"a": 1, "s": {"b": "}"}}', '{"s": {"b": "x"}, "a": null}', "{'a': 2}", '{"a": NaN}', "{}")
    parts = ("", " ", "\n", ",", ":", "}", "{", "]", "[", '"r"', '"x"', "5", "null", '{"a": 1}', '"r":{"a":1}', "x")
    # What goes on in an object, in an array, or after either: and nothing at all, between spaces.
    endings = [',"x":5', ',{"a":1}', '},"r":{"a":1}', "}}", "],[", '],"x":[5', " ", "\n\t", ""]
    endings += ["".join(chance.choices(parts, k=chance.randint(1, 6))) for _ in range(400)]
    values = [one + ending for one in objects for ending in endings]
    columns = (Column(name="a", type="DOUBLE"), Column(name="s", type="STRUCT<b: STRING>"))
    source = Source(name="s", topic="s", columns=columns, unparsed=Unparsed.DROP, json_options=options)
    rows = decode(raw(spark, [value.encode() for value in values]), source).frame.where("NOT __bad").collect()
    assert [values[row.offset] for row in sorted(rows, key=lambda row: row.offset)] == [
        one + ending for one in objects for ending in endings if not ending.strip(" \n\t\r")
    ]


def test_a_dead_letter_is_the_record_with_why_and_from_where(spark: SparkSession) -> None:
    from penstock.pipeline.dead_letters import dead_letter_rows
    from penstock.pipeline.decoding import decode

    found = dead_letter_rows(decode(raw(spark, [b'{"id": "a"}', b"\x00\xff", b"{}"]), ORDERS), "shop").collect()
    first, second = sorted(found, key=lambda row: len(row.headers))
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"{}")
    assert (bytes(second.key), bytes(second.value)) == (b"k", b"\x00\xff")
    assert [(header.key, bytes(header.value).decode()) for header in second.headers] == [
        ("trace", "1"),
        ("penstock.error.reason", "not UTF-8: byte 1 is 0xff"),
        ("penstock.error.topic", "orders"),
        ("penstock.error.partition", "3"),
        ("penstock.error.offset", "1"),
        ("penstock.error.timestamp", str(int(AT.timestamp() * 1000))),
        ("penstock.error.pipeline", "shop"),
        ("penstock.error.source", "orders"),
    ]
    assert first.headers[0].key == "penstock.error.reason"


def test_what_happens_to_records_that_do_not_parse_can_be_chosen(spark: SparkSession) -> None:
    from dataclasses import replace

    from penstock.pipeline.decoding import decode

    values: list[bytes | None] = [b'{"id": "a"}', b"no", None]
    lenient = replace(ORDERS, columns=(Column(name="id", type="STRING"),))
    dropped = replace(lenient, dead_letters="", unparsed=Unparsed.DROP)
    assert [row.id for row in decode(raw(spark, values), dropped).rows().collect()] == ["a"]
    kept = replace(dropped, nulls=Nulls.KEEP)
    assert [row.id for row in decode(raw(spark, values), kept).rows().collect()] == ["a", None]
    skipped = replace(lenient, nulls=Nulls.SKIP)
    assert list(letters(spark, skipped, values)) == [b"no"]
    failing = replace(lenient, dead_letters="")
    with pytest.raises(Exception, match="the record at orders-3 offset 1 does not parse as a row of orders"):
        decode(raw(spark, values), failing).rows().collect()


def test_avro_becomes_rows_and_what_is_none_becomes_dead_letters(spark: SparkSession) -> None:
    fastavro = pytest.importorskip("fastavro")
    from penstock.pipeline.decoding import decode

    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
                {"name": "n", "type": "int"}]}}},
        ],
    }  # fmt: skip
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"id": "a", "at": AT, "items": [{"n": 2}]})
    value = stream.getvalue()
    source = Source(name="orders", topic="orders", format=Format.AVRO, avro_schema=json.dumps(schema), dead_letters="d")
    values: list[bytes | None] = [value, b"\0\0\0\0\1" + value, b"junk", value + b"x"]
    rows = decode(raw(spark, values), source).rows().collect()
    assert [(row.id, row.at.replace(tzinfo=UTC), row["items"][0].n) for row in rows] == [("a", AT, 2), ("a", AT, 2)]
    found = letters(spark, source, values)
    assert sorted(found) == sorted([b"junk", value + b"x"])
    assert found[value + b"x"] == "not Avro of this schema: 1 bytes are left over"


def test_text_and_bytes(spark: SparkSession) -> None:
    from penstock.pipeline.decoding import decode

    text = Source(name="lines", topic="orders", format=Format.TEXT, dead_letters="d")
    values: list[bytes | None] = [b"caf\xc3\xa9", b"\xff", None]
    assert [row.value for row in decode(raw(spark, values), text).rows().collect()] == ["café"]
    assert letters(spark, text, values) == {b"\xff": "not UTF-8", None: "no value (a tombstone)"}
    everything = decode(raw(spark, values), Source(name="all", topic="orders", format=Format.BYTES)).rows()
    assert everything.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    assert [row.value for row in everything.collect()] == [bytearray(b"caf\xc3\xa9"), bytearray(b"\xff"), None]


def test_a_missing_key_is_told(spark: SparkSession) -> None:
    from dataclasses import replace

    source = replace(
        ORDERS, columns=(*ORDERS.columns[:4], Column(name="who", type="STRING", role=Role.KEY, nullable=False))
    )
    assert letters(spark, source, [b'{"id": "a"}'], key=None) == {b'{"id": "a"}': "no key, and who is NOT NULL"}
