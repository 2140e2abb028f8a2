"""Spark's words, told in ours: errors of queries at their place in the file, and why a running query failed."""

from __future__ import annotations

import pytest

from penstock.pipeline.failures import reason_of, sentence
from penstock.pipeline.model import Place, Sql
from penstock.pipeline.spark_errors import problem_of, streaming_problem

QUERY = Sql(text="SELECT ix\nFROM orders", place=Place(10, 5))


class Context:
    def __init__(self, start: int) -> None:
        self._start = start

    def startIndex(self) -> int:
        return self._start


class SparkError(Exception):
    def __init__(
        self, message: str, condition: str = "", parameters: dict[str, str] | None = None, start: int | None = None
    ) -> None:
        super().__init__(message)
        self._condition = condition
        self._parameters = parameters or {}
        self._start = start

    def getCondition(self) -> str:
        return self._condition

    def getMessageParameters(self) -> dict[str, str]:
        return self._parameters

    def getQueryContext(self) -> list[Context]:
        return [] if self._start is None else [Context(self._start)]


def test_a_column_that_is_not_there_is_pointed_at() -> None:
    error = SparkError(
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `idd` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Pro",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        {"objectName": "`idd`", "proposal": "`id`, `value`"},
        start=7,
    )
    found = problem_of(error, QUERY)
    assert found.message == "there is no column idd; did you mean id?"
    assert found.fix == "there are id, value"
    assert found.place == Place(10, 12)


def test_proposals_of_spark_are_read_as_qualified_names() -> None:
    """In a subquery, say, whose columns only Spark knows."""
    proposal = "`window`, `orders`.`amount`, `orders`.`product`"
    error = SparkError("[X] no", "UNRESOLVED_COLUMN.X", {"objectName": "`amuont`", "proposal": proposal}, start=7)
    assert problem_of(error, QUERY).fix == "there are window, amount, product"
    found = problem_of(error, QUERY, read={"orders": ["id", "amount"], "products": ["name"]})
    assert found.message == "there is no column amuont; did you mean amount?"
    assert found.fix == "orders has id, amount; products has name"


def test_a_place_on_a_later_line_is_not_shifted() -> None:
    error = SparkError("[X] no", "TABLE_OR_VIEW_NOT_FOUND", {"relationName": "`ordrs`"}, start=15)
    found = problem_of(error, QUERY, ["orders", "clicks"])
    assert found.place == Place(11, 6)
    assert found.message == "there is no stream, table or view ordrs; did you mean orders?"
    assert "orders, clicks" in found.fix


def test_the_parser_tells_its_place_in_words() -> None:
    text = "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 2, pos 3)\n\n== SQL ==\nSELECT"
    found = problem_of(SparkError(text, "PARSE_SYNTAX_ERROR", {"error": "'x'", "hint": ": extra input 'x'"}), QUERY)
    assert found.message == "Spark cannot read this query at 'x'"
    assert found.fix == "extra input 'x'"
    assert found.place == Place(11, 4)


def test_a_complaint_without_a_place_is_the_querys() -> None:
    error = SparkError(
        '[MISSING_AGGREGATION] The expression "v" is based on columns.\nAdd the columns. SQLSTATE: 42803;\nAggregate',
        "MISSING_AGGREGATION",
    )
    found = problem_of(error, QUERY)
    assert found.place == QUERY.place
    assert found.message == 'The expression "v" is based on columns. Add the columns'
    assert "GROUP BY" in found.fix


def test_neither_plans_nor_stacks_are_shown() -> None:
    text = "[A.B] It failed. SQLSTATE: 42KDE;\n~Sort [v#8L]\n+- ~Project\n\nJVM stacktrace:\norg.apache.X\n\tat y"
    assert sentence(text) == "It failed"
    assert sentence("plain words;\n~Sort [v]") == "plain words"
    assert sentence("") == "Spark gives no reason"


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("Invalid streaming output mode: append. This output mode is not supported for streaming aggregations without "
         "watermark on streaming DataFrames/DataSets.", "WATERMARK FOR"),
        ("Sorting is not supported on streaming DataFrames/Datasets, unless …", "leave out ORDER BY"),
        ("Distinct aggregations are not supported on streaming DataFrames", "approx_count_distinct"),
    ],
)  # fmt: skip
def test_what_cannot_be_streamed_comes_with_what_can(message: str, fix: str) -> None:
    found = streaming_problem(Exception(f"[X.Y] {message} SQLSTATE: 42KDE"), Place(3, 1))
    assert found.message.startswith("this cannot be streamed: ")
    assert fix in found.fix


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: An exception was raised by the "
            "Python Proxy. Return Message: Traceback (most recent call last):\n"
            '  File "/x/py4j/java_gateway.py", line 1, in call\n    return f()\n'
            "penstock.pipeline.topic_errors.TransactionsMissing: this cluster does not serve transactions\n SQLSTATE",
            "this cluster does not serve transactions",
        ),
        (
            "[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure: Task 0 failed\n"
            "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "/x/worker.py", line 2, in main\n'
            "KeyError: 'amount'\n\n\tat org.apache.spark.X.y(Z.scala:1)\n",
            "KeyError: 'amount'",
        ),
        (
            "[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure: … "
            "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] the record at orders-0 offset 5 does not "
            "parse as a row of orders; set dead_letters = '…' SQLSTATE: P0001\n\tat x",
            "the record at orders-0 offset 5 does not parse as a row of orders; set dead_letters = '…'",
        ),
        (
            "[STREAM_FAILED] Query terminated with exception: An exception was raised by the Python Proxy: Traceback\n"
            '  File "/x/writer.py", line 1, in write\n'
            "pyspark.errors.SparkRuntimeException: [USER_RAISED_EXCEPTION] the record SQLSTATE: P0001\n"
            "Driver stacktrace:\norg.apache.spark.SparkException: Job aborted due to stage failure: Task 0\n",
            "the record",
        ),
        (
            "[STREAM_FAILED] Query terminated with exception: boom\n\tat x\n"
            "Caused by: java.io.IOException: No space left on device\n",
            "No space left on device",
        ),
        ("[STREAM_FAILED] something else", "something else"),
        ("", "Spark gives no reason"),
    ],
)
def test_why_a_query_failed_is_one_line(text: str, reason: str) -> None:
    assert reason_of(text) == reason
