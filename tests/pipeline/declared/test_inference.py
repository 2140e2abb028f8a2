"""Columns that are found in a sample of a topic."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.pipeline.checking import check_declarations
from penstock.pipeline.inference import Sampled, infer_schema, pipeline_text, stream_name
from penstock.pipeline.model import Format, Pipeline, Unparsed
from penstock.pipeline.sql_file import parse_sql


def sampled(*rows: object, key: bytes | None = None) -> list[Sampled]:
    return [Sampled(key, row if isinstance(row, bytes) or row is None else json.dumps(row).encode()) for row in rows]


def pipeline_of(sample: list[Sampled], topic: str = "shop.orders") -> Pipeline:
    text = pipeline_text(infer_schema(sample), topic, bootstrap_servers="127.0.0.1:9092")
    pipeline = parse_sql(text, name="orders", path=Path("orders.sql"))
    assert check_declarations(pipeline) == [], text
    return pipeline


def test_each_column_has_a_type_that_all_values_fit() -> None:
    rows = [
        {
            "id": f"o{number}",
            "amount": 1 if number % 2 else 1.5,
            "count": number,
            "paid": True,
            "at": "2026-01-31T12:00:00.5Z",
            "day": "2026-01-31",
            "mixed": number if number % 2 else "x",
            "address": {"city": "Ulm", "two words": [1, None]},
            "tags": ["a", "b"],
            "sent_ms": 1_700_000_000_000 + number,
            "huge": 2**70,
            **({"coupon": "C"} if number == 3 else {}),
            "nothing": None,
        }
        for number in range(20)
    ]
    source = pipeline_of(sampled(*rows, key=b"k")).sources[0]
    types = {column.name: (column.type, column.nullable) for column in source.columns}
    assert types == {
        "record_key": ("STRING", True),
        "id": ("STRING", False),
        "amount": ("DOUBLE", False),
        "count": ("BIGINT", False),
        "paid": ("BOOLEAN", False),
        "at": ("TIMESTAMP", False),
        "day": ("DATE", False),
        "mixed": ("STRING", False),
        "address": ("STRUCT<city: STRING, `two words`: ARRAY<BIGINT>>", False),
        "tags": ("ARRAY<STRING>", False),
        "sent_ms": ("BIGINT", False),
        "huge": ("STRING", False),
        "coupon": ("STRING", True),
        "nothing": ("STRING", True),
    }
    assert (source.topic, source.name) == ("shop.orders", "shop_orders")
    assert source.watermark is not None
    assert source.watermark.column == "at"


def test_a_few_records_say_nothing_about_missing_fields() -> None:
    [column] = pipeline_of(sampled({"id": 1}, {"id": 2})).sources[0].columns
    assert column.nullable


def test_records_that_are_no_json_are_dropped_and_tombstones_skipped() -> None:
    schema = infer_schema(sampled({"id": 1}, {"id": 2}, b"oops", None))
    assert (schema.records, schema.bad, schema.tombstones) == (4, 1, 1)
    source = pipeline_of(sampled({"id": 1}, {"id": 2}, b"oops", None)).sources[0]
    assert source.unparsed is Unparsed.DROP


def test_topics_without_json() -> None:
    assert pipeline_of(sampled(b"hello", b"{}x")).sources[0].format is Format.TEXT
    assert pipeline_of(sampled(b"\xff\x00")).sources[0].format is Format.BYTES
    assert pipeline_of(sampled(None)).sources[0].format is Format.BYTES


def test_odd_names_still_make_a_file_that_can_be_read() -> None:
    rows = [{"a b": 1, "x`y": {"k": 1, "K": 2}, "watermark": "w", "ID": 1, "id": 2, "record_key": 5}]
    columns = pipeline_of(sampled(*rows, key=b"k"), "9-lives").sources[0].columns
    assert [column.name for column in columns] == ["record_key_", "a b", "x`y", "watermark", "ID", "record_key"]
    assert stream_name("9-lives") == "topic_9_lives"
