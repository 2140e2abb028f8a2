"""What is said about a value that does not parse."""

from __future__ import annotations

import pytest

from penstock.pipeline.json_reasons import Expected, explain

COLUMNS = [
    Expected("id", "STRING", False),
    Expected("count", "INT", True),
    Expected("amount", "DECIMAL(4,2)", True),
    Expected("at", "TIMESTAMP", True),
    Expected("tags", "ARRAY<STRING>", True),
    Expected("place", "STRUCT<x: INT>", True),
    Expected("open", "BOOLEAN", True),
    Expected("rate", "DOUBLE", True),
]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value (a tombstone)"),
        (b"", "an empty value"),
        (b"  \n", "an empty value"),
        (b'{"id": "\xff"}', "not UTF-8: byte 8 is 0xff"),
        (b'{"id": "a"', "not JSON: Expecting ',' delimiter: line 1 column 11 (char 10)"),
        (b'{"id": "a"} {"id": "b"}', "not JSON: Extra data: line 1 column 13 (char 12)"),
        (b"null", "not a JSON object but null"),
        (b"[1]", "not a JSON object but an array"),
        (b'"text"', "not a JSON object but text"),
        (b"5", "not a JSON object but a number"),
        (b"{}", "id is missing, and is NOT NULL"),
        (b'{"id": null}', "id is null, and is NOT NULL"),
        (b'{"ID": "a"}', "id is missing, and is NOT NULL"),
        (b'{"id": "a", "count": "many"}', 'count is not an INT: "many"'),
        (b'{"id": "a", "count": 3000000000}', "count is not an INT: 3000000000 is out of range"),
        (b'{"id": "a", "count": true}', "count is not an INT: true"),
        (b'{"id": "a", "count": 1.5}', "count is not an INT: 1.5"),
        (b'{"id": "a", "amount": 100}', "amount is not a DECIMAL(4,2): 100"),
        (b'{"id": "a", "amount": "1"}', 'amount is not a DECIMAL(4,2): "1"'),
        (b'{"id": "a", "at": "2026-01-31T12:00:00Z", "count": "x"}', 'count is not an INT: "x"'),
        (b'{"id": "a", "at": "yesterday"}', 'at is not a TIMESTAMP: "yesterday"'),
        (b'{"id": "a", "tags": "x"}', 'tags is not an ARRAY<STRING>: "x"'),
        (b'{"id": "a", "place": 1}', "place is not a STRUCT<x: INT>: 1"),
        (b'{"id": "a", "open": "yes"}', 'open is not a BOOLEAN: "yes"'),
        (b'{"id": "a", "rate": "1"}', 'rate is not a DOUBLE: "1"'),
        (b'{"id": "a", "place": {"x": "y"}}', "does not fit the columns"),
    ],
)
def test_the_reason_names_what_is_wrong(value: bytes | None, reason: str) -> None:
    assert explain(value, COLUMNS) == reason


def test_a_reason_stays_short() -> None:
    long = explain(b'{"id": "a", "count": "' + b"x" * 10_000 + b'"}', COLUMNS)
    assert len(long) < 100


def test_nesting_without_end_is_no_crash() -> None:
    assert explain(b"[" * 100_000, COLUMNS).startswith("not JSON")
