"""Builds images from committed batches of the metadata log, one step at a time.

A step takes complete batches and yields one delta and one image for the publishers. Records between BeginTransaction
and EndTransaction (KIP-868) are applied together or not at all: until the end is committed, the image stays at the
state before, and no snapshot is taken in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.metadata.delta import MetadataDelta, MetadataError
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.metadata.snapshot import snapshot_delta
from penstock.raft.control import batch_values
from penstock.raft.messages import LogBatch
from penstock.raft.types import OffsetAndEpoch
from penstock.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    decode_metadata_record,
)


class Step(NamedTuple):
    """What publishers receive after a step."""

    delta: MetadataDelta
    image: MetadataImage


class MetadataLoader:
    """Keeps the newest image."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self._transaction: list[MetadataRecord] | None = None

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction has begun and not ended."""
        return self._transaction is not None

    def load_snapshot(self, snapshot: OffsetAndEpoch, values: Iterable[bytes]) -> Step:
        """Starts again from a snapshot, replacing the current image."""
        self._transaction = None
        delta = snapshot_delta(values)
        self.image = delta.apply(snapshot.offset - 1, snapshot.epoch)
        return Step(delta, self.image)

    def load(self, batches: Iterable[LogBatch]) -> Step:
        """Applies committed batches, which must follow the previous ones."""
        delta = MetadataDelta(self.image)
        offset, epoch = self.image.offset, self.image.epoch
        for batch in batches:
            for value in batch_values(batch):
                self._take(decode_metadata_record(value), delta)
            if self._transaction is None:
                offset, epoch = batch.end_offset - 1, batch.epoch
        self.image = delta.apply(offset, epoch)
        return Step(delta, self.image)

    def _take(self, record: MetadataRecord, delta: MetadataDelta) -> None:
        transaction = self._transaction
        match record:
            case BeginTransactionRecord():
                if transaction is not None:
                    raise MetadataError("a metadata transaction begins inside another one")
                self._transaction = []
            case EndTransactionRecord() | AbortTransactionRecord():
                if transaction is None:
                    raise MetadataError("a metadata transaction ends without having begun")
                if isinstance(record, EndTransactionRecord):
                    delta.replay_all(transaction)
                self._transaction = None
            case _:
                if transaction is None:
                    delta.replay(record)
                else:
                    transaction.append(record)
