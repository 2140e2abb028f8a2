"""Waiting for a condition, where there is no virtual time."""

from __future__ import annotations

import time
from collections.abc import Callable

PAUSE_S = 0.05


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"it did not come true within {timeout_s:g} s"
        time.sleep(PAUSE_S)
