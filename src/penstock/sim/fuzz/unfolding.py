"""Counts how many bytes of attackers' batches a cluster decompresses.

In a simulation one batch is decompressed at a time and its memory is freed before the next one, so bombs that would end
a real broker do not show in the size of the process. The bytes are counted instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from penstock.log import preparing
from penstock.log.validation import Batch, open_batch
from penstock.wire.compression import DecompressedTooLarge


class Unfolded:
    """Bytes decompressed in this process, outside the loops of its brokers."""

    def __init__(self) -> None:
        self.bytes = 0

    def take(self) -> int:
        """The number of bytes since the last call."""
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
