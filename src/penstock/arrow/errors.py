"""The error for an invalid batch, with its position."""

from __future__ import annotations

from penstock.wire.errors import WireError


class CorruptBatch(WireError):
    """A record batch that is corrupt."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        """The batch's base offset, as far as it can be determined."""
        self.reason = reason
        super().__init__(f"{topic}-{partition}: the batch at offset {offset} is corrupt: {reason}")

    def __reduce__(self) -> tuple[type[CorruptBatch], tuple[str, int, int, str]]:
        return type(self), (self.topic, self.partition, self.offset, self.reason)
