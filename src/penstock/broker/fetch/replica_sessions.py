"""The fetch sessions of followers (KIP-227): the partitions each follower copies, and which of them are *due*.

A partition is due when its follower has asked for it (again), when it has grown since, or when its follower has not
been told its high watermark. An answer considers only due partitions, so a thousand idle partitions cost nothing. A
partition that was answered with records, an error or a divergence is due again only when the follower asks for it.

The partition itself tells of its changes: each item of a session is a `FollowerFetch` that the partition knows
(`penstock.broker.replicas.partition`).

A follower has one session: a new one ends the previous one. A request delayed by a network fault may arrive after the
follower has opened a newer session, and then ends that one. The follower's next request fails because its session is
gone, and the follower opens a new session for all its partitions.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from penstock.broker.fetch.sessions import EPOCH_MAX, FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchItem
from penstock.broker.replicas.partition import FetchWaiter, Partition
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.fetch import FetchPartition, FetchRequest

Key = tuple[bytes, int]


class WaitingFetch(FetchWaiter, Protocol):
    """A fetch of a follower that is parked."""

    def cut_short(self) -> None:
        """Answer now, because the follower has a new request or the session ends."""


class ReplicaItem(FetchItem):
    """One partition that a follower copies: a `FollowerFetch` to it."""

    __slots__ = ("is_asked", "is_new", "log_start", "number", "session")

    def __init__(self, topic: bytes, index: int, session: ReplicaSession) -> None:
        super().__init__(topic, index)
        self.session = session
        self.is_asked = False
        """The follower asked for it and has not been answered yet."""
        self.log_start = -1
        """The start offset of the follower's log."""
        self.is_new = False
        """The follower's state in this request has not been processed yet."""
        self.number = 0
        """The number of the request that asked for it: earlier requests must not answer it."""

    def join(self, partition: Partition) -> None:
        """Subscribe to the changes of the partition."""
        if partition.follower_fetches is None:
            partition.follower_fetches = {}
        partition.follower_fetches[self] = None

    def leave(self) -> None:
        partition = self.partition
        if partition is not None and partition.follower_fetches is not None:
            partition.follower_fetches.pop(self, None)

    def on_append(self) -> FetchWaiter | None:
        if not self.is_asked:
            return None
        self.session.due[self] = None
        return self.session.waiting

    def on_high_watermark(self) -> FetchWaiter | None:
        if not self.is_asked:
            return None
        self.session.due[self] = None
        return self.session.waiting if self.session.tells_high_watermarks else None

    def on_resign(self) -> FetchWaiter | None:
        return self.on_append()


class ReplicaSession:
    """The session of one follower: the partitions it copies from this broker."""

    __slots__ = (
        "due",
        "epoch",
        "items",
        "number",
        "replica_epoch",
        "replica_id",
        "session_id",
        "tells_high_watermarks",
        "waiting",
    )

    def __init__(self, replica_id: int, replica_epoch: int, tells_high_watermarks: bool) -> None:
        self.session_id = NO_SESSION
        self.tells_high_watermarks = tells_high_watermarks
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.epoch = 1
        self.number = 0
        """Counts the requests."""
        self.items: dict[Key, ReplicaItem] = {}
        self.due: dict[ReplicaItem, None] = {}
        self.waiting: WaitingFetch | None = None

    def ask(self, topic_id: bytes, entry: FetchPartition) -> None:
        """The follower asks for the next records of this partition."""
        key = (topic_id, entry.partition)
        item = self.items.get(key)
        if item is None:
            item = self.items[key] = ReplicaItem(topic_id, entry.partition, self)
        item.fetch_offset = entry.fetch_offset
        item.leader_epoch = entry.current_leader_epoch
        item.last_fetched_epoch = entry.last_fetched_epoch
        item.max_bytes = entry.partition_max_bytes
        item.log_start = entry.log_start_offset
        item.is_asked = item.is_new = True
        item.number = self.number
        # A high watermark sent with a divergence, or to a follower that has started again since, did not count.
        item.told_high_watermark = -1
        # Move it to the end, so that a busy partition does not starve those behind it.
        self.due.pop(item, None)
        self.due[item] = None

    def forget(self, key: Key) -> None:
        item = self.items.pop(key, None)
        if item is not None:
            self.due.pop(item, None)
            item.leave()

    def look_again(self) -> None:
        """Check the partitions again that were held up."""
        if self.waiting is not None:
            self.waiting.advanced()

    def close(self) -> None:
        if self.waiting is not None:
            self.waiting.cut_short()
        self.leave()

    def leave(self) -> None:
        for item in self.items.values():
            item.leave()
        self.items.clear()
        self.due.clear()


class ReplicaSessions:
    """The sessions of all followers."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._sessions: dict[int, ReplicaSession] = {}
        self.tells_high_watermarks = False
        """Send high watermarks at once, not with the next answer: consumers wait for them."""

    def asked(self, request: FetchRequest, replica_id: int, replica_epoch: int) -> ReplicaSession:
        """The session of this request, updated with its partitions. Raises KafkaError."""
        epoch, session_id = request.session_epoch, request.session_id
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(session_id, replica_id)
            session = ReplicaSession(replica_id, replica_epoch, self.tells_high_watermarks)
            if epoch == INITIAL_EPOCH:
                self._open(session)
        else:
            found = self._sessions.get(session_id)
            if found is None or found.replica_id != replica_id or found.replica_epoch != replica_epoch:
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            session = found
            if session.epoch != epoch:
                raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
            for forgotten in request.forgotten_topics_data:
                for index in forgotten.partitions:
                    session.forget((forgotten.topic_id, index))
        session.number += 1
        for topic in request.topics:
            for entry in topic.partitions:
                session.ask(topic.topic_id, entry)
        return session

    def _open(self, session: ReplicaSession) -> None:
        for old in [one for one in self._sessions.values() if one.replica_id == session.replica_id]:
            self._close(old.session_id, old.replica_id)
        while session.session_id == NO_SESSION or session.session_id in self._sessions:
            session.session_id = self._rng.randrange(1, 2**31)
        self._sessions[session.session_id] = session

    def _close(self, session_id: int, replica_id: int) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.replica_id == replica_id:
            del self._sessions[session_id]
            session.close()
