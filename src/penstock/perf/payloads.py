"""The records of a test: random letters, lines of a file, or numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

__all__ = ["Payloads", "of_list", "of_numbers", "of_size", "split_payloads"]

SEED = 0
"""A fixed seed gives the same records in every run, as Kafka's tool does, so that compression is comparable."""
LETTERS = bytes(65 + byte % 26 for byte in range(256))
"""A capital letter for every byte."""
POOL_BYTES = 1 << 20

Payloads = Callable[[int, int], list[bytes]]
"""(number of the first record, count) → the values of that many records."""


def of_size(size: int) -> Payloads:
    """Random capital letters, cut from a pool of a megabyte at random positions: generating each would take longer than
    sending it. Two records are equal once in a million."""
    random = Random(SEED)
    pool = random.randbytes(POOL_BYTES + size).translate(LETTERS)
    places = random.random

    def some(_first: int, count: int) -> list[bytes]:
        return [pool[place : place + size] for place in [int(places() * POOL_BYTES) for _ in range(count)]]

    return some


def of_list(payloads: list[bytes]) -> Payloads:
    """A random one of these payloads per record."""
    random = Random(SEED)
    return lambda _first, count: random.choices(payloads, k=count)


def of_numbers() -> Payloads:
    """Each record's number, from 0."""
    return lambda first, count: [b"%d" % number for number in range(first, first + count)]


def split_payloads(data: bytes, delimiter: bytes) -> list[bytes]:
    """The payloads in a file. Empty ones count, except after the last delimiter."""
    parts = data.split(delimiter)
    if parts and not parts[-1]:
        parts.pop()
    return parts
