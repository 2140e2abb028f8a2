"""Decisions about many partitions, in portions: the controller decides a portion as a whole, and other requests are
served between two of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from penstock.broker.net.slices import Slices
from penstock.broker.node import ControllerNode
from penstock.metadata import Controller, Decision

PORTION = 1_000
"""Takes a controller a few milliseconds."""

W = TypeVar("W")
R = TypeVar("R")


async def decide_in_portions(
    node: ControllerNode,
    decide: Callable[[Sequence[W], Controller], Decision[list[R]]],
    wanted: Sequence[W],
    slices: Slices,
) -> list[R]:
    """The results for all that is wanted. Raises KafkaError; what was decided before that stays decided."""
    results: list[R] = []
    for start in range(0, len(wanted), PORTION):
        portion = wanted[start : start + PORTION]
        decided: list[R] = await node.quorum.submit(partial(decide, portion))
        results += decided
        await slices.breathe()
    return results
