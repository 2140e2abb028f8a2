"""Compiles the kernels with Cython and the machine's C compiler: a step of the build (`hatch_build.py`).

This module imports nothing else from Penstock, because the build runs it before Penstock is installed.
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

KERNELS = ("record_walk",)
SUFFIXES = (".py", ".pxd")
"""The two files of a kernel: the source, and the C types of its variables."""
COMPILE_TIMEOUT_S = 300

COMPILER_FLAGS = (
    "-O3",
    "-g0",
    # A Cython memoryview has about 200 bytes, which are copied whenever it is passed to a function that is not inlined.
    # If GCC decides against inlining the small functions, the walk takes twice as long.
    "--param=max-inline-insns-single=1000",
    "--param=large-function-growth=1000",
    "--param=inline-unit-growth=1000",
)

SETUP = """
from Cython.Build import cythonize
from setuptools import Extension, setup
modules = [Extension(name, [name + ".py"], extra_compile_args={flags!r}) for name in {names!r}]
setup(name="penstock-kernels", script_args=["build_ext", "--build-lib", {into!r}, "--build-temp", {temporary!r}],
      ext_modules=cythonize(modules, quiet=True))
"""


class CannotCompile(Exception):
    """There is no compiler, or it failed; the message says which."""


def compile_kernels(into: Path, name_of: Callable[[bytes, bytes], str]) -> list[Path]:
    """Compile every kernel for the running Python into files in `into`. Raises CannotCompile."""
    missing = missing_tools()
    if missing:
        raise CannotCompile(f"{missing} not found")
    with tempfile.TemporaryDirectory(prefix="penstock-kernels-") as directory:
        names = []
        for kernel in KERNELS:
            source, declarations = (Path(__file__).with_name(kernel + suffix).read_bytes() for suffix in SUFFIXES)
            names.append(name_of(source, declarations))
            (Path(directory) / f"{names[-1]}.py").write_bytes(source)
            (Path(directory) / f"{names[-1]}.pxd").write_bytes(declarations)
        setup = SETUP.format(into=str(into), temporary=directory, names=names, flags=list(COMPILER_FLAGS))
        try:
            done = subprocess.run(
                [sys.executable, "-c", setup],
                cwd=directory, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotCompile(str(error)) from error
    made = [into / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}" for name in names]
    if done.returncode or not all(file.exists() for file in made):
        raise CannotCompile(f"Cython or the C compiler failed: {(done.stderr or done.stdout).strip()[-2_000:]}")
    return made


def missing_tools() -> str:
    """The first missing tool that compiling needs; empty if none is missing."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"C compiler {compiler}"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "Python.h"
    for package in ("Cython", "setuptools"):
        if find_spec(package) is None:
            return package
    return ""
