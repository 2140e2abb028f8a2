"""Help on a terminal of 80 columns: nothing is cut, and nothing is shown that only a program understands."""

from __future__ import annotations

import re

import pytest

from cli.running import Run
from penstock.cli import exit_codes
from penstock.cli.app import app
from penstock.cli.commands import all_commands
from penstock.cli.help_text import Page, Row, Section, example_lines, render

WIDTH = 80
COMMANDS = all_commands(app)
IDS = [" ".join(("penstock", *words)) for words in COMMANDS]


@pytest.mark.parametrize("words", COMMANDS, ids=IDS)
def test_help_fits_eighty_columns(run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    result = run(*words, "--help")
    assert result.code == exit_codes.OK
    command = COMMANDS[words]
    names = [name for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")]
    shown = set(re.findall(r"(?<![\w-])--?[a-zA-Z](?:[\w.-]*\w)?", result.output))
    assert set(names) <= shown
    assert not re.search(r"<(bool|int|str|list|float|path)", result.output, re.I)
    before_examples, _, examples = result.output.partition("Examples:\n")
    assert all(len(line) <= WIDTH for line in before_examples.splitlines())
    # A command in an example stays in one line, so that it can be copied.
    assert all(len(line) <= WIDTH or not line.lstrip().startswith("#") for line in examples.splitlines())


@pytest.mark.parametrize("words", [words for words in COMMANDS if not hasattr(COMMANDS[words], "commands")])
def test_every_command_has_json(words: tuple[str, ...]) -> None:
    assert any("--json" in one.opts for one in COMMANDS[words].params)


@pytest.mark.parametrize("words", [words for words in COMMANDS if hasattr(COMMANDS[words], "commands")])
def test_a_group_without_a_command_shows_its_help(run: Run, words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.code == exit_codes.USAGE
    assert result.output == ""
    assert result.messages.startswith(f"Usage: {' '.join(('penstock', *words))}")


def test_a_long_name_gets_a_line_of_its_own() -> None:
    rows = [Row("--a", "short"), Row("--" + "x" * 70 + " KEY=VALUE", "the explanation stands below")]
    text = render(Page("Usage: it", "", [Section("Options:", rows)]), WIDTH)
    assert "  --" + "x" * 70 + " KEY=VALUE\n" in text
    assert "\n" + " " * 34 + "the explanation stands below\n" in text


def test_the_explanation_of_a_long_example_stands_above_it() -> None:
    command = "penstock " + "x" * 60
    text = render(Page("Usage: it", "", [], example_lines([(command, "does something useful")])), WIDTH)
    assert f"  # does something useful\n  {command}\n" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topcis",), "penstock has no command topcis; did you mean topics?"),
        (("topics", "creat", "a"), "penstock topics has no command creat; did you mean create?"),
        (("topics", "create", "a", "--partitons", "3"), "no option --partitons; did you mean --partitions?"),
        (("up", "--brokres", "3"), "penstock up has no option --brokres; did you mean --brokers?"),
        (("server", "--lsiten", "x"), "penstock server has no option --lsiten; did you mean --listen?"),
        (("server", "--log-format", "jsn"), "'jsn' is not one of 'text', 'json'; did you mean json?"),
        (("server", "--node-id", "x"), "invalid value for '--node-id': this is not a whole number"),
        (("up", "--brokers", "100"), "it must be less than or equal to 99"),
        (("server", "--data"), "option '--data' requires an argument"),
        (("consume", "t", "--isolation", "read_comitted"), "did you mean read_committed?"),
    ],
)
def test_a_typing_error_is_answered_with_the_nearest_name(run: Run, arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.code == exit_codes.USAGE
    assert said in result.messages
    assert "hint: `penstock" in result.messages
