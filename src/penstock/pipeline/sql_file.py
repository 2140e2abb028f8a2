"""A SQL pipeline file → the model: what its statements mean together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.pipeline.model import (
    NOTHING,
    RECORDS_PER_TRIGGER,
    Delivery,
    Format,
    Nulls,
    OutputMode,
    Pipeline,
    PipelineError,
    Problem,
    Reference,
    Role,
    Sink,
    SinkKind,
    Source,
    Sql,
    Transformation,
    Trigger,
    Unparsed,
    nearest,
    rows_name,
)
from penstock.pipeline.options import (
    NUMBER_FIX,
    SETTINGS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    Given,
    Target,
    check_setting,
    check_words,
    choice,
    names,
    number_of,
)
from penstock.pipeline.sql_relations import place_of_relation
from penstock.pipeline.sql_statements import (
    CreateStatement,
    InsertStatement,
    SetStatement,
    Statement,
    read_statements,
)

_TARGETS = {
    SinkKind.TOPIC: Target.TOPIC,
    SinkKind.TABLE: Target.TABLE,
    SinkKind.CONSOLE: Target.CONSOLE,
    SinkKind.NOOP: Target.NOOP,
}
_READING = {
    *SOURCE_OPTIONS, "starting", "ending", "records_per_trigger", "dead_letters", "unparsed", "nulls", "framing",
}  # fmt: skip


def parse_sql(text: str, *, name: str, path: Path | None = None, overrides: Mapping[str, str] = NOTHING) -> Pipeline:
    """The pipeline that a text declares; PipelineError with every problem that can be seen without Spark or a broker.

    `overrides` come from the command line: settings, and what variables (`${name}`) stand for.
    """
    statements, problems = read_statements(text, lambda variable: overrides.get(variable, os.environ.get(variable)))
    assembly = _Assembly(statements, problems, path, overrides)
    pipeline = assembly.pipeline(name, text)
    if not statements and not problems:
        problems.append(
            Problem("this file has no statements", "`penstock pipeline init` writes a pipeline file to start from")
        )
    if problems:
        raise PipelineError(sorted(problems, key=lambda problem: problem.place), path=path)
    return pipeline


class _Assembly:
    """Puts the statements of one file together."""

    def __init__(
        self, statements: list[Statement], problems: list[Problem], path: Path | None, overrides: Mapping[str, str]
    ) -> None:
        self._problems = problems
        self._unread = bool(problems)
        self._path = path
        self._settings: dict[str, Given] = {}
        self._creates: dict[str, CreateStatement] = {}
        self._inserts: list[InsertStatement] = []
        for statement in statements:
            self._sort_in(statement)
        if (given := self._settings.get("delivery")) and given.value.lower() not in list(Delivery):
            self._problems.append(
                Problem(f"delivery cannot be {given.value!r}", "it is exactly-once or at-least-once", given.value_place)
            )
        for name, value in overrides.items():
            if name in SETTINGS or name.startswith(("kafka.", "spark.")):
                self._settings[name] = Given(value)
        everything = [one for one in statements if not isinstance(one, SetStatement)]
        self._read = {name.lower() for one in everything for name in one.reads}
        self._written = {one.target.lower() for one in self._inserts}
        self._sources: list[Source] = []
        self._references: list[Reference] = []
        self._transformations: list[Transformation] = []
        self._sinks: list[Sink] = []
        for one in everything:
            if isinstance(one, CreateStatement):
                self._create(one)
            else:
                self._insert(one)

    def pipeline(self, name: str, text: str) -> Pipeline:
        trigger = Trigger()
        if given := self._settings.get("trigger"):
            try:
                trigger = Trigger.parse(given.value)
            except ValueError as error:
                message, _, fix = str(error).partition(": ")
                self._problems.append(Problem(message, fix, given.value_place))
        name = self._setting("pipeline", name)
        return Pipeline(
            name=name,
            sources=tuple(self._sources),
            references=tuple(self._references),
            transformations=tuple(self._transformations),
            sinks=tuple(self._sinks),
            trigger=trigger,
            checkpoint=self._setting("checkpoint", f"checkpoints/{name}"),
            bootstrap_servers=self._setting("bootstrap.servers", "127.0.0.1:9092"),
            properties=_below("kafka.", self._settings),
            spark={key: given.value for key, given in self._settings.items() if key.startswith("spark.")},
            path=self._path,
            text=text,
            places={key: given.value_place for key, given in self._settings.items()},
        )

    def _sort_in(self, statement: Statement) -> None:
        if isinstance(statement, InsertStatement):
            self._inserts.append(statement)
        elif isinstance(statement, SetStatement):
            if problem := check_setting(statement.name, statement.given):
                self._problems.append(problem)
            if before := self._settings.get(statement.name):
                self._problems.append(
                    Problem(
                        f"{statement.name} is set twice, first in line {before.name_place.line}",
                        "leave out one of them",
                        statement.given.name_place,
                    )
                )
            self._settings[statement.name] = statement.given
        else:
            known = self._creates.get(statement.name.lower())
            if known is not None:
                self._problems.append(
                    Problem(
                        f"{statement.name} is created twice, first in line {known.place.line}",
                        "give one of them another name, or use INSERT INTO",
                        statement.place,
                    )
                )
            else:
                self._creates[statement.name.lower()] = statement

    def _create(self, statement: CreateStatement) -> None:
        if self._creates.get(statement.name.lower()) is not statement:
            return
        if statement.query is not None:
            self._transform(statement.name, statement.query, statement)
            if statement.kind != "VIEW":
                name = _getter(statement.words)("name", statement.name)
                self._sinks.append(self._sink(statement, statement.words, name, statement.name))
            elif statement.words:
                self._problems.append(
                    Problem(
                        "a view is written nowhere, so it has no options",
                        "leave out WITH, or write CREATE STREAM or CREATE TABLE",
                        statement.place,
                    )
                )
            return
        key = statement.name.lower()
        if statement.kind == "VIEW":
            self._problems.append(Problem("a view needs a query", "write AS SELECT …", statement.place))
        elif statement.kind == "STREAM":
            # One that is only written is no source: it may have columns that its topic's records do not show.
            if key not in self._written or key in self._read:
                self._sources.append(self._source(statement))
        elif key not in self._written:
            self._references.append(self._reference(statement))

    def _insert(self, statement: InsertStatement) -> None:
        target = self._creates.get(statement.target.lower())
        if target is None and self._unread:
            return  # it may be what could not be read
        if target is None or target.kind == "VIEW":
            guess = nearest(statement.target, [one.name for one in self._creates.values()])
            what = "is a view, which holds nothing" if target else f"is not created in this file{guess}"
            self._problems.append(
                Problem(
                    f"{statement.target} {what}",
                    f"declare it first: CREATE STREAM {statement.target} (…) WITH (topic = '…'), "
                    f"or CREATE TABLE {statement.target} (…) WITH (path = '…')",
                    statement.place,
                )
            )
            return
        name = _getter(statement.words)("name", target.name)
        if any(sink.name.lower() == name.lower() for sink in self._sinks):
            self._problems.append(
                Problem(
                    f"there is a query named {name} already",
                    "each query keeps its own place in the checkpoint, under its name: "
                    f"write INSERT INTO {statement.target} WITH (name = '{name}_2') SELECT …",
                    statement.place,
                )
            )
            return
        # The rows of an INSERT have no name of their own: the query's, with a mark.
        transformation = f"{rows_name(name)}__rows"
        taken = {*self._creates, *(one.name.lower() for one in self._transformations)}
        while transformation.lower() in taken:
            transformation += "_"
        self._transform(transformation, statement.query, statement)
        self._sinks.append(self._sink(target, {**target.words, **statement.words}, name, transformation, statement))

    def _transform(self, name: str, query: Sql, statement: CreateStatement | InsertStatement) -> None:
        reads = []
        for read in statement.reads:
            created = self._creates.get(read.lower())
            if created is None:
                continue
            reads.append(created.name)
            if created.kind == "TABLE" and created.query is None and read.lower() in self._written:
                self._problems.append(
                    Problem(
                        f"{created.name} is written by this file, and no stream that it could read",
                        "name the query of its INSERT INTO by CREATE VIEW, and read that",
                        place_of_relation(query, read),
                    )
                )
        self._transformations.append(Transformation(name=name, query=query, inputs=tuple(reads), place=statement.place))

    def _source(self, statement: CreateStatement) -> Source:
        words = statement.words
        self._problems += check_words(words, Target.SOURCE)
        get = _getter(words)
        if "topic" in words and "pattern" in words:
            self._problems.append(
                Problem("topic and pattern exclude each other", "leave out one of them", words["pattern"].name_place)
            )
        return Source(
            name=statement.name,
            topic=get("topic", "" if "pattern" in words else statement.name),
            pattern=get("pattern", ""),
            format=choice(Format, words.get("format"), Format.JSON),
            columns=statement.columns,
            watermark=statement.watermark,
            starting=get("starting", "earliest"),
            ending=get("ending", ""),
            records_per_trigger=self._number("records_per_trigger", words, RECORDS_PER_TRIGGER),
            dead_letters=get("dead_letters", ""),
            delivery=choice(Delivery, words.get("delivery") or self._settings.get("delivery"), Delivery.EXACTLY_ONCE),
            unparsed=choice(Unparsed, words.get("unparsed"), Unparsed.FAIL),
            nulls=choice(Nulls, words.get("nulls"), Nulls.DEAD_LETTER),
            avro_schema=self._schema(words.get("schema")),
            framing=get("framing", "auto").lower(),
            json_options=_below("json.", words),
            options={key: one.value for key, one in words.items() if key in SOURCE_OPTIONS or key.startswith("kafka.")},
            place=statement.place,
        )

    def _reference(self, statement: CreateStatement) -> Reference:
        words = statement.words
        self._problems += check_words(words, Target.REFERENCE)
        if "path" not in words and "lake" not in self._settings:
            self._problems.append(
                Problem(
                    f"table {statement.name} has neither a path nor a query",
                    "write WITH (path = '…') for a table to read, or AS SELECT … for one to write",
                    statement.place,
                )
            )
        return Reference(
            name=statement.name,
            path=self._table_path(statement.name, words),
            format=_getter(words)("format", "delta").lower(),
            columns=statement.columns,
            options=_below("option.", words),
            place=statement.place,
        )

    def _sink(
        self,
        target: CreateStatement,
        words: Mapping[str, Given],
        name: str,
        rows: str,
        statement: InsertStatement | None = None,
    ) -> Sink:
        kind = _kind_of(target, words)
        checked = dict(words)
        if statement is not None and target.name.lower() in self._read:
            # What the stream says about reading is no word of a sink, and is checked where it is a source.
            ours = statement.words
            checked = {key: one for key, one in words.items() if key in ours or not _is_reading(key)}
        self._problems += check_words(checked, _TARGETS[kind])
        get = _getter(words)
        key = names(get("key", "")) or tuple(one.name for one in target.columns if one.role is Role.KEY)
        if kind is SinkKind.TABLE and "path" not in words and "lake" not in self._settings:
            self._problems.append(
                Problem(
                    f"nothing says where table {target.name} is",
                    f"write WITH (path = 'lake/{target.name}'), or SET lake = 'lake' for all tables",
                    target.place,
                )
            )
        default_mode = OutputMode.APPEND
        if target.kind == "TABLE" and kind is SinkKind.TOPIC:
            default_mode = OutputMode.UPDATE  # a table in a topic is its changes, as a compacted topic keeps them
        return Sink(
            name=name,
            kind=kind,
            input=rows,
            topic=get("topic", target.name) if kind is SinkKind.TOPIC else "",
            path=self._table_path(target.name, words) if kind is SinkKind.TABLE else "",
            mode=choice(OutputMode, words.get("mode"), default_mode),
            delivery=choice(Delivery, words.get("delivery") or self._settings.get("delivery"), Delivery.EXACTLY_ONCE),
            format=choice(Format, words.get("format"), Format.JSON),
            key=key,
            columns=tuple(one for one in target.columns if one.role is not Role.METADATA),
            avro_schema=self._schema(words.get("schema")),
            partition_by=names(get("partition_by", "")),
            options={key: one.value for key, one in checked.items() if key in SINK_OPTIONS or key.startswith("kafka.")},
            place=statement.place if statement is not None else target.place,
        )

    def _table_path(self, name: str, words: Mapping[str, Given]) -> str:
        if given := words.get("path"):
            return given.value
        return f"{self._setting('lake', '').rstrip('/')}/{name}"

    def _schema(self, given: Given | None) -> str:
        """A schema as it is given, or out of the file that is named instead."""
        if given is None or given.value.lstrip()[:1] in ("{", "[", '"'):
            return given.value if given is not None else ""
        path = (self._path.parent if self._path is not None else Path()) / given.value
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            self._problems.append(
                Problem(
                    f"cannot read the schema {path}: {reason}",
                    "name a file beside the pipeline's, or give the schema itself as JSON",
                    given.value_place,
                )
            )
            return ""

    def _number(self, name: str, words: Mapping[str, Given], default: int) -> int:
        given = words.get(name) or self._settings.get(name)
        if given is None:
            return default
        number = number_of(given.value)
        if number is None and name not in words:
            self._problems.append(Problem(f"{name} cannot be {given.value!r}", NUMBER_FIX, given.value_place))
        return default if number is None else number

    def _setting(self, name: str, default: str) -> str:
        given = self._settings.get(name)
        return given.value if given is not None else default


def _kind_of(target: CreateStatement, words: Mapping[str, Given]) -> SinkKind:
    if "sink" in words:
        return choice(SinkKind, words["sink"], SinkKind.NOOP)
    if "topic" in words or target.kind == "STREAM":
        return SinkKind.TOPIC
    return SinkKind.TABLE


def _is_reading(key: str) -> bool:
    return key in _READING or key.startswith("json.")


def _below(prefix: str, words: Mapping[str, Given]) -> dict[str, str]:
    return {key.removeprefix(prefix): one.value for key, one in words.items() if key.startswith(prefix)}


def _getter(words: Mapping[str, Given]) -> Callable[[str, str], str]:
    def get(name: str, default: str) -> str:
        given = words.get(name)
        return given.value if given is not None else default

    return get
