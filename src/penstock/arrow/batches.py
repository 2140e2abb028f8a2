"""The headers of many batches as columns, so that a field is read for all batches at once."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from penstock.arrow.varints import Bools, Bytes, Ints
from penstock.wire.records import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    MAGIC,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
)

OFFSET_MAX: Final = 2**63 - 1

_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records_count", ">i4"),
    ]
)
assert _HEADER.itemsize == HEADER_SIZE


class BadBatch(Exception):
    """An invalid batch, and its base offset as far as it can be determined."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"{offset}: {reason}")


class Batches(NamedTuple):
    """One element per batch."""

    positions: Ints
    sizes: Ints
    base_offsets: Ints
    last_offset_deltas: Ints
    attributes: Ints
    base_timestamps: Ints
    max_timestamps: Ints
    producer_ids: Ints
    counts: Ints

    @property
    def last_offsets(self) -> Ints:
        return self.base_offsets + self.last_offset_deltas

    @property
    def are_control(self) -> Bools:
        return self._have(CONTROL_FLAG)

    @property
    def are_transactional(self) -> Bools:
        return self._have(TRANSACTIONAL_FLAG)

    @property
    def are_compressed(self) -> Bools:
        return self._have(CODEC_MASK)

    @property
    def timestamp_types(self) -> Ints:
        return self._have(TIMESTAMP_TYPE_FLAG).astype(np.int64)

    def take(self, which: Ints | slice) -> Batches:
        return Batches(*(column[which] for column in self))

    def _have(self, bits: int) -> Bools:
        return np.bitwise_and(self.attributes, bits).astype(np.bool_)


def read_batches(raw: memoryview, data: Bytes, *, check_crcs: bool) -> Batches:
    """The consecutive batches that fill the data; raises BadBatch for the first invalid one."""
    positions = _positions(raw)
    headers = _headers(data, positions)
    batches = Batches(
        positions,
        *(
            headers[name].astype(np.int64)
            for name in (
                "batch_length", "base_offset", "last_offset_delta", "attributes", "base_timestamp", "max_timestamp",
                "producer_id", "records_count",
            )
        ),
    )  # fmt: skip
    batches = batches._replace(sizes=batches.sizes + LENGTH_OVERHEAD)
    _check(batches, headers)
    if check_crcs:
        _check_crcs(raw, batches, headers["crc"])
    return batches


def _positions(raw: memoryview) -> Ints:
    positions = []
    position = 0
    end = len(raw)
    while position < end:
        positions.append(position)
        length = int.from_bytes(raw[position + LENGTH_POSITION : position + LENGTH_OVERHEAD])
        position += length + LENGTH_OVERHEAD
        if length < HEADER_SIZE - LENGTH_OVERHEAD or position > end:
            left = end - positions[-1]
            offset = int.from_bytes(raw[positions[-1] : positions[-1] + LENGTH_POSITION], signed=True)
            raise BadBatch(offset, f"it states a size of {length + LENGTH_OVERHEAD} bytes, but {left} are left")
    return np.array(positions, np.int64)


def _headers(data: Bytes, positions: Ints) -> npt.NDArray[np.void]:
    rows = data[positions[:, np.newaxis] + np.arange(HEADER_SIZE)]
    headers: npt.NDArray[np.void] = rows.view(_HEADER).ravel()
    return headers


def _check(batches: Batches, headers: npt.NDArray[np.void]) -> None:
    for wrong, reason in (
        (headers["magic"] != MAGIC, f"its format is not the supported one, magic {MAGIC}"),
        (batches.last_offset_deltas < 0, "its last offset is before its first"),
        (
            (batches.counts < 0) | (batches.counts > batches.last_offset_deltas + 1),
            "its record count is negative, or larger than its number of offsets",
        ),
        (
            (batches.base_offsets < 0) | (batches.base_offsets > OFFSET_MAX - 1 - batches.last_offset_deltas),
            "its offsets are out of bounds",
        ),
    ):
        if wrong.any():
            raise BadBatch(int(batches.base_offsets[wrong.argmax()]), reason)


def _check_crcs(raw: memoryview, batches: Batches, crcs: npt.NDArray[np.uint32]) -> None:
    starts = (batches.positions + CRC_START).tolist()
    ends = (batches.positions + batches.sizes).tolist()
    found = [crc32c(raw[start:end]) for start, end in zip(starts, ends, strict=True)]
    wrong = np.array(found, np.uint32) != crcs
    if wrong.any():
        index = int(wrong.argmax())
        reason = f"its checksum is {int(crcs[index]):#010x}, but its bytes give {found[index]:#010x}"
        raise BadBatch(int(batches.base_offsets[index]), reason)
