"""Decoding and encoding in slices: the same results and the same refusals as in one go."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import suppress
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sim.fuzz import samples as sample
from penstock.wire.codec import Encoded, Limits, decode, decode_in_slices, encode_in_slices, to_bytes
from penstock.wire.errors import WireError
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.schema import Message, versions_of

T = TypeVar("T")
PAIRS = [(cls, version) for _, _, cls in sample.entities() for version in versions_of(cls)]


def finish(work: Generator[None, None, T]) -> tuple[T, int]:
    """Its result, and after how many steps."""
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, steps
        steps += 1


@settings(max_examples=400, deadline=None, database=None)
@given(pair=st.sampled_from(PAIRS), seed=st.integers(0, 1 << 64))
def test_slices_give_what_one_go_gives(pair: tuple[type[Message], int], seed: int) -> None:
    cls, version = pair
    message = sample.message(cls, version, random.Random(seed))
    out = bytearray(b"before")
    finish(encode_in_slices(message, version, out))
    assert out == b"before" + to_bytes(message, version)
    assert finish(decode_in_slices(cls, version, out, 6))[0] == decode(cls, version, out, 6)


@settings(max_examples=200, deadline=None, database=None)
@given(pair=st.sampled_from(PAIRS), seed=st.integers(0, 1 << 64))
def test_mutated_messages_fare_the_same_in_slices(pair: tuple[type[Message], int], seed: int) -> None:
    cls, version = pair
    rng = random.Random(seed)
    mutant = bytearray(to_bytes(sample.message(cls, version, rng), version))
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(mutant) + 1)
        mutant[place : place + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
    whole = sliced = None
    with suppress(WireError):
        whole = decode(cls, version, mutant)
    with suppress(WireError):
        sliced, _ = finish(decode_in_slices(cls, version, mutant))
    assert whole == sliced


def test_there_is_a_step_for_every_element() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=str(number)) for number in range(1_000)])
    out = bytearray()
    assert finish(encode_in_slices(request, 12, out))[1] >= 1_000
    assert finish(decode_in_slices(MetadataRequest, 12, out))[1] >= 1_000


def test_limits_hold_in_slices_too() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 11)
    with pytest.raises(WireError, match="exceed the limit of the message"):
        finish(decode_in_slices(MetadataRequest, 12, to_bytes(request, 12), limits=Limits(max_elements=10)))


def test_bytes_that_are_there_already_are_passed_on() -> None:
    out = bytearray()
    finish(encode_in_slices(Encoded(b"as it is"), 3, out))
    assert out == b"as it is"
