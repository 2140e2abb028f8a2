"""What the tests of transactions in a log share: batches, markers, and a model computed from the list of batches."""

from __future__ import annotations

from typing import NamedTuple

from log.helpers import Stored, batch
from penstock.log import UNCHECKED, AbortedTransaction, Appended, AppendOrigin, Log
from penstock.log.producers import marker_of
from penstock.wire.records import CONTROL_FLAG, TRANSACTIONAL_FLAG, build_keyed_batch, end_marker


def write(
    log: Log,
    producer_id: int,
    *,
    count: int = 1,
    epoch: int = 0,
    label: str = "",
    size: int = 10,
    leader_epoch: int = 0,
) -> Appended:
    """Append the next batch of a producer's transaction."""
    known = log.producers.get(producer_id)
    sequence = 0
    if known is not None and known.epoch == epoch and known.last_sequence >= 0:
        sequence = known.last_sequence + 1
    records = transactional(producer_id, count=count, epoch=epoch, sequence=sequence, label=label, size=size)
    return log.writer.append_leader(records, 0, log.runtime.wall_ms(), verification=UNCHECKED)


def transactional(
    producer_id: int, *, count: int = 1, epoch: int = 0, sequence: int = 0, label: str = "", size: int = 10
) -> memoryview:
    return batch(
        count, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True, label=label, size=size
    )


def marker(producer_id: int, committed: bool, *, epoch: int = 0, coordinator_epoch: int = 0) -> memoryview:
    records: list[tuple[bytes, bytes | None]] = [end_marker(committed, coordinator_epoch)]
    flags = TRANSACTIONAL_FLAG | CONTROL_FLAG
    made = build_keyed_batch(
        records, timestamp=1_750_001_000_000, flags=flags, producer_id=producer_id, producer_epoch=epoch
    )
    return memoryview(made)


def finish(
    log: Log,
    producer_id: int,
    committed: bool,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 0,
    leader_epoch: int = 0,
) -> Appended:
    """Append the marker that ends a producer's transaction."""
    return log.writer.append_leader(
        marker(producer_id, committed, epoch=epoch, coordinator_epoch=coordinator_epoch),
        leader_epoch,
        log.runtime.wall_ms(),
        origin=AppendOrigin.COORDINATOR,
        transaction_version=version,
    )


class Model(NamedTuple):
    """The transactions in a list of batches."""

    open: dict[int, int]
    """Producer → first offset."""
    ended: list[tuple[int, int]]
    """(first offset, offset of the marker) of the others."""
    aborted: list[AbortedTransaction]

    def last_stable_offset(self, high_watermark: int) -> int:
        unstable = [*self.open.values(), *(first for first, last in self.ended if last >= high_watermark)]
        return min([high_watermark, *unstable])

    def overlapping(self, from_offset: int, upto: int) -> list[AbortedTransaction]:
        return [one for one in self.aborted if one.last_offset >= from_offset and one.first_offset < upto]


def model_of(batches: list[Stored]) -> Model:
    model = Model({}, [], [])
    for one in batches:
        header = one.header
        if header.is_control:
            found = marker_of(one.data)
            first = model.open.pop(header.producer_id, None)
            if found is not None and first is not None:
                model.ended.append((first, header.base_offset))
                if not found.committed:
                    stable = min(model.open.values(), default=header.base_offset + 1)
                    model.aborted.append(AbortedTransaction(header.producer_id, first, header.base_offset, stable))
        elif header.is_transactional:
            model.open.setdefault(header.producer_id, header.base_offset)
    return model


async def check_transactions(log: Log, batches: list[Stored], high_watermark: int) -> None:
    """The log knows of the transactions what its batches tell."""
    model = model_of(batches)
    assert {
        producer_id: entry.transaction_first_offset
        for producer_id, entry in log.producers.entries()
        if entry.transaction_first_offset >= 0
    } == model.open
    stable = log.last_stable_offset(high_watermark)
    assert stable == model.last_stable_offset(high_watermark)
    assert await log.aborted.find(log.start_offset, stable) == model.overlapping(log.start_offset, stable)
