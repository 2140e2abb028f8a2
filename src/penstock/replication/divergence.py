"""Where the log of a reader diverges from this one (KIP-320, KIP-595)."""

from __future__ import annotations


def diverges_at(epoch: int, end_offset: int, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
    """The epoch and offset at which the reader must continue; None if its log is a prefix of this one.

    `epoch` is the largest epoch of this log up to the reader's, and `end_offset` its end here.
    """
    assert epoch >= 0
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return epoch, end_offset
    return None
