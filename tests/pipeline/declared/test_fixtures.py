"""Fixture files of `penstock pipeline test`, and how rows are compared."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from penstock.pipeline.fixtures import fixture_paths, parse_cases
from penstock.pipeline.model import PipelineError
from penstock.pipeline.row_diff import Difference, diff_lines, differences

FILE = Path("revenue.test")


def test_json_lines_and_tables_are_rows_and_other_lines_are_values_as_they_stand() -> None:
    [case] = parse_cases(
        """
# a comment
test sums
given orders
{"id": "1", "amount": 1.50}
not json
"# text"
given products
name  | price | note
------|-------|-----
apple | 1.50  |
expect revenue
""",
        FILE,
    )
    assert (case.name, case.line, case.closes_windows) == ("sums", 3, True)
    [batch] = case.batches
    assert [(row.line, row.text) for row in batch["orders"]] == [
        (5, '{"id": "1", "amount": 1.50}'), (6, "not json"), (7, "# text"),
    ]  # fmt: skip
    [apple] = batch["products"]
    assert apple.fields == {"name": "apple", "price": Decimal("1.50"), "note": None}
    assert apple.text == '{"name": "apple", "price": 1.50, "note": null}'
    [expectation] = case.expectations
    assert expectation.rows == ()


def test_a_second_given_of_a_stream_is_another_batch() -> None:
    text = 'given a\n{"x": 1}\ngiven b\n{"x": 2}\ngiven a\n{"x": 3}\nexpect q\ntest second\nwindows stay open\nexpect q'
    first, second = parse_cases(text, FILE)
    assert [sorted(batch) for batch in first.batches] == [["a", "b"], ["a"]]
    assert (first.name, second.name, second.closes_windows) == ("revenue", "second", False)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("test a\n{}", 2, "belongs to no section"),
        ("given\n{}", 1, "given is followed by the name of a stream or table"),
        ("test a\n\ngiven s\n{}", 1, "the test 'a' expects nothing"),
        ("expect q\n{}\nrubbish", 3, "this is not a row: rubbish"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(PipelineError, match=words) as found:
        parse_cases(text, FILE)
    assert found.value.problems[0].line == line


def test_fixture_files_are_found_beside_the_pipeline(tmp_path: Path) -> None:
    for name in ("revenue.late.test", "revenue.test", "revenues.test", "other.test"):
        (tmp_path / name).touch()
    found = fixture_paths(tmp_path / "revenue.sql")
    assert [path.name for path in found] == ["revenue.test", "revenue.late.test"]


def test_rows_are_compared_in_any_order_and_paired_with_those_most_like_them() -> None:
    expected = [("a", 1, 1.0), ("b", 2, 0.3), ("c", 3, 1.0), ("d", 4, 9.0)]
    found = [("c", 7, 1.0), ("b", 2, 0.1 + 0.2), ("a", 1, 1.0), ("e", 5, 5.0)]
    different = differences(expected, found)
    assert different == [
        Difference(("c", 3, 1.0), ("c", 7, 1.0)), Difference(("d", 4, 9.0), None), Difference(None, ("e", 5, 5.0)),
    ]  # fmt: skip
    assert list(diff_lines(("name", "n", "x"), different)) == [
        "  name  n  x",
        "- c     3  1.0",
        "+ c     7  1.0",
        "        ^",
        "- d     4  9.0",
        "+ e     5  5.0",
    ]


def test_a_row_that_is_there_twice_must_be_expected_twice() -> None:
    assert differences([("a",)], [("a",), ("a",)]) == [Difference(None, ("a",))]
