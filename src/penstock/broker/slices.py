"""Work over many things, in slices that keep the loop free."""

from __future__ import annotations

from penstock.runtime import Runtime

SLICE_MS = 5.0


class Slices:
    """For one piece of work: `await breathe()` after each of its parts."""

    __slots__ = ("_began_ms", "_runtime")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._began_ms = runtime.now_ms()

    async def breathe(self) -> None:
        """Give the loop back if this work has held it for a slice."""
        if self._runtime.now_ms() - self._began_ms > SLICE_MS:
            await self._runtime.sleep(0)
            self._began_ms = self._runtime.now_ms()
