"""Fetch (1): read record batches, waiting for them if there are none yet.

Served: v4–v17 for consumers; v18 adds the high watermark a replica knows (KIP-1166).

- v5 log start offset, v7 sessions (KIP-227, `penstock.broker.fetch.sessions`), v9 leader epoch fencing (KIP-320),
  v11 rack (KIP-392), v12 flexible, divergence by last fetched epoch (KIP-595), v13 topic ids (KIP-516),
  v15 replica state, v16 node endpoints (KIP-951), v17 directory id.
- The answer waits until `min_bytes` are there or `max_wait_ms` is over; an error answers at once.
- A fetch from the middle of a batch gets the whole batch. At least one batch goes out, however small the limits.
- Consumers see up to the high watermark. Stored bytes are sent as they are, as slices of the log's files.
- With isolation level 1 (`read_committed`, KIP-98) they see up to the last stable offset, and get the list of aborted
  transactions that overlap the records. Such a fetch waits for the last stable offset.
- From v11 on followers serve consumers, too. With `replica.selector.class` a leader sends those that name their rack
  to a replica there, without records (`penstock.broker.fetch.read_replicas`).
- Requests and sessions of many partitions are served in slices, so that other clients are served in between. What
  arrives meanwhile makes it look again before it waits.
- What followers ask is served by `penstock.broker.apis.replica_fetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker import limits
from penstock.broker.fetch.read_replicas import RackAwareSelector
from penstock.broker.fetch.response import NO_PREFERRED_REPLICA, Read, encode, encode_error, encode_in_slices, release
from penstock.broker.fetch.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchItem,
    FetchSession,
    FetchSessions,
    diverging_epoch,
)
from penstock.broker.net.connection import Connection, Slot
from penstock.broker.net.request import Request
from penstock.broker.net.slices import RUN, RequestSlices, Slices, runs_of
from penstock.broker.observability.metrics import BrokerMetrics
from penstock.broker.replicas.partition import Partition
from penstock.broker.replicas.partition_table import PartitionTable
from penstock.log import AbortedTransaction, DamagedSegment, Log, Slice
from penstock.runtime import Runtime, Timer
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.codec import Limits, decode, decode_in_slices
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.fetch import FetchPartition, FetchRequest
from penstock.wire.records import HEADER_SIZE

if TYPE_CHECKING:
    from penstock.broker.apis.replica_fetch import ReplicaFetch

REQUEST_LIMITS = Limits(max_elements=200_000)
READS_FROM_FOLLOWERS = 11
"""The first version whose clients know that followers can be read from."""


READ_COMMITTED = 1

Aborted = list[tuple[int, int]]
"""The producer and the first offset of each aborted transaction, in the order of their first offsets."""
NO_ABORTED: Aborted = []


class Prefetched(NamedTuple):
    """What the device had of a partition, good as long as its log has not been cut, trimmed or replaced."""

    log: Log
    version: int
    slice: Slice | None
    error: ErrorCode = ErrorCode.NONE
    aborted: Aborted | None = None


NOTHING_PREFETCHED: Mapping[FetchItem, Prefetched] = {}

Items = dict[tuple[bytes, int], FetchItem]


Fetched = tuple[int, Items, FetchSession | None]
"""What a request asks for: the session id of its answer, the partitions, and the session if only changes are told."""


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
        self.waiting_partitions = 0
        """Of all fetches that are parked, as often as they name them."""

    def serve(self, request: Request) -> None:
        connection, version, position, end = request.connection, request.version, request.position, request.end
        assert connection is not None
        # A follower's request does not wait behind those of clients.
        if end - position > limits.LARGE_REQUEST_BYTES and connection.weight <= 1:
            slot = connection.defer(barrier=True)
            data = bytes(connection.view[position:end])
            large = self._serve_large(request.kept(), connection, slot, data)
            self.runtime.spawn(connection.serving(large), "Fetch")
            return
        body, _ = decode(FetchRequest, version, connection.view[:end], position, limits=REQUEST_LIMITS)
        replica_id = asking_replica(body)
        if replica_id >= 0:
            self._serve_replica(request, connection, body, replica_id)
            return
        try:
            fetched = self._session(body, version >= 13)
        except KafkaError as error:
            connection.send(encode_error(version, request.correlation_id, error.code))
            return
        PendingFetch(self, request, connection, None, body, fetched).look()

    async def _serve_large(self, request: Request, connection: Connection, slot: Slot, data: bytes) -> None:
        version = request.version
        with connection.slices(request.took) as slices:
            await slices.begin()
            body, _ = await slices.drive(decode_in_slices(FetchRequest, version, data, limits=REQUEST_LIMITS))
            replica_id = asking_replica(body)
            if replica_id >= 0:
                # Its answer gets a slot of its own, behind this one.
                self._serve_replica(request, connection, body, replica_id)
                slot.send(b"")
                return
            try:
                fetched = await self._session_in_slices(body, version >= 13, slices)
            except KafkaError as error:
                slot.send(encode_error(version, request.correlation_id, error.code))
                return
        PendingFetch(self, request, connection, slot, body, fetched).look()

    def _serve_replica(self, request: Request, connection: Connection, body: FetchRequest, replica_id: int) -> None:
        version, correlation_id = request.version, request.correlation_id
        if self.replicas is None or not request.may_speak_for_a_broker:
            connection.send(encode_error(version, correlation_id, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        else:
            self.replicas.serve(connection, version, correlation_id, body, replica_id)

    def _session(self, body: FetchRequest, by_id: bool) -> Fetched:
        """What is to be answered. Raises KafkaError if there is no such session."""
        items, session = self._known(body, by_id)
        for gone in body.forgotten_topics_data:
            forget(items, gone.topic_id if by_id else gone.topic.encode(), gone.partitions)
        for wanted in body.topics:
            update(items, wanted.topic_id if by_id else wanted.topic.encode(), wanted.partitions)
        return self._changed(body, by_id, items, session)

    async def _session_in_slices(self, body: FetchRequest, by_id: bool, slices: Slices) -> Fetched:
        """What `_session` does, for many partitions."""
        items, session = self._known(body, by_id)
        for gone in body.forgotten_topics_data:
            topic = gone.topic_id if by_id else gone.topic.encode()
            for indexes in runs_of(gone.partitions):
                forget(items, topic, indexes)
                await slices.breathe()
        for wanted in body.topics:
            topic = wanted.topic_id if by_id else wanted.topic.encode()
            for entries in runs_of(wanted.partitions):
                update(items, topic, entries)
                await slices.breathe()
        return self._changed(body, by_id, items, session)

    def _known(self, body: FetchRequest, by_id: bool) -> tuple[Items, FetchSession | None]:
        """The partitions that the request changes, and the session that they belong to. Raises KafkaError."""
        session_id, epoch = body.session_id, body.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self.sessions.close(session_id)
            return {}, None
        session = self.sessions.find(session_id, epoch, by_id)
        return session.items, session

    def _changed(self, body: FetchRequest, by_id: bool, items: Items, session: FetchSession | None) -> Fetched:
        """The request's changes are in `items`."""
        if session is not None:
            self.sessions.resized(session)
            return body.session_id, items, session
        opened = self.sessions.open(items, by_id) if body.session_epoch == INITIAL_EPOCH else NO_SESSION
        return opened, items, None


def forget(items: Items, topic: bytes, indexes: Sequence[int]) -> None:
    for index in indexes:
        items.pop((topic, index), None)


def update(items: Items, topic: bytes, entries: Sequence[FetchPartition]) -> None:
    for entry in entries:
        key = (topic, entry.partition)
        item = items.get(key)
        if item is None:
            item = items[key] = FetchItem(topic, entry.partition)
        item.fetch_offset = entry.fetch_offset
        item.leader_epoch = entry.current_leader_epoch
        item.last_fetched_epoch = entry.last_fetched_epoch
        item.max_bytes = entry.partition_max_bytes


def asking_replica(body: FetchRequest) -> int:
    """The follower that asks; negative if it is a consumer."""
    state = body.replica_state
    return body.replica_id if state is None else state.replica_id


def end_of(found: Slice, upto: int) -> int:
    """The offset behind the records of a slice that was read up to `upto`."""
    return found.next_offset if found.next_offset >= 0 else upto


def told_aborted(transactions: list[AbortedTransaction]) -> Aborted:
    return sorted([(one.producer_id, one.first_offset) for one in transactions], key=lambda told: told[1])


class PendingFetch:
    """One fetch on its way: read, park if there is too little, read again when woken, answer.

    Each stage works on a run of partitions. Where they are few, one run is all of them, and everything is done where
    it is called (`look`). A task (`_work`) takes many partitions in short runs, and those that the device must read.
    """

    __slots__ = (
        "_again",
        "_budget",
        "_by_id",
        "_charged",
        "_committed",
        "_connection",
        "_correlation_id",
        "_counted",
        "_denied",
        "_done",
        "_enough",
        "_fetch",
        "_from_follower",
        "_incremental",
        "_items",
        "_max_bytes",
        "_min_bytes",
        "_parked",
        "_rack",
        "_session_id",
        "_slot",
        "_timer",
        "_version",
        "_wait_ms",
        "_waiting_since_ms",
        "_working",
    )

    def __init__(
        self,
        fetch: Fetch,
        request: Request,
        connection: Connection,
        slot: Slot | None,
        body: FetchRequest,
        fetched: Fetched,
    ) -> None:
        self._fetch = fetch
        self._connection = connection
        version = self._version = request.version
        self._correlation_id = request.correlation_id
        self._session_id, self._items, self._incremental = fetched
        self._charged: Request | None = None
        """The request, if somebody counts what it takes."""
        self._denied: Collection[bytes] = ()
        """Topics, as the request names them, that the client may not read."""
        self._by_id = version >= 13
        self._committed = body.isolation_level == READ_COMMITTED
        if request.gate.is_active:
            self._charged = request.kept()
            self._denied = self._topics_denied(request) if request.is_restricted else ()
        self._from_follower = version >= READS_FROM_FOLLOWERS
        self._rack = body.rack_id if fetch.selector is not None else ""
        self._min_bytes = body.min_bytes
        self._max_bytes = self._budget = max(min(body.max_bytes, fetch.response_bytes_max), 0)
        if self._charged is not None:
            self._max_bytes = self._budget = self._charged.fetch_bytes_max(self._max_bytes)
            self._min_bytes = min(self._min_bytes, self._max_bytes)
        self._wait_ms = body.max_wait_ms
        self._slot = slot
        self._parked: list[Partition] = []
        self._counted = 0
        """Partitions that it waits for, as `Fetch.waiting_partitions` has them."""
        self._timer: Timer | None = None
        self._waiting_since_ms = 0.0
        self._enough = False
        """What was read last is enough for an answer."""
        self._done = False
        self._working = False
        """A task reads or answers."""
        self._again = False
        """Meanwhile something has arrived."""

    def look(self) -> None:
        """Read the partitions. Answer if there is enough data or the wait is over; otherwise park."""
        if len(self._items) > limits.FETCH_AT_ONCE_PARTITIONS_MAX:
            self._begin_work(cold=False)
            return
        reads: list[Read] = []
        self._begin_reading()
        if not self._read(self._items.values(), reads, NOTHING_PREFETCHED):
            release(reads)
            self._begin_work(cold=True)
        elif self._wait_ms <= 0 or self._has_enough() or not self._may_park():
            if self._timer is not None:
                self._end_waiting()
                self._unpark(len(self._parked))
            self._done = True
            throttle_ms = 0
            if self._charged is not None and (throttle_ms := self._charge(reads)):
                reads = self._withheld(reads)
            elif self._session_id:
                reads = self._news(reads)
            parts, size = encode(self._version, self._correlation_id, self._session_id, reads, throttle_ms)
            self._fetch.metrics.bytes_out += size
            if self._slot is None:
                self._connection.send_parts(parts)
            else:
                self._slot.send(parts)
        else:
            release(reads)
            if self._timer is None:
                self._defer()
                self._begin_waiting()
                self._park(self._items.values())

    def _defer(self) -> Slot:
        if self._slot is None:
            self._slot = self._connection.defer(barrier=True)
        return self._slot

    # ---- in a task

    def _begin_work(self, *, cold: bool) -> None:
        self._defer()
        self._working = True
        work = self._connection.serving(self._work(cold))
        self._fetch.runtime.spawn(work, "fetch from the device" if cold else "fetch of many partitions")

    async def _work(self, cold: bool) -> None:
        connection = self._connection
        self._again = True
        while self._again and not self._done and not connection.closed:
            prefetched = await self._read_from_device() if cold else {}
            # A place for each look: whoever is woken again and again does not keep other large requests from theirs.
            with connection.slices(None if self._charged is None else self._charged.took) as slices:
                cold = await self._look_in_slices(slices, prefetched)
        self._working = False

    async def _look_in_slices(self, slices: RequestSlices, prefetched: dict[FetchItem, Prefetched]) -> bool:
        """What `look` does. Returns whether something must come from the device first."""
        if len(self._items) > limits.FETCH_AT_ONCE_PARTITIONS_MAX:
            await slices.begin()
        items = list(self._items.values())  # between runs another client may use the session
        # Before it reads: what arrives while it does must not be missed.
        if self._wait_ms > 0 and self._timer is None and self._may_park():
            self._begin_waiting()
            for run in runs_of(items):
                if not self._done:
                    self._park(run)
                await slices.breathe()
        self._again = False
        reads: list[Read] = []
        is_whole = True
        self._begin_reading()
        for run in runs_of(items):
            is_whole = self._read(run, reads, prefetched)
            if not is_whole:
                break
            await slices.breathe()
        if is_whole and (self._has_enough() or self._timer is None or self._wait_ms <= 0):
            await self._answer(slices, reads)
            return False
        release(reads)
        if not is_whole:
            self._again = True
        return not is_whole

    async def _answer(self, slices: RequestSlices, reads: list[Read]) -> None:
        self._end_waiting()
        await self._unpark_in_slices(slices)
        throttle_ms = 0
        if self._charged is not None and (throttle_ms := self._charge(reads)):
            reads = self._withheld(reads)
        elif self._session_id:
            news: list[Read] = []
            for run in runs_of(reads):
                news += self._news(run)
                await slices.breathe()
            reads = news
        work = encode_in_slices(self._version, self._correlation_id, self._session_id, reads, throttle_ms)
        parts, record_bytes = await slices.drive(work, steps_between_looks=1)
        self._fetch.metrics.bytes_out += record_bytes
        connection = self._connection
        size = len(reads) * limits.FETCH_ANSWER_PARTITION_BYTES
        if size > limits.LARGE_ANSWER_BYTES and not connection.closed:
            await connection.answer_room(size)
        assert self._slot is not None
        self._slot.send(parts)
        if connection.owes_answer:
            connection.settle_answer()

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

    def _charge(self, reads: list[Read]) -> int:
        """Returns the throttle time."""
        assert self._charged is not None
        return self._charged.charge(sum(read.slice.size for read in reads if read.slice is not None))

    def _withheld(self, reads: list[Read]) -> list[Read]:
        """The client has exceeded a quota: it gets an empty answer now, and the records when it asks again."""
        release(reads)
        if self._incremental is None and self._session_id:
            # Kafka creates the session with the first answer that is not empty.
            self._fetch.sessions.close(self._session_id)
            self._session_id = NO_SESSION
        return []

    # ---- reading

    def _begin_reading(self) -> None:
        self._budget = self._max_bytes
        self._enough = not self._items

    def _has_enough(self) -> bool:
        return self._enough or self._max_bytes - self._budget >= self._min_bytes

    def _read(self, items: Iterable[FetchItem], reads: list[Read], prefetched: Mapping[FetchItem, Prefetched]) -> bool:
        """Read these partitions from memory. False: something must come from the device first."""
        fetch = self._fetch
        budget, denied, committed = self._budget, self._denied, self._committed
        no_aborted = NO_ABORTED if committed else None
        for item in items:
            partition = item.resolve(fetch.table, self._by_id)
            if denied and item.topic in denied:
                reads.append(Read(item, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1, None))
                self._enough = True
                fetch.metrics.failed_fetch += 1
                continue
            if partition is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID if self._by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if self._by_id and fetch.table.by_id.get(item.topic) is not None:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                reads.append(Read(item, error, -1, -1, None))
                self._enough = True
                fetch.metrics.failed_fetch += 1
                continue
            try:
                log = partition.readable(self._from_follower)
                if item.leader_epoch >= 0:
                    partition.check_epoch(item.leader_epoch)
                high_watermark = upto = partition.high_watermark
                stable = None
                if log.transactions is not None:
                    stable = log.last_stable_offset(high_watermark)
                    if committed:
                        upto = stable
                aborted = no_aborted
                offset = item.fetch_offset
                if self._rack and partition.leader is not None and fetch.selector is not None:
                    near = fetch.selector.choose(partition, partition.leader, self._rack, offset)
                    if near != NO_PREFERRED_REPLICA:
                        reads.append(Read(item, 0, high_watermark, log.start_offset, None, preferred=near))
                        self._enough = True
                        continue
                if item.last_fetched_epoch >= 0 and offset >= log.start_offset:
                    diverging = diverging_epoch(log.epoch_end_offset(item.last_fetched_epoch), item)
                    if diverging is not None:
                        reads.append(Read(item, 0, high_watermark, log.start_offset, None, diverging=diverging))
                        self._enough = True
                        continue
                if offset == upto:
                    if partition.leader is not None and partition.leader.stranded:
                        # A stranded leader commits nothing, and cannot know what its successor has committed.
                        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    reads.append(Read(item, 0, high_watermark, log.start_offset, None, stable, aborted))
                    continue
                if offset > upto or offset < log.start_offset:
                    if offset > log.end_offset or offset < log.start_offset:
                        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
                    reads.append(Read(item, 0, high_watermark, log.start_offset, None, stable, aborted))
                    continue
                found: Slice | None = None
                # The first batch goes out whatever the limits are: they must not stop a reader for ever.
                if budget > 0 or budget == self._max_bytes:
                    early = prefetched.get(item)
                    if early is not None and early.log is log and early.version == log.version:
                        if early.error:
                            raise KafkaError(early.error)
                        found, aborted = early.slice, early.aborted
                    else:
                        found = log.reader.try_read(
                            offset,
                            min(item.max_bytes, budget),
                            upto,
                            min_one=budget == self._max_bytes,
                        )
                        if found is not None and not found.size % HEADER_SIZE and found.size:
                            found = log.reader.try_pass_empty(found, min(item.max_bytes, budget), upto)
                        if found is None:
                            return False
                        if committed and found.size:
                            listed = log.aborted.try_find(found.first_offset, end_of(found, upto))
                            if listed is None:
                                return False
                            if listed:
                                aborted = told_aborted(listed)
                    if found is not None and found.size:
                        found.file.retain()
                        budget -= found.size
                    else:
                        found = None
                reads.append(Read(item, 0, high_watermark, log.start_offset, found, stable, aborted))
            except (KafkaError, OSError) as error:
                code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
                if isinstance(error, DamagedSegment):
                    fetch.suspect(partition, item.fetch_offset)
                known = (partition.leader_id, partition.leader_epoch)
                moved = code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
                reads.append(Read(item, code, -1, -1, None, leader=known if moved else None))
                self._enough = True
                fetch.metrics.failed_fetch += 1
        self._budget = budget
        return True

    async def _read_from_device(self) -> dict[FetchItem, Prefetched]:
        """The page cache lacks an index or the batches' headers: read them off the loop, then as usual."""
        prefetched: dict[FetchItem, Prefetched] = {}
        budget = self._max_bytes
        slices = Slices(self._fetch.runtime)
        for item in list(self._items.values()):
            await slices.breathe()
            partition = item.resolve(self._fetch.table, self._by_id)
            if partition is None or partition.log is None or not partition.is_copied or item.topic in self._denied:
                continue
            if budget <= 0 and budget != self._max_bytes:
                continue
            log = partition.log
            upto = partition.last_stable_offset if self._committed else partition.high_watermark
            if not log.start_offset <= item.fetch_offset < upto:
                continue
            try:
                found = await log.reader.read(
                    item.fetch_offset, min(item.max_bytes, budget), upto, min_one=budget == self._max_bytes
                )
                found = await log.reader.pass_empty(found, min(item.max_bytes, budget), upto)
                aborted = None
                if self._committed:
                    aborted = told_aborted(await log.aborted.find(found.first_offset, end_of(found, upto)))
            except (KafkaError, OSError) as error:
                # Where the log was deleted meanwhile, the second look finds that out before it comes to this.
                code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
                prefetched[item] = Prefetched(log, log.version, None, code)
                continue
            prefetched[item] = Prefetched(log, log.version, found, aborted=aborted)
            budget -= found.size
        return prefetched

    # ---- waiting

    def _may_park(self) -> bool:
        """Whether memory has room for one more that waits. If not it is answered with what there is."""
        most = limits.FETCH_WAITING_PARTITIONS_MAX
        return self._timer is not None or self._fetch.waiting_partitions + len(self._items) <= most

    def _begin_waiting(self) -> None:
        self._timer = self._fetch.runtime.call_later(self._wait_ms, self._timed_out)
        self._waiting_since_ms = self._fetch.runtime.now_ms()
        self._connection.on_lost = self._lost
        self._counted = len(self._items)
        self._fetch.waiting_partitions += self._counted

    def _park(self, items: Iterable[FetchItem]) -> None:
        """Be woken when one of these partitions moves on."""
        for item in items:
            partition = item.resolve(self._fetch.table, self._by_id)
            if partition is not None:
                partition.park(self, self._committed)
                self._parked.append(partition)

    def _end_waiting(self) -> None:
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
            self._connection.on_lost = None
            if self._slot is not None:
                # A long poll waits because its client asked for it: that is not latency.
                self._slot.arrived_ms += self._fetch.runtime.now_ms() - self._waiting_since_ms

    def _unpark(self, count: int) -> None:
        """Be woken no longer by so many of the partitions; the last time by all that are left."""
        parked = self._parked
        for _ in range(count):
            parked.pop().unpark(self)
        if not parked and self._counted:
            self._fetch.waiting_partitions -= self._counted
            self._counted = 0

    async def _unpark_in_slices(self, slices: Slices) -> None:
        while True:
            self._unpark(min(RUN, len(self._parked)))
            if not self._parked:
                return
            await slices.breathe()

    def advanced(self) -> None:
        self._again = True
        self._look_again()

    def _timed_out(self) -> None:
        self._wait_ms = 0
        self._look_again()

    def _look_again(self) -> None:
        if self._done or self._working:
            return
        # Called by the code that advanced the partition, which must not be affected by errors here.
        try:
            self.look()
        except Exception as error:
            self._connection.fail(error)

    def _lost(self) -> None:
        """The connection is gone."""
        if not self._done:
            self._end_waiting()
            left = self._unpark_in_slices(Slices(self._fetch.runtime))
            self._fetch.runtime.spawn(left, "end of a fetch")

    # ---- answering

    def _news(self, reads: Sequence[Read]) -> list[Read]:
        """Record what the client is told. An incremental session omits partitions without changes."""
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
                key = (item.topic, item.index)
                if key in self._items:
                    self._items[key] = self._items.pop(key)
        return news
