"""Finds the batches of aborted transactions, as Kafka's consumer does.

With READ_COMMITTED a response lists the aborted transactions that overlap it: a producer and the first offset. From
there on the producer's transactional batches are left out, until its abort marker: later batches belong to another
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.arrow.batches import BadBatch, Batches
from penstock.arrow.varints import Bools
from penstock.wire.errors import WireError
from penstock.wire.records import ControlRecordType, iter_records, parse_control_key

MARKER_BYTES_MAX = 64 * 1024


def aborted_batches(raw: memoryview, batches: Batches, aborted: Sequence[tuple[int, int]]) -> Bools:
    """Which of these batches, all of one response in order, belong to aborted transactions."""
    hidden = np.zeros(len(batches.positions), np.bool_)
    if not aborted:
        return hidden
    coming = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
    aborting: set[int] = set()
    transactional = batches.are_transactional & (batches.producer_ids >= 0)
    control = batches.are_control
    last_offsets = batches.last_offsets
    for index in np.flatnonzero(transactional).tolist():
        while coming and coming[-1][0] <= last_offsets[index]:
            aborting.add(coming.pop()[1])
        producer_id = int(batches.producer_ids[index])
        if producer_id not in aborting:
            continue
        if not control[index]:
            hidden[index] = True
        elif _is_abort(raw, batches, index):
            aborting.discard(producer_id)
    return hidden


def _is_abort(raw: memoryview, batches: Batches, index: int) -> bool:
    position = int(batches.positions[index])
    batch = raw[position : position + int(batches.sizes[index])]
    try:
        # A marker is a batch of one record, which compaction may have removed from the batch.
        for record in iter_records(batch, max_decompressed_bytes=MARKER_BYTES_MAX, verify_crc=False):
            return parse_control_key(record.key) == ControlRecordType.ABORT
    except WireError as error:
        raise BadBatch(int(batches.base_offsets[index]), str(error)) from None
    return False
