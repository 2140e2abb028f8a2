"""The entries of `.txnindex`, the index of aborted transactions of a segment, in Kafka's file format.

    int16 version (0), int64 producer id, int64 first offset, int64 offset of the marker, int64 last stable offset

The file belongs to the segment that holds the markers. Entries are in the order of the markers. The format has no room
for a checksum; a start after a crash rebuilds what was not synced, and entries are checked for plausibility.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from struct import Struct

from penstock.log.index_entries import IndexDamaged
from penstock.log.transactions import AbortedTransaction

ABORTED_ENTRY = Struct(">hqqqq")
ABORTED_ENTRY_BYTES = ABORTED_ENTRY.size
ABORTED_VERSION = 0
FIELDS = 4
"""Numbers per entry in memory: the entry without its version."""


def encode_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ABORTED_ENTRY.pack(ABORTED_VERSION, *transaction) for transaction in transactions)


def decode_aborted(data: bytes, base_offset: int, end_offset: int) -> array[int]:
    """The entries of a segment with these offsets, flat. Raises IndexDamaged."""
    if len(data) % ABORTED_ENTRY_BYTES:
        raise IndexDamaged(f"{len(data)} bytes are not a whole number of entries")
    numbers: array[int] = array("q")
    known = base_offset - 1
    for version, producer_id, first_offset, last_offset, stable_offset in ABORTED_ENTRY.iter_unpack(data):
        if (
            version != ABORTED_VERSION
            or producer_id < 0
            or not known < last_offset < end_offset
            or not 0 <= first_offset < last_offset
            or not 0 <= stable_offset <= last_offset + 1
        ):
            raise IndexDamaged(f"the entry after offset {known} is not plausible")
        known = last_offset
        numbers.extend((producer_id, first_offset, last_offset, stable_offset))
    return numbers
