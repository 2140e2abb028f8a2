"""What `pipeline validate` tells beyond problems: the columns of each step. And that it refuses sums of times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.pipeline.checking import examine
from penstock.pipeline.model import Place, Sql
from penstock.pipeline.sql_file import parse_sql
from penstock.pipeline.sums import check_sums

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SHOP = """SET checkpoint = '{checkpoint}'; SET lake = '{checkpoint}/lake';
CREATE STREAM orders (id STRING NOT NULL, amount DECIMAL(10,2), at TIMESTAMP) WITH (topic = 'orders');
CREATE VIEW large AS SELECT * FROM orders WHERE amount > 100;
{query};
"""
KEPT = "CREATE TABLE kept AS SELECT id, CAST(amount AS DOUBLE) AS amount FROM large"
SUMS = "CREATE TABLE sums WITH (mode = 'complete') AS SELECT id, sum(at) AS total FROM large GROUP BY id"
TYPES = {"at": "timestamp", "amount": "decimal(10,2)", "seen": "timestamp_ntz"}


def test_the_columns_of_each_step_are_told(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = parse_sql(SHOP.format(checkpoint=tmp_path, query=KEPT), name="shop")
    found = examine(pipeline, spark, cluster=False)
    assert found.problems == []
    assert [(step.kind, step.name) for step in found.steps] == [
        ("stream", "orders"), ("view", "large"), ("query", "kept")
    ]  # fmt: skip
    stream, _, query = found.steps
    assert [(one.name, one.type) for one in stream.columns] == [
        ("id", "string"), ("amount", "decimal(10,2)"), ("at", "timestamp")
    ]  # fmt: skip
    assert [(one.name, one.type) for one in query.columns] == [("id", "string"), ("amount", "double")]


def test_a_sum_of_times_is_refused_where_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    text = SHOP.format(checkpoint=tmp_path, query=SUMS)
    pipeline = parse_sql(f"SET trigger = 'every 1 minute';\n{text}", name="shop")
    [found] = examine(pipeline, spark, cluster=False).problems
    assert found.message == "sum(at) computes with points in time as if they were numbers: at is a TIMESTAMP"
    assert found.place == Place(5, SUMS.index("at)") + 1)


@pytest.mark.parametrize(
    ("query", "column"),
    [
        ("SELECT sum(at)", 15),
        ("SELECT avg(at)", 15),
        ("SELECT sum( DISTINCT o.`seen` )", 27),
        ("SELECT\n1, Sum(large.at) FROM large", 14),
    ],
)
def test_sums_and_means_of_times_are_found(query: str, column: int) -> None:
    [found] = check_sums(Sql(text=query, place=Place(1, 4)), TYPES)
    assert found.place.column == column


@pytest.mark.parametrize(
    "query",
    ["SELECT sum(amount)", "SELECT sum(unix_seconds(at))", "SELECT sum(CAST(at AS DOUBLE))", "SELECT max(at)",
     "SELECT sum", "SELECT sum(at - seen)", "SELECT 'sum(at)' -- sum(at)", "SELECT sum(other)", "SELECT sum("],
)  # fmt: skip
def test_other_sums_are_not(query: str) -> None:
    assert check_sums(Sql(text=query), TYPES) == []
