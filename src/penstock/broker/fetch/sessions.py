"""Incremental fetch sessions (KIP-227): the broker remembers a client's partitions, and the client sends only changes.

A full fetch with epoch 0 opens a session; the answer carries its id. From then on the client sends the partitions
that changed and those it forgets, with the epoch counted up by one each time, and the broker answers only the
partitions that have something new (records, an error, a moved high watermark or log start).

The cache has `max.incremental.fetch.session.cache.slots`. When it is full a new session takes the slot of one that
has been idle for two minutes, or of a smaller one that the cache has held for two minutes; only if there is none is
the client served without a session, which is always correct and only costs bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.broker import limits
from penstock.broker.replicas.partition import Partition
from penstock.broker.replicas.partition_table import PartitionTable
from penstock.replication import diverges_at
from penstock.wire.errors import ErrorCode, KafkaError

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
EVICTION_MS = 120_000


class FetchItem:
    """One partition that a client fetches, and what it was last told about it."""

    __slots__ = (
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "max_bytes",
        "partition",
        "sent_offset",
        "told_error",
        "told_high_watermark",
        "told_log_start",
        "topic",
    )

    def __init__(self, topic: bytes, index: int) -> None:
        self.topic = topic
        """As on the wire: the name, or the id from v13 on."""
        self.index = index
        self.partition: Partition | None = None
        self.fetch_offset = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.max_bytes = 0
        self.sent_offset = -1
        """The offset requested when records were last sent. A client that requests it again could not use them."""
        self.told_error = -1
        self.told_high_watermark = -1
        self.told_log_start = -1

    def resolve(self, table: PartitionTable, by_id: bool) -> Partition | None:
        partition = self.partition
        if partition is None or partition.retired:
            partition = self.partition = table.find(self.topic, self.index, by_id=by_id)
        return partition


class FetchSession:
    __slots__ = ("by_id", "counted", "created_ms", "epoch", "items", "session_id", "used_ms")

    def __init__(self, session_id: int, by_id: bool, now_ms: float) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.items: dict[tuple[bytes, int], FetchItem] = {}
        self.counted = 0
        """How many of its partitions the cache has counted."""


class FetchSessions:
    """The cache of sessions, oldest use first."""

    def __init__(self, rng: Random, now_ms: Callable[[], float], slots: int) -> None:
        self._rng = rng
        self._now_ms = now_ms
        self.slots = slots
        self._sessions: dict[int, FetchSession] = {}
        self.partition_count = 0
        """In all sessions."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int, epoch: int, by_id: bool) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        self._touch(session)
        return session

    def open(self, items: dict[tuple[bytes, int], FetchItem], by_id: bool) -> int:
        """The id of a new session for these partitions, or 0 if there is no slot for it."""
        if not items or self.partition_count + len(items) > limits.FETCH_SESSION_PARTITIONS_MAX:
            return NO_SESSION
        if not self._make_slot(len(items)):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randrange(1, 2**31)
        session = FetchSession(session_id, by_id, self._now_ms())
        session.items = items
        session.counted = len(items)
        self._sessions[session_id] = session
        self.partition_count += len(items)
        return session_id

    def resized(self, session: FetchSession) -> None:
        """Partitions joined or left it. Raises KafkaError if it is too large, and ends it, or if it has ended."""
        if self._sessions.get(session.session_id) is not session:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        grown = len(session.items) - session.counted
        session.counted += grown
        self.partition_count += grown
        if self.partition_count > limits.FETCH_SESSION_PARTITIONS_MAX and grown > 0:
            self.close(session.session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= session.counted

    def _touch(self, session: FetchSession) -> None:
        session.used_ms = self._now_ms()
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)

    def _make_slot(self, size: int) -> bool:
        if len(self._sessions) < self.slots:
            return True
        if not self._sessions:
            return False
        long_ago = self._now_ms() - EVICTION_MS
        stalest = next(iter(self._sessions.values()))
        if stalest.used_ms > long_ago:
            held = (session for session in self._sessions.values() if session.created_ms <= long_ago)
            smallest = min(held, key=lambda session: len(session.items), default=None)
            if smallest is None or len(smallest.items) >= size:
                return False
            stalest = smallest
        self.close(stalest.session_id)
        self.evictions += 1
        return True


def diverging_epoch(known: tuple[int, int], item: FetchItem) -> tuple[int, int] | None:
    """The end offset of the client's last epoch in this log, if the client has read beyond it.

    `known` comes from `Log.epoch_end_offset`. Raises KafkaError if this log never saw the epoch.
    """
    epoch, end_offset = known
    if epoch < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return diverges_at(epoch, end_offset, item.last_fetched_epoch, item.fetch_offset)
