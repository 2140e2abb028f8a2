"""Fetch (1) from followers: the next records of the partitions that they copy from this broker.

Served: v15–v18, which carry the incarnation of the broker that asks (KIP-903); followers of this release speak them.

- A follower's fetch is also its acknowledgement: it has all records before the fetch offset. So before it counts, the
  epoch of its last record is compared with the log (KIP-320); if the logs diverge, the answer says where.
- A follower reads up to the end of the log. Bytes above the high watermark are copied when the answer is made: should
  this broker lose the leadership they may be cut off and replaced, and a slice would then send something else.
- The session (`penstock.broker.fetch.replica_sessions`) knows which partitions are due. An answer looks at no others.
- A fetch that waits is answered at once when its follower sends another one in the same session, over another
  connection: it has something to ask that should not wait (a partition it has just begun to follow).
- A follower may learn of a new leader epoch before the leader does. Its fetch then waits until the leader knows it too.
- While the replication throttle (`penstock.broker.replicas.throttles`) is used up, throttled partitions are not sent to
  followers that are out of sync.
- If consumers may read from followers (KIP-392), an advanced high watermark is sent at once, as in Kafka.
- A replica must be a registered broker and send the epoch of its registration; a partition is served to its replicas
  only.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker import limits
from penstock.broker.fetch.replica_sessions import ReplicaItem, ReplicaSession, ReplicaSessions
from penstock.broker.fetch.response import Read, encode, encode_error, release
from penstock.broker.fetch.sessions import NO_SESSION, FetchItem, diverging_epoch
from penstock.broker.net.connection import Connection, Slot
from penstock.broker.net.outbox import Part
from penstock.broker.net.turns import FOLLOWER_WEIGHT
from penstock.broker.replicas.partition import Partition
from penstock.broker.replicas.partition_table import PartitionTable
from penstock.broker.replicas.throttles import Throttle
from penstock.log import DamagedSegment, Log, Slice
from penstock.metadata import MetadataImage
from penstock.replication import IsrProposal
from penstock.runtime import Runtime, Timer
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.fetch import FetchRequest

OLDEST_VERSION = 15


class ReplicaFetch:
    """Serves the Fetch requests of followers."""

    def __init__(
        self,
        runtime: Runtime,
        table: PartitionTable,
        node_id: int,
        image: Callable[[], MetadataImage],
        propose: Callable[[Partition, IsrProposal], None],
        throttle: Throttle,
        heard: Callable[[int], None],
        suspect: Callable[[Partition, int], None],
    ) -> None:
        """`heard` is told of every follower that asks for something, `suspect` of what one could not use."""
        self.runtime = runtime
        self.table = table
        self.node_id = node_id
        self.image = image
        self.propose = propose
        self.throttle = throttle
        self._heard = heard
        self.suspect = suspect
        self.sessions = ReplicaSessions(runtime.rng)
        self.bytes_sent = 0
        self.bytes_sent_of_moved = 0
        """To replicas that partitions are being moved to."""
        self.response_bytes_max = limits.FETCH_RESPONSE_BYTES_MAX

    def serve(
        self, connection: Connection, version: int, correlation_id: int, request: FetchRequest, replica_id: int
    ) -> None:
        try:
            replica_epoch = self._check_replica(request, version, replica_id)
            session = self.sessions.asked(request, replica_id, replica_epoch)
        except KafkaError as error:
            connection.send(encode_error(version, correlation_id, error.code))
            return
        self._heard(replica_id)
        connection.weight = FOLLOWER_WEIGHT
        PendingReplicaFetch(self, connection, version, correlation_id, request, session).start()

    def _check_replica(self, request: FetchRequest, version: int, replica_id: int) -> int:
        """The epoch of a broker that is who it says it is. Raises KafkaError."""
        if version < OLDEST_VERSION or request.replica_state is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "a replica must state its epoch: Fetch v15 or newer")
        broker = self.image().broker(replica_id)
        if broker is None:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{replica_id} is not a broker of this cluster")
        if broker.epoch != request.replica_state.replica_epoch:
            # One of them has not heard of its latest registration; or it is someone else.
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        return broker.epoch

    # ---- throttling

    def holds_up(self, item: ReplicaItem, partition: Partition) -> bool:
        leader, throttle = partition.leader, self.throttle
        if leader is None or item.session.replica_id in leader.isr or not throttle.holds_up(partition):
            return False
        throttle.when_free(item.session.look_again)
        return True

    def count(self, item: ReplicaItem, size_bytes: int) -> None:
        partition = item.partition
        assert partition is not None
        self.bytes_sent += size_bytes
        if partition.state is not None and item.session.replica_id in partition.state.adding:
            self.bytes_sent_of_moved += size_bytes
        self.throttle.count(partition, size_bytes)

    # ---- one partition

    def is_early(self, item: ReplicaItem, partition: Partition) -> bool:
        """Whether the fetch has a leader epoch that this broker does not know yet, or its log is not open yet."""
        if partition.leader is not None or partition.leader_id != self.node_id:
            return item.leader_epoch > partition.leader_epoch
        return item.leader_epoch >= partition.leader_epoch

    def acknowledge(self, item: ReplicaItem, partition: Partition) -> Read | None:
        """Process the follower's state in its fetch. Returns an answer if no records need to be read. Raises
        KafkaError."""
        log, leader = partition.led()
        partition.check_epoch(item.leader_epoch)
        if item.leader_epoch < 0:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        session = item.session
        if session.replica_id not in leader.followers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{session.replica_id} is no replica of {partition}")
        offset = item.fetch_offset
        if offset < log.start_offset:
            return Read(item, ErrorCode.OFFSET_OUT_OF_RANGE, leader.high_watermark, log.start_offset, None)
        diverging = compare(log, item)
        if diverging is not None:
            return Read(item, 0, leader.high_watermark, log.start_offset, None, diverging=diverging)
        broker = self.image().broker(session.replica_id)
        eligible = broker is not None and broker.active and broker.epoch == session.replica_epoch
        now_ms = self.runtime.now_ms()
        proposal = partition.fetched_by(session.replica_id, offset, now_ms, session.replica_epoch, eligible)
        leader.followers[session.replica_id].log_start = item.log_start
        if proposal is not None:
            self.propose(partition, proposal)
        item.is_new = False
        if offset == item.sent_offset:
            self.suspect(partition, offset)
        return None


class PendingReplicaFetch:
    """One fetch of a follower on its way: look at what is due, wait if there is too little, answer."""

    __slots__ = (
        "_connection",
        "_copies",
        "_correlation_id",
        "_done",
        "_fetch",
        "_max_bytes",
        "_min_bytes",
        "_number",
        "_reading",
        "_session",
        "_slot",
        "_timer",
        "_version",
        "_wait_ms",
    )

    def __init__(
        self,
        fetch: ReplicaFetch,
        connection: Connection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        session: ReplicaSession,
    ) -> None:
        self._fetch = fetch
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._session = session
        self._number = session.number
        self._min_bytes = request.min_bytes
        self._max_bytes = max(min(request.max_bytes, fetch.response_bytes_max), 0)
        self._wait_ms = float(request.max_wait_ms)
        self._slot: Slot | None = None
        self._timer: Timer | None = None
        self._done = False
        self._reading = False
        self._copies: dict[ReplicaItem, tuple[Log, int, Slice, bytes | bytearray]] = {}
        """What had to come from the device, good as long as its log has not been cut: (log, version, where, bytes)."""

    def start(self) -> None:
        earlier, self._session.waiting = self._session.waiting, self
        if earlier is not None:
            earlier.cut_short()
        self._look()

    def advanced(self) -> None:
        """Something is due."""
        if self._done or self._reading:
            return
        try:
            self._look()
        except Exception as error:
            # Called by the code that appended, which must not be affected by errors here.
            self._connection.fail(error)

    def cut_short(self) -> None:
        """Its follower has more to ask, or the session ends: answer now."""
        self._wait_ms = 0.0
        self.advanced()

    def _timed_out(self) -> None:
        self._wait_ms = 0.0
        self.advanced()

    def _look(self) -> None:
        reads = self._read()
        if reads is None:
            self._defer()
            self._reading = True
            self._fetch.runtime.spawn(self._connection.serving(self._read_cold()), "replica fetch from the device")
        elif self._wait_ms <= 0 or self._enough(reads):
            self._answer(reads)
        else:
            for read in reads:
                if is_news(read):
                    self._session.due[_item(read)] = None
            release(reads)
            self._copies.clear()
            self._defer()
            if self._timer is None:
                self._timer = self._fetch.runtime.call_later(self._wait_ms, self._timed_out)

    def _defer(self) -> None:
        if self._slot is None:
            self._slot = self._connection.defer(barrier=True)
            self._connection.on_lost = self._lost

    def _lost(self) -> None:
        """The connection is closed. The fetch stays due: the follower may come back on another connection."""
        self._finish()

    def _finish(self) -> None:
        self._done = True
        if self._session.waiting is self:
            self._session.waiting = None
        if self._timer is not None:
            self._timer.cancel()
        if self._slot is not None:
            self._connection.on_lost = None
        if self._session.session_id == NO_SESSION:
            self._session.leave()

    # ---- reading

    def _read(self) -> list[Read] | None:
        """Read the due partitions and clear their mark. None: something must be read from the device first."""
        fetch, session = self._fetch, self._session
        due, session.due = session.due, {}
        budget = self._max_bytes
        reads: list[Read] = []
        for item in due:
            if not item.is_asked:
                continue
            if item.number > self._number:
                session.due[item] = None
                continue
            known = item.partition
            partition = item.resolve(fetch.table, True)
            if partition is None:
                unknown = fetch.table.by_id.get(item.topic) is None
                code = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                reads.append(Read(item, code, -1, -1, None))
                continue
            if partition is not known:
                item.join(partition)
            try:
                if fetch.is_early(item, partition):
                    continue
                answer = fetch.acknowledge(item, partition) if item.is_new else None
                if answer is not None:
                    reads.append(answer)
                    continue
                log, leader = partition.led()
                partition.check_epoch(item.leader_epoch)
                found: Slice | None = None
                if item.fetch_offset < log.end_offset and fetch.holds_up(item, partition):
                    session.due[item] = None
                    continue
                if item.fetch_offset < log.end_offset and (budget > 0 or budget == self._max_bytes):
                    found = self._slice(item, log, budget)
                    if found is None:
                        release(reads)
                        session.due = {**due, **session.due}
                        return None
                    if not found.size:
                        session.due[item] = None
                        continue
                    found.file.retain()
                    budget -= found.size
                elif item.fetch_offset < log.end_offset:
                    session.due[item] = None  # there is no room for it in this answer
                    continue
                reads.append(Read(item, 0, leader.high_watermark, log.start_offset, found))
            except (KafkaError, OSError) as error:
                if isinstance(error, DamagedSegment):
                    fetch.suspect(partition, item.fetch_offset)
                code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
                reads.append(Read(item, code, -1, -1, None))
        return reads

    def _slice(self, item: ReplicaItem, log: Log, budget: int) -> Slice | None:
        copied = self._copies.get(item)
        if copied is not None:
            if copied[0] is log and copied[1] == log.version:
                return copied[2]
            del self._copies[item]
        first = budget == self._max_bytes
        found = log.reader.try_read(item.fetch_offset, min(item.max_bytes, budget), log.end_offset, min_one=first)
        if found is None or 0 <= found.next_offset <= _committed(item):
            return found
        data = bytearray(found.size)
        if found.file.try_pread_into(memoryview(data), found.position) < found.size:
            return None
        self._copies[item] = log, log.version, found, data
        return found

    async def _read_cold(self) -> None:
        """The page cache lacks an index or the batches: read them off the loop, then as usual."""
        budget = self._max_bytes
        for item in list(self._session.due):
            partition = item.partition
            if partition is None or partition.log is None or partition.leader is None or budget <= 0:
                continue
            if self._fetch.holds_up(item, partition):
                continue
            log = partition.log
            if not log.start_offset <= item.fetch_offset < log.end_offset:
                continue
            version = log.version
            try:
                found = await log.reader.read(item.fetch_offset, min(item.max_bytes, budget), log.end_offset)
                data = await found.file.pread(found.size, found.position)
            except (KafkaError, OSError):
                continue  # the second look finds out why
            if log.version == version and len(data) == found.size:
                self._copies[item] = log, version, found, data
            budget -= found.size
        self._reading = False
        if not self._done and not self._connection.closed:
            self._look()

    def _enough(self, reads: list[Read]) -> bool:
        total = 0
        for read in reads:
            item = read.item
            if read.error or read.diverging is not None or -1 < item.told_log_start < read.log_start:
                return True
            if self._session.tells_high_watermarks and item.told_high_watermark != read.high_watermark:
                return True
            if read.slice is not None:
                total += read.slice.size
        return total > 0 and total >= self._min_bytes

    # ---- answering

    def _answer(self, reads: list[Read]) -> None:
        self._finish()
        told: list[Read] = []
        for read in reads:
            item = _item(read)
            if not is_news(read):
                continue
            if read.error or read.diverging is not None or read.slice is not None:
                item.is_asked = False
            item.told_high_watermark = read.high_watermark
            item.told_log_start = read.log_start
            told.append(read)
            if read.slice is not None:
                item.sent_offset = item.fetch_offset
                self._fetch.count(item, read.slice.size)
        parts, _ = encode(self._version, self._correlation_id, self._session.session_id, told)
        parts = self._with_copies(parts, told)
        if self._slot is None:
            self._connection.send_parts(parts)
        else:
            self._slot.send(parts)

    def _with_copies(self, parts: list[Part], reads: list[Read]) -> list[Part]:
        """Replace slices by their copies, where there are copies."""
        copies = iter([self._copies.get(_item(read)) for read in reads if read.slice is not None])
        out: list[Part] = []
        for part in parts:
            copy = next(copies) if isinstance(part, Slice) else None
            if isinstance(part, Slice) and copy is not None and copy[2] is part:
                part.file.release()
                out.append(copy[3])
            else:
                out.append(part)
        return out


def is_news(read: Read) -> bool:
    item = read.item
    return bool(
        read.error
        or read.diverging is not None
        or read.slice is not None
        or item.told_high_watermark != read.high_watermark
        or item.told_log_start != read.log_start
    )


def compare(log: Log, item: FetchItem) -> tuple[int, int] | None:
    """Where the follower's log diverges from the leader's, if it does: (epoch, its end in this log)."""
    if item.last_fetched_epoch >= 0:
        return diverging_epoch(log.epoch_end_offset(item.last_fetched_epoch), item)
    # It has no records, and still begins beyond the end of this log.
    return (log.latest_epoch, log.end_offset) if item.fetch_offset > log.end_offset else None


def _item(read: Read) -> ReplicaItem:
    assert isinstance(read.item, ReplicaItem)
    return read.item


def _committed(item: ReplicaItem) -> int:
    """What no change of leadership takes back."""
    assert item.partition is not None
    return item.partition.high_watermark
