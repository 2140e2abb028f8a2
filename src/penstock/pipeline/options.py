"""Every word that a `WITH (…)` or a `SET` of a pipeline file may have, and what is said about one that it may not.

A word takes effect or is refused. Spark's names for the same things are known too, to name ours instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeVar

from penstock.pipeline.model import (
    NOWHERE,
    Delivery,
    Format,
    Nulls,
    OutputMode,
    Place,
    Problem,
    SinkKind,
    Unparsed,
    nearest,
)


class Target(Enum):
    """What a `WITH` belongs to."""

    SOURCE = "a stream that is read"
    TOPIC = "a topic that is written"
    TABLE = "a table that is written"
    CONSOLE = "the console"
    NOOP = "a sink that writes nothing"
    REFERENCE = "a table that is read"


@dataclass(frozen=True)
class Word:
    name: str
    meaning: str
    targets: tuple[Target, ...]
    choices: type[StrEnum] | tuple[str, ...] | None = None
    number: bool = False


_S, _T, _D, _C, _N, _R = (
    Target.SOURCE, Target.TOPIC, Target.TABLE, Target.CONSOLE, Target.NOOP, Target.REFERENCE,
)  # fmt: skip
_SINKS = (_T, _D, _C, _N)
FRAMINGS = ("auto", "plain", "confluent")

WORDS: tuple[Word, ...] = (
    Word("topic", "the topic; the stream's own name if not given", (_S, _T)),
    Word("pattern", "instead of topic: a regular expression of topics", (_S,)),
    Word("format", "how values are written: json, avro, text or bytes", (_S, _T), Format),
    Word("format", "delta, parquet, csv, json or orc", (_R,), ("delta", "parquet", "csv", "json", "orc")),
    Word("schema", "the Avro schema: JSON, or the name of a file beside the pipeline's", (_S, _T)),
    Word("framing", "of Avro values: plain, confluent (5 bytes before each), auto", (_S,), FRAMINGS),
    Word("starting", "earliest, latest, a timestamp, or offsets as JSON; for the first run", (_S,)),
    Word("ending", "a timestamp: records of that time and later are left out", (_S,)),
    Word("records_per_trigger", "how many records one batch takes at most", (_S,), number=True),
    Word("dead_letters", "the topic for records that do not parse", (_S,)),
    Word("unparsed", "without dead_letters: fail, or drop", (_S,), Unparsed),
    Word("nulls", "records without a value: dead-letter, skip or keep", (_S,), Nulls),
    Word("path", "the directory of the table; below SET lake if not given", (_D, _R)),
    Word("sink", "console or noop, instead of a topic or a table", _SINKS, SinkKind),
    Word("name", "of the query, where a target is written by more than one", _SINKS),
    Word("mode", "append (new rows), update (changed rows) or complete (all rows)", _SINKS, OutputMode),
    Word("delivery", "exactly-once, or at-least-once for brokers without transactions", (_T,), Delivery),
    Word("delivery", "of its dead letters: exactly-once or at-least-once", (_S,), Delivery),
    Word("key", "the columns that make the record's key", (_T,)),
    Word("key", "the columns that make a row's key, for mode = 'update'", (_D,)),
    Word("headers", "a column of headers, ARRAY<STRUCT<key: STRING, value: BINARY>>", (_T,)),
    Word("partition_by", "columns that the table is partitioned by", (_D,)),
    Word("date_column", "a timestamp: the table is partitioned by its day in UTC, as the column date", (_D,)),
    Word("schema_evolution", "columns that the table lacks: add or refuse", (_D,), ("add", "refuse")),
    Word("compact_every", "small files are put together after so many batches", (_D,), number=True),
    Word("rows", "how many rows to show of a batch", (_C,), number=True),
)  # fmt: skip

SOURCE_OPTIONS = (
    "minPartitions", "maxRecordsPerPartition", "minOffsetsPerTrigger", "maxTriggerDelay", "failOnDataLoss",
    "groupIdPrefix", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "startingOffsetsByTimestampStrategy",
)  # fmt: skip
"""Options of the `penstock` source that a stream hands on as they are."""

SINK_OPTIONS = ("headers", "rows", "date_column", "schema_evolution", "compact_every")
"""Words that a sink hands on in `Sink.options`, beside `kafka.…`."""

_INSTEAD = {
    "subscribe": "topic", "subscribepattern": "pattern", "startingoffsets": "starting", "endingoffsets": "ending",
    "startingtimestamp": "starting", "endingtimestamp": "ending", "maxoffsetspertrigger": "records_per_trigger",
    "value_format": "format", "kafka_topic": "topic", "dead_letter": "dead_letters", "outputmode": "mode",
    "output_mode": "mode", "partitioned_by": "partition_by", "location": "path", "avro_schema": "schema",
    "kafka.bootstrap.servers": "SET bootstrap.servers", "checkpointlocation": "SET checkpoint",
    "checkpoint": "SET checkpoint", "trigger": "SET trigger", "bootstrap.servers": "SET bootstrap.servers",
}  # fmt: skip

SETTINGS: Mapping[str, str] = {
    "pipeline": "its name; that of the file if not given",
    "checkpoint": "the directory that keeps how far the pipeline came",
    "trigger": "continuous, once, or every 5 seconds",
    "bootstrap.servers": "the cluster, HOST:PORT",
    "lake": "the directory below which tables without a path are written",
    "delivery": "of all topics that say nothing else: exactly-once or at-least-once",
    "records_per_trigger": "of all streams that say nothing else",
}
PREFIXES: Mapping[str, str] = {
    "kafka.": "client properties, such as kafka.security.protocol",
    "spark.": "settings of the Spark session",
}

NUMBER_MAX = 2_147_483_647
NUMBER_FIX = f"write a whole number above 0 and up to {NUMBER_MAX:,}"

E = TypeVar("E", bound=StrEnum)


def words_for(target: Target) -> dict[str, Word]:
    return {word.name: word for word in WORDS if target in word.targets}


@dataclass(frozen=True)
class Given:
    """A word of a file with its value, and where they stand."""

    value: str
    name_place: Place = NOWHERE
    value_place: Place = NOWHERE


def check_words(given: Mapping[str, Given], target: Target) -> list[Problem]:
    """What is wrong with the words of one `WITH`: unknown names, and values that are none of the choices."""
    known = words_for(target)
    problems = []
    for name, one in given.items():
        word = known.get(name)
        if word is not None:
            problems += _check_value(word, one)
        elif not _is_handed_on(name, target):
            problems.append(_unknown(name, one, target, known))
    return problems


def check_setting(name: str, given: Given) -> Problem | None:
    """What is wrong with the name of a `SET`."""
    if name in SETTINGS or name.startswith(tuple(PREFIXES)):
        return None
    instead = {"name": "pipeline", "bootstrap_servers": "bootstrap.servers", "master": "spark.master"}.get(name)
    guess = f"; did you mean {instead}?" if instead else nearest(name, SETTINGS)
    return Problem(
        f"there is no setting {name}{guess}",
        f"SET takes {', '.join(SETTINGS)}, and names that begin with {' or '.join(PREFIXES)}",
        given.name_place,
    )


def choice(kind: type[E], given: Given | None, default: E) -> E:
    """The value of a word whose choices were checked."""
    if given is None:
        return default
    try:
        return kind(given.value.lower())
    except ValueError:
        return default


def names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def number_of(text: str) -> int | None:
    """A whole number above 0, or None."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(NUMBER_MAX))):
        return None
    return int(text) if 0 < int(text) <= NUMBER_MAX else None


def _check_value(word: Word, given: Given) -> list[Problem]:
    if not given.value.strip():
        return [Problem(f"{word.name} is empty", f"{word.name} is {word.meaning}", given.value_place)]
    if word.number and number_of(given.value) is None:
        fix = f"{word.name} is {word.meaning}: {NUMBER_FIX}"
        return [Problem(f"{word.name} cannot be {given.value!r}", fix, given.value_place)]
    if word.choices is not None:
        allowed = [str(one) for one in word.choices]
        if given.value.lower() not in allowed:
            return [
                Problem(
                    f"{word.name} cannot be {given.value!r}{nearest(given.value, allowed)}",
                    f"{word.name} is one of {_listed(allowed)}",
                    given.value_place,
                )
            ]
    return []


def _is_handed_on(name: str, target: Target) -> bool:
    if name == "kafka.bootstrap.servers":
        return False
    if target is Target.SOURCE:
        return name.startswith(("kafka.", "json.")) or name in SOURCE_OPTIONS
    if target is Target.TOPIC:
        return name.startswith("kafka.")
    # Spark's readers of files have options of their own, and say themselves what they do not take.
    return target is Target.REFERENCE and name.startswith("option.")


def _unknown(name: str, given: Given, target: Target, known: Mapping[str, Word]) -> Problem:
    handed_on = SOURCE_OPTIONS if target is Target.SOURCE else ()
    same = next((one for one in (*known, *handed_on) if one.lower() == name.lower()), None)
    instead = same or _INSTEAD.get(name.lower())
    guess = f"; use {instead}" if instead else nearest(name, [*known, *handed_on])
    elsewhere = next((word for word in WORDS if word.name == name), None)
    if elsewhere is not None and not instead:
        belongs = " or ".join(one.value for one in elsewhere.targets)
        return Problem(f"{name} belongs to {belongs}, not to {target.value}", f"leave {name} out", given.name_place)
    return Problem(
        f"{target.value} has no option {name}{guess}", f"it takes {_listed(sorted(known))}", given.name_place
    )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
