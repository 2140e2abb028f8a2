"""Which form of a kernel is used: the compiled one of this very source, or none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import kernel
from penstock.kernel import compiling, record_walk
from penstock.kernel.names import PURE_VARIABLE, compiled_name

SOURCE = Path(record_walk.__file__)
DECLARATIONS = SOURCE.with_suffix(".pxd")


def form(path: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """The form that a new process loads, perhaps from another place."""
    variables = {name: value for name, value in os.environ.items() if name != PURE_VARIABLE} | (environment or {})
    if path is not None:
        variables["PYTHONPATH"] = os.pathsep.join([str(path), *filter(None, [variables.get("PYTHONPATH")])])
    asked = "import penstock.kernel as kernel; print(kernel.__file__, kernel.FORM)"
    done = subprocess.run([sys.executable, "-c", asked], env=variables, capture_output=True, text=True, check=True)
    where, found = done.stdout.split()
    assert path is None or where.startswith(str(path))
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package somewhere else, where its files may be changed."""
    shutil.copytree(SOURCE.parent, tmp_path / "penstock" / "kernel")
    (tmp_path / "penstock" / "__init__.py").touch()
    return tmp_path


def test_the_interpreted_form_can_be_asked_for() -> None:
    assert form(environment={PURE_VARIABLE: "1"}) == "interpreted"


@pytest.mark.parametrize("name", [SOURCE.name, DECLARATIONS.name])
def test_a_compiled_form_is_not_used_after_its_source_changed(copy: Path, name: str) -> None:
    assert form(copy) == form()
    changed = copy / "penstock" / "kernel" / name
    changed.write_text(changed.read_text() + "\n# another version\n")
    assert form(copy) == "interpreted"


def test_it_runs_where_nothing_was_compiled(copy: Path) -> None:
    isolated = [sys.executable, "-S", "-c", "import penstock.kernel as kernel; print(kernel.FORM)"]
    done = subprocess.run(isolated, env={"PYTHONPATH": str(copy)}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "interpreted"


def test_a_prepared_checkout_has_the_compiled_form_where_there_is_a_compiler() -> None:
    if missing := compiling.missing_tools():
        pytest.skip(f"nothing is compiled here: {missing} not found")
    if os.environ.get(PURE_VARIABLE):
        pytest.skip(f"{PURE_VARIABLE} is set")
    assert kernel.FORM == "compiled", "run `make setup`: the kernels changed since they were compiled"


@pytest.mark.long
def test_compiling_gives_one_module_that_works(tmp_path: Path) -> None:
    if missing := compiling.missing_tools():
        pytest.skip(f"nothing can be compiled here: {missing} not found")
    (made,) = compiling.compile_kernels(tmp_path, compiled_name)
    name = made.name.partition(".")[0]
    asked = f"import {name}; print({name}.walk(b'', 0, 0, 0, 0, 0, False, [], 0), {name}.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", asked], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["-1", str(made)]


def test_a_missing_compiler_is_named_and_nothing_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(compiling.CannotCompile, match="no-such-compiler"):
        compiling.compile_kernels(tmp_path, compiled_name)
