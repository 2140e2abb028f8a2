"""Byte-processing loops, compiled where possible.

A kernel is a module of plain Python that only loops over bytes and computes with numbers. A second file declares the C
types of its variables. From both, Cython generates machine code that is a hundred times as fast (`compiling`) and reads
a receive buffer without copying it. Without a compiler the same module runs interpreted. Keep kernels few and small:
code that handles objects gains little from being compiled.

    penstock/kernel/record_walk.py                     the source, and the interpreted form
    penstock/kernel/record_walk.pxd                    its C types
    site-packages/penstock_kernel_<digest>.<abi>.so    the compiled form, beside the installed packages

Wheels contain the compiled form; `make run` and `make test` compile it when they prepare `.venv`. `PENSTOCK_PURE=1` in
the environment selects the interpreted form.
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
"""`penstock.kernel.record_walk.walk`, in the fastest available form."""

FORM = "interpreted" if _compiled_walk is None else "compiled"
"""The form in use, shown by the broker because the interpreted one makes it slow."""
