"""Drives a pure shard: virtual time, a log in memory, answers by ticket, and metadata that changes on demand.

driver = ShardDriver(GroupShard(GroupConfig()))
driver.create_topic("orders", partitions=4)
answer = driver.call(lambda turn, ticket: shard.heartbeat(turn, ticket, info, request))
driver.advance(45_000)          # timers fire in the order of their deadlines
answer.response                 # the message, or an assertion that says it is still due
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import NamedTuple, cast

from penstock.coordinators.shard import (
    AnswerCallback,
    CoordinatorEpoch,
    EndMarker,
    Key,
    Producer,
    Recipient,
    Shard,
    Ticket,
    TimerCallback,
    TimerKey,
    Turn,
)
from penstock.metadata import EMPTY_IMAGE, MetadataDelta, MetadataImage
from penstock.wire.codec import Message
from penstock.wire.messages import metadata_records as r

START_WALL_MS = 1_700_000_000_000


class Logged(NamedTuple):
    """A record that a shard appended."""

    offset: int
    key: bytes
    value: bytes | None


class Answer:
    """A ticket, and what came back for it."""

    __slots__ = ("_response",)

    def __init__(self) -> None:
        self._response: Message | None = None

    @property
    def done(self) -> bool:
        return self._response is not None

    @property
    def response(self) -> Message:
        assert self._response is not None, "there is no answer yet"
        return self._response

    def give(self, response: Message) -> None:
        assert self._response is None, "a ticket is answered once"
        self._response = response


class FakeTurn:
    """One decision; everything goes to the driver at once."""

    __slots__ = ("_driver", "coordinator_epoch", "image", "now_ms", "size_bytes", "wall_ms")

    def __init__(self, driver: ShardDriver) -> None:
        self._driver = driver
        self.now_ms = driver.now_ms
        self.wall_ms = driver.wall_ms
        self.image = driver.image
        self.coordinator_epoch = CoordinatorEpoch(1)
        self.size_bytes = 0

    @property
    def end_offset(self) -> int:
        return self._driver.next_offset

    def append(self, key: bytes, value: bytes | None) -> None:
        assert type(key) is bytes
        assert value is None or type(value) is bytes
        self._driver.records.append(Logged(self._driver.next_offset, key, value))
        self._driver.next_offset += 1
        self.size_bytes += len(key) + len(value or b"")
        self._driver.turn_bytes_max = max(self._driver.turn_bytes_max, self.size_bytes)

    def append_all(self, records: list[tuple[bytes, bytes]]) -> None:
        for key, value in records:
            self.append(key, value)

    def append_as(self, producer: Producer, records: list[tuple[bytes, bytes]]) -> None:
        raise NotImplementedError("groups do not write transactions yet")

    def end_transaction(self, marker: EndMarker) -> None:
        raise NotImplementedError("groups do not write transactions yet")

    def ask(self, key: Key, recipient: Recipient, request: Message, then: AnswerCallback) -> None:
        self._driver.asks[key] = (recipient, request, then)

    def cancel_ask(self, key: Key) -> None:
        self._driver.asks.pop(key, None)

    def reply(self, ticket: Ticket, response: Message) -> None:
        assert isinstance(response, Message)
        cast(Answer, ticket).give(response)

    def set_timer(self, key: TimerKey, delay_ms: float, callback: TimerCallback) -> None:
        self._driver.set_timer(key, delay_ms, callback)

    def cancel_timer(self, key: TimerKey) -> None:
        self._driver.timers.pop(key, None)

    def uuid(self) -> bytes:
        return self._driver.rng.randbytes(16)


class ShardDriver:
    """What a host is to a shard, without a log, a network or a clock."""

    def __init__(self, shard: Shard, *, image: MetadataImage = EMPTY_IMAGE, seed: int = 1) -> None:
        self.shard = shard
        self.image = image
        self.rng = Random(seed)
        self.now_ms = 0.0
        self.records: list[Logged] = []
        self.next_offset = 0
        self.turn_bytes_max = 0
        """The most that one decision has appended: a host could not split it."""
        self.timers: dict[TimerKey, tuple[float, int, TimerCallback]] = {}
        self._heap: list[tuple[float, int, TimerKey]] = []
        self._sequence = 0
        self.asks: dict[Key, tuple[Recipient, Message, AnswerCallback]] = {}
        """Requests to other brokers that are not answered yet."""

    @property
    def wall_ms(self) -> int:
        return START_WALL_MS + int(self.now_ms)

    # -- requests ----------------------------------------------------------------------------------------------------

    def call(self, request: Callable[[Turn, Ticket], None]) -> Answer:
        """Hand a request to the shard; the answer may come later."""
        answer = Answer()
        request(self.turn(), answer)
        return answer

    def turn(self) -> Turn:
        return FakeTurn(self)

    def take_records(self) -> list[Logged]:
        """What was appended since this was last asked. The records stay in `records`' numbering, not in the list."""
        taken, self.records = self.records, []
        return taken

    def answer(self, key: Key, response: Message) -> None:
        """Another broker answers what the shard asked it."""
        _, _, then = self.asks.pop(key)
        then(self.turn(), key, response)

    # -- time --------------------------------------------------------------------------------------------------------

    def set_timer(self, key: TimerKey, delay_ms: float, callback: TimerCallback) -> None:
        assert delay_ms >= 0
        self._sequence += 1
        deadline = self.now_ms + delay_ms
        self.timers[key] = (deadline, self._sequence, callback)
        heapq.heappush(self._heap, (deadline, self._sequence, key))

    def advance(self, duration_ms: float) -> None:
        """Let time pass. Whatever is due on the way is called at its own time, ties in the order they were set."""
        end_ms = self.now_ms + duration_ms
        while self._heap and self._heap[0][0] <= end_ms:
            deadline, sequence, key = heapq.heappop(self._heap)
            timer = self.timers.get(key)
            if timer is None or timer[1] != sequence:
                continue
            del self.timers[key]
            self.now_ms = max(self.now_ms, deadline)
            timer[2](self.turn(), key)
        self.now_ms = end_ms

    def advance_to_next_timer(self) -> None:
        """Let as much time pass as the earliest timer needs."""
        assert self.timers, "nothing is due, ever"
        self.advance(min(deadline for deadline, _, _ in self.timers.values()) - self.now_ms)

    # -- metadata ----------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, *, replicas: tuple[int, ...] = (1,)) -> bytes:
        """A new topic; returns its id."""
        topic_id = self.rng.randbytes(16)
        self.change_metadata(
            r.TopicRecord(name=name, topic_id=topic_id),
            *(self._partition(topic_id, number, replicas) for number in range(partitions)),
        )
        return topic_id

    def add_partitions(self, name: str, count: int, *, replicas: tuple[int, ...] = (1,)) -> None:
        topic = self.image.topic(name)
        assert topic is not None
        first = len(topic.partitions)
        self.change_metadata(
            *(self._partition(topic.topic_id, number, replicas) for number in range(first, first + count))
        )

    def delete_topic(self, name: str) -> None:
        topic = self.image.topic(name)
        assert topic is not None
        self.change_metadata(r.RemoveTopicRecord(topic_id=topic.topic_id))

    def change_metadata(self, *records: r.MetadataRecord) -> None:
        """Apply metadata records and tell the shard."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.offset + len(records), 1)
        self.shard.on_image(self.turn(), delta)

    @staticmethod
    def _partition(topic_id: bytes, number: int, replicas: tuple[int, ...]) -> r.PartitionRecord:
        return r.PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=list(replicas),
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(15) + bytes((replica,)) for replica in replicas],
        )

    # -- loading -----------------------------------------------------------------------------------------------------

    def reload(self, shard: Shard, records: list[Logged] | None = None) -> ShardDriver:
        """A driver at the same time and metadata whose fresh shard has loaded this one's records."""
        driver = ShardDriver(shard, image=self.image, seed=self.rng.randrange(1 << 30))
        driver.now_ms = self.now_ms
        driver.next_offset = self.next_offset
        for record in self.records if records is None else records:
            shard.replay(record.offset, -1, -1, record.key, record.value)
        driver.records = list(self.records if records is None else records)
        shard.on_loaded(driver.turn())
        return driver
