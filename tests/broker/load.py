"""Producers and readers that continue whatever happens to the broker, and record its responses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from broker.session import batch, fetch_request, produce_request, records_of
from penstock.sim import SimRuntime
from penstock.sim.broker import ProtocolClient, SimBroker
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.init_producer_id import InitProducerIdRequest

IN_FLIGHT_MAX = 5
RECONNECT_MS = 20
ANSWER_LIMIT_MS = 3_000
RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
)


async def connect(runtime: SimRuntime, node: SimBroker) -> ProtocolClient:
    """Connect, however long it takes."""
    while True:
        try:
            return await ProtocolClient.connect(runtime, node)
        except (OSError, TimeoutError):
            await runtime.sleep(RECONNECT_MS)


@dataclass
class Sent:
    sequence: int
    value: bytes
    records: bytes


@dataclass
class IdempotentProducer:
    """Sends numbered records to one partition, five requests in flight, each until it is acknowledged."""

    runtime: SimRuntime
    node: SimBroker
    name: str
    topic: str
    partition: int
    rng: Random
    total: int
    acks: int = -1
    pause_ms: float = 5.0
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Value to offset."""
    retries: int = 0
    is_done: bool = False

    async def run(self) -> None:
        self.producer_id = await self._producer_id()
        unsent: deque[Sent] = deque(self._batch(number) for number in range(self.total))
        in_flight: deque[Sent] = deque()
        while unsent or in_flight:
            # What has no answer goes first again, in its order.
            unsent.extendleft(reversed(in_flight))
            in_flight.clear()
            client = await connect(self.runtime, self.node)
            try:
                await self._talk(client, unsent, in_flight)
            except (ConnectionError, TimeoutError):
                self.retries += 1
            client.frames.abort()
            await self.runtime.sleep(RECONNECT_MS * self.rng.random())
        self.is_done = True

    async def _talk(self, client: ProtocolClient, unsent: deque[Sent], in_flight: deque[Sent]) -> None:
        answers: deque[object] = deque()
        while unsent or in_flight:
            while unsent and len(in_flight) < IN_FLIGHT_MAX:
                sent = unsent.popleft()
                in_flight.append(sent)
                request = produce_request(self.topic, sent.records, self.partition, self.acks, timeout_ms=2_000)
                answers.append(client.send(request, 12))
                if self.rng.random() < 0.5:
                    break
            (part,) = (await within(self.runtime, client, answers.popleft())).responses[0].partition_responses
            if part.error_code in RETRIABLE:
                raise ConnectionResetError("try again")
            assert part.error_code == 0, f"{self.name}: {part}"
            first = in_flight.popleft()
            self.acknowledged[first.value] = part.base_offset
            await self.runtime.sleep(self.pause_ms * self.rng.random())

    async def _producer_id(self) -> int:
        while True:
            client = await connect(self.runtime, self.node)
            try:
                answer = client.send(InitProducerIdRequest(transactional_id=None), 4)
                return int((await within(self.runtime, client, answer)).producer_id)
            except (ConnectionError, TimeoutError):
                await self.runtime.sleep(RECONNECT_MS)
            finally:
                client.frames.abort()

    def _batch(self, sequence: int) -> Sent:
        value = b"%s-%06d" % (self.name.encode(), sequence)
        records = batch(value, producer_id=self.producer_id, epoch=0, sequence=sequence)
        return Sent(sequence, value, records)


@dataclass
class PlainProducer:
    """Sends each record once, and records the offsets of those that were acknowledged."""

    runtime: SimRuntime
    node: SimBroker
    name: str
    topic: str
    partition: int
    rng: Random
    total: int
    acks: int = 1
    pause_ms: float = 5.0
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    is_done: bool = False

    async def run(self) -> None:
        sequence = 0
        while sequence < self.total:
            client = await connect(self.runtime, self.node)
            try:
                while sequence < self.total:
                    value = b"%s-%06d" % (self.name.encode(), sequence)
                    sequence += 1
                    request = produce_request(self.topic, batch(value), self.partition, self.acks, timeout_ms=2_000)
                    answer = await within(self.runtime, client, client.send(request, 12))
                    (part,) = answer.responses[0].partition_responses
                    if part.error_code == 0:
                        self.acknowledged[value] = part.base_offset
                    else:
                        assert part.error_code in RETRIABLE, part
                    await self.runtime.sleep(self.pause_ms * self.rng.random())
            except (ConnectionError, TimeoutError):
                await self.runtime.sleep(RECONNECT_MS * self.rng.random())
            client.frames.abort()
        self.is_done = True


@dataclass
class Reader:
    """Reads a partition as it grows, again from its beginning after every disconnect, and compares."""

    runtime: SimRuntime
    node: SimBroker
    topic: str
    partition: int
    seen: dict[int, bytes] = field(default_factory=dict)
    stop: bool = False

    async def run(self) -> None:
        while not self.stop:
            client = await connect(self.runtime, self.node)
            offset = 0
            try:
                while not self.stop:
                    request = fetch_request(self.topic, offset, self.partition, max_wait_ms=200, min_bytes=1)
                    answer = await within(self.runtime, client, client.send(request, 12))
                    data = answer.responses[0].partitions[0]
                    if data.error_code:
                        await self.runtime.sleep(RECONNECT_MS)
                        continue
                    for record in records_of(data):
                        if record.offset >= offset:
                            assert record.value is not None
                            known = self.seen.setdefault(record.offset, record.value)
                            assert known == record.value, f"offset {record.offset} was {known!r}, is {record.value!r}"
                            offset = record.offset + 1
            except (ConnectionError, TimeoutError):
                await self.runtime.sleep(RECONNECT_MS)
            client.frames.abort()


async def within(runtime: SimRuntime, client: ProtocolClient, answer: Any) -> Any:
    """The response; ConnectionError if it takes too long: a broker without power sends nothing, not even a reset."""
    timer = runtime.call_later(ANSWER_LIMIT_MS, client.frames.abort)
    try:
        return await answer
    finally:
        timer.cancel()
