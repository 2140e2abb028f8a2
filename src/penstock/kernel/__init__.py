"""Loops over bytes, compiled where that is possible.

A kernel is a module of plain Python that does nothing but loop over bytes and compute with numbers. Beside it lies a
file with the C types of its variables. From both Cython makes machine code, a hundred times as fast (`compiling`), that
reads a receive buffer where it is. Where there is no compiler the same module runs as it is. Keep kernels few and
small: code that handles objects gains little from being compiled.

    penstock/kernel/record_walk.py                     the source, and the interpreted form
    penstock/kernel/record_walk.pxd                    its C types
    site-packages/penstock_kernel_<digest>.<abi>.so    the compiled form, beside the installed packages

Wheels carry the compiled form; `make run` and `make test` compile it when they prepare `.venv`. `PENSTOCK_PURE=1` in
the environment asks for the interpreted form.
"""

from __future__ import annotations

import importlib
import os
from importlib.machinery import SourceFileLoader
from types import ModuleType

from penstock.kernel import record_walk
from penstock.kernel.names import PURE_VARIABLE, compiled_name


def _compiled(source: ModuleType) -> ModuleType | None:
    loader = None if source.__spec__ is None else source.__spec__.loader
    if os.environ.get(PURE_VARIABLE) or source.__file__ is None or not isinstance(loader, SourceFileLoader):
        return None
    try:
        declarations = loader.get_data(source.__file__.removesuffix("py") + "pxd")
        return importlib.import_module(compiled_name(loader.get_data(source.__file__), declarations))
    except (ImportError, OSError):
        return None


_compiled_walk = _compiled(record_walk)

walk = record_walk.walk if _compiled_walk is None else _compiled_walk.walk
"""`penstock.kernel.record_walk.walk`, in the fastest form there is."""

FORM = "interpreted" if _compiled_walk is None else "compiled"
"""For whoever wonders why a broker is slow."""
