"""What the compiled form of a kernel is called. Imports nothing of Penstock: the build uses it, too."""

from __future__ import annotations

import hashlib

PURE_VARIABLE = "PENSTOCK_PURE"
"""Set in the environment, it asks for the interpreted form: nothing is compiled, nothing compiled is used."""


def compiled_name(source: bytes) -> str:
    """The module that holds the compiled form of this source.

    The digest of the source is part of the name, so that what was compiled from another version is never found.
    """
    return f"penstock_kernel_{hashlib.sha256(source).hexdigest()[:16]}"
