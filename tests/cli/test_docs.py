"""The page on the command line names what there is."""

from __future__ import annotations

from pathlib import Path

from penstock.cli import exit_codes

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def test_every_exit_code_is_explained() -> None:
    codes = [value for name, value in vars(exit_codes).items() if name.isupper()]
    assert len(codes) == len(set(codes)) > 8
    for code in codes:
        assert f"\n| {code} | " in PAGE


def test_every_command_is_named() -> None:
    from penstock.cli.app import app

    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    names += [str(group.name) for group in app.registered_groups]
    assert len(names) >= 16
    for name in names:
        assert f"penstock {name}" in PAGE
