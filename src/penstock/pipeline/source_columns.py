"""The columns that a source has in the end: those it declares, or those of its format. Pure."""

from __future__ import annotations

import re

from penstock import install_command
from penstock.pipeline.avro import AvroSchemaError, fields_of
from penstock.pipeline.model import METADATA_TYPES, Column, Format, Problem, Role, Source, nearest

_TEXT = "STRING"
_BYTES = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_KEY_TYPES = ("STRING", "BINARY")
_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")


def columns_of(source: Source) -> tuple[Column, ...]:
    """All columns; `check_columns` must have found nothing."""
    if source.columns or source.format is Format.JSON:
        return source.columns
    if source.format is Format.AVRO:
        return tuple(Column(name=one.name, type=one.type, place=source.place) for one in fields_of(source.avro_schema))
    if source.format is Format.TEXT:
        return (Column(name="value", type=_TEXT, place=source.place),)
    return tuple(
        Column(name=name, type="BINARY", place=source.place)
        if name == "value"
        else Column(name=name, type=METADATA_TYPES[name], role=Role.METADATA, metadata=name, place=source.place)
        for name in _BYTES
    )


def wants_headers(source: Source) -> bool:
    return any(column.metadata == "headers" for column in columns_of(source))


def check_columns(source: Source) -> list[Problem]:
    """What is wrong with the columns of a source, as far as that can be said without Spark."""
    problems = _check_format(source)
    if problems:
        return problems
    columns = columns_of(source)
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            problems.append(
                Problem(f"{source.name} has two columns {column.name}", "give one another name", column.place)
            )
        seen.add(column.name.lower())
        if column.role is Role.KEY and column.type.upper() not in _KEY_TYPES:
            problems.append(
                Problem(
                    f"a record's key is bytes: {column.name} cannot be {column.type}",
                    f"write {column.name} STRING KEY (or BINARY), and make a {column.type} of it in the SELECT",
                    column.place,
                )
            )
        elif column.role is Role.METADATA and not _same(column.type, METADATA_TYPES[column.metadata]):
            expected = METADATA_TYPES[column.metadata]
            problems.append(
                Problem(
                    f"{column.metadata} of a record is {expected}, not {column.type}",
                    f"write {column.name} {expected} METADATA FROM '{column.metadata}'",
                    column.place,
                )
            )
    return problems + _check_watermark(source, columns)


def _check_format(source: Source) -> list[Problem]:
    values = [column for column in source.columns if column.role is Role.VALUE]
    if source.format is Format.JSON and not values:
        fix = f"write CREATE STREAM {source.name} (id STRING, …), or format = 'bytes' for records as they are"
        return [Problem(f"stream {source.name} says nothing about its columns", fix, source.place)]
    if source.format in (Format.TEXT, Format.BYTES) and source.columns:
        wanted = _TEXT if source.format is Format.TEXT else "BINARY"
        if len(values) > 1 or any(column.type.upper() != wanted for column in values):
            fix = f"declare one column of {wanted}, and KEY and METADATA columns; or leave the list out"
            return [Problem(f"a value in format {source.format} is one column of {wanted}", fix, source.place)]
    if source.format is Format.AVRO:
        return _check_avro(source, values)
    if source.avro_schema:
        return [Problem("schema belongs to format = 'avro'", "leave it out, or say format = 'avro'", source.place)]
    return []


def _check_avro(source: Source, values: list[Column]) -> list[Problem]:
    if not source.avro_schema:
        fix = "write schema = 'order.avsc', a file beside this one, or the schema itself as JSON"
        return [Problem(f"stream {source.name} is Avro and has no schema", fix, source.place)]
    try:
        fields = {field.name.lower(): field for field in fields_of(source.avro_schema)}
    except AvroSchemaError as error:
        return [Problem(f"the schema of {source.name}: {error}", "correct the schema", source.place)]
    except ImportError:
        return [Problem("Avro needs the package fastavro", install_command("spark"), source.place)]
    problems = []
    for column in values:
        field = fields.get(column.name.lower())
        if field is None:
            known = [one.name for one in fields.values()]
            problems.append(
                Problem(
                    f"the schema of {source.name} has no field {column.name}{nearest(column.name, known)}",
                    f"it has {', '.join(known)}",
                    column.place,
                )
            )
        elif not _same(column.type, field.type):
            problems.append(
                Problem(
                    f"the schema of {source.name} says that {column.name} is {field.type}, not {column.type}",
                    f"write {column.name} {field.type}, and cast it in the SELECT",
                    column.place,
                )
            )
    return problems


def _check_watermark(source: Source, columns: tuple[Column, ...]) -> list[Problem]:
    mark = source.watermark
    if mark is None:
        return []
    column = next((one for one in columns if one.name.lower() == mark.column.lower()), None)
    if column is None:
        known = [one.name for one in columns]
        return [
            Problem(
                f"the watermark is for {mark.column}, which is no column of {source.name}{nearest(mark.column, known)}",
                "name a column of type TIMESTAMP",
                mark.place,
            )
        ]
    if column.type.upper() not in _TIMES:
        return [
            Problem(
                f"the watermark is for {column.name}, which is {column.type} and not TIMESTAMP",
                f"declare {column.name} TIMESTAMP, or name another column",
                mark.place,
            )
        ]
    return []


def _same(one: str, other: str) -> bool:
    return _plain(one) == _plain(other)


def _plain(type_text: str) -> str:
    text = re.sub(r"[\s`:]|not null", "", type_text, flags=re.IGNORECASE).upper()
    for long, short in (("INTEGER", "INT"), ("LONG", "BIGINT"), ("TIMESTAMP_LTZ", "TIMESTAMP"), ("REAL", "FLOAT")):
        text = text.replace(long, short)
    return text
