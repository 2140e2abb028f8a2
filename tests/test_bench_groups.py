"""The benchmarks of groups run: each case, as small as it can be, yields every number it promises."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import runner
from bench.groups import GroupBench
from bench.groups_footprint import IdleGroups
from bench.groups_offsets import Commits, OffsetsLoad
from bench.groups_rebalances import Killed, Stable
from bench.model import Case, Side
from bench.runner import Options

pytestmark = pytest.mark.xdist_group("benchmarks of groups")

PENSTOCK = [sys.executable, "-m", "penstock"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GroupBench]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "WORK", tmp_path_factory.mktemp("bench"))
        with GroupBench(Options(PENSTOCK, sides=[Side.PENSTOCK], pairs=1, quick=True)) as made:
            yield made


@pytest.mark.parametrize(
    "case",
    [
        Stable("classic", members=40, partitions=80),
        Stable("consumer", members=40, partitions=80),
        Killed("classic", members=24, partitions=80),
        Killed("consumer", members=24, partitions=80),
        Commits(1, requests=8_000),
        Commits(10, requests=1_600),
        IdleGroups(400, empty=True),
        IdleGroups(400, empty=False),
        OffsetsLoad(groups=100, partitions=80),
    ],
    ids=lambda case: case.name,
)
def test_every_case_yields_its_numbers(bench: GroupBench, case: Case) -> None:
    case.warmup_samples = 0
    outcome = bench.run(case, on_step=lambda step: None)

    assert not outcome.failures
    (sample,) = outcome.samples[Side.PENSTOCK]
    assert sorted(sample) == sorted(metric.name for metric in case.metrics)
