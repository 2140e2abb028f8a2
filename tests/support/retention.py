"""Records that are years old must not go while a test looks at them, whenever the broker looks at its retention."""

from __future__ import annotations

from typing import Final

KEPT_FOR_EVER: Final = {"log.retention.ms": "-1"}
