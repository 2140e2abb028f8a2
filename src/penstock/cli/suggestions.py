"""The nearest known name, for messages about a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable

CUTOFF = 0.6
"""How alike two names must be, from 0 to 1, for one to be proposed in place of the other."""


def nearest(name: str, known: Iterable[str], cutoff: float = CUTOFF) -> str | None:
    """The known name that is most like this one; None if none is much like it."""
    # Loaded only after a mistake: a broker's process need not pay for it.
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str], cutoff: float = CUTOFF) -> str:
    """`; did you mean x?` for the end of a message, or nothing."""
    found = nearest(name, known, cutoff)
    return f"; did you mean {found}?" if found is not None else ""
