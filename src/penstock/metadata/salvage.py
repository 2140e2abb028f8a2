"""Rebuilds as much metadata as possible from intact records when others are lost.

Normal replay refuses a record that contradicts the image. Here such a record is skipped and counted, since the records
it builds on are lost. The result is not the cluster's metadata but evidence of it, which `penstock metadata recover`
compares with the logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.metadata.delta import MetadataDelta, MetadataError
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.wire.errors import WireError
from penstock.wire.messages import metadata_records as r


@dataclass(slots=True)
class Salvage:
    image: MetadataImage = EMPTY_IMAGE
    removed: dict[bytes, None] = field(default_factory=dict)
    """Ids of deleted topics."""
    records: int = 0
    left_out: int = 0
    """The number of records skipped because what they refer to is lost."""
    acls: int = 0
    """The number of access control records, kept or not."""


def salvage_records(values: Iterable[bytes]) -> Salvage:
    """Replays every record that can be applied."""
    found = Salvage()
    transaction: list[r.MetadataRecord] | None = None
    for value in values:
        found.records += 1
        try:
            record = r.decode_metadata_record(value)
        except WireError:
            found.left_out += 1
            continue
        match record:
            case r.BeginTransactionRecord():
                found.left_out += len(transaction or ())
                transaction = []
            case r.AbortTransactionRecord():
                transaction = None
            case r.EndTransactionRecord():
                for one in transaction or ():
                    _replay(found, one)
                transaction = None
            case _ if transaction is not None:
                transaction.append(record)
            case _:
                _replay(found, record)
    found.left_out += len(transaction or ())
    return found


def _replay(found: Salvage, record: r.MetadataRecord) -> None:
    if isinstance(record, r.AccessControlEntryRecord | r.RemoveAccessControlEntryRecord):
        found.acls += 1
    if isinstance(record, r.RemoveTopicRecord):
        found.removed[record.topic_id] = None
    delta = MetadataDelta(found.image)
    try:
        delta.replay(record)
        found.image = delta.apply(found.image.offset + 1, found.image.epoch)
    except MetadataError:
        found.left_out += 1
