"""Every test that takes `run_on` runs twice: on the real machine and in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock import sim
from penstock.runtime import Runtime, production

Main = Callable[[Runtime], Coroutine[Any, Any, Any]]
RunOn = Callable[[Main], Any]


@pytest.fixture(params=["production", "simulation"])
def run_on(request: pytest.FixtureRequest, tmp_path: Path) -> RunOn:
    """Runs a main coroutine to its end. Several calls in one test see the same disk."""
    if request.param == "production":
        return lambda main: production.run(main, root=str(tmp_path / "data"))
    disk = sim.SimDisk(seed=request.node.name)
    return lambda main: sim.run(main, seed=request.node.name, disk=disk)
