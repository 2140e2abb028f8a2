"""An operator accepts a loss: the next start takes what is on the disk of a log for all there is of it.

A log that is gone, or that ends before its recovery point, is refused at every start, because the checkpoints say that
there was more. This makes them forget the log. Its files are left as they are.
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
    """Returns up to where the log was known to reach; None if no checkpoint knows it. Raises CheckpointDamaged.

    The directory must not be in use.
    """
    known: int | None = None
    # The recovery points last: a start that comes between refuses the log as before.
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
