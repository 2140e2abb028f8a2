"""What `penstock doctor` finds, and the fix it names."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from penstock.spark.doctor import (
    PACKAGES,
    Answer,
    Ask,
    Check,
    Status,
    ask_python,
    check_disks,
    check_free,
    check_java,
    check_package,
    check_python,
    check_siblings,
    check_worker_python,
    worker_python,
)

THIS = platform.python_version()
COMPLETE = [THIS, ["pyspark_penstock", "penstock", "pyarrow"]]
PACKAGE = {package.name: package for package in PACKAGES}


def answering(*answers: Answer) -> Ask:
    """A Python that gives these answers in turn."""
    waiting = list(answers)
    return lambda executable, program: waiting.pop(0)


@pytest.mark.parametrize(
    ("name", "version", "status", "words"),
    [
        ("pyspark", "4.3.0", Status.OK, []),
        ("pyspark", "4.3.1.dev2", Status.OK, []),
        ("pyspark", "4.2.9", Status.FAILED, ["4.2.9, but 4.3 is needed", "pip install 'pyspark>=4.3,<5'"]),
        ("pyspark", None, Status.FAILED, ["not installed", "pip install 'penstock-streaming[spark]'"]),
        ("pandas", "2.3.3", Status.OK, []),
        ("pandas", "3.0.0rc1", Status.FAILED, ["older than 3 is needed", "pip install 'pandas>=2.2,<3'"]),
        ("protobuf", None, Status.WARNING, ["transformWithState"]),
    ],
)
def test_packages_are_checked_with_their_versions(
    name: str, version: str | None, status: Status, words: list[str]
) -> None:
    check = check_package(PACKAGE[name], version)
    assert (check.name, check.status) == (name, status)
    for word in words:
        assert word in f"{check.found} {check.fix}"


def test_an_old_python_is_named() -> None:
    assert check_python((3, 10, 4)) == Check("python", Status.FAILED, "3.10.4", "use Python 3.11 or newer")
    assert check_python((3, 11, 0)).status is Status.OK


def test_a_java_home_that_leads_nowhere_is_a_warning_where_another_java_is_found(tmp_path: Path) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    assert check_java({"JAVA_HOME": str(home)}).status is Status.OK
    check = check_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(home / "bin")})
    assert check.status is Status.WARNING
    assert "21.0.1 from PATH" in check.found
    assert "unset JAVA_HOME" in check.fix


def test_a_notebook_as_the_drivers_python_is_named_because_data_sources_are_started_with_it() -> None:
    environment = {"PYSPARK_PYTHON": "/venv/bin/python", "PYSPARK_DRIVER_PYTHON": "jupyter"}
    python, notebook = check_worker_python(
        environment, answering(Answer(COMPLETE), Answer(problem="jupyter: error: unknown argument -c"))
    )
    assert python.status is Status.OK
    assert notebook.status is Status.FAILED
    assert "PYSPARK_DRIVER_PYTHON=jupyter is no Python" in notebook.found
    assert "a notebook's program will not do" in notebook.fix
    assert worker_python(environment) == "jupyter"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([THIS, ["pyarrow", "penstock"]], "has no pyspark_penstock"),
        ([THIS, ["pyspark_penstock", "penstock"]], "has no pyarrow"),
        (["3.8.1", ["pyspark_penstock"]], "Spark wants the same on both sides"),
    ],
)
def test_a_worker_python_that_lacks_something_fails(answer: object, words: str) -> None:
    [check] = check_worker_python({"PYSPARK_PYTHON": "/other/python"}, answering(Answer(answer)))
    assert check.status is Status.FAILED
    assert words in check.found


def test_another_python3_on_the_path_is_a_warning_for_sessions_made_by_hand(tmp_path: Path) -> None:
    (tmp_path / "python3").touch(mode=0o755)
    [check] = check_worker_python({"PATH": str(tmp_path)}, answering(Answer([THIS, []])))
    assert check.status is Status.WARNING
    assert f"python3={tmp_path / 'python3'}" in check.found
    assert "import penstock.spark" in check.fix
    assert f"PYSPARK_PYTHON={sys.executable}" in check.fix


def test_an_activated_environment_needs_nothing() -> None:
    environment = {"PATH": os.path.dirname(sys.executable)}
    [check] = check_worker_python(environment, answering(Answer(COMPLETE)))
    assert check.status is Status.OK


def test_the_module_that_keeps_spark_from_finding_data_sources_is_named(tmp_path: Path) -> None:
    """A real Python, and a module as Spark would meet it: importable by name, and broken."""
    (tmp_path / "pyspark_x.py").write_text("import not_to_be_found_anywhere\n")
    (tmp_path / "pyspark_y.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "pyspark_z.py").write_text("print('[hello]')\n")

    def ask(executable: str, program: str) -> Answer:
        return ask_python(executable, f"import sys; sys.path[:] = [{str(tmp_path)!r}, *sys.path[1:]]\n{program}")

    found = {check.found.split()[2]: check for check in check_siblings(sys.executable, ask) if "module" in check.found}
    assert "ModuleNotFoundError: No module named 'not_to_be_found_anywhere'" in found["pyspark_x"].found
    assert "SystemExit: 3" in found["pyspark_y"].found
    assert "pip uninstall pyspark_x" in found["pyspark_x"].fix
    assert found["pyspark_x"].status is Status.FAILED
    assert "pyspark_z" not in found


@pytest.mark.parametrize("part", ["source", "fetching"])
def test_a_source_that_cannot_be_imported_is_named_although_its_module_can(part: str) -> None:
    """A real Python in which something that the source needs is broken; `pyspark_penstock` hides it from Spark."""

    def ask(executable: str, program: str) -> Answer:
        return ask_python(executable, f"import sys; sys.modules['penstock.spark.{part}'] = None\n{program}")

    found = [check for check in check_siblings(sys.executable, ask) if check.status is not Status.OK]
    assert [check.name for check in found] == ["data sources"]
    assert f"the source cannot be imported (ModuleNotFoundError: import of penstock.spark.{part}" in found[0].found
    assert "pip install 'penstock-streaming[spark]'" in found[0].fix


def test_a_python_without_the_source_is_told_apart_from_one_with_broken_neighbours() -> None:
    [check] = check_siblings("python3", answering(Answer(["pyspark_other"]), Answer(None)))
    assert check.found == "python3 has no module pyspark_penstock"
    [check] = check_siblings("python3", answering(Answer(["pyspark_penstock"]), Answer(None)))
    assert check == Check("data sources", Status.OK, "pyspark_penstock")


def test_a_program_that_is_no_python_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    assert ask_python(str(tmp_path / "nothing"), "").problem == "there is no such program"
    assert ask_python(sys.executable, "import sys; sys.exit('so sorry')").problem == "so sorry"
    assert ask_python(sys.executable, "print('noise'); print('[1]'); print('more noise')").value == [1]


def test_disks_are_checked_where_spark_puts_its_files(tmp_path: Path) -> None:
    assert check_free("/data", 100_000_000).status is Status.FAILED
    assert check_free("/data", 2_000_000_000).status is Status.WARNING
    assert check_free("/data", 900_000_000_000) == Check("disk", Status.OK, "900.0 GB free at /data")
    [missing, _] = check_disks({"SPARK_LOCAL_DIRS": str(tmp_path / "gone")})
    assert missing.status is Status.FAILED
    assert "SPARK_LOCAL_DIRS" in missing.fix
