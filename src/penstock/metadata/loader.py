"""Committed batches of the metadata log → images, one step at a time.

A step takes in whole batches and yields one delta and one image for the publishers. Records between
BeginTransaction and EndTransaction (KIP-868) count together or not at all: until the end is committed, images stay at
what was before, and a snapshot is never taken from the middle.
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
    """What publishers are told."""

    delta: MetadataDelta
    image: MetadataImage


class MetadataLoader:
    """Keeps the newest image."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self._transaction: list[MetadataRecord] | None = None

    @property
    def in_transaction(self) -> bool:
        """Some records of a decision have come that counts only as a whole."""
        return self._transaction is not None

    def load_snapshot(self, snapshot: OffsetAndEpoch, values: Iterable[bytes]) -> Step:
        """Begin anew from a snapshot, whatever was there before."""
        self._transaction = None
        delta = snapshot_delta(values)
        self.image = delta.apply(snapshot.offset - 1, snapshot.epoch)
        return Step(delta, self.image)

    def load(self, batches: Iterable[LogBatch]) -> Step:
        """Apply committed batches, which follow on those before."""
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
                    raise MetadataError("a metadata transaction begins inside another")
                self._transaction = []
            case EndTransactionRecord() | AbortTransactionRecord():
                if transaction is None:
                    raise MetadataError("a metadata transaction ends that never began")
                if isinstance(record, EndTransactionRecord):
                    delta.replay_all(transaction)
                self._transaction = None
            case _:
                if transaction is None:
                    delta.replay(record)
                else:
                    transaction.append(record)
