"""What Spark says about a query, as a problem at a line of the file.

Spark's messages begin with an error class, end with a plan, and count from where its own text began. What is kept is
the sentence; what the class tells beyond it (which names there are, what would do instead) becomes the fix.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.pipeline.failures import PARSER_PLACE, sentence
from penstock.pipeline.model import Place, Problem, Sql, nearest
from penstock.pipeline.sql_lexer import Text

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_ANALYZER_PLACE = re.compile(r"; line (\d+) pos (\d+)")
_QUOTED = re.compile(r"`([^`]+)`")
_QUALIFIED = re.compile(r"`[^`]+`(?:\.`[^`]+`)*")
NOTHING_READ: Mapping[str, Sequence[str]] = MappingProxyType({})

_FIXES = {
    "UNRESOLVED_ROUTINE": "check the function's name: Spark's own are listed at spark.apache.org/docs/latest/api/sql",
    "MISSING_AGGREGATION": "add the column to GROUP BY, or aggregate it",
    "CANNOT_PARSE_INTERVAL": "write an interval such as '10 minutes'",
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": "group by window(column, '1 minute') instead of OVER (…)",
}
_STREAMING = (
    ("aggregations without watermark", "give the stream a watermark (WATERMARK FOR column DELAY OF 10 MINUTES) and "
     "group by window(column, …), or choose mode = 'update' or 'complete'"),
    ("no streaming aggregations", "mode = 'complete' is for aggregations: leave it out"),
    ("Sorting is not supported", "leave out ORDER BY, or aggregate with mode = 'complete'"),
    ("Distinct aggregations are not supported", "use approx_count_distinct(…)"),
    ("Limits are not supported", "leave out LIMIT"),
    ("join", "a join of two streams needs a watermark on both and a condition that bounds their times"),
)  # fmt: skip

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j.clientserver")


def problem_of(
    error: Exception,
    query: Sql,
    known: Iterable[str] = (),
    read: Mapping[str, Sequence[str]] = NOTHING_READ,
) -> Problem:
    """A problem in a query's text, where Spark saw it.

    `known` are the streams, tables and views that a query may read; `read` has the columns of those that this one
    reads.
    """
    message = sentence(str(error))
    offset, place = _offset(error), query.place
    if offset is not None:
        place = Text(query.text, query.place).place(min(offset, len(query.text)))
    else:
        found = PARSER_PLACE.search(str(error)) or _ANALYZER_PLACE.search(str(error))
        if found:
            place = _place(int(found[1]), int(found[2]), query)
    condition, parameters = _details(error)
    if condition.startswith("UNRESOLVED_COLUMN"):
        return Problem(*_column_words(parameters, read), place)
    return Problem(*_words(condition, parameters, message, list(known)), place)


def streaming_problem(error: Exception, place: Place) -> Problem:
    """What cannot be streamed; Spark does not say where, so it is the sink's place."""
    message = sentence(str(error)).removeprefix("Invalid streaming output mode: ")
    fix = next((fix for words, fix in _STREAMING if words.lower() in message.lower()), "")
    return Problem(f"this cannot be streamed: {message}", fix, place)


@contextmanager
def quietly() -> Iterator[None]:
    """Spark's Python side logs what fails with its whole stack; here it is told in other words."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _words(condition: str, parameters: Mapping[str, str], message: str, known: list[str]) -> tuple[str, str]:
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        name = _bare(parameters.get("relationName", ""))
        listed = ", ".join(known) or "none yet"
        return (
            f"there is no stream, table or view {name}{nearest(name, known)}",
            f"a query reads what the file created before it: {listed}",
        )
    if condition == "PARSE_SYNTAX_ERROR":
        hint = parameters.get("hint", "").removeprefix(": ")
        return f"Spark cannot read this query at {parameters.get('error', 'this place')}", hint
    return message, _FIXES.get(condition, "")


def _column_words(parameters: Mapping[str, str], read: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Names the nearest column, and all that there are: those of what the query reads, else those that Spark lists."""
    name = _bare(parameters.get("objectName", ""))
    proposals = [one[-1] for one in map(_QUOTED.findall, _listed(parameters.get("proposal", "")))]
    columns = list(dict.fromkeys([*(column for columns in read.values() for column in columns), *proposals]))
    if read:
        fix = "; ".join(f"{relation} has {', '.join(columns)}" for relation, columns in read.items())
    else:
        fix = f"there are {', '.join(columns)}" if columns else ""
    return f"there is no column {name}{nearest(name.rpartition('.')[2], columns)}", fix


def _listed(proposal: str) -> list[str]:
    """The names in a list of Spark's, such as "`orders`.`amount`, `window`"."""
    return [one[0] for one in _QUALIFIED.finditer(proposal)]


def _bare(name: str) -> str:
    return name.replace("`", "")


def _details(error: Exception) -> tuple[str, Mapping[str, str]]:
    if not hasattr(error, "getCondition"):
        return "", {}
    spark_error: PySparkException = error  # type: ignore[assignment]
    return spark_error.getCondition() or "", spark_error.getMessageParameters() or {}


def _offset(error: Exception) -> int | None:
    if not hasattr(error, "getQueryContext"):
        return None
    for context in error.getQueryContext() or ():
        try:
            start = int(context.startIndex())
        except Exception:
            # A context of a DataFrame has no place in a text.
            continue
        if start >= 0:
            return start
    return None


def _place(line: int, position: int, query: Sql) -> Place:
    column = position + 1
    if line == 1:
        column += query.place.column - 1
    return Place(query.place.line + line - 1, column)
