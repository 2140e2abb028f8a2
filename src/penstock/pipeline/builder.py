"""A pipeline in Python: the same model, said with calls and decorators.

    from penstock.pipeline import define

    shop = define("shop", checkpoint="checkpoints/shop", trigger="every 5 seconds")

    shop.stream("orders", "order_id STRING NOT NULL, amount DOUBLE, ordered_at TIMESTAMP",
                topic="orders", watermark="ordered_at 10 minutes", dead_letters="orders.dead")

    @shop.to_table("lake/revenue")
    def revenue(orders):
        return orders.groupBy(window("ordered_at", "1 minute")).agg(sum("amount").alias("amount"))

A function's parameters name what it is given: streams, tables and views that were defined before it. Nothing runs
while the file is read; `build()` makes the `Pipeline`.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.pipeline.columns import parse_columns, parse_watermark
from penstock.pipeline.model import (
    NOTHING,
    RECORDS_PER_TRIGGER,
    Delivery,
    Format,
    Nulls,
    OutputMode,
    Pipeline,
    PipelineError,
    Place,
    Problem,
    Reference,
    Sink,
    SinkKind,
    Source,
    Sql,
    Transformation,
    Trigger,
    Unparsed,
    rows_name,
)
from penstock.pipeline.sql_relations import relations_of

if TYPE_CHECKING:
    from enum import StrEnum

    from pyspark.sql import DataFrame

    E = TypeVar("E", bound=StrEnum)
    Query = Callable[..., DataFrame]

F = TypeVar("F", bound=Callable[..., object])

OVERRIDES: ContextVar[Mapping[str, str]] = ContextVar("overrides", default=NOTHING)
"""What the command line set, while a pipeline file is read."""


def define(
    name: str,
    *,
    checkpoint: str = "",
    trigger: str | Trigger = "continuous",
    bootstrap_servers: str = "127.0.0.1:9092",
    delivery: str = "exactly-once",
    properties: Mapping[str, str] = NOTHING,
    spark: Mapping[str, str] = NOTHING,
) -> PipelineBuilder:
    """Begins a pipeline; `PipelineBuilder` lists its parts, and `docs/reference/pipelines.md` explains the words."""
    place = _caller()
    if isinstance(trigger, str):
        try:
            trigger = Trigger.parse(trigger)
        except ValueError as error:
            raise PipelineError(Problem(str(error), "", place)) from None
    return PipelineBuilder(
        Pipeline(
            name=name,
            checkpoint=checkpoint,
            trigger=trigger,
            bootstrap_servers=bootstrap_servers,
            properties=dict(properties),
            spark=dict(spark),
            places={"name": place, "trigger": place, "checkpoint": place},
        ),
        _choice(Delivery, delivery, "delivery", place),
    )


def variable(name: str, default: str | None = None) -> str:
    """What `--set name=…` or the environment says; the counterpart of `${name:-default}` in SQL."""
    value = OVERRIDES.get().get(name, os.environ.get(name, default))
    if value is None:
        fix = f"run with --set {name}=…, set it in the environment, or give a default"
        raise PipelineError(Problem(f"nothing says what the variable {name} is", fix, _caller()))
    return value


class PipelineBuilder:
    """Collects the parts of a pipeline. Each sink is a decorator of a function, or takes a query as text."""

    def __init__(self, settings: Pipeline, delivery: Delivery = Delivery.EXACTLY_ONCE) -> None:
        self._settings = settings
        self._delivery = delivery
        self._sources: list[Source] = []
        self._references: list[Reference] = []
        self._transformations: list[Transformation] = []
        self._sinks: list[Sink] = []

    @property
    def name(self) -> str:
        return self._settings.name

    def stream(
        self,
        name: str,
        columns: str = "",
        *,
        topic: str = "",
        pattern: str = "",
        format: str = "json",
        watermark: str = "",
        starting: str = "earliest",
        ending: str = "",
        records_per_trigger: int = RECORDS_PER_TRIGGER,
        dead_letters: str = "",
        delivery: str = "",
        unparsed: str = "fail",
        nulls: str = "dead-letter",
        avro_schema: str = "",
        framing: str = "auto",
        json_options: Mapping[str, str] = NOTHING,
        options: Mapping[str, str] = NOTHING,
    ) -> Source:
        """A topic as a stream of rows; `columns` as in `CREATE STREAM (…)`, `watermark` as `ordered_at 10 minutes`."""
        place = _caller()
        parsed, declared = parse_columns(columns, place) if columns else ((), None)
        source = Source(
            name=name,
            topic=topic or ("" if pattern else name),
            pattern=pattern,
            format=_choice(Format, format, "format", place),
            columns=parsed,
            watermark=parse_watermark(watermark, place) if watermark else declared,
            starting=starting,
            ending=ending,
            records_per_trigger=records_per_trigger,
            dead_letters=dead_letters,
            delivery=_choice(Delivery, delivery or self._delivery, "delivery", place),
            unparsed=_choice(Unparsed, unparsed, "unparsed", place),
            nulls=_choice(Nulls, nulls, "nulls", place),
            avro_schema=avro_schema,
            framing=framing,
            json_options=dict(json_options),
            options=dict(options),
            place=place,
        )
        self._sources.append(source)
        return source

    def table(
        self, name: str, path: str, *, format: str = "delta", columns: str = "", options: Mapping[str, str] = NOTHING
    ) -> Reference:
        """A table to join streams with, as it is when the run starts."""
        place = _caller()
        parsed = parse_columns(columns, place)[0] if columns else ()
        reference = Reference(name=name, path=path, format=format, columns=parsed, options=dict(options), place=place)
        self._references.append(reference)
        return reference

    def view(self, function: F) -> F:
        """Decorates a function whose result other functions use by its name."""
        self._add(function.__name__, function, None, _place_of(function))
        return function

    def sql(self, name: str, query: str) -> None:
        """A view by a query in SQL."""
        place = _caller()
        self._transformations.append(Transformation(name=name, query=Sql(text=query, place=place), place=place))

    def to_table(
        self,
        path: str,
        *,
        name: str = "",
        query: str | Query | None = None,
        inputs: Sequence[str] | None = None,
        mode: str = "append",
        key: str | Sequence[str] = (),
        partition_by: str | Sequence[str] = (),
        options: Mapping[str, str] = NOTHING,
    ) -> Callable[[F], F]:
        """Rows go to a Delta table, exactly once."""
        return self._sink(
            Sink(
                name=name,
                kind=SinkKind.TABLE,
                input=name,
                path=path,
                mode=_choice(OutputMode, mode, "mode", _caller()),
                key=_names(key),
                partition_by=_names(partition_by),
                options=dict(options),
                place=_caller(),
            ),
            query,
            inputs,
        )

    def to_topic(
        self,
        topic: str,
        *,
        name: str = "",
        query: str | Query | None = None,
        inputs: Sequence[str] | None = None,
        mode: str = "append",
        delivery: str = "",
        format: str = "json",
        key: str | Sequence[str] = (),
        avro_schema: str = "",
        options: Mapping[str, str] = NOTHING,
    ) -> Callable[[F], F]:
        """Rows go to a topic: exactly once, or at least once on brokers without transactions."""
        return self._sink(
            Sink(
                name=name,
                kind=SinkKind.TOPIC,
                input=name,
                topic=topic,
                mode=_choice(OutputMode, mode, "mode", _caller()),
                delivery=_choice(Delivery, delivery or self._delivery, "delivery", _caller()),
                format=_choice(Format, format, "format", _caller()),
                key=_names(key),
                avro_schema=avro_schema,
                options=dict(options),
                place=_caller(),
            ),
            query,
            inputs,
        )

    def to_console(
        self,
        *,
        name: str = "",
        query: str | Query | None = None,
        inputs: Sequence[str] | None = None,
        mode: str = "append",
        options: Mapping[str, str] = NOTHING,
    ) -> Callable[[F], F]:
        """Rows are shown on the terminal."""
        sink = Sink(
            name=name,
            kind=SinkKind.CONSOLE,
            input=name,
            mode=_choice(OutputMode, mode, "mode", _caller()),
            options=dict(options),
            place=_caller(),
        )
        return self._sink(sink, query, inputs)

    def to_nothing(
        self,
        *,
        name: str = "",
        query: str | Query | None = None,
        inputs: Sequence[str] | None = None,
        mode: str = "append",
    ) -> Callable[[F], F]:
        """Rows are computed and thrown away."""
        sink = Sink(
            name=name,
            kind=SinkKind.NOOP,
            input=name,
            mode=_choice(OutputMode, mode, "mode", _caller()),
            place=_caller(),
        )
        return self._sink(sink, query, inputs)

    def build(self, *, path: Path | None = None, text: str = "") -> Pipeline:
        """The pipeline as it was defined until now."""
        known = {
            one.name.lower(): one.name
            for group in (self._sources, self._references, self._transformations)
            for one in group
        }
        return replace(
            self._settings,
            sources=tuple(self._sources),
            references=tuple(self._references),
            transformations=tuple(_with_inputs(one, known) for one in self._transformations),
            sinks=tuple(self._sinks),
            path=path,
            text=text,
        )

    def _sink(self, sink: Sink, query: str | Query | None, inputs: Sequence[str] | None) -> Callable[[F], F]:
        if query is not None:
            name = sink.name or getattr(query, "__name__", "")
            if not name or name == "<lambda>":
                raise PipelineError(Problem("a sink with a query needs a name", "say name='…'", sink.place))
            if isinstance(query, str):
                self._transformations.append(
                    Transformation(name=rows_name(name), query=Sql(text=query, place=sink.place), place=sink.place)
                )
            else:
                self._add(rows_name(name), query, inputs, sink.place)
            self._sinks.append(replace(sink, name=name, input=rows_name(name)))

        def decorate(function: F) -> F:
            if query is not None:
                raise PipelineError(
                    Problem("this sink has a query already", "leave out query=, or the function", sink.place)
                )
            name = sink.name or function.__name__
            place = _place_of(function)
            self._add(rows_name(name), function, inputs, place)
            self._sinks.append(replace(sink, name=name, input=rows_name(name), place=place))
            return function

        return decorate

    def _add(self, name: str, function: Callable[..., object], inputs: Sequence[str] | None, place: Place) -> None:
        if inputs is None:
            inputs = list(inspect.signature(function).parameters)
        self._transformations.append(
            Transformation(name=name, query=function, inputs=tuple(inputs), place=place)  # type: ignore[arg-type]
        )


def _with_inputs(transformation: Transformation, known: Mapping[str, str]) -> Transformation:
    """A query in SQL with what it reads."""
    if not isinstance(transformation.query, Sql):
        return transformation
    names = [token.value for token in relations_of(transformation.query)]
    return replace(transformation, inputs=tuple(known[name.lower()] for name in names if name.lower() in known))


def _choice(kind: type[E], text: str, name: str, place: Place) -> E:
    try:
        return kind(text.lower())
    except ValueError:
        raise PipelineError(
            Problem(f"{name} cannot be {text!r}", f"use one of {', '.join(repr(str(one)) for one in kind)}", place)
        ) from None


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        return tuple(name.strip() for name in names.split(",") if name.strip())
    return tuple(names)


def _place_of(function: Callable[..., object]) -> Place:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return Place(code.co_firstlineno) if code is not None else Place()


def _caller() -> Place:
    """The line of the pipeline file that called into this module."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return Place(frame.f_lineno)
