"""Decisions about many partitions, split into portions: each portion is decided as a whole, and the controller serves
other requests between two portions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from penstock.broker.net.slices import Slices
from penstock.broker.node import ControllerNode
from penstock.metadata import Controller, Decision

PORTION = 1_000
"""The size of a portion, which takes a controller a few milliseconds."""

W = TypeVar("W")
R = TypeVar("R")


async def decide_in_portions(
    node: ControllerNode,
    decide: Callable[[Sequence[W], Controller], Decision[list[R]]],
    wanted: Sequence[W],
    slices: Slices,
) -> list[R]:
    """The results for all of `wanted`. Raises KafkaError; portions that were decided before stay in force."""
    results: list[R] = []
    for start in range(0, len(wanted), PORTION):
        portion = wanted[start : start + PORTION]
        decided: list[R] = await node.quorum.submit(partial(decide, portion))
        results += decided
        await slices.breathe()
    return results
