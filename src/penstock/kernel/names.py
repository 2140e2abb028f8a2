"""The names of compiled kernels. Imports nothing else from Penstock, because the build uses it, too."""

from __future__ import annotations

import hashlib

PURE_VARIABLE = "PENSTOCK_PURE"
"""The environment variable that selects the interpreted form: nothing is compiled, and no compiled form is used."""


def compiled_name(source: bytes, declarations: bytes) -> str:
    """The name of the module compiled from this source with these declarations.

    It contains a digest of both, so that a module compiled from another version is never loaded.
    """
    digest = hashlib.sha256(hashlib.sha256(source).digest() + declarations)
    return f"penstock_kernel_{digest.hexdigest()[:16]}"
