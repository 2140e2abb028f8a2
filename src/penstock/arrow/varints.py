"""Decodes zigzag varints of many records at once."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

VARINT_SIZE_MAX = 5
VARLONG_SIZE_MAX = 10
MANY = 4
"""If more than one in this many numbers has further bytes, reading on in all is cheaper than selecting those."""


def read_varints(data: Bytes, positions: Ints, size_max: int = VARINT_SIZE_MAX) -> tuple[Ints, Ints]:
    """The numbers at these positions, and the positions after them.

    A position beyond the data reads its last byte again, and a number that does not end within `size_max` bytes ends
    there. The resulting positions are then beyond the end of the record, which callers check.
    """
    byte = data.take(positions, mode="clip")
    values = byte.astype(np.int64)
    behind = positions + 1
    longer = byte > 0x7F
    shift = 7
    while longer.any():
        # Adding this byte also removes the continuation flag of the byte before. The sums wrap at 64 bits.
        flag = 1 << shift if shift < 63 else -1 << 63
        if np.count_nonzero(longer) * MANY < len(longer):
            which = np.flatnonzero(longer)
            byte = data.take(behind[which], mode="clip")
            values[which] += (byte.astype(np.int64) << shift) - flag
            behind[which] += 1
            longer[which] = byte > 0x7F
        else:
            byte = data.take(behind, mode="clip")
            values += ((byte.astype(np.int64) << shift) - flag) * longer
            behind += longer
            longer &= byte > 0x7F
        shift += 7
        if shift >= 7 * size_max:
            behind[longer] = np.iinfo(np.int64).max // 2
            break
    return (values.view(np.uint64) >> 1).view(np.int64) ^ -(values & 1), behind
