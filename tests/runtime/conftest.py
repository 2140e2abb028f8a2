"""Every test that takes `run_on` runs on the real machine and, with several seeds, in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock import sim
from penstock.runtime import Runtime, production

Main = Callable[[Runtime], Coroutine[Any, Any, Any]]
RunOn = Callable[[Main], Any]


@pytest.fixture(params=["production", "simulation 1", "simulation 2", "simulation 3"])
def run_on(request: pytest.FixtureRequest, tmp_path: Path) -> RunOn:
    """Runs a main coroutine to its end. Several calls in one test see the same disk."""
    if request.param == "production":
        return lambda main: production.run(main, root=str(tmp_path / "data"))
    seed = str(request.param)
    disk = sim.SimDisk(seed)
    return lambda main: sim.run(main, seed=seed, disk=disk)
