"""Fetch (1): read record batches, waiting for them if there are none yet.

Served: v4–v17 for consumers; v18 adds the high watermark a replica knows (KIP-1166).

- v5 log start offset, v7 sessions (KIP-227, `penstock.broker.fetch.sessions`), v9 leader epoch fencing (KIP-320),
  v11 rack (KIP-392), v12 flexible, divergence by last fetched epoch (KIP-595), v13 topic ids (KIP-516),
  v15 replica state, v16 node endpoints (KIP-951), v17 directory id.
- The answer waits until `min_bytes` are there or `max_wait_ms` is over; an error answers at once.
- A fetch from the middle of a batch gets the whole batch. At least one batch goes out, however small the limits.
- Consumers see up to the high watermark. Stored bytes are sent as they are, as slices of the log's files.
- From v11 on followers serve consumers, too. With `replica.selector.class` a leader sends those that name their rack
  to a replica there, without records (`penstock.broker.fetch.read_replicas`).
- What followers ask is served by `penstock.broker.apis.replica_fetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker import limits
from penstock.broker.fetch.read_replicas import RackAwareSelector
from penstock.broker.fetch.response import NO_PREFERRED_REPLICA, Read, encode, encode_error, release
from penstock.broker.fetch.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchItem,
    FetchSession,
    FetchSessions,
)
from penstock.broker.net.connection import Connection, Slot
from penstock.broker.net.request import Request
from penstock.broker.observability.metrics import BrokerMetrics
from penstock.broker.replicas.partition import Partition
from penstock.broker.replicas.partition_table import PartitionTable
from penstock.log import DamagedSegment, Log, Slice
from penstock.runtime import Runtime, Timer
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.codec import Limits, decode
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.records import HEADER_SIZE

if TYPE_CHECKING:
    from penstock.broker.apis.replica_fetch import ReplicaFetch

REQUEST_LIMITS = Limits(max_elements=200_000)
READS_FROM_FOLLOWERS = 11
"""The first version whose clients know that followers can be read from."""


class Prefetched(NamedTuple):
    """What the device had of a partition, good as long as its log has not been cut, trimmed or replaced."""

    log: Log
    version: int
    slice: Slice | None
    error: ErrorCode = ErrorCode.NONE


class Fetch:
    """Serves Fetch requests."""

    def __init__(
        self, runtime: Runtime, table: PartitionTable, sessions: FetchSessions, metrics: BrokerMetrics
    ) -> None:
        self.runtime = runtime
        self.table = table
        self.sessions = sessions
        self.metrics = metrics
        self.response_bytes_max = limits.FETCH_RESPONSE_BYTES_MAX
        self.replicas: ReplicaFetch | None = None
        """Serves the fetches of followers."""
        self.selector: RackAwareSelector | None = None
        """Chooses where consumers read."""
        self.suspect: Callable[[Partition, int], None] = lambda partition, offset: None
        """Told of what a consumer could not use, or could not be read: the log may be damaged there."""

    def serve(self, request: Request) -> None:
        connection, version, correlation_id = request.connection, request.version, request.correlation_id
        assert connection is not None
        body, _ = decode(
            FetchRequest, version, connection.view[: request.end], request.position, limits=REQUEST_LIMITS
        )
        state = body.replica_state
        replica_id = body.replica_id if state is None else state.replica_id
        if replica_id >= 0:
            if self.replicas is None or not request.may_speak_for_a_broker:
                connection.send(encode_error(version, correlation_id, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            else:
                self.replicas.serve(connection, version, correlation_id, body, replica_id)
            return
        by_id = version >= 13
        try:
            session_id, items, incremental = self._session(body, by_id)
        except KafkaError as error:
            connection.send(encode_error(version, correlation_id, error.code))
            return
        waiting = PendingFetch(self, request, connection, body, items, session_id, incremental)
        waiting.start()

    def _session(
        self, request: FetchRequest, by_id: bool
    ) -> tuple[int, dict[tuple[bytes, int], FetchItem], FetchSession | None]:
        """The partitions to answer, under which session id, and the session if only its changes are to be told."""
        epoch, session_id = request.session_epoch, request.session_id
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self.sessions.close(session_id)
            items: dict[tuple[bytes, int], FetchItem] = {}
            self._update(items, request, by_id)
            opened = self.sessions.open(items, by_id) if epoch == INITIAL_EPOCH else NO_SESSION
            return opened, items, None
        session = self.sessions.find(session_id, epoch, by_id)
        before = len(session.items)
        for forgotten in request.forgotten_topics_data:
            topic = forgotten.topic_id if by_id else forgotten.topic.encode()
            for index in forgotten.partitions:
                session.items.pop((topic, index), None)
        self._update(session.items, request, by_id)
        self.sessions.resized(session, before)
        return session_id, session.items, session

    def _update(self, items: dict[tuple[bytes, int], FetchItem], request: FetchRequest, by_id: bool) -> None:
        for wanted in request.topics:
            topic = wanted.topic_id if by_id else wanted.topic.encode()
            for entry in wanted.partitions:
                key = (topic, entry.partition)
                item = items.get(key)
                if item is None:
                    item = items[key] = FetchItem(topic, entry.partition)
                item.fetch_offset = entry.fetch_offset
                item.leader_epoch = entry.current_leader_epoch
                item.last_fetched_epoch = entry.last_fetched_epoch
                item.max_bytes = entry.partition_max_bytes


class PendingFetch:
    """One fetch on its way: read, park if there is too little, read again when woken, answer."""

    __slots__ = (
        "_by_id",
        "_charged",
        "_connection",
        "_correlation_id",
        "_denied",
        "_done",
        "_fetch",
        "_from_follower",
        "_incremental",
        "_items",
        "_max_bytes",
        "_min_bytes",
        "_parked",
        "_rack",
        "_reading",
        "_session_id",
        "_slot",
        "_timer",
        "_version",
        "_wait_ms",
    )

    def __init__(
        self,
        fetch: Fetch,
        request: Request,
        connection: Connection,
        body: FetchRequest,
        items: dict[tuple[bytes, int], FetchItem],
        session_id: int,
        incremental: FetchSession | None,
    ) -> None:
        self._fetch = fetch
        self._connection = connection
        version = self._version = request.version
        self._correlation_id = request.correlation_id
        self._charged: Request | None = None
        """The request, if somebody counts what it takes."""
        self._denied: Collection[bytes] = ()
        """Topics, as the request names them, that the client may not read."""
        self._items = items
        self._session_id = session_id
        self._incremental = incremental
        self._by_id = version >= 13
        if request.gate.is_active:
            self._charged = request.kept()
            self._denied = self._topics_denied(request) if request.is_restricted else ()
        self._from_follower = version >= READS_FROM_FOLLOWERS
        self._rack = body.rack_id if fetch.selector is not None else ""
        self._min_bytes = body.min_bytes
        self._max_bytes = max(min(body.max_bytes, fetch.response_bytes_max), 0)
        self._wait_ms = body.max_wait_ms
        self._slot: Slot | None = None
        self._parked: list[Partition] | None = None
        self._timer: Timer | None = None
        self._done = False
        self._reading = False

    def start(self) -> None:
        reads = self._read({})
        if reads is None:
            self._slot = self._connection.defer(barrier=True)
            self._read_cold(last_chance=False)
        elif self._enough(reads) or self._wait_ms <= 0:
            self._answer(reads)
        else:
            release(reads)
            self._slot = self._connection.defer(barrier=True)
            self._park()

    def _topics_denied(self, request: Request) -> Collection[bytes]:
        denied: dict[bytes, None] = {}
        for topic in dict.fromkeys(item.topic for item in self._items.values()):
            name: str | None = str(topic, "utf-8", "replace")
            if self._by_id:
                partitions = self._fetch.table.by_id.get(topic)
                name = partitions[0].topic if partitions else None
            if name is not None and not request.allowed(Operation.READ, ResourceKind.TOPIC, name):
                denied[topic] = None
        return denied

    # ---- reading

    def _read(self, prefetched: dict[FetchItem, Prefetched]) -> list[Read] | None:
        """Read every partition from what memory has. None: something must come from the device first."""
        fetch = self._fetch
        budget, denied = self._max_bytes, self._denied
        reads: list[Read] = []
        for item in self._items.values():
            partition = item.resolve(fetch.table, self._by_id)
            if denied and item.topic in denied:
                reads.append(Read(item, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, None))
                fetch.metrics.failed_fetch += 1
                continue
            if partition is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID if self._by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if self._by_id and fetch.table.by_id.get(item.topic) is not None:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                reads.append(Read(item, error, -1, -1, None))
                fetch.metrics.failed_fetch += 1
                continue
            try:
                log = partition.readable(self._from_follower)
                if item.leader_epoch >= 0:
                    partition.check_epoch(item.leader_epoch)
                high_watermark = partition.high_watermark
                offset = item.fetch_offset
                if self._rack and partition.leader is not None and fetch.selector is not None:
                    near = fetch.selector.choose(partition, partition.leader, self._rack, offset)
                    if near != NO_PREFERRED_REPLICA:
                        reads.append(Read(item, 0, high_watermark, log.start_offset, None, preferred=near))
                        continue
                if item.last_fetched_epoch >= 0 and offset >= log.start_offset:
                    diverging = divergence(log.epoch_end_offset(item.last_fetched_epoch), item)
                    if diverging is not None:
                        reads.append(Read(item, 0, high_watermark, log.start_offset, None, diverging))
                        continue
                if offset == high_watermark:
                    if partition.leader is not None and partition.leader.stranded:
                        # Nothing will be committed here. What is committed elsewhere cannot be known.
                        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    reads.append(Read(item, 0, high_watermark, log.start_offset, None))
                    continue
                if offset > high_watermark or offset < log.start_offset:
                    if offset > log.end_offset or offset < log.start_offset:
                        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
                    reads.append(Read(item, 0, high_watermark, log.start_offset, None))
                    continue
                found: Slice | None = None
                # The first batch goes out whatever the limits are: they must not stop a reader for ever.
                if budget > 0 or budget == self._max_bytes:
                    early = prefetched.get(item)
                    if early is not None and early.log is log and early.version == log.version:
                        if early.error:
                            raise KafkaError(early.error)
                        found = early.slice
                    else:
                        found = log.reader.try_read(
                            offset,
                            min(item.max_bytes, budget),
                            high_watermark,
                            min_one=budget == self._max_bytes,
                        )
                        if found is not None and not found.size % HEADER_SIZE and found.size:
                            found = log.reader.try_pass_empty(found, min(item.max_bytes, budget), high_watermark)
                        if found is None:
                            release(reads)
                            return None
                    if found is not None and found.size:
                        found.file.retain()
                        budget -= found.size
                    else:
                        found = None
                reads.append(Read(item, 0, high_watermark, log.start_offset, found))
            except (KafkaError, OSError) as error:
                code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
                if isinstance(error, DamagedSegment):
                    fetch.suspect(partition, item.fetch_offset)
                known = (partition.leader_id, partition.leader_epoch)
                moved = code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
                reads.append(Read(item, code, -1, -1, None, leader=known if moved else None))
                fetch.metrics.failed_fetch += 1
        return reads

    def _enough(self, reads: list[Read]) -> bool:
        total = 0
        for read in reads:
            if read.error or read.diverging is not None or read.preferred != NO_PREFERRED_REPLICA:
                return True
            if read.slice is not None:
                total += read.slice.size
        return total >= self._min_bytes or not reads

    def _read_cold(self, *, last_chance: bool) -> None:
        self._reading = True
        work = self._connection.serving(self._read_from_device(last_chance))
        self._fetch.runtime.spawn(work, "fetch from the device")

    async def _read_from_device(self, last_chance: bool) -> None:
        """The page cache lacks an index or the batches' headers: read them off the loop, then as usual."""
        prefetched: dict[FetchItem, Prefetched] = {}
        budget = self._max_bytes
        for item in list(self._items.values()):
            partition = item.resolve(self._fetch.table, self._by_id)
            if partition is None or partition.log is None or not partition.is_copied or item.topic in self._denied:
                continue
            if budget <= 0 and budget != self._max_bytes:
                continue
            log, upto = partition.log, partition.high_watermark
            if not log.start_offset <= item.fetch_offset < upto:
                continue
            try:
                found = await log.reader.read(
                    item.fetch_offset, min(item.max_bytes, budget), upto, min_one=budget == self._max_bytes
                )
                found = await log.reader.pass_empty(found, min(item.max_bytes, budget), upto)
            except (KafkaError, OSError) as error:
                # Where the log was deleted meanwhile, the second look finds that out before it comes to this.
                code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
                prefetched[item] = Prefetched(log, log.version, None, code)
                continue
            prefetched[item] = Prefetched(log, log.version, found)
            budget -= found.size
        self._reading = False
        if self._connection.closed:
            return
        reads = self._read(prefetched)
        if reads is None:
            self._read_cold(last_chance=last_chance)
        elif last_chance or self._enough(reads) or self._wait_ms <= 0:
            self._answer(reads)
        else:
            release(reads)
            self._park()

    # ---- waiting

    def _park(self) -> None:
        runtime = self._fetch.runtime
        self._parked = []
        for item in self._items.values():
            partition = item.partition
            if partition is not None:
                partition.fetch_waiters[self] = None
                self._parked.append(partition)
        if self._timer is None:
            self._timer = runtime.call_later(self._wait_ms, self._timed_out)
            self._connection.on_lost = self._finish

    def _unpark(self) -> None:
        if self._parked is not None:
            for partition in self._parked:
                partition.fetch_waiters.pop(self, None)
            self._parked = None

    def advanced(self) -> None:
        if self._done or self._reading or self._parked is None:
            return
        # Whoever moved the partition on has nothing to do with what goes wrong here.
        try:
            reads = self._read({})
            if reads is None:
                self._unpark()
                self._read_cold(last_chance=False)
            elif self._enough(reads):
                self._answer(reads)
            else:
                release(reads)
        except Exception as error:
            self._connection.fail(error)

    def _timed_out(self) -> None:
        self._wait_ms = 0
        if self._done or self._reading:
            return
        try:
            reads = self._read({})
            if reads is None:
                self._unpark()
                self._read_cold(last_chance=True)
            else:
                self._answer(reads)
        except Exception as error:
            self._connection.fail(error)

    def _finish(self) -> None:
        self._done = True
        self._unpark()
        if self._timer is not None:
            self._timer.cancel()
            self._connection.on_lost = None

    # ---- answering

    def _answer(self, reads: list[Read]) -> None:
        self._finish()
        reads = self._news(reads)
        throttle_ms = 0
        if self._charged is not None:
            throttle_ms = self._charged.charge(sum(read.slice.size for read in reads if read.slice is not None))
        parts, size = encode(self._version, self._correlation_id, self._session_id, reads, throttle_ms)
        self._fetch.metrics.bytes_out += size
        if self._slot is None:
            self._connection.send_parts(parts)
        else:
            self._slot.send(parts)

    def _news(self, reads: list[Read]) -> list[Read]:
        """Remember what the client is told; in an incremental session leave out what it knows already."""
        if not self._session_id:
            return reads
        news: list[Read] = []
        for read in reads:
            item = read.item
            told = (
                self._incremental is not None
                and read.slice is None
                and read.diverging is None
                and read.preferred == NO_PREFERRED_REPLICA
                and not read.error
                and item.told_error == 0
                and item.told_high_watermark == read.high_watermark
                and item.told_log_start == read.log_start
            )
            if not told:
                item.told_error = read.error
                item.told_high_watermark = read.high_watermark
                item.told_log_start = read.log_start
                news.append(read)
            if read.slice is not None:
                if item.sent_offset == item.fetch_offset and item.partition is not None:
                    self._fetch.suspect(item.partition, item.fetch_offset)
                item.sent_offset = item.fetch_offset
            if read.slice is not None and self._incremental is not None:
                # It goes to the end, so that a busy partition starves none behind it when not all fit.
                self._items[item.topic, item.index] = self._items.pop((item.topic, item.index))
        return news


def divergence(known: tuple[int, int], item: FetchItem) -> tuple[int, int] | None:
    """Where the log of the epoch the client read last ends here, if the client is beyond that."""
    epoch, end_offset = known
    if epoch < 0:
        # An epoch beyond any that this log has seen: nothing to compare with.
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < item.last_fetched_epoch or end_offset < item.fetch_offset:
        return epoch, end_offset
    return None
