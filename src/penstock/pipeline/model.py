"""What a pipeline file says, whichever language it is written in.

`sql_file` and `builder` both end here, and everything after them (`checking`, `planning`, `running`) starts here: a
`Pipeline` is plain frozen data, knows where in its file each part stands, and needs neither Spark nor a broker.

A pipeline reads *sources* (topics) and *references* (tables that streams are joined with), names *transformations* of
them, and has *sinks*. Each sink is one streaming query with a checkpoint of its own under the pipeline's; a source
whose records go to a dead-letter topic when they do not parse adds one query for those.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS_PER_TRIGGER = 200_000
"""How many records of a source one batch takes unless the file says otherwise: large batches cost least per record."""

NOTHING: Mapping[str, str] = MappingProxyType({})


class Place(NamedTuple):
    """Where something stands in a file; lines and columns are counted from 1, and line 0 is the file as a whole."""

    line: int = 0
    column: int = 1


NOWHERE = Place()


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a pipeline, with where and what to do about it."""

    message: str
    fix: str = ""
    place: Place = NOWHERE

    @property
    def line(self) -> int:
        return self.place.line

    @property
    def column(self) -> int:
        return self.place.column


class PipelineError(Exception):
    """A file that cannot be a pipeline, or a pipeline that cannot run; `problems` has all that was found."""

    def __init__(self, problems: Problem | Sequence[Problem], *, path: Path | None = None) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        assert self.problems, "an error without a problem says nothing"
        self.path = path
        super().__init__(self.problems[0].message)


class Format(StrEnum):
    """How the values of a topic are written."""

    JSON = "json"
    AVRO = "avro"
    TEXT = "text"
    """One column, `value`, as text."""
    BYTES = "bytes"
    """Records as they are: the columns `key`, `value`, `topic`, `partition`, `offset`, `timestamp` and `headers`."""


class Role(StrEnum):
    """Where a column of a source comes from."""

    VALUE = "value"
    KEY = "key"
    METADATA = "metadata"


METADATA_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "key": "BINARY",
        "topic": "STRING",
        "partition": "INT",
        "offset": "BIGINT",
        "timestamp": "TIMESTAMP",
        "timestampType": "INT",
        "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    }
)
"""What `METADATA FROM '…'` may name, with the type that it has."""


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    type: str
    """A type in Spark's words, such as `DECIMAL(10,2)` or `ARRAY<STRING>`."""
    nullable: bool = True
    role: Role = Role.VALUE
    metadata: str = ""
    """For a column with the role METADATA, which of `METADATA_TYPES` it shows."""
    place: Place = NOWHERE
    type_place: Place = NOWHERE


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """How long to wait for late records: state is kept, and results are held back, that long behind the newest."""

    column: str
    delay: str
    """An interval in Spark's words, such as `10 minutes`."""
    place: Place = NOWHERE


class Nulls(StrEnum):
    """What becomes of a record without a value (a tombstone) where the format expects one."""

    DEAD_LETTER = "dead-letter"
    SKIP = "skip"
    KEEP = "keep"
    """A row with null in each column of the value."""


class Unparsed(StrEnum):
    """What becomes of a record that does not parse where the source has no dead-letter topic."""

    FAIL = "fail"
    DROP = "drop"


class Delivery(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A topic as a stream of rows."""

    name: str
    topic: str = ""
    pattern: str = ""
    """Instead of `topic`: a regular expression of topics, as `subscribePattern` takes it."""
    format: Format = Format.JSON
    columns: tuple[Column, ...] = ()
    """May be empty for Avro (the schema has them), text and bytes."""
    watermark: Watermark | None = None
    starting: str = "earliest"
    """`earliest`, `latest`, a timestamp (ISO 8601), or offsets as JSON; for a pipeline without a checkpoint yet."""
    ending: str = ""
    """For `once` only: a timestamp at which to stop, for a replay of a time range."""
    records_per_trigger: int = RECORDS_PER_TRIGGER
    dead_letters: str = ""
    """The topic for records that do not parse."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    """Of the dead letters."""
    unparsed: Unparsed = Unparsed.FAIL
    nulls: Nulls = Nulls.DEAD_LETTER
    avro_schema: str = ""
    """The schema as JSON."""
    framing: str = "auto"
    """For Avro: `plain`, `confluent` (one zero byte and a schema id before each value), or `auto`."""
    json_options: Mapping[str, str] = field(default_factory=dict)
    """What `from_json` takes, such as `timestampFormat`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the `penstock` source itself, such as `minPartitions` or `failOnDataLoss`."""
    place: Place = NOWHERE


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A table that does not stream, to join streams with; as it is when the run starts."""

    name: str
    path: str
    format: str = "delta"
    """`delta`, or a batch format of Spark: `parquet`, `csv`, `json`, `orc`."""
    columns: tuple[Column, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    place: Place = NOWHERE


@dataclass(frozen=True, kw_only=True)
class Sql:
    """A query, and where its text begins in the file."""

    text: str
    place: Place = NOWHERE


@dataclass(frozen=True, kw_only=True)
class Transformation:
    """A name for a query over what was named before it; SQL, or a function from DataFrames to a DataFrame."""

    name: str
    query: Sql | Callable[..., DataFrame]
    inputs: tuple[str, ...] = ()
    """For a function, what it is called with, in this order; SQL names its inputs itself."""
    place: Place = NOWHERE


class SinkKind(StrEnum):
    TOPIC = "topic"
    TABLE = "table"
    CONSOLE = "console"
    NOOP = "noop"


class OutputMode(StrEnum):
    """What a batch writes: new rows, changed rows, or everything again (Spark's words)."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


@dataclass(frozen=True, kw_only=True)
class Sink:
    """Where the rows of a transformation go; one streaming query."""

    name: str
    kind: SinkKind
    input: str
    """The name of a transformation or a source."""
    topic: str = ""
    path: str = ""
    mode: OutputMode = OutputMode.APPEND
    delivery: Delivery = Delivery.EXACTLY_ONCE
    format: Format = Format.JSON
    key: tuple[str, ...] = ()
    """For a topic, the columns that make the record's key; for a table in mode update, those that make a row's."""
    columns: tuple[Column, ...] = ()
    """What the target was declared with; rows are cast to it, and the check refuses what does not fit."""
    avro_schema: str = ""
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """What else the sink takes: see `options.SINK_OPTIONS`."""
    place: Place = NOWHERE


class TriggerKind(StrEnum):
    CONTINUOUS = "continuous"
    """The next batch begins when the last one ended."""
    EVERY = "every"
    ONCE = "once"
    """All that is there now, in as many batches as the caps ask for; then the run ends."""


_TRIGGER = re.compile(r"(?:every\s+)?(\d+(?:\.\d+)?)\s*([a-z]+)")
_UNITS_MS = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1_000, "sec": 1_000, "second": 1_000, "seconds": 1_000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip


@dataclass(frozen=True)
class Trigger:
    """When batches run."""

    kind: TriggerKind = TriggerKind.CONTINUOUS
    interval_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """`continuous`, `once`, or `every 5 seconds`; ValueError says what it may be."""
        words = " ".join(text.lower().split())
        if words == TriggerKind.CONTINUOUS:
            return cls()
        if words == TriggerKind.ONCE:
            return cls(TriggerKind.ONCE)
        found = _TRIGGER.fullmatch(words)
        if found and found[2] in _UNITS_MS:
            interval_ms = round(float(found[1]) * _UNITS_MS[found[2]])
            if interval_ms > 0:
                return cls(TriggerKind.EVERY, interval_ms)
        raise ValueError(f"{text!r} is no trigger: use 'continuous', 'once', or 'every 5 seconds'")

    def __str__(self) -> str:
        if self.kind is not TriggerKind.EVERY:
            return str(self.kind)
        for unit, size_ms in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
            if self.interval_ms % size_ms == 0:
                return f"every {self.interval_ms // size_ms} {unit}"
        return f"every {self.interval_ms} ms"


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Everything a pipeline file says."""

    name: str
    sources: tuple[Source, ...] = ()
    references: tuple[Reference, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    """In the order of the file; each sees what stands before it."""
    sinks: tuple[Sink, ...] = ()
    trigger: Trigger = Trigger()
    checkpoint: str = ""
    """A directory that is this pipeline's alone: a path of this machine, or a URI that Spark's file systems know."""
    bootstrap_servers: str = "127.0.0.1:9092"
    properties: Mapping[str, str] = field(default_factory=dict)
    """Client properties for all topics (`security.protocol`, `sasl.*` …), under Java's or librdkafka's names."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Spark session, `spark.…`."""
    path: Path | None = None
    """The file it was read from; relative paths in it are relative to the working directory, as Spark's are."""
    text: str = field(default="", repr=False)
    places: Mapping[str, Place] = field(default_factory=dict, repr=False)
    """Where settings (`trigger`, `checkpoint`, …) were made, for messages."""

    def source(self, name: str) -> Source | None:
        return next((source for source in self.sources if source.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        """All that a query can read from."""
        return tuple(one.name for group in (self.sources, self.references, self.transformations) for one in group)

    @property
    def client_properties(self) -> dict[str, str]:
        """What a client of this pipeline's cluster is made with."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.properties}

    def with_settings(
        self,
        *,
        name: str | None = None,
        trigger: Trigger | None = None,
        checkpoint: str | None = None,
        bootstrap_servers: str | None = None,
        properties: Mapping[str, str] = NOTHING,
        spark: Mapping[str, str] = NOTHING,
    ) -> Pipeline:
        """The same pipeline with some settings made otherwise, as the command line may ask."""
        return replace(
            self,
            name=self.name if name is None else name,
            trigger=self.trigger if trigger is None else trigger,
            checkpoint=self.checkpoint if checkpoint is None else checkpoint,
            bootstrap_servers=self.bootstrap_servers if bootstrap_servers is None else bootstrap_servers,
            properties={**self.properties, **properties},
            spark={**self.spark, **spark},
        )


@dataclass(frozen=True, kw_only=True)
class Template:
    """A pipeline file to start from, for `penstock pipeline init --from NAME`."""

    name: str
    summary: str
    """One line, without a full stop."""
    text: str
    suffix: str = ".sql"
    """`.sql` or `.py`."""


def rows_name(query: str) -> str:
    """What the rows of a query are called, in letters that Spark's names have."""
    return re.sub(r"\W", "_", query)


def nearest(word: str, words: Iterable[str]) -> str:
    """`; did you mean x?`, or nothing, for the end of a message about a name that is not known."""
    found = difflib.get_close_matches(word.lower(), [one.lower() for one in words], n=1, cutoff=0.6)
    if not found:
        return ""
    original = next(one for one in words if one.lower() == found[0])
    return f"; did you mean {original}?"
