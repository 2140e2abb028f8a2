"""How records are read from lines and shown as lines. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

Headers = list[tuple[str, bytes | None]]

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"-(\d+)([smhd])")
_INTEGER = re.compile(r"[+-]?\d+")
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0"}


class InputFormat(StrEnum):
    """The format of an input line."""

    LINES = "lines"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


class OutgoingRecord(NamedTuple):
    """A record to be sent; None leaves timestamp and partition to the client."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None = None
    partition: int | None = None


class ReceivedRecord(NamedTuple):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


Renderer = Callable[[ReceivedRecord], bytes]


def record_of(line: bytes, form: InputFormat, separator: bytes | None, null: bytes | None) -> OutgoingRecord:
    """The record of an input line. Raises ValueError with the reason if the line is invalid."""
    if form is InputFormat.JSON:
        return _record_of_json(line)
    key: bytes | None = None
    value = line
    if separator is not None:
        key, found, value = line.partition(separator)
        if not found:
            raise ValueError(f"there is no key separator {separator.decode(errors='replace')!r} in it")
    decode = _DECODERS[form]
    return OutgoingRecord(
        key=None if key is None or key == null else decode(key),
        value=None if value == null else decode(value),
        headers=[],
    )


def renderer_of(
    form: str, *, key_separator: bytes, headers: bool, timestamps: bool, offsets: bool, null: bytes
) -> Renderer:
    """What makes a line (with its end) of a record. `form` is a name, or a template such as `%p:%o %k=%s\\n`."""
    if form == "json":
        return lambda record: json.dumps(json_of(record), ensure_ascii=False).encode() + b"\n"
    if "%" in form:
        return _template(form, null)
    encode = _ENCODERS.get(form.removeprefix("key-value-"))
    if form in ("value", "key-value"):
        encode = bytes
    if encode is None:
        names = ", ".join(("value", "key-value", "json", *_ENCODERS))
        raise ValueError(f"{form!r} is no format; it is one of {names}, or a template with % such as '%o %k=%s\\n'")
    with_key = form.startswith("key-value")

    def text(data: bytes | None) -> bytes:
        return null if data is None else encode(data)

    def line(record: ReceivedRecord) -> bytes:
        parts = []
        if timestamps:
            parts.append(b"%d" % record.timestamp_ms)
        if offsets:
            parts.append(b"%d:%d" % (record.partition, record.offset))
        if headers:
            parts.append(header_text(record))
        body = text(record.value)
        parts.append(text(record.key) + key_separator + body if with_key else body)
        return b"\t".join(parts) + b"\n"

    return line


def json_of(record: ReceivedRecord) -> dict[str, object]:
    """A record as `penstock produce --format json` takes it back."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": json_of_bytes(record.key),
        "value": json_of_bytes(record.value),
        "headers": [[name, json_of_bytes(value)] for name, value in record.headers],
    }


def json_of_bytes(data: bytes | None) -> object:
    """Text where it is text; otherwise an object that says how it is encoded."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def header_text(record: ReceivedRecord) -> bytes:
    """`name=value,name=value`."""
    return b",".join(name.encode() + b"=" + (b"" if value is None else value) for name, value in record.headers)


def unescape(text: str) -> bytes:
    """Text of the command line in which `\\n`, `\\t`, `\\r`, `\\0` and `\\xNN` stand for what cannot be typed."""
    return _ESCAPE.sub(_unescaped, text.encode())


def parse_time_ms(text: str, now_ms: int) -> int:
    """Milliseconds since 1970, an ISO 8601 time (UTC unless it names its zone), or how long ago (`-90s`, `-15m`)."""
    text = text.strip()
    if text == "now":
        return now_ms
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNIT_MS[ago[2]]
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; use 2026-01-31T12:00:00Z, milliseconds since 1970, or -15m for 15 minutes ago"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _record_of_json(line: bytes) -> OutgoingRecord:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError('it is not a JSON object such as {"key": "k", "value": "v"}')
    for name in ("timestamp", "partition"):
        if fields.get(name) is not None and not isinstance(fields[name], int):
            raise ValueError(f"{name} is not a whole number")
    return OutgoingRecord(
        key=_bytes_of_json(fields.get("key")),
        value=_bytes_of_json(fields.get("value")),
        headers=_headers_of_json(fields.get("headers") or []),
        timestamp_ms=fields.get("timestamp"),
        partition=fields.get("partition"),
    )


def _headers_of_json(headers: object) -> Headers:
    if isinstance(headers, dict):
        return [(str(name), _bytes_of_json(value)) for name, value in headers.items()]
    if isinstance(headers, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in headers):
        return [(str(name), _bytes_of_json(value)) for name, value in headers]
    raise ValueError('headers are neither an object nor a list of pairs such as [["name", "value"]]')


def _bytes_of_json(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        return _from_base64(value["base64"].encode())
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _from_hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode())
    except (ValueError, UnicodeDecodeError):
        raise ValueError("it is not hexadecimal") from None


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise ValueError("it is not base64") from None


_DECODERS: dict[InputFormat, Callable[[bytes], bytes]] = {
    InputFormat.LINES: bytes,
    InputFormat.HEX: _from_hex,
    InputFormat.BASE64: _from_base64,
}
_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "hex": binascii.hexlify,
    "base64": base64.b64encode,
    "key-value-hex": binascii.hexlify,
    "key-value-base64": base64.b64encode,
}


def _template(form: str, null: bytes) -> Renderer:
    """kcat's format strings: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp, %h headers, %K and %S
    the lengths of key and value (-1 for null)."""
    fields: dict[str, Renderer] = {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: null if record.key is None else record.key,
        "s": lambda record: null if record.value is None else record.value,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "h": header_text,
        "K": lambda record: b"%d" % _length(record.key),
        "S": lambda record: b"%d" % _length(record.value),
        "%": lambda record: b"%",
    }
    pieces: list[bytes | Renderer] = []
    for index, part in enumerate(re.split(r"%(.?)", form, flags=re.DOTALL)):
        if index % 2 == 0:
            pieces.append(unescape(part))
        elif part in fields:
            pieces.append(fields[part])
        else:
            raise ValueError(
                f"%{part} means nothing in a template; there are " + " ".join(f"%{name}" for name in fields)
            )
    return lambda record: b"".join(piece if isinstance(piece, bytes) else piece(record) for piece in pieces)


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1] == b"x" and len(code) == 3:
        return bytes.fromhex(code[1:].decode())
    return _ESCAPED.get(code, code)
