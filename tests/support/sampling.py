"""Some cases in every run, all of them in the long one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def some(cases: Iterable[T], *, usual: Collection[T]) -> list[object]:
    """Parameters: those beyond the usual ones get the marker `long`."""
    return [case if case in usual else pytest.param(case, marks=pytest.mark.long) for case in cases]
