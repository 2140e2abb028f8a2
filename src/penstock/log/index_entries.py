"""The index entries of a segment in Kafka's file format, and checks that they are plausible.

    .index      int32 last offset of the batch (relative to the segment's base), int32 position of the batch
    .timeindex  int64 largest timestamp so far, int32 relative last offset of the batch that has it

The formats have no room for a checksum, but entries are strictly ascending, which a sample can verify.
"""

from __future__ import annotations

import sys
from array import array
from operator import lt
from struct import Struct

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY = Struct(">qi")
TIME_ENTRY_BYTES = 12

_SAMPLE_STRIDE = 32
"""Sample at least one entry per 512-byte sector, the smallest unit that a power loss can lose."""
_SWAPPED = sys.byteorder == "little"


class IndexDamaged(Exception):
    """An index file does not match its segment and must be rebuilt from the log."""


def encode_offset_entries(offsets: array[int], positions: array[int]) -> bytes:
    entries = array("I", bytes(OFFSET_ENTRY_BYTES * len(offsets)))
    entries[0::2] = offsets
    entries[1::2] = positions
    if _SWAPPED:
        entries.byteswap()
    return entries.tobytes()


def decode_offset_entries(data: bytes) -> tuple[array[int], array[int]]:
    entries = array("I")
    entries.frombytes(data[: len(data) - len(data) % OFFSET_ENTRY_BYTES])
    if _SWAPPED:
        entries.byteswap()
    return entries[0::2], entries[1::2]


def check_offset_entries(offsets: array[int], positions: array[int], size_bytes: int) -> None:
    """Raises IndexDamaged unless the sampled entries are ascending and lie inside the segment."""
    if not offsets:
        return
    if positions[-1] >= size_bytes or not positions[0] or not (_rises(offsets) and _rises(positions)):
        raise IndexDamaged("entries are not ascending, or lie beyond the end of the segment")


def check_time_entries(data: bytes | bytearray) -> None:
    count = len(data) // TIME_ENTRY_BYTES
    sample = [time_at(data, index) for index in _sampled(count)]
    times = [timestamp for timestamp, _ in sample]
    offsets = [offset for _, offset in sample]
    # A sector that was never written reads as zeros. A valid entry of zeros only causes a needless rebuild.
    is_blank = bool(sample) and sample[0] == (0, 0)
    if is_blank or not all(map(lt, times, times[1:])) or not all(map(lt, offsets, offsets[1:])):
        raise IndexDamaged("entries of the time index are not ascending")


def _rises(values: array[int]) -> bool:
    sample = values[::_SAMPLE_STRIDE]
    return all(map(lt, sample, sample[1:])) and (len(values) < 2 or values[-2] < values[-1])


def _sampled(count: int) -> list[int]:
    indexes = list(range(0, count, _SAMPLE_STRIDE))
    if count and indexes[-1] != count - 1:
        indexes.append(count - 1)
    return indexes


def time_at(data: bytes | bytearray, index: int) -> tuple[int, int]:
    timestamp, relative = TIME_ENTRY.unpack_from(data, index * TIME_ENTRY_BYTES)
    return timestamp, relative
