"""What a query reads: found without Spark, and the same as Spark's own parser finds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from penstock.pipeline.sql_lexer import Text, tokens_of
from penstock.pipeline.sql_relations import relations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES: dict[str, tuple[str, ...]] = {
    "SELECT id, amount FROM orders": ("orders",),
    "SELECT a, b, c FROM x, y AS z, `the w` WHERE a IN (b, c) GROUP BY p, q ORDER BY r, s": ("x", "y", "the w"),
    "FROM orders SELECT id, amount": ("orders",),
    "TABLE orders": ("orders",),
    "SELECT * FROM (SELECT id, v FROM orders) AS q, r": ("orders", "r"),
    "SELECT * FROM (a JOIN b USING (k, l)), c": ("a", "b", "c"),
    "SELECT * FROM ((SELECT x FROM a) UNION (SELECT y FROM b)) JOIN c ON f(u, v) LEFT JOIN d": ("a", "b", "c", "d"),
    "((SELECT x, m FROM a) UNION ALL SELECT y, n FROM b)": ("a", "b"),
    "SELECT (SELECT max(x) FROM a), m FROM b WHERE EXISTS (SELECT 1 FROM c) AND k IN ((SELECT k FROM d))": (
        "a", "b", "c", "d",
    ),
    "SELECT EXTRACT(YEAR FROM at), trim(BOTH 'x' FROM v), trim(FROM w), substring(s FROM 2) FROM orders": ("orders",),
    "SELECT EXTRACT(YEAR FROM (SELECT max(at) FROM a)), k FROM b": ("a", "b"),
    "SELECT a IS DISTINCT FROM b, c IS NOT DISTINCT FROM d FROM orders": ("orders",),
    "WITH x AS (SELECT * FROM a), y (p, q) AS (SELECT * FROM x, b) SELECT p, q FROM x JOIN y": ("a", "b"),
    "WITH orders AS (SELECT * FROM orders) SELECT * FROM orders": ("orders",),
    "SELECT * FROM (WITH x AS (SELECT * FROM a) SELECT * FROM x) JOIN x": ("a", "x"),
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r, a) SELECT n FROM r": ("a",),
    "SELECT k, t.v FROM orders LATERAL VIEW explode(items) t AS v, w WHERE v = w": ("orders",),
    "SELECT * FROM orders, LATERAL (SELECT id, x FROM b), c": ("orders", "b", "c"),
    "SELECT * FROM range(5), explode(array(a, b)) AS t(x, y), orders": ("orders",),
    "SELECT * FROM my_function(TABLE(orders), k, v)": ("orders",),
    "SELECT * FROM my_function(TABLE(SELECT k, v FROM orders), w)": ("orders",),
    "SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(x, y) JOIN orders": ("orders",),
    "SELECT * FROM catalog.orders, other.thing.else, mine": ("mine",),
    "SELECT * FROM parquet.`/a/b`, orders": ("orders",),
    "SELECT map.k AS window, map.from FROM orders AS map, b AS sort, c": ("orders", "b", "c"),
    "SELECT * FROM STREAM orders": ("orders",),
    "SELECT * FROM STREAM(orders)": ("orders",),
    "SELECT a, b FROM x UNION SELECT c, d FROM y EXCEPT SELECT e, f FROM z": ("x", "y", "z"),
    "SELECT k, sum(v) AS s, v FROM orders GROUP BY k, w WITH ROLLUP HAVING s > 1": ("orders",),
    "SELECT sum(v) OVER w, max(x) OVER (PARTITION BY a, b) FROM orders WINDOW w AS (PARTITION BY c, d)": ("orders",),
    "SELECT * FROM orders PIVOT (sum(v) AS s, max(w) AS m FOR k IN ('a', 'b'))": ("orders",),
    "SELECT * FROM orders TABLESAMPLE (5 PERCENT) AS o(x, y), other": ("orders", "other"),
    "FROM orders |> WHERE k > 1 |> SELECT k, v |> EXTEND k + 1 AS m, v AS n |> JOIN b USING (k)": ("orders", "b"),
    "SELECT struct(k, v).v, a.`from`, m['x, y'] FROM orders AS a": ("orders",),
    "SELECT 'FROM x, y', \"JOIN z\", k /* FROM c, d */ FROM orders -- , e": ("orders",),
    "SELECT CASE WHEN a IN (SELECT x FROM b) THEN c ELSE d END, e FROM orders": ("b", "orders"),
    "SELECT k, v FROM orders DISTRIBUTE BY k, v SORT BY a, b": ("orders",),
    "SELECT transform(xs, x -> x + y), filter(zs, (p, q) -> p > q) FROM orders": ("orders",),
    "SELECT k, v FROM ORDERS o, Orders p WHERE o.k = p.k": ("ORDERS",),
}  # fmt: skip


@pytest.mark.parametrize(("query", "names"), QUERIES.items())
def test_what_a_query_reads(query: str, names: tuple[str, ...]) -> None:
    assert tuple(token.value for token in relations(tokens_of(Text(query)))) == names


def test_names_stand_where_they_are_read() -> None:
    query = "SELECT amount, v FROM orders, v"
    assert [token.start for token in relations(tokens_of(Text(query)))] == [22, 30]


@pytest.mark.parametrize(
    "query", ["", "SELECT", "FROM", "WITH", "WITH x", "WITH x AS", "WITH x (a", "WITH RECURSIVE", "(((", ")", "FROM ,"]
)
def test_half_a_query_is_no_reason_to_fail(query: str) -> None:
    assert [token.value for token in relations(tokens_of(Text(query)))] == []


def test_spark_reads_the_same(spark: SparkSession) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    for query, names in QUERIES.items():
        plan = parser.parsePlan(query).toString()
        theirs = {name.lower() for name in re.findall(r"UnresolvedRelation \[([^\],]*)\]", plan)}
        # Its parser leaves what a WITH names to the analyzer.
        named = {name for listed in re.findall(r"CTE \[(.*)\]", plan) for name in listed.split(", ")}
        assert theirs - named <= {name.lower() for name in names} <= theirs, query
