"""How much of attackers' batches a cluster unfolds, whether or not that shows as memory.

In a simulation one batch is unfolded at a time and its memory is free before the next one, so bombs that would end a
real broker leave no trace in the size of the process. The bytes are counted instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from penstock.log import preparing
from penstock.log.validation import Batch, open_batch
from penstock.wire.compression import DecompressedTooLarge


class Unfolded:
    """What was unfolded in this process, away from the loops of its brokers."""

    def __init__(self) -> None:
        self.bytes = 0

    def take(self) -> int:
        """How many bytes that were since the last time."""
        taken, self.bytes = self.bytes, 0
        return taken


@contextmanager
def counting_unfolded() -> Iterator[Unfolded]:
    count = Unfolded()

    def counted(batch: Batch, bytes_max: int) -> memoryview:
        try:
            payload = open_batch(batch, bytes_max)
        except DecompressedTooLarge:
            count.bytes += bytes_max
            raise
        count.bytes += len(payload)
        return payload

    with patch.object(preparing, "open_batch", counted):
        yield count
