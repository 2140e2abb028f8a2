"""The columns: those of Spark's Kafka source, which are fixed."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.errors import OptionError


def source_schema(include_headers: bool = False) -> StructType:
    """The same as `penstock.arrow.arrow_schema`, in Spark's types."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


def check_schema(asked: StructType, include_headers: bool) -> None:
    """Refuses columns that somebody gave to `.schema(…)`."""
    fixed = source_schema(include_headers)
    if asked.simpleString() != fixed.simpleString():
        raise OptionError(
            "Kafka source has a fixed schema and cannot be set with a custom one: leave .schema(…) out and parse the "
            f"value column with from_json, from_avro or cast; the columns are {fixed.simpleString()}"
        )
