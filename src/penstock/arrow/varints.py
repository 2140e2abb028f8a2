"""Zigzag varints of many records at once."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

VARINT_SIZE_MAX = 5
VARLONG_SIZE_MAX = 10


def read_varints(data: Bytes, positions: Ints, size_max: int = VARINT_SIZE_MAX) -> tuple[Ints, Ints]:
    """The numbers at these positions, and the positions behind them.

    A position behind the data reads its last byte again, and a number that does not end within `size_max` bytes ends
    there: the positions then lie behind where the record ends, which is what callers check.
    """
    first = data.take(positions, mode="clip")
    values = first.astype(np.int64)
    behind = positions + 1
    longer = np.flatnonzero(first > 0x7F)
    if longer.size:
        _read_longer(data, values, behind, longer, size_max)
    return (values.view(np.uint64) >> 1).view(np.int64) ^ -(values & 1), behind


def _read_longer(data: Bytes, values: Ints, behind: Ints, longer: Ints, size_max: int) -> None:
    """Goes on, byte for byte, with those numbers that have more than one."""
    everything = longer.size == values.size
    shift = 7
    while True:
        # Long runs of equally long numbers are the rule (lengths of values): then there is nothing to pick apart.
        at = behind if everything else behind[longer]
        following = data.take(at, mode="clip").astype(np.int64)
        # Taking away the flag of the byte before is part of adding this one. The sums wrap, as 64 bits do.
        more = (following << shift) - (1 << shift if shift < 63 else -1 << 63)
        if everything:
            values += more
            behind += 1
        else:
            values[longer] += more
            behind[longer] = at + 1
        shift += 7
        ends = following < 0x80
        if ends.all():
            return
        keep = np.flatnonzero(~ends)
        longer = keep if everything else longer[keep]
        everything = False
        if shift >= 7 * size_max:
            behind[longer] = np.iinfo(np.int64).max // 2
            return
