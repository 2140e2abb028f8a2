"""A follower of one partition, under one leader epoch: what it asks for, and what an answer means for its log.

    position = follower.position(ends)                      what to fetch; None while the log is busy
    follower.on_asked(position, number)                     it went out with this request
    outcome = follower.on_fetched(number, answer, ends, …)  Append, Truncate, StartAt, Later, Ignore: to be carried out
    follower.on_grown(ends)                                 afterwards; moves the high watermark

One thing is done at a time: between a `Truncate` (or `StartAt`) and `on_grown` there is no position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

NO_EPOCH = -1
NO_OFFSET = -1
OFFSET_MAX = 1 << 62
"""Offsets have 64 bits: a log that was made to begin at the last of them could never grow."""

# The protocol's codes, as far as a follower tells them apart.
OFFSET_OUT_OF_RANGE = 1
FENCED_LEADER_EPOCH = 74


class LogEnds(NamedTuple):
    """A log, as far as replication looks at it."""

    start: int
    end: int
    stable_end: int
    last_epoch: int
    """Of the last record, not of a leadership that wrote none; -1 in a log without records."""


class Position(NamedTuple):
    """What a follower asks its leader for. It vouches for holding all before `offset`."""

    offset: int
    last_epoch: int
    leader_epoch: int


class Fetched(NamedTuple):
    """What the leader said about a partition."""

    error: int = 0
    high_watermark: int = NO_OFFSET
    log_start: int = NO_OFFSET
    diverging: tuple[int, int] | None = None
    """(the largest epoch of the leader's log that is not beyond ours, where it ended there)"""
    first_offset: int = NO_OFFSET
    """Of the records that came; -1 if none did."""
    last_epoch: int = NO_EPOCH
    """The largest among the records that came."""


class Append(NamedTuple):
    """Write what came. `log_start`: what the leader deleted may be deleted here."""

    log_start: int


class Truncate(NamedTuple):
    """Cut the log at `offset`: from there on it is not what the leader has."""

    offset: int
    below_high_watermark: bool
    """What was committed goes: only an unclean election does that."""


class StartAt(NamedTuple):
    """Drop the whole log and go on at `offset`: the leader no longer has what comes next here."""

    offset: int


class Later(NamedTuple):
    """Ask again after a pause. `error` is the leader's, or 0 if what it sent made no sense."""

    error: int
    reason: str = ""


class Ignore(NamedTuple):
    """The answer is to an older question."""


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
        """Never above the log's stable end, and never going back unless the log is cut."""
        self.leader_high_watermark = NO_OFFSET
        self.asked = NO_OFFSET
        """The offset of the question that is not answered yet."""
        self.asked_in = 0
        """The request that asked it. Requests are numbered as they are sent, over all partitions."""
        self.is_cutting = False

    def position(self, ends: LogEnds) -> Position | None:
        """What to ask for now. None while the log is being cut, or holds what may still be lost: a fetch vouches."""
        if self.is_cutting or ends.stable_end < ends.end:
            return None
        return Position(ends.end, ends.last_epoch, self.leader_epoch)

    def on_asked(self, position: Position, number: int) -> None:
        """It was sent, with this request."""
        self.asked = position.offset
        self.asked_in = number

    def on_fetched(
        self, number: int, answer: Fetched, ends: LogEnds, epoch_end: Callable[[int], tuple[int, int]]
    ) -> Outcome:
        """What the answer to this request means.

        It may be to a later one than that which asked: a leader remembers what it was asked (KIP-227). It is of no use
        if it is to an earlier one: the log may have been another then. `epoch_end(epoch)` tells the largest epoch of
        this log that is not beyond it, and where it ended.
        """
        if self.is_cutting or number < self.asked_in or self.asked != ends.end:
            return Ignore()
        named = max(answer.log_start, answer.high_watermark, answer.diverging[1] if answer.diverging else NO_OFFSET)
        if named > OFFSET_MAX:
            self.asked = NO_OFFSET
            return Later(0, f"no log gets as far as {named}")
        if answer.error == OFFSET_OUT_OF_RANGE and answer.log_start > ends.end:
            self.asked = NO_OFFSET
            self.is_cutting = True
            return StartAt(answer.log_start)
        if answer.error == OFFSET_OUT_OF_RANGE and ends.last_epoch > self.leader_epoch:
            # Nobody has led these epochs yet. A batch's checksum does not cover its epoch: a bit has flipped in one.
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
            # What a leader of this epoch holds was written in this epoch or before: these bytes are not its answer.
            self.asked = NO_OFFSET
            return Later(0, f"records of epoch {answer.last_epoch} from a leader of epoch {self.leader_epoch}")
        self.leader_high_watermark = answer.high_watermark
        if answer.first_offset != NO_OFFSET:
            self.asked = NO_OFFSET
        return Append(min(answer.log_start, answer.high_watermark))

    def on_grown(self, ends: LogEnds) -> int:
        """The log has grown, was cut, or more of it is stable. Returns the high watermark."""
        self.is_cutting = False
        # Turning `flush.*` on at run time lowers the stable end; what was committed stays committed.
        known = min(self.high_watermark, ends.end)
        self.high_watermark = max(known, min(self.leader_high_watermark, ends.stable_end))
        return self.high_watermark

    def _cut(
        self, epoch: int, end_offset: int, ends: LogEnds, epoch_end: Callable[[int], tuple[int, int]]
    ) -> Outcome:
        own_epoch, own_end = epoch_end(epoch)
        if own_epoch == NO_EPOCH:
            # All that we have is of later epochs, which the leader never had, or we know nothing of our epochs.
            target = end_offset
        elif own_epoch != epoch:
            # We never had that epoch: cut back to one we had, and compare again (KIP-279).
            target = own_end
        else:
            target = min(own_end, end_offset)
        if target >= ends.end:
            return Later(0, f"the leader's log parts from this one at {target}, but this one ends at {ends.end}")
        self.is_cutting = True
        return Truncate(target, target < self.high_watermark)
