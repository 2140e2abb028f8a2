"""Copies partitions from one other broker, through a fetch session with it (KIP-227).

A partition is *dirty* when its fetch state has changed: it was just added, its log grew or was truncated, more of it
became durable, or a pause ended. A request carries only the dirty partitions; the session keeps the state of the
others. So there is always one fetch at the leader, which waits there until something is appended, for any number of
partitions.

If a partition becomes dirty while a fetch waits, another request is sent at once over a second connection, and the
leader ends the waiting fetch. Otherwise a partition whose leader has just changed would stand still until the wait
ends.

While the replication throttle (`throttles`) is exhausted, throttled partitions that are out of sync are not fetched.

The pure `penstock.replication.Follower` decides what a response means for a log; this module carries it out. A
truncation runs in a task of its own; `Partition.cutting` blocks other operations on the log meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.fetch.sessions import EPOCH_MAX, NO_SESSION
from penstock.broker.net.peers import SILENCE_MS, PeerUnavailable
from penstock.broker.net.slices import Slices
from penstock.broker.replicas.fetched_batches import chunks, fetched
from penstock.broker.replicas.partition import Partition
from penstock.replication import Append, Follower, Later, StartAt, Truncate
from penstock.runtime import Timer
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

if TYPE_CHECKING:
    from penstock.broker.replicas.fetchers import Fetchers

CHANNELS = ("replica-a", "replica-b")
RETRY_FIRST_MS = 50
"""The first pause after a failure; it doubles up to `replica.fetch.backoff.ms`."""
SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

Key = tuple[bytes, int]


class Fetcher:
    """Copies everything that this broker follows from one leader."""

    def __init__(self, fetchers: Fetchers, leader_id: int) -> None:
        self._fetchers = fetchers
        self._runtime = fetchers.runtime
        self._leader_id = leader_id
        self._partitions: dict[Key, Partition] = {}
        self._dirty: dict[Partition, None] = {}
        self._pauses: dict[Partition, int] = {}
        """Consecutive failures per partition."""
        self._held_up: dict[Partition, None] = {}
        """Throttled partitions that are dirty but must wait."""
        self._told: dict[Key, None] = {}
        """The partitions in the leader's session."""
        self._forgotten: dict[Key, None] = {}
        self._session_id = NO_SESSION
        self._session_epoch = 0
        self._generation = 0
        """The number of the session; responses of earlier sessions are ignored."""
        self._number = 0
        """The number of the last request, over all sessions."""
        self._free = list(CHANNELS)
        self._failures = 0
        self._pause: Timer | None = None
        self._queued = False
        self._closed = False

    # ---- followed partitions

    def follow(self, partition: Partition) -> None:
        key = key_of(partition)
        self._partitions[key] = partition
        self._forgotten.pop(key, None)
        self._pauses.pop(partition, None)
        self.ask_about(partition)

    def unfollow(self, partition: Partition) -> None:
        key = key_of(partition)
        if self._partitions.get(key) is not partition:
            return
        del self._partitions[key]
        self._dirty.pop(partition, None)
        self._held_up.pop(partition, None)
        self._pauses.pop(partition, None)
        if key in self._told:
            self._forgotten[key] = None

    def ask_about(self, partition: Partition) -> None:
        """Mark a partition as dirty, if its log is ready to be fetched."""
        self._dirty[partition] = None
        # Many partitions change in one turn: send one request for all of them.
        if not self._queued:
            self._queued = True
            self._runtime.call_soon(self._ask_queued)

    def start_over(self) -> None:
        """Drop the session and fetch everything in a new one."""
        self._generation += 1
        self._session_id = NO_SESSION
        self._session_epoch = 0
        self._told.clear()
        self._forgotten.clear()
        self._free = list(CHANNELS)
        self._ask()

    def close(self) -> None:
        self._closed = True
        self._generation += 1
        if self._pause is not None:
            self._pause.cancel()

    # ---- requests

    def _ask_queued(self) -> None:
        self._queued = False
        self._ask()

    def _ask(self) -> None:
        """Send a fetch if none is in flight, or if one waits and there is something new to request."""
        if self._closed or self._pause is not None or not self._partitions or self._fetchers.broker_epoch < 0:
            return
        under_way = len(CHANNELS) - len(self._free)
        if under_way and (not self._free or self._session_id == NO_SESSION):
            return
        number = self._number + 1
        topics = self._topics(number)
        if under_way and not topics and not self._forgotten:
            return
        if self._session_id == NO_SESSION and not topics:
            return  # no partition is ready
        self._number = number
        config = self._fetchers.config
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=config.node_id, replica_epoch=self._fetchers.broker_epoch),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=topics,
            forgotten_topics_data=self._forgotten_topics(),
        )
        self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        channel = self._free.pop(0)
        name = f"fetch from {self._leader_id}"
        self._runtime.spawn(self._exchange_safely(request, channel, number, self._generation), name)

    def _topics(self, number: int) -> list[FetchTopic]:
        asked = list(self._dirty) if self._session_id != NO_SESSION else list(self._partitions.values())
        self._dirty.clear()
        max_bytes = self._fetchers.config.replica_fetch_max_bytes
        topics: dict[bytes, FetchTopic] = {}
        for partition in asked:
            follower, log = partition.follower, partition.log
            key = key_of(partition)
            if follower is None or log is None or self._partitions.get(key) is not partition:
                continue
            position = follower.position(partition.ends())
            if position is None or self._holds_up(partition, follower):
                continue
            follower.on_asked(position, number)
            self._told[key] = None
            self._forgotten.pop(key, None)
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = FetchTopic(topic_id=partition.topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=partition.index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_epoch,
                    log_start_offset=log.start_offset,
                    partition_max_bytes=max_bytes,
                )
            )
        return list(topics.values())

    def _holds_up(self, partition: Partition, follower: Follower) -> bool:
        throttle, log = self._fetchers.throttle, partition.log
        assert log is not None
        in_sync = 0 <= follower.leader_high_watermark <= log.end_offset
        if in_sync or not throttle.holds_up(partition):
            return False
        self._held_up[partition] = None
        throttle.when_free(self._let_go)
        return True

    def _let_go(self) -> None:
        held_up, self._held_up = self._held_up, {}
        for partition in held_up:
            self.ask_about(partition)

    def _forgotten_topics(self) -> list[ForgottenTopic]:
        topics: dict[bytes, ForgottenTopic] = {}
        for key in self._forgotten:
            self._told.pop(key, None)
            topic = topics.setdefault(key[0], ForgottenTopic(topic_id=key[0], partitions=[]))
            topic.partitions.append(key[1])
        self._forgotten.clear()
        return list(topics.values())

    async def _exchange_safely(self, request: FetchRequest, channel: str, number: int, generation: int) -> None:
        """Run one exchange. An unexpected error ends the session, not the fetcher."""
        try:
            await self._exchange(request, channel, number, generation)
        except Exception as error:
            self._runtime.task_failed(f"fetch from {self._leader_id}", error)
            if generation == self._generation:
                self._failed(repr(error))

    async def _exchange(self, request: FetchRequest, channel: str, number: int, generation: int) -> None:
        config = self._fetchers.config
        try:
            response = await self._fetchers.calls.call(
                self._leader_id,
                request,
                timeout_ms=config.replica_socket_timeout_ms,
                silence_ms=request.max_wait_ms + SILENCE_MS,
                channel=channel,
            )
        except (PeerUnavailable, KafkaError, WireError) as error:
            if isinstance(error, PeerUnavailable) and (error.closed or error.refused):
                self._fetchers.gone(self._leader_id)
            if generation == self._generation:
                self._failed(str(error))
            return
        self._fetchers.there(self._leader_id)
        if generation != self._generation:
            return
        assert isinstance(response, FetchResponse)
        if response.error_code:
            self._failed(ErrorCode(response.error_code).name, at_once=response.error_code in SESSION_ERRORS)
            return
        self._failures = 0
        self._session_id = response.session_id
        if response.session_id == NO_SESSION:
            self._session_epoch = 0
            self._told.clear()
        await self._take(response, number, generation)
        if generation == self._generation:
            self._free.append(channel)
            self._ask()

    def _failed(self, reason: str, *, at_once: bool = False) -> None:
        """Start a new session: at once if only the session was lost and this is not a repeated failure."""
        self._fetchers.failures += 1
        self._failures += 1
        at_once = at_once and self._failures == 1
        if not at_once:
            self._fetchers.events.recurring(
                "replica fetch failed", self._leader_id, leader=self._leader_id, reason=reason
            )
            self._pause = self._runtime.call_later(self._delay_ms(self._failures), self._resume)
        self.start_over()

    def _resume(self) -> None:
        self._pause = None
        self._ask()

    def _delay_ms(self, failures: int) -> float:
        delay_ms = min(self._fetchers.config.replica_fetch_backoff_ms, RETRY_FIRST_MS << min(failures - 1, 10))
        return delay_ms * (0.8 + 0.4 * self._runtime.rng.random())

    # ---- responses

    async def _take(self, response: FetchResponse, number: int, generation: int) -> None:
        slices = Slices(self._runtime)
        for topic in response.responses:
            for data in topic.partitions:
                partition = self._partitions.get((topic.topic_id, data.partition_index))
                if partition is None or partition.follower is None or partition.log is None:
                    continue
                await self._take_one(partition, partition.follower, data, number, slices)
                await slices.breathe()
                if generation != self._generation:
                    return

    async def _take_one(
        self, partition: Partition, follower: Follower, data: PartitionData, number: int, slices: Slices
    ) -> None:
        log = partition.log
        assert log is not None
        records = memoryview(data.records or b"")
        outcome = follower.on_fetched(number, fetched(data, records), partition.ends(), log.epoch_end_offset)
        match outcome:
            case Append(log_start):
                self._pauses.pop(partition, None)
                try:
                    for chunk in chunks(records, log.end_offset):
                        log.writer.append_follower(chunk)
                        partition.grown()
                        await slices.breathe()
                        if partition.follower is not follower:
                            return
                except KafkaError as error:
                    self._later(partition, follower, Later(0, str(error)))
                    return
                partition.grown()
                self._count(partition, len(records))
                before = log.start_offset
                if log_start > before:
                    log.trimmer.advance_start_offset(min(log_start, follower.high_watermark))
                # DeleteRecords waits until every replica has confirmed its new start offset.
                if len(records) or log.start_offset != before:
                    self.ask_about(partition)
            case Truncate(offset, below_high_watermark):
                if below_high_watermark:
                    self._fetchers.events.error(
                        "committed records cut off",
                        partition=str(partition),
                        offset=offset,
                        high_watermark=follower.high_watermark,
                        reason="the leader does not have them: it was elected uncleanly, or has lost them",
                    )
                self._cut(partition, follower, offset, whole=False)
            case StartAt(offset):
                self._cut(partition, follower, offset, whole=True)
            case Later():
                self._later(partition, follower, outcome)

    def _count(self, partition: Partition, size_bytes: int) -> None:
        fetchers = self._fetchers
        fetchers.bytes_copied += size_bytes
        if partition.state is not None and fetchers.config.node_id in partition.state.adding:
            fetchers.bytes_copied_of_moved += size_bytes
        fetchers.throttle.count(partition, size_bytes)

    def _later(self, partition: Partition, follower: Follower, outcome: Later) -> None:
        count = self._pauses[partition] = self._pauses.get(partition, 0) + 1
        reason = outcome.reason or ErrorCode(outcome.error).name
        self._fetchers.events.recurring("replica not fetched", str(partition), partition=str(partition), reason=reason)
        self._runtime.call_later(self._delay_ms(count), self._again, partition, follower)

    def _again(self, partition: Partition, follower: Follower) -> None:
        if partition.follower is follower and not self._closed:
            self.ask_about(partition)

    # ---- truncation

    def _cut(self, partition: Partition, follower: Follower, offset: int, *, whole: bool) -> None:
        partition.cutting = self._runtime.future()
        self._fetchers.truncations += 1
        self._runtime.spawn(self._cut_now(partition, follower, offset, whole), f"truncate {partition}")

    async def _cut_now(self, partition: Partition, follower: Follower, offset: int, whole: bool) -> None:
        log = partition.log
        assert log is not None
        before = log.end_offset
        failure = ""
        try:
            if whole:
                await log.trimmer.truncate_fully_and_start_at(offset)
            else:
                await log.trimmer.truncate_to(offset)
            self._fetchers.events.info("truncated", partition=str(partition), before=before, end=log.end_offset)
        except Exception as error:
            # The log is unchanged: the leader is asked again, and returns the same offset.
            failure = repr(error)
            self._runtime.task_failed(f"truncate {partition}", error)
        assert partition.cutting is not None
        partition.cutting.set_result(None)
        partition.cutting = None
        if partition.follower is follower:
            partition.grown()
            if failure:
                self._later(partition, follower, Later(0, f"it could not be truncated: {failure}"))
            else:
                self.ask_about(partition)
        else:
            self._fetchers.settle(partition)


def key_of(partition: Partition) -> Key:
    return partition.topic_id, partition.index
