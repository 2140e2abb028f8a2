"""How lines become records and records become lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.formats import (
    InputFormat,
    OutgoingRecord,
    ReceivedRecord,
    json_of,
    parse_time_ms,
    record_of,
    renderer_of,
    unescape,
)

RECORD = ReceivedRecord("t", 3, 42, 1000, b"k", b"v\xff", [("h", b"x"), ("n", None)])
NULLS = ReceivedRecord("t", 0, 7, 1000, None, None, [])
NOW_MS = 1_700_000_000_000


def rendered(form: str, record: ReceivedRecord = RECORD, **options: bool) -> bytes:
    shown = {"headers": False, "timestamps": False, "offsets": False, **options}
    return renderer_of(form, key_separator=b"\t", null=b"NULL", **shown)(record)


@pytest.mark.parametrize(
    ("line", "form", "expected"),
    [
        (b"v", InputFormat.LINES, OutgoingRecord(None, b"v", [])),
        (b"", InputFormat.LINES, OutgoingRecord(None, b"", [])),
        (b"NULL", InputFormat.LINES, OutgoingRecord(None, None, [])),
        (b"00ff 10", InputFormat.HEX, OutgoingRecord(None, b"\x00\xff\x10", [])),
        (b"AP8=", InputFormat.BASE64, OutgoingRecord(None, b"\x00\xff", [])),
        (b'{"value": "v"}', InputFormat.JSON, OutgoingRecord(None, b"v", [])),
        (b'{"key": null, "value": null}', InputFormat.JSON, OutgoingRecord(None, None, [])),
        (b'{"value": {"a": [1, "\xc3\xa9"]}}', InputFormat.JSON, OutgoingRecord(None, '{"a":[1,"é"]}'.encode(), [])),
        (b'{"value": {"base64": "AP8="}}', InputFormat.JSON, OutgoingRecord(None, b"\x00\xff", [])),
        (
            b'{"key": 1, "value": true, "headers": {"a": "b"}, "timestamp": 5, "partition": 2}',
            InputFormat.JSON,
            OutgoingRecord(b"1", b"true", [("a", b"b")], 5, 2),
        ),
    ],
)
def test_a_line_becomes_a_record(line: bytes, form: InputFormat, expected: OutgoingRecord) -> None:
    assert record_of(line, form, None, b"NULL") == expected


def test_a_separator_parts_key_and_value_at_its_first_place() -> None:
    assert record_of(b"k:v:w", InputFormat.LINES, b":", None)[:2] == (b"k", b"v:w")
    assert record_of(b"6b:76", InputFormat.HEX, b":", None)[:2] == (b"k", b"v")
    assert record_of(b"k::", InputFormat.LINES, b"::", b"")[:2] == (b"k", None)


@pytest.mark.parametrize(
    ("line", "form", "separator", "told"),
    [
        (b"v", InputFormat.LINES, b":", "no key separator"),
        (b"0", InputFormat.HEX, None, "not hexadecimal"),
        (b"\xff", InputFormat.HEX, None, "not hexadecimal"),
        (b"$", InputFormat.BASE64, None, "not base64"),
        (b"{", InputFormat.JSON, None, "not JSON"),
        (b"[]", InputFormat.JSON, None, "not a JSON object"),
        (b'{"headers": 1}', InputFormat.JSON, None, "headers"),
        (b'{"timestamp": "now"}', InputFormat.JSON, None, "timestamp is not a whole number"),
    ],
)
def test_a_line_of_the_wrong_form_is_refused(
    line: bytes, form: InputFormat, separator: bytes | None, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        record_of(line, form, separator, None)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("value", b"v\xff\n"),
        ("key-value", b"k\tv\xff\n"),
        ("hex", b"76ff\n"),
        ("key-value-hex", b"6b\t76ff\n"),
        ("base64", b"dv8=\n"),
        ("key-value-base64", b"aw==\tdv8=\n"),
        (r"%t/%p@%o %T %k=%s (%K,%S) %h 100%%\n", b"t/3@42 1000 k=v\xff (1,2) h=x,n= 100%\n"),
        (r"%s\x00\\n", b"v\xff\x00\\n"),
    ],
)
def test_a_record_becomes_a_line(form: str, expected: bytes) -> None:
    assert rendered(form) == expected


def test_null_is_told_from_empty() -> None:
    assert rendered("key-value", NULLS) == b"NULL\tNULL\n"
    assert rendered("%K %S", NULLS) == b"-1 -1"
    assert rendered("key-value", NULLS._replace(key=b"", value=b"")) == b"\t\n"


def test_what_else_is_known_goes_before_the_value() -> None:
    assert rendered("value", headers=True, timestamps=True, offsets=True) == b"1000\t3:42\th=x,n=\tv\xff\n"


@pytest.mark.parametrize("form", ["xml", "%q", "%"])
def test_a_form_that_is_not_known_is_refused(form: str) -> None:
    with pytest.raises(ValueError, match=r"format|template"):
        rendered(form)


OPTIONAL_BYTES = st.none() | st.binary(max_size=20)


@given(key=OPTIONAL_BYTES, value=OPTIONAL_BYTES, headers=st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES)))
def test_what_consume_writes_as_json_produce_reads_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    received = ReceivedRecord("t", 1, 2, 3, key, value, headers)
    line = rendered("json", received)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == json_of(received)
    assert record_of(line.rstrip(b"\n"), InputFormat.JSON, None, None) == OutgoingRecord(key, value, headers, 3, 1)


def test_escapes_stand_for_what_cannot_be_typed() -> None:
    assert unescape(r"\t\n\r\0\x1f\\|é") == b"\t\n\r\0\x1f\\|" + "é".encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("now", NOW_MS),
        ("-90s", NOW_MS - 90_000),
        ("-15m", NOW_MS - 900_000),
        ("-2h", NOW_MS - 7_200_000),
        ("-7d", NOW_MS - 604_800_000),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-15T00:13:20.5+02:00", NOW_MS + 500),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times_may_be_told_in_several_ways(text: str, expected: int) -> None:
    assert parse_time_ms(text, NOW_MS) == expected


def test_what_is_no_time_is_refused_with_an_example() -> None:
    with pytest.raises(ValueError, match="2026-01-31T12:00:00Z"):
        parse_time_ms("yesterday", NOW_MS)
