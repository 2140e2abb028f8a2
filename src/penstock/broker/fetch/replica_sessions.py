"""The fetch sessions of followers (KIP-227): what each of them copies from this broker, and what of it is *due*.

A partition is due when its follower has asked for it (again), when it has grown since, or when its follower has not
been told its high watermark. An answer looks at what is due and at nothing else, so a thousand idle partitions cost
nothing. What was answered with records, an error or a divergence is not due before the follower asks for it again.

The partition itself tells of its changes: each item of a session is a `Question` that the partition knows
(`penstock.broker.replicas.partition`).

A follower has one session: a new one ends those before it. A request that was held up by a cut may arrive after the
follower has begun anew elsewhere. It then ends the wrong session, and sets the follower back; but the follower's next
request finds its session gone, and so it asks about everything once more.
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
        """Its follower has more to ask, or the session ends: answer now."""


class ReplicaItem(FetchItem):
    """One partition that a follower copies: a `Question` to it."""

    __slots__ = ("is_asked", "is_new", "log_start", "number", "session")

    def __init__(self, topic: bytes, index: int, session: ReplicaSession) -> None:
        super().__init__(topic, index)
        self.session = session
        self.is_asked = False
        """It has not been answered since it was asked."""
        self.log_start = -1
        """Where the follower's log begins."""
        self.is_new = False
        """What it says about the follower has not been looked at."""
        self.number = 0
        """Of the request that asked it: no earlier one answers it."""

    def join(self, partition: Partition) -> None:
        """From now on the partition tells of its changes."""
        if partition.questions is None:
            partition.questions = {}
        partition.questions[self] = None

    def leave(self) -> None:
        partition = self.partition
        if partition is not None and partition.questions is not None:
            partition.questions.pop(self, None)

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
    """What one follower copies from this broker."""

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
        """The follower asks for what comes next in this partition."""
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
        # What was told with a divergence, or to a follower that began anew since, did not count.
        item.told_high_watermark = -1
        # At the end: a partition that always has more starves none behind it.
        self.due.pop(item, None)
        self.due[item] = None

    def forget(self, key: Key) -> None:
        item = self.items.pop(key, None)
        if item is not None:
            self.due.pop(item, None)
            item.leave()

    def look_again(self) -> None:
        """What was held up may go on."""
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
    """Of all followers."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._sessions: dict[int, ReplicaSession] = {}
        self.tells_high_watermarks = False
        """At once, not with the next answer: consumers wait for it."""

    def asked(self, request: FetchRequest, replica_id: int, replica_epoch: int) -> ReplicaSession:
        """The session of this request, with what it asks for taken in. Raises KafkaError."""
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
