"""Records → rows, and which records are none. On Spark.

JSON is parsed in the JVM by Spark's `from_json`, which reads one value and passes over whatever follows it. So a value
is parsed inside an object of our own, `{"r": value}`, and, where anything follows its first closing brace, as the only
item of an array, `[value]`, too. Text after a complete object passes one of them at most: what goes on after it must
be `,` or `}` in the one and `,` or `]` in the other, and after the comma a name and a colon in the one, and an item and
no colon in the other.

A record is bad if its value is not UTF-8, is no object, has a field that does not fit its column, or lacks one that is
NOT NULL. A number that a DECIMAL has to round is not.

Between parsing and filtering stands `observe`. It counts, and it keeps the optimizer from moving the filter below the
parsing, which would parse every record twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from penstock.pipeline.avro import AvroDecoder, fields_of
from penstock.pipeline.json_reasons import NO_VALUE, Expected, explain
from penstock.pipeline.model import Column, Format, Nulls, Role, Source, Unparsed
from penstock.pipeline.source_columns import columns_of
from penstock.pipeline.udfs import array_function

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

PARSED = "__parsed"
BAD = "__bad"
CORRUPT = "__corrupt"
UNPARSED_FIX = "set dead_letters = '…' to keep such records in a topic, with the reason, or unparsed = 'drop'"


@dataclass(frozen=True)
class Decoded:
    """The records of a source with what became of them: `frame` has the raw columns, PARSED, and BAD."""

    frame: DataFrame
    source: Source

    def rows(self) -> DataFrame:
        """The good ones, with the source's columns and its watermark."""
        from pyspark.sql import functions as F

        frame = self.frame
        if _never_bad(self.source):
            pass
        elif not self.source.dead_letters and self.source.unparsed is Unparsed.FAIL:
            # Without the reason: to ask Python for it here would send every record there, not the bad ones alone.
            message = F.concat(
                F.lit("the record at "), F.col("topic"), F.lit("-"), F.col("partition"), F.lit(" offset "),
                F.col("offset"), F.lit(f" does not parse as a row of {self.source.name}; "), F.lit(UNPARSED_FIX),
            )  # fmt: skip
            failing = F.when(F.col(BAD), F.raise_error(message).cast("boolean")).otherwise(F.lit(True))
            frame = frame.where(failing)
        else:
            frame = frame.where(~F.col(BAD))
        rows = frame.select(*(_column(column, self.source) for column in columns_of(self.source)))
        if self.source.watermark is not None:
            rows = rows.withWatermark(self.source.watermark.column, self.source.watermark.delay)
        return rows

    def bad(self) -> DataFrame:
        """The raw columns of the others, and why, as `reason`."""
        from pyspark.sql import functions as F

        frame = self.frame.where(F.col(BAD)).withColumn("reason", reason(self.source))
        return frame.drop(PARSED, BAD)


def decode(raw: DataFrame, source: Source) -> Decoded:
    """Parses the records of a source; `raw` has the columns of Kafka's."""
    from pyspark.sql import functions as F

    if source.nulls is Nulls.SKIP and source.format is not Format.BYTES:
        raw = raw.where(F.col("value").isNotNull())
    if _never_bad(source):
        return Decoded(raw.withColumn(PARSED, F.lit(None).cast("string")).withColumn(BAD, F.lit(False)), source)
    parsed = raw.withColumn(PARSED, _parsed(source))
    frame = parsed.withColumn(BAD, _is_bad(source)).observe(
        metric_name(source), F.count(F.lit(1)).alias("records"), F.count_if(F.col(BAD)).alias("bad")
    )
    return Decoded(frame, source)


def metric_name(source: Source) -> str:
    """Under which a query's progress tells how many records were read and how many of them were bad."""
    return f"source.{source.name}"


def reason(source: Source) -> SparkColumn:
    """Why a record is bad; for bad ones only, it is slow."""
    from pyspark.sql import functions as F

    expected = [
        Expected(column.name, column.type, column.nullable)
        for column in columns_of(source)
        if column.role is Role.VALUE
    ]
    missing = _missing_key(source)
    if source.format is Format.AVRO:
        required = _first_null(source)
        return F.coalesce(F.col(f"{PARSED}.reason"), missing, required, F.lit(NO_VALUE))
    if source.format is Format.TEXT:
        return F.coalesce(missing, F.when(F.col("value").isNull(), F.lit(NO_VALUE)), F.lit("not UTF-8"))

    def reasons(values: pa.Array) -> pa.Array:
        import pyarrow

        return pyarrow.array([explain(value.as_py(), expected) for value in values], pyarrow.string())

    explained = array_function(reasons, "string", F.col("value"))
    return F.coalesce(F.when(_value_is_bad(source), explained), missing, explained)


def _parsed(source: Source) -> SparkColumn:
    from pyspark.sql import functions as F

    if source.format is Format.TEXT:
        return F.col("value").cast("string")
    if source.format is Format.AVRO:
        return _parsed_avro(source)
    fields = ", ".join(f"`{_quoted(one.name)}`: {one.type}" for one in source.columns if one.role is Role.VALUE)
    schema = f"r STRUCT<{fields}>, {CORRUPT} STRING"
    wrapped = F.concat(F.lit('{"r":'), F.col("value").cast("string"), F.lit("}"))
    return F.from_json(wrapped, schema, _json_options(source))


def _json_options(source: Source) -> dict[str, str]:
    return {"columnNameOfCorruptRecord": CORRUPT, **source.json_options, "mode": "PERMISSIVE"}


def _has_more(source: Source) -> SparkColumn:
    """Whether something follows the object that a value begins with, as far as `_parsed` took it for a part of its own.

    Most values end with their first closing brace, and need not be parsed again to know that they end there.
    """
    from pyspark.sql import functions as F

    text = F.col("value").cast("string")
    items = F.from_json(F.concat(F.lit("["), text, F.lit("]")), "ARRAY<STRUCT<none: BOOLEAN>>", _json_options(source))
    is_alone = F.coalesce(F.size(items) == 1, F.lit(False))
    return F.when(F.instr(text, "}") < F.length(F.rtrim(text)), ~is_alone).otherwise(F.lit(False))


def _parsed_avro(source: Source) -> SparkColumn:
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType, StructField, StructType

    fields = fields_of(source.avro_schema)
    row = StructType.fromDDL(", ".join(f"`{_quoted(one.name)}` {one.type}" for one in fields))
    decoder = AvroDecoder(source.avro_schema, source.framing, to_arrow_type(row, timezone="UTC"))
    kind = StructType([StructField("row", row), StructField("reason", StringType())])
    return array_function(decoder.decode, kind, F.col("value"))


def _is_bad(source: Source) -> SparkColumn:
    """Whether a record is bad; never null."""
    from pyspark.sql import functions as F

    bad = _value_is_bad(source)
    for column in source.columns:
        if column.role is Role.KEY and not column.nullable:
            bad = bad | F.col("key").isNull()
    return F.coalesce(bad, F.lit(True))


def _value_is_bad(source: Source) -> SparkColumn:
    from pyspark.sql import functions as F

    value = F.col("value")
    if source.format is Format.TEXT:
        wrong = ~F.is_valid_utf8(value.cast("string"))
    elif source.format is Format.AVRO:
        wrong = F.col(f"{PARSED}.row").isNull()
    else:
        wrong = ~F.is_valid_utf8(value.cast("string")) | (
            F.col(PARSED).isNull() | F.col(f"{PARSED}.{CORRUPT}").isNotNull() | F.col(f"{PARSED}.r").isNull()
        )
        wrong = wrong | _has_more(source)
    missing = [
        _value_of(column, source).isNull()
        for column in source.columns
        if column.role is Role.VALUE and not column.nullable
    ]
    wrong = reduce(lambda one, other: one | other, missing, wrong)
    without = F.lit(source.nulls is not Nulls.KEEP)
    if source.nulls is Nulls.KEEP and missing:
        without = F.lit(True)
    return F.when(value.isNull(), without).otherwise(wrong)


def _missing_key(source: Source) -> SparkColumn:
    from pyspark.sql import functions as F

    keys = [column.name for column in source.columns if column.role is Role.KEY and not column.nullable]
    if not keys:
        return F.lit(None).cast("string")
    return F.when(F.col("key").isNull(), F.lit(f"no key, and {keys[0]} is NOT NULL"))


def _first_null(source: Source) -> SparkColumn:
    from pyspark.sql import functions as F

    found = [
        F.when(F.col("value").isNotNull() & _value_of(column, source).isNull(), f"{column.name} is null, and NOT NULL")
        for column in source.columns
        if column.role is Role.VALUE and not column.nullable
    ]
    return F.coalesce(*found) if found else F.lit(None).cast("string")


def _column(column: Column, source: Source) -> SparkColumn:
    from pyspark.sql import functions as F

    if column.role is Role.METADATA:
        return F.col(column.metadata).alias(column.name)
    if column.role is Role.KEY:
        return F.col("key").cast(column.type).alias(column.name)
    return _value_of(column, source).alias(column.name)


def _value_of(column: Column, source: Source) -> SparkColumn:
    from pyspark.sql import functions as F

    if source.format is Format.BYTES:
        return F.col("value")
    if source.format is Format.TEXT:
        return F.col(PARSED)
    inside = "row" if source.format is Format.AVRO else "r"
    return F.col(PARSED).getField(inside).getField(column.name)


def _never_bad(source: Source) -> bool:
    return source.format is Format.BYTES


def _quoted(name: str) -> str:
    return name.replace("`", "``")
