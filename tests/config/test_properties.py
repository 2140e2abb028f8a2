"""The syntax of server.properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ConfigError, parse_assignment, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a: 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t:\t1", {"a": "1"}),
        ("   a=1", {"a": "1"}),
        ("a=", {"a": ""}),
        ("a", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a=b=c", {"a": "b=c"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("# comment\n! too\n\na=1\n", {"a": "1"}),
        ("a=1\\\n   2\\\n3", {"a": "123"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        (r"a\=b=1", {"a=b": "1"}),
        (r"a\ b=1", {"a b": "1"}),
        (r"a=\t\n\r\f\q", {"a": "\t\n\r\fq"}),
        (r"a=caf\u00e9", {"a": "café"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_files_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_bad_escape_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 3: .*four hexadecimal digits"):
        parse_properties("a=1\n\nb=\\u12x4\n")


@given(st.text(max_size=200))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        properties = parse_properties(text)
    except ConfigError:
        return
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in properties.items())


def _escape(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


BASIC_PLANE = st.characters(max_codepoint=0xFFFF)


@given(st.dictionaries(st.text(BASIC_PLANE, min_size=1), st.text(BASIC_PLANE)))
def test_escaped_text_is_restored(properties: dict[str, str]) -> None:
    text = "\n".join(f"{_escape(key)}={_escape(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties


def test_assignments_of_the_command_line() -> None:
    assert parse_assignment("log.dirs = /a=b ") == ("log.dirs", "/a=b")
    for wrong in ("log.dirs", "=1", " = "):
        with pytest.raises(ConfigError, match="key=value"):
            parse_assignment(wrong)
