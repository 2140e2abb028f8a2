"""Keeps keys that are pressed out of a view that is drawn over itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keys_not_echoed() -> Iterator[None]:
    """Has the terminal show nothing for keys meanwhile; Ctrl-C works as ever.

    The `^C` that it would write behind a view as wide as the terminal makes one line more, so that the next picture is
    drawn a line too low and leaves the first line of the old one standing.
    """
    if not sys.stdin.isatty():
        yield
        return
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
