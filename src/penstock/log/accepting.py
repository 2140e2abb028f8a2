"""Accept a data loss: make the next start use a log as it is on disk, although the checkpoints say there was more.

A start refuses a log that is missing or ends before its recovery point, because the checkpoints prove that records are
lost. `accept_loss` removes the log from the checkpoints, so that the next start opens it. Its files are not changed.
"""

from __future__ import annotations

from penstock.log import names
from penstock.log.checkpoints import (
    encode_clean_shutdown,
    encode_offsets,
    read_clean_shutdown,
    read_offsets,
)
from penstock.runtime import Disk


async def accept_loss(disk: Disk, name: str) -> int | None:
    """Returns the offset up to which the log was synced; None if no checkpoint lists it. Raises CheckpointDamaged.

    The directory must not be in use.
    """
    known: int | None = None
    # The recovery points are rewritten last: a start after a crash in between still refuses the log.
    for path in (names.CLEAN_SHUTDOWN_NAME, names.LAST_CLEAN_SHUTDOWN_NAME):
        states = read_clean_shutdown(disk, path)
        if states is not None and (state := states.pop(name, None)) is not None:
            known = max(known or 0, state.end_offset)
            await disk.replace_bytes(path, encode_clean_shutdown(list(states.values())))
    for path in (names.START_OFFSETS_NAME, names.CLEANER_OFFSETS_NAME, names.RECOVERY_POINTS_NAME):
        offsets = read_offsets(disk, path)
        offset = offsets.pop(name, None)
        if offset is not None:
            known = max(known or 0, offset)
            await disk.replace_bytes(path, encode_offsets(offsets.items()))
    return known
