"""Compiles the kernels with mypyc and the machine's C compiler: a step of the build (`hatch_build.py`).

This module imports nothing of Penstock, because the build runs it before Penstock is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

KERNELS = ("record_walk.py",)
COMPILE_TIMEOUT_S = 300

# GCC inlines a function that other libraries could replace only if it is told that none does.
COMPILER_FLAGS = "-fno-semantic-interposition"

SETUP = """
from mypyc.build import mypycify
from setuptools import setup
setup(name="penstock-kernels", script_args=["build_ext", "--build-lib", {into!r}, "--build-temp", {temporary!r}],
      ext_modules=mypycify(["--ignore-missing-imports", *{sources!r}], opt_level="3", debug_level="0"))
"""


class CannotCompile(Exception):
    """There is no compiler, or it failed; the message says which."""


def compile_kernels(into: Path, name_of: Callable[[bytes], str]) -> list[Path]:
    """The compiled form of every kernel, for the Python that runs this, as files in `into`. Raises CannotCompile."""
    missing = missing_tools()
    if missing:
        raise CannotCompile(f"{missing} not found")
    with tempfile.TemporaryDirectory(prefix="penstock-kernels-") as directory:
        names = []
        for kernel in KERNELS:
            source = (Path(__file__).parent / kernel).read_bytes()
            names.append(name_of(source))
            (Path(directory) / f"{names[-1]}.py").write_bytes(source)
        sources = [f"{name}.py" for name in names]
        setup = SETUP.format(into=str(into), temporary=directory, sources=sources)
        environment = {**os.environ, "CFLAGS": f"{os.environ.get('CFLAGS', '')} {COMPILER_FLAGS}".strip()}
        environment.pop("PYTHONPATH", None)
        try:
            done = subprocess.run(
                [sys.executable, "-c", setup],
                cwd=directory, env=environment, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotCompile(str(error)) from error
    made = [into / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}" for name in names]
    if done.returncode or not all(file.exists() for file in made):
        raise CannotCompile(f"mypyc failed: {(done.stderr or done.stdout).strip()[-2_000:]}")
    return made


def missing_tools() -> str:
    """The first thing that compiling needs and this machine has not; empty if all is there."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"C compiler {compiler}"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "Python.h"
    for package in ("mypyc", "setuptools"):
        if find_spec(package) is None:
            return package
    return ""
