"""One coroutine on one simulated host: the shortest way to run engine code in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime
from penstock.sim.world import EXECUTE_LIMIT_MS, World

__all__ = ["run"]

HOST = "node"

T = TypeVar("T")


def run(
    main: Callable[[SimRuntime], Coroutine[Any, Any, T]],
    *,
    seed: int | str = 0,
    disk: SimDisk | None = None,
    limit_ms: float = EXECUTE_LIMIT_MS,
    guard: bool = True,
) -> T:
    """Runs `main(runtime)` to its end and returns its result, or raises its error.

    A `disk` given here keeps its contents for the next `run`. Raises `SimulatedCrash` if the disk was told to crash,
    and `ProcessEnded` if the process called `fatal`.
    """
    with World(seed, guard=guard) as world:
        host = world.host(HOST)
        if disk is not None:
            host.disk = disk
        return world.execute(main, host=HOST, limit_ms=limit_ms)
