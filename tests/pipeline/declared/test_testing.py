"""`penstock pipeline test` on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.cli.pipeline_testing import outcome_lines
from penstock.pipeline.fixtures import parse_cases
from penstock.pipeline.model import PipelineError
from penstock.pipeline.sql_file import parse_sql
from penstock.pipeline.testing import Outcome, run_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

FILE = Path("revenue.test")
PIPELINE = """
SET checkpoint = 'nowhere';
SET lake = 'nowhere';
CREATE STREAM orders (
    who STRING KEY, id STRING NOT NULL, product STRING, amount DECIMAL(10,2), at TIMESTAMP,
    WATERMARK FOR at DELAY OF 10 MINUTES
) WITH (topic = 'orders', dead_letters = 'orders.dead');
CREATE TABLE products (name STRING, price DOUBLE) WITH (path = 'nowhere.csv', format = 'csv');
CREATE TABLE revenue AS
    SELECT window.start AS minute, product, sum(amount) AS amount, count(*) AS orders
    FROM orders GROUP BY window(at, '1 minute'), product;
CREATE STREAM priced WITH (topic = 'priced', key = 'id') AS
    SELECT id, who, price FROM orders JOIN products ON product = name;
CREATE TABLE totals WITH (mode = 'update', key = 'product') AS
    SELECT product, count(*) AS n FROM orders GROUP BY product;
"""
PRODUCTS = "given products\nname | price\napple | 1.5\n"


def run(spark: SparkSession, fixture: str) -> Outcome:
    [case] = parse_cases(fixture, FILE)
    return run_case(parse_sql(PIPELINE, name="revenue"), case, spark, FILE)


def test_given_rows_go_through_all_queries_in_their_micro_batches(spark: SparkSession) -> None:
    outcome = run(
        spark,
        PRODUCTS
        + """
given orders
{"who": "ann", "id": 1, "product": "apple", "amount": 1.50, "at": "2026-01-31T12:30:10Z"}
{"who": "bob", "id": "2", "product": "pear", "amount": 2.50, "at": "2026-01-31T12:30:20Z"}
not json
given orders
id | product | amount | at
3  | apple   | 5      | 2026-01-31T12:00:00Z
4  | apple   | 2.50   | 2026-01-31T12:30:40Z
expect revenue
minute               | product | amount | orders
2026-01-31T12:30:00Z | apple   | 4.00   | 2
2026-01-31T12:30:00Z | pear    | 2.50   | 1
expect priced
{"id": "1", "who": "ann", "price": 1.5}
{"id": "3", "who": null, "price": 1.5}
{"id": "4", "price": 1.5}
expect totals
{"product": "apple", "n": 3}
{"product": "pear", "n": 1}
expect orders.dead_letters
{"value": "not json"}
""",
    )
    assert outcome.passed, list(outcome_lines(FILE, outcome))


def test_a_failure_shows_the_rows_that_differ_and_windows_may_stay_open(spark: SparkSession) -> None:
    outcome = run(
        spark,
        "windows stay open\n"
        + PRODUCTS
        + """
given orders
{"id": "1", "product": "apple", "at": "2026-01-31T12:30:10Z"}
expect revenue
expect priced
id | price
1  | 2.5
""",
    )
    assert not outcome.passed
    assert list(outcome_lines(FILE, outcome))[1:] == [
        "  priced, line 9: 1 of 1 row differs; - expected, + found",
        "      id  price",
        "    - 1   2.5",
        "    + 1   1.5",
        "          ^^^",
    ]


@pytest.mark.parametrize(
    ("fixture", "line", "words"),
    [
        ("given ordres\nexpect revenue", 1, "reads no stream or table ordres; did you mean orders?"),
        ("expect revenu", 1, "has no query revenu; did you mean revenue?"),
        ("given orders\n{\"amout\": 1}\nexpect revenue", 2, "orders has no column amout; did you mean amount?"),
        (PRODUCTS + "expect totals\n{\"m\": 1}", 5, "totals writes no column m"),
        (PRODUCTS + "expect totals\n{\"n\": \"many\"}", 5, "this row does not fit the columns of totals"),
    ],
)  # fmt: skip
def test_a_fixture_that_does_not_fit_the_pipeline_is_refused_at_its_line(
    spark: SparkSession, fixture: str, line: int, words: str
) -> None:
    with pytest.raises(PipelineError) as found:
        run(spark, fixture)
    assert words in found.value.problems[0].message
    assert found.value.problems[0].line == line
