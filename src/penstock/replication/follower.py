"""A follower of one partition in one leader epoch: what to fetch, and what a response means for its log.

    position = follower.position(ends)                      what to fetch; None while the log is busy
        follower.on_asked(position, number)                     it was sent with this request
        outcome = follower.on_fetched(number, answer, ends, …)  Append, Truncate, StartAt, Later or Ignore, to carry out
        follower.on_grown(ends)                                 call it afterwards; moves the high watermark

One operation at a time: between a `Truncate` (or `StartAt`) and `on_grown` there is no position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

NO_EPOCH = -1
NO_OFFSET = -1
OFFSET_MAX = 1 << 62
"""Offsets have 64 bits: a log made to start at the last of them could never grow."""

# The error codes that a follower distinguishes.
OFFSET_OUT_OF_RANGE = 1
FENCED_LEADER_EPOCH = 74


class LogEnds(NamedTuple):
    """The offsets of a log that replication needs."""

    start: int
    end: int
    stable_end: int
    last_epoch: int
    """The epoch of the last record, not of a later leader that wrote nothing; -1 in an empty log."""


class Position(NamedTuple):
    """A fetch position. By sending it, the follower acknowledges everything before `offset`."""

    offset: int
    last_epoch: int
    leader_epoch: int


class Fetched(NamedTuple):
    """The leader's response for one partition."""

    error: int = 0
    high_watermark: int = NO_OFFSET
    log_start: int = NO_OFFSET
    diverging: tuple[int, int] | None = None
    """(the largest epoch in the leader's log up to ours, its end offset there)"""
    first_offset: int = NO_OFFSET
    """The last epoch of the records received; -1 if there are none."""
    last_epoch: int = NO_EPOCH
    """The largest epoch among the records received."""


class Append(NamedTuple):
    """Append the records received. `log_start`: records before it may be deleted, as the leader did."""

    log_start: int


class Truncate(NamedTuple):
    """Truncate the log at `offset`: from there on it differs from the leader's."""

    offset: int
    below_high_watermark: bool
    """Whether this removes committed records, which only an unclean election can cause."""


class StartAt(NamedTuple):
    """Drop the whole log and restart it at `offset`: the leader no longer has the next records."""

    offset: int


class Later(NamedTuple):
    """Retry after a pause. `error` is the leader's, or 0 if its response was invalid."""

    error: int
    reason: str = ""


class Ignore(NamedTuple):
    """Ignore the response: it answers an older request."""


Outcome = Append | Truncate | StartAt | Later | Ignore


class Follower:
    """Replication state of a partition on one of its followers, for one leader epoch."""

    __slots__ = (
        "asked",
        "asked_in",
        "high_watermark",
        "is_cutting",
        "leader_epoch",
        "leader_high_watermark",
        "leader_id",
    )

    def __init__(self, leader_id: int, leader_epoch: int, high_watermark: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        """Never above the log's stable end, and never moves back unless the log is truncated."""
        self.leader_high_watermark = NO_OFFSET
        self.asked = NO_OFFSET
        """The offset of the fetch in flight."""
        self.asked_in = 0
        """The number of the request with that fetch. Requests are numbered in sending order, over all partitions."""
        self.is_cutting = False

    def position(self, ends: LogEnds) -> Position | None:
        """The next position to fetch; None while the log is being truncated or its end is not stable yet."""
        if self.is_cutting or ends.stable_end < ends.end:
            return None
        return Position(ends.end, ends.last_epoch, self.leader_epoch)

    def on_asked(self, position: Position, number: int) -> None:
        """Records that the position was sent with this request."""
        self.asked = position.offset
        self.asked_in = number

    def on_fetched(
        self, number: int, answer: Fetched, ends: LogEnds, epoch_end: Callable[[int], tuple[int, int]]
    ) -> Outcome:
        """Interprets the response to request `number`.

        It may be a later request than the one that named the partition, since a leader remembers a session's partitions
        (KIP-227). A response to an earlier request is ignored: the log may have been different then. `epoch_end(epoch)`
        returns the largest epoch of this log up to `epoch`, and its end offset.
        """
        if self.is_cutting or number < self.asked_in or self.asked != ends.end:
            return Ignore()
        named = max(answer.log_start, answer.high_watermark, answer.diverging[1] if answer.diverging else NO_OFFSET)
        if named > OFFSET_MAX:
            self.asked = NO_OFFSET
            return Later(0, f"the leader named the impossible offset {named}")
        if answer.error == OFFSET_OUT_OF_RANGE and answer.log_start > ends.end:
            self.asked = NO_OFFSET
            self.is_cutting = True
            return StartAt(answer.log_start)
        if answer.error == OFFSET_OUT_OF_RANGE and ends.last_epoch > self.leader_epoch:
            # No leader had these epochs yet. A batch's checksum does not cover its epoch, so this is a flipped bit.
            self.asked = NO_OFFSET
            self.is_cutting = True
            own_epoch, own_end = epoch_end(self.leader_epoch)
            target = ends.start if own_epoch == NO_EPOCH else own_end
            return Truncate(target, target < self.high_watermark)
        if answer.error:
            self.asked = NO_OFFSET
            return Later(answer.error)
        if answer.diverging is not None:
            self.asked = NO_OFFSET
            return self._cut(*answer.diverging, ends, epoch_end)
        if answer.last_epoch > self.leader_epoch:
            # A leader's records have its epoch or an earlier one, so this is not a valid response.
            self.asked = NO_OFFSET
            return Later(0, f"records of epoch {answer.last_epoch} from a leader of epoch {self.leader_epoch}")
        self.leader_high_watermark = answer.high_watermark
        if answer.first_offset != NO_OFFSET:
            self.asked = NO_OFFSET
        return Append(min(answer.log_start, answer.high_watermark))

    def on_grown(self, ends: LogEnds) -> int:
        """Call after the log was appended to, truncated or synced. Returns the high watermark."""
        self.is_cutting = False
        # Enabling `flush.*` at run time lowers the stable end; committed records stay committed.
        known = min(self.high_watermark, ends.end)
        self.high_watermark = max(known, min(self.leader_high_watermark, ends.stable_end))
        return self.high_watermark

    def _cut(self, epoch: int, end_offset: int, ends: LogEnds, epoch_end: Callable[[int], tuple[int, int]]) -> Outcome:
        own_epoch, own_end = epoch_end(epoch)
        if own_epoch == NO_EPOCH:
            # All our epochs are later than the leader's, or none is known: truncate everything the leader may lack.
            target = end_offset
        elif own_epoch != epoch:
            # We never had that epoch: truncate to the end of an earlier one, and compare again (KIP-279).
            target = own_end
        else:
            target = min(own_end, end_offset)
        if target >= ends.end:
            return Later(0, f"the leader's log diverges at {target}, but this one ends at {ends.end}")
        self.is_cutting = True
        return Truncate(target, target < self.high_watermark)
