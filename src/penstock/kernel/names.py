"""What the compiled form of a kernel is called. Imports nothing of Penstock: the build uses it, too."""

from __future__ import annotations

import hashlib

PURE_VARIABLE = "PENSTOCK_PURE"
"""Set in the environment, it asks for the interpreted form: nothing is compiled, nothing compiled is used."""


def compiled_name(source: bytes, declarations: bytes) -> str:
    """The module that holds the compiled form of this source with these declarations.

    The digest of both is part of the name, so that what was compiled from another version is never found.
    """
    digest = hashlib.sha256(hashlib.sha256(source).digest() + declarations)
    return f"penstock_kernel_{digest.hexdigest()[:16]}"
