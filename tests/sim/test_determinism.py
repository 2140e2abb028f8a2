"""One seed, one run: in every process, whatever the hash seed."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from penstock.sim import SimRuntime, World

SCENARIO = Path(__file__).with_name("scenario.py")


def load_scenario() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scenario", SCENARIO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_seed_gives_one_digest_in_every_process() -> None:
    digests = {seed: load_scenario().run_scenario(seed).digest() for seed in (1, 2)}
    assert digests[1] != digests[2]
    for seed, digest in digests.items():
        for hash_seed in ("0", "12345"):
            output = subprocess.run(
                [sys.executable, str(SCENARIO), str(seed)],
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            ).stdout
            assert output.strip() == digest


def test_the_scenario_meets_its_faults() -> None:
    reasons: list[str] = []
    for seed in range(4):
        world = load_scenario().run_scenario(seed)
        for host in world.hosts.values():
            reasons += [exit.reason for exit in host.exits]
    assert {"killed", "power loss", "fatal: cannot store"} <= set(reasons)


def test_a_leak_changes_the_digest_and_the_trace_shows_where() -> None:
    async def main(runtime: SimRuntime, leak: str) -> None:
        await runtime.sleep(10)
        runtime.disk.open("a", create=True).pwrite(leak.encode(), 0)

    traces = []
    digests = []
    for leak in ("one", "two"):
        text = io.StringIO()
        with World(1, trace_to=text) as world:
            world.execute(lambda runtime, leak=leak: main(runtime, leak))
            digests.append(world.digest())
        traces.append(text.getvalue().splitlines())
    assert digests[0] != digests[1]
    different = [pair for pair in zip(*traces, strict=True) if pair[0] != pair[1]]
    assert len(different) == 1
    assert "pwrite" in different[0][0]
