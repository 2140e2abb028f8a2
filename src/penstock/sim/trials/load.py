"""Producers and readers of one partition, and the ledger of what they were told.

A producer is idempotent, uses acks=all, has up to five requests in flight, and resends each batch to the current leader
until it is acknowledged. A reader starts at the beginning and never skips.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.sim.runtime import SimRuntime
from penstock.sim.trials.clients import PartitionClient
from penstock.wire.errors import ErrorCode, WireError
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest
from penstock.wire.messages.produce import TopicProduceData as TopicData
from penstock.wire.records import Record, build_batch, iter_batches, iter_records

__all__ = ["Ledger", "Producer", "Reader"]

IN_FLIGHT_MAX = 5
PRODUCE_TIMEOUT_MS = 2_000
PRODUCE_VERSION, FETCH_VERSION, INIT_VERSION = 12, 12, 4
RECORDS_BYTES_MAX = 1 << 22
TIMESTAMP_MS = 1_750_001_000_000

RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    # For a batch whose predecessor was refused, or from a former leader that does not know the predecessor.
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)


class Violation(AssertionError):
    """A guarantee was violated."""


@dataclass
class Ledger:
    """What the clients of one partition were told."""

    topic: str
    partition: int
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """Acknowledged values, by offset."""
    sent: dict[bytes, None] = field(default_factory=dict)
    read: dict[int, bytes] = field(default_factory=dict)
    over: bool = False
    rotten: Callable[[], list[int]] = list
    """Nodes with undetected bit rot: what they send may not match its checksum."""
    seen: Counter[str] = field(default_factory=Counter)

    def acknowledge(self, offset: int, value: bytes) -> None:
        if self.acknowledged.setdefault(offset, value) != value:
            raise Violation(f"{self}: offset {offset} was acknowledged for {self.acknowledged[offset]!r} and {value!r}")
        self.check_read(offset, value)

    def saw(self, offset: int, value: bytes) -> None:
        if self.read.setdefault(offset, value) != value:
            raise Violation(f"{self}: {self.read[offset]!r} was read at {offset}, and then {value!r}")
        if value not in self.sent:
            raise Violation(f"{self}: {value!r} was read at {offset} and never sent")
        known = self.acknowledged.get(offset, value)
        if known != value:
            raise Violation(f"{self}: {known!r} was acknowledged at {offset}, but {value!r} is read")

    def check_read(self, offset: int, value: bytes) -> None:
        if self.read.get(offset, value) != value:
            raise Violation(f"{self}: {value!r} is acknowledged at {offset}, but {self.read[offset]!r} was read")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass
class Batch:
    number: int
    sequence: int
    values: list[bytes]
    epochs: list[int] = field(default_factory=list)
    """The leader epochs in which it was sent."""


class Producer:
    """Runs until the ledger is over, and then until everything is acknowledged."""

    def __init__(self, client: PartitionClient, ledger: Ledger, pause_ms: float) -> None:
        self._client = client
        self._ledger = ledger
        self._pause_ms = pause_ms
        self._runtime: SimRuntime = client.runtime
        self._pending: list[Batch] = []
        self._sequence = 0
        self._made = 0
        self._id = -1
        self.refused: Counter[str] = Counter()

    async def run(self) -> None:
        rng = self._runtime.rng
        while self._id < 0:
            await self._register()
        while self._pending or not self._ledger.over:
            if not self._ledger.over:
                for _ in range(rng.choice((1, 1, 1, 2, IN_FLIGHT_MAX))):
                    self._make()
            try:
                acknowledged = await self._send()
            except OSError:
                acknowledged = False
            if acknowledged:
                await self._runtime.sleep(rng.uniform(0, 2 * self._pause_ms))
            else:
                self._client.doubt()
                self._ledger.seen["retry"] += 1
                await self._runtime.sleep(rng.uniform(5, 150))

    async def _register(self) -> None:
        try:
            answer = await self._client.call(
                self._client.any_broker(), InitProducerIdRequest(transactional_id=None), INIT_VERSION
            )
        except OSError:
            answer = None
        if answer is not None and not answer.error_code:
            self._id = answer.producer_id
        else:
            await self._runtime.sleep(100)

    def _make(self) -> None:
        # A broker remembers the last five batches of a producer: the oldest pending one must be among them.
        if not self._pending or self._made - self._pending[0].number < IN_FLIGHT_MAX:
            count = self._runtime.rng.choice((1, 1, 3))
            values = [b"%d-%06d" % (self._id, self._sequence + number) for number in range(count)]
            self._ledger.sent.update(dict.fromkeys(values))
            self._pending.append(Batch(self._made, self._sequence, values))
            self._sequence += count
            self._made += 1

    async def _send(self) -> bool:
        """Sends all pending batches at once, in order; returns whether all were acknowledged."""
        client = self._client
        leader = await client.find_leader()
        epoch = client.leader_epoch
        connection = await client.connection(leader)
        answers = []
        for batch in self._pending:
            batch.epochs.append(epoch)
            answers.append((batch, connection.send(self._request(batch), PRODUCE_VERSION)))
        lost: OSError | None = None
        for batch, answer in answers:
            try:
                response = await client.within(leader, connection, answer)
            except OSError as error:
                lost = error
                continue
            self._take(batch, response.responses[0].partition_responses[0])
        if lost is not None:
            raise lost
        return not self._pending

    def _take(self, batch: Batch, result: PartitionProduceResponse) -> None:
        if result.error_code:
            code = ErrorCode(result.error_code)
            self.refused[code.name] += 1
            if code not in RETRIABLE:
                raise Violation(f"{self._ledger}: {code.name} for batch {batch.sequence} of producer {self._id}")
            return
        for number, value in enumerate(batch.values):
            self._ledger.acknowledge(result.base_offset + number, value)
        self._pending.remove(batch)
        if len(batch.epochs) > 1:
            self._ledger.seen["retried and acknowledged"] += 1
            if batch.epochs[0] != batch.epochs[-1]:
                self._ledger.seen["retry across a leader change"] += 1

    def _request(self, batch: Batch) -> ProduceRequest:
        records = build_batch(
            [Record(timestamp=TIMESTAMP_MS + number, value=value) for number, value in enumerate(batch.values)],
            producer_id=self._id,
            producer_epoch=0,
            base_sequence=batch.sequence,
        )
        entry = PartitionProduceData(index=self._client.partition, records=records)
        return ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicData(name=self._client.topic, partition_data=[entry])],
        )


class Reader:
    """Reads in order, sometimes again from an earlier offset, and reports any gap."""

    def __init__(self, client: PartitionClient, ledger: Ledger, pause_ms: float) -> None:
        self._client = client
        self._ledger = ledger
        self._pause_ms = pause_ms
        self.offset = 0
        self.high_watermark = 0

    async def run(self) -> None:
        rng = self._client.runtime.rng
        while not self._ledger.over:
            if rng.random() < 0.02:
                self.offset = rng.randint(0, self.offset)
            await self.step(rng.choice((0, 200, 500)))
            await self._client.runtime.sleep(rng.uniform(1, 2 * self._pause_ms))

    async def read_to_the_end(self) -> list[bytes]:
        """All records of the partition."""
        self.offset = 0
        found: list[bytes] = []
        while True:
            values = await self.step(0)
            if values is None:
                await self._client.runtime.sleep(50)
            elif values:
                found += values
            else:
                return found

    async def step(self, max_wait_ms: int) -> list[bytes] | None:
        """The records of one fetch; None after an error or without a response."""
        client = self._client
        try:
            leader = await client.find_leader()
            answer = await client.call(leader, self._request(max_wait_ms), FETCH_VERSION)
        except OSError:
            client.doubt()
            return None
        data = answer.responses[0].partitions[0]
        if data.error_code:
            code = ErrorCode(data.error_code)
            if code not in RETRIABLE:
                raise Violation(f"{self._ledger}: {code.name} for a fetch of {self.offset} from node {leader}")
            client.doubt()
            return None
        self.high_watermark = data.high_watermark
        try:
            return self._take(data.records or b"", data.high_watermark)
        except WireError as error:
            if leader not in self._ledger.rotten():
                said = f"{self._ledger}: node {leader} sent an invalid batch at {self.offset}: {error}"
                raise Violation(said) from error
            self._ledger.seen["rot met"] += 1
            client.doubt()
            return None

    def _take(self, records: bytes, high_watermark: int) -> list[bytes]:
        values = []
        for _, view in iter_batches(records):
            # Decode everything before any of it counts: a checksum may be wrong.
            for record in list(iter_records(view, max_decompressed_bytes=RECORDS_BYTES_MAX)):
                if record.offset < self.offset:
                    continue
                if record.offset != self.offset:
                    raise Violation(f"{self._ledger}: {record.offset} was read where {self.offset} was expected")
                if record.offset >= high_watermark:
                    raise Violation(f"{self._ledger}: {record.offset} was read, high watermark {high_watermark}")
                value = bytes(record.value or b"")
                self._ledger.saw(record.offset, value)
                values.append(value)
                self.offset += 1
        return values

    def _request(self, max_wait_ms: int) -> FetchRequest:
        entry = FetchPartition(
            partition=self._client.partition,
            fetch_offset=self.offset,
            partition_max_bytes=1 << 20,
            # A client that knows a newer leader must not be served by an older one (KIP-320).
            current_leader_epoch=self._client.leader_epoch,
        )
        return FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic=self._client.topic, partitions=[entry])]
        )
