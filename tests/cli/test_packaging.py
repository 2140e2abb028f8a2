"""The name and the version that users install, wherever they are written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import penstock

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_package_and_the_code_agree_on_name_and_version() -> None:
    assert (PROJECT["name"], PROJECT["version"]) == (penstock.DISTRIBUTION, penstock.__version__)
    # On PyPI this name is taken by an unrelated project: a message with it would have users install that.
    assert PROJECT["name"] != "penstock"


def test_nothing_tells_users_to_install_the_unrelated_project() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*")]
    pages += [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py")]
    wrong = [
        f"{page.relative_to(ROOT)}: {match.group()}"
        for page in pages
        if page.is_file()
        for match in re.finditer(r"pip install ['\"]?penstock(?![-_\w])", page.read_text(encoding="utf-8"))
    ]
    assert not wrong


def test_the_extras_that_messages_name_exist() -> None:
    named = {
        extra
        for file in ROOT.glob("src/**/*.py")
        for extra in re.findall(r"install_command\(['\"](\w+)['\"]\)", file.read_text(encoding="utf-8"))
    }
    assert named == {"forecast", "spark", "java", "postgres", "redis"}
    assert named <= set(PROJECT["optional-dependencies"])


def test_the_package_says_where_it_lives_and_which_python_it_runs_on() -> None:
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= set(PROJECT["urls"])
    versions = {text.rsplit(" :: ", 1)[1] for text in PROJECT["classifiers"] if " :: Python :: 3." in text}
    assert versions == {"3.11", "3.12", "3.13", "3.14"}
