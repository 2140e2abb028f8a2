"""A mistyped type is pointed at, wherever it stands; a type that Spark knows is never refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.pipeline.checking import check_plan
from penstock.pipeline.columns import parse_columns
from penstock.pipeline.model import PipelineError, Place, Problem
from penstock.pipeline.planning import plan
from penstock.pipeline.sql_file import parse_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KNOWN = [
    "STRING", "int", "DECIMAL", "DECIMAL(10,2)", "DECIMAL(38, 38)", "NUMERIC(5)", "VARCHAR(20)", "CHAR(3)",
    "ARRAY<STRING>", "MAP<STRING, ARRAY<INT>>", "STRUCT<a: INT, b STRING>", "STRUCT<`my field`: DOUBLE>", "STRUCT<>",
    "STRUCT<a: STRUCT<b: MAP<STRING, DECIMAL(4,2)>>, c: DATE COMMENT 'when, exactly'>", "STRUCT<a: INT NOT NULL>",
    "INTERVAL DAY TO SECOND", "INTERVAL YEAR", "STRING COLLATE UNICODE", "TIMESTAMP_NTZ", "VARIANT", "BINARY",
    "STRUCT<map: STRING, array: INT, decimla: INT>",
]  # fmt: skip


def problem(columns: str) -> Problem:
    with pytest.raises(PipelineError) as caught:
        parse_columns(columns, Place(3, 5))
    return caught.value.problems[0]


@pytest.mark.parametrize("type_text", KNOWN)
def test_types_of_spark_are_read(type_text: str) -> None:
    (column,), _ = parse_columns(f"c {type_text}", Place(1, 1))
    assert column.type == type_text


def test_types_that_are_read_are_types_of_spark(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    for type_text in KNOWN:
        assert spark.range(1).select(F.lit(None).cast(type_text)).schema


@pytest.mark.parametrize(
    ("columns", "message", "column"),
    [
        ("amount DECIMLA(10,2)", "column amount: there is no type DECIMLA; did you mean DECIMAL?", 12),
        ("id STRING, n BIGNIT, d DATE", "column n: there is no type BIGNIT; did you mean BIGINT?", 18),
        ("tags ARRAY<STRNG>", "column tags: there is no type STRNG; did you mean STRING?", 16),
        ("m MAP<STRING, DOUBEL>", "column m: there is no type DOUBEL; did you mean DOUBLE?", 19),
        ("s STRUCT<int: STRING, b STIRNG>", "column s: there is no type STIRNG; did you mean STRING?", 29),
        ("s STRUCT<a: ARAY<INT>>", "column s: there is no type ARAY; did you mean ARRAY?", 17),
        ("x qqqq", "column x: there is no type qqqq", 7),
        ("x DECIMAL(39,2)", "column x: a DECIMAL has 1 to 38 digits, not 39", 15),
        ("x DECIMAL(4,6)", "column x: a DECIMAL of 4 digits cannot have 6 of them behind the point", 17),
    ],
)
def test_the_error_points_at_the_word(columns: str, message: str, column: int) -> None:
    found = problem(columns)
    assert found.message == message
    assert found.place == Place(3, column)
    assert found.fix


def test_what_only_spark_can_judge_is_told_by_column(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = parse_sql(
        "CREATE STREAM orders (id STRING, name VARCHAR) WITH (topic = 'orders');\n"
        "CREATE TABLE t WITH (path = 'lake/t') AS SELECT id FROM orders;\n",
        name="p",
    )
    [found] = check_plan(pipeline, plan(pipeline, spark.newSession()))
    assert found.message.startswith("column name cannot be VARCHAR: ")
    assert "length" in found.message
    assert found.place == Place(1, 39)
    assert not caplog.records, "Spark's own log of the error stays away"


def test_a_mistyped_column_is_answered_with_the_columns_of_what_is_read(spark: SparkSession) -> None:
    pipeline = parse_sql(
        "CREATE STREAM orders (id STRING, amount DOUBLE, product STRING) WITH (topic = 'orders');\n"
        "CREATE TABLE t WITH (path = 'lake/t') AS SELECT o.product, sum(o.amuont) AS orders FROM orders o\n"
        "GROUP BY product;\n",
        name="p",
    )
    [found] = check_plan(pipeline, plan(pipeline, spark.newSession()))
    assert found.message == "there is no column o.amuont; did you mean amount?"
    assert found.fix == "orders has id, amount, product"
    assert found.place == Place(2, 64)
