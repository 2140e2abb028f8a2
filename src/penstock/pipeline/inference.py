"""The columns of a topic, found in a sample of its records, and a pipeline file that reads them. Pure.

Types are chosen so that every value of the sample fits: integers are BIGINT, other numbers DOUBLE, texts that are all
points in time TIMESTAMP, or DATE. Values of different kinds under one name become STRING, as which Spark reads any JSON
value. A column is NOT NULL if every record of the sample has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from penstock.pipeline.model import Format

BIGINT_MAX = 2**63 - 1
NOT_NULL_RECORDS_MIN = 10
"""Below so many records, that a field was never missing says too little."""
DEPTH_MAX = 8
TIMESTAMP = "TIMESTAMP"
STRING = "STRING"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_EPOCH_MS = range(1_000_000_000_000, 5_000_000_000_000)
"""Numbers that may be milliseconds since 1970: the years 2001 to 2128."""
_PLAIN = re.compile(r"[A-Za-z_]\w*")
_RESERVED = {"watermark"}


@dataclass(frozen=True)
class Sampled:
    """One record of a topic."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class InferredColumn:
    name: str
    type: str
    nullable: bool
    note: str = ""


@dataclass(frozen=True)
class InferredSchema:
    """What a sample says about a topic."""

    format: Format
    columns: tuple[InferredColumn, ...]
    key: str
    """The name of a column for the record's key; empty if keys are missing or no text."""
    records: int
    bad: int
    """Records that are not of this format."""
    tombstones: int

    @property
    def time(self) -> str:
        """The column that tells when the event happened; empty if no column does."""
        times = [one.name for one in self.columns if one.type == TIMESTAMP]
        required = [one.name for one in self.columns if one.type == TIMESTAMP and not one.nullable]
        return next(iter(required or times), "")


def infer_schema(sample: Sequence[Sampled]) -> InferredSchema:
    """The format and the columns of a topic; `sample` must not be empty."""
    assert sample
    values = [one.value for one in sample if one.value is not None]
    texts = [text for text in map(_text, values) if text is not None]
    rows = [row for row in map(_object, texts) if row is not None]
    tombstones = len(sample) - len(values)
    # A topic of JSON may hold a few records that are none; a topic of text may hold a few that look like JSON.
    if rows and len(rows) * 2 > len(values):
        columns = tuple(_columns(rows))
        key = _key_name(sample, [one.name for one in columns])
        return InferredSchema(Format.JSON, columns, key, len(sample), len(values) - len(rows), tombstones)
    kind = Format.TEXT if values and len(texts) == len(values) else Format.BYTES
    return InferredSchema(kind, (), "", len(sample), 0, tombstones)


def pipeline_text(schema: InferredSchema, topic: str, *, bootstrap_servers: str) -> str:
    """A pipeline file that writes the rows of the topic to a table, with comments for whoever goes on from there."""
    stream = stream_name(topic)
    return "\n".join(_lines(schema, topic, stream, bootstrap_servers)) + "\n"


def stream_name(topic: str) -> str:
    """A name for the stream: letters, digits and _."""
    name = re.sub(r"\W+", "_", topic, flags=re.ASCII).strip("_")
    return name if name[:1].isalpha() else f"topic_{name}"


def _lines(schema: InferredSchema, topic: str, stream: str, bootstrap_servers: str) -> Iterator[str]:
    counted = f"{schema.records:,} records" if schema.records != 1 else "one record"
    yield f"-- Written by `penstock pipeline init --from-topic {topic}`, from {counted} of the topic."
    yield "-- Check it with `penstock pipeline validate`, start it with `penstock pipeline run`."
    yield ""
    yield f"SET bootstrap.servers = '${{BOOTSTRAP:-{bootstrap_servers}}}';"
    yield f"SET checkpoint = 'checkpoints/{stream}';     -- how far it came; this pipeline's alone"
    yield "SET trigger = 'every 5 seconds';            -- or 'continuous', or 'once'"
    yield "SET lake = 'lake';                          -- tables are written below this directory"
    if any(one.type == TIMESTAMP for one in schema.columns):
        yield "SET spark.sql.session.timeZone = 'UTC';     -- for times that are written without a zone"
    yield ""
    if schema.format is Format.JSON:
        yield from _json_stream(schema, topic, stream)
    else:
        what = "text in UTF-8" if schema.format is Format.TEXT else "bytes that are no text"
        yield f"-- The values are {what}."
        yield f"CREATE STREAM {stream} WITH (topic = '{topic}', format = '{schema.format}', nulls = 'skip');"
    yield ""
    yield f"-- Every record as a row, exactly once: `penstock tables show lake/{stream}_rows`."
    yield f"CREATE TABLE {stream}_rows AS SELECT * FROM {stream};"
    if schema.time:
        yield ""
        yield "-- Or the number of records per minute, once the watermark has passed the minute:"
        yield f"-- CREATE TABLE {stream}_per_minute AS"
        yield "--     SELECT window.start AS minute, count(*) AS records"
        yield f"--     FROM {stream} GROUP BY window({_quoted(schema.time)}, '1 minute');"


def _json_stream(schema: InferredSchema, topic: str, stream: str) -> Iterator[str]:
    if schema.records < NOT_NULL_RECORDS_MIN:
        yield "-- So few records do not show which columns are always there: add NOT NULL where that is so."
    else:
        yield "-- NOT NULL: every record of the sample has it. A record without it counts as one that does not parse."
    if schema.bad:
        yield f"-- {schema.bad} of the {schema.records:,} records are no JSON objects."
    yield f"CREATE STREAM {stream} ("
    entries: list[tuple[str, str]] = []
    if schema.key:
        entries.append((f"{schema.key} STRING KEY", "the record's key"))
    width = max((len(_quoted(one.name)) for one in schema.columns), default=0)
    for one in schema.columns:
        required = "" if one.nullable else " NOT NULL"
        entries.append((f"{_quoted(one.name):{width}} {one.type}{required}", one.note))
    if schema.time:
        entries.append((f"WATERMARK FOR {_quoted(schema.time)} DELAY OF 10 MINUTES", "how late records may come"))
    for number, (text, note) in enumerate(entries, start=1):
        comma = "," if number < len(entries) else ""
        yield f"    {text}{comma}" + (f"  -- {note}" if note else "")
    yield ") WITH ("
    yield f"    topic = '{topic}',"
    yield "    format = 'json',"
    if schema.tombstones:
        yield f"    nulls = 'skip',  -- {schema.tombstones} records of the sample have no value"
    if schema.bad:
        yield "    unparsed = 'drop',  -- better: a topic that keeps such records, dead_letters = '…'"
    else:
        yield "    -- A record that does not parse ends the run. To keep such records in a topic instead:"
        yield f"    -- dead_letters = '{topic}.dead', delivery = 'at-least-once',"
    yield "    starting = 'earliest'  -- or 'latest', or a time"
    yield ");"


def _columns(rows: Sequence[Mapping[str, object]]) -> Iterator[InferredColumn]:
    names = dict.fromkeys(name for row in rows for name in row)
    taken: set[str] = set()
    for name in names:
        if name.lower() in taken:
            continue  # Spark does not tell `id` from `ID`
        taken.add(name.lower())
        values = [row[name] for row in rows if row.get(name) is not None]
        nullable = len(values) < len(rows) or len(rows) < NOT_NULL_RECORDS_MIN
        kind = _type(values, 0)
        yield InferredColumn(name, kind, nullable, _note(kind, values))


def _type(values: Sequence[object], depth: int) -> str:
    kinds = {_kind(value) for value in values if value is not None}
    if kinds == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    if kinds == {"DATE", TIMESTAMP}:
        return TIMESTAMP
    if len(kinds) != 1 or depth > DEPTH_MAX:
        return STRING
    [kind] = kinds
    if kind == "ARRAY":
        items = [item for value in values if isinstance(value, list) for item in value]
        return f"ARRAY<{_type(items, depth + 1)}>"
    if kind == "STRUCT":
        objects = [value for value in values if isinstance(value, dict)]
        names = dict.fromkeys(name for one in objects for name in one)
        if not names or len({name.lower() for name in names}) < len(names):
            return STRING
        fields = ((name, _type([one.get(name) for one in objects], depth + 1)) for name in names)
        return "STRUCT<" + ", ".join(f"{_quoted(name)}: {kind}" for name, kind in fields) + ">"
    return kind


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if abs(value) <= BIGINT_MAX else STRING
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, str):
        return _text_kind(value)
    return "ARRAY" if isinstance(value, list) else "STRUCT"


def _text_kind(text: str) -> str:
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return "DATE"
        if _TIME.fullmatch(text):
            datetime.fromisoformat(text)
            return TIMESTAMP
    except ValueError:
        pass
    return STRING


def _note(kind: str, values: Sequence[object]) -> str:
    if kind == STRING and len({_kind(one) for one in values}) > 1:
        return "values of several types"
    if kind == "BIGINT" and values and all(isinstance(one, int) and one in _EPOCH_MS for one in values):
        return "milliseconds since 1970? timestamp_millis(…) makes a TIMESTAMP of them"
    if not values:
        return "always null"
    return ""


def _key_name(sample: Iterable[Sampled], columns: Iterable[str]) -> str:
    keys = [one.key for one in sample]
    if not keys or any(key is None or _text(key) is None for key in keys):
        return ""
    taken = {name.lower() for name in columns}
    return next(name for name in ("record_key", "record_key_", "record_key__") if name not in taken)


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def _text(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _object(text: str) -> Mapping[str, object] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
