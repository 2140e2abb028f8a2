"""The load: producers that number their records, and a group and a lone reader that report what they receive."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from penstock.chaos.copies import Stamps, headers
from penstock.chaos.ledger import Ledger, Name, decode, encode
from penstock.chaos.pauses import Pause, Pauses
from penstock.chaos.probe import PARTITIONS_MAX, Probe
from penstock.chaos.program import ProgramWriter
from penstock.client import EARLIEST, ClientError, ClientSettings, Cluster, PartitionRange, fetch_ranges
from penstock.client import TopicPartition as RawPartition
from penstock.client.closing import close_member

DELIVERY_TIMEOUT_MS: Final = 120_000
"""Longer than any fault is held: if a producer gave up earlier, the outcome of its records would be unknown."""
REQUEST_TIMEOUT_MS: Final = 4_000
"""Short, so that a producer that waits for a stopped leader soon turns to the next one and resends."""
LINGER_MS: Final = 5
SOCKET_MARGIN_MS: Final = 1_000
RECONNECT_BACKOFF_MAX_MS: Final = 500
POLL_S: Final = 0.1
SEND_EVERY_S: Final = 0.005
BEHIND_S: Final = 0.05
"""Callbacks are served at least this often, even while catching up."""
COMMIT_EVERY_S: Final = 0.5
WAIT_FOR_EVERY: Final = 4
"""One of this many commits is synchronous; the others are asynchronous."""
COMMIT_LIMIT_S: Final = 90.0
"""A commit that takes longer than any fault is reported: its member hangs and reads nothing."""
READ_AT_ONCE: Final = 1_000
SESSION_TIMEOUT_MS: Final = 10_000
HEARTBEAT_INTERVAL_MS: Final = 1_000
AUDIT_TIMEOUT_S: Final = 60.0


class Load:
    """All clients of a run. They report to the ledger under one lock."""

    def __init__(
        self,
        settings: Mapping[str, object],
        topic: str,
        group: str,
        *,
        partitions: int,
        producers: int,
        members: int,
        rate: float,
        value_bytes: int,
        group_protocol: str,
        producer_command: Sequence[str] = (),
    ) -> None:
        self.topic = topic
        self.group = group
        self._properties = settings
        self.settings = {"reconnect.backoff.max.ms": RECONNECT_BACKOFF_MAX_MS, "log_level": 0, **settings}
        self.ledger = Ledger(partitions, probes=[producers])
        self.pauses = Pauses(partitions)
        self.lock = threading.Lock()
        self.longest_commit_s = 0.0
        """The longest synchronous commit."""
        self.problems: list[str] = []
        """Errors that no client should see, whatever fails."""
        self.stop_sending = threading.Event()
        self.stop_reading = threading.Event()
        each, program = rate / producers, [*producer_command, topic, *self._program_properties()]
        self._writers: list[threading.Thread] = [
            ProgramWriter(self, number, each, value_bytes, program)
            if producer_command
            else Writer(self, number, each, value_bytes)
            for number in range(producers)
        ]
        self._probes = [
            Probe(self, settings, producers, partition) for partition in range(min(partitions, PARTITIONS_MAX))
        ]
        group_members = [Member(self, f"member {number + 1}", group_protocol) for number in range(members)]
        self._readers: list[threading.Thread] = [*group_members, Witness(self)]

    def _program_properties(self) -> list[str]:
        properties = {
            "bootstrap.servers": self.settings.get("bootstrap.servers", ""),
            "linger.ms": LINGER_MS,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
        }
        return [f"{name}={value}" for name, value in properties.items()]

    def start(self) -> None:
        for thread in (*self._readers, *self._writers, *self._probes):
            thread.start()

    def stop(self) -> None:
        self.stop_sending.set()
        self.stop_reading.set()
        for thread in (*self._writers, *self._probes, *self._readers):
            if thread.ident is not None:
                thread.join()

    def problem(self, text: str) -> None:
        with self.lock:
            if text not in self.problems:
                self.problems.append(text)

    def probed(self, name: Name, partition: int, offset: int | None) -> None:
        """Result of a probe: the offset of its record; None if it got no response or the record was refused."""
        with self.lock:
            if offset is None:
                self.ledger.failed(name, partition)
            else:
                self.ledger.acknowledged(name, partition, offset)

    def probe_waited_s(self, pause: Pause) -> float | None:
        """How long the probes of these partitions waited during this pause; None if no partition is probed."""
        probes = [self._probes[number] for number in pause.partitions if number < len(self._probes)]
        return max((one.waited_s(pause.start_s, pause.end_s) for one in probes), default=None)

    def committed_within(self, seconds: float, member: str) -> None:
        """A member finished a synchronous commit, successfully or not."""
        with self.lock:
            self.longest_commit_s = max(self.longest_commit_s, seconds)
        if seconds > COMMIT_LIMIT_S:
            self.problem(f"{member} hung in commit() for {seconds:.0f} s")

    def delivered(self, name: Name, partition: int, offset: int | None) -> None:
        """Result of a record: its offset, -1 if the offset is unknown, None if the producer gave up."""
        with self.lock:
            if offset is None:
                self.ledger.failed(name, partition)
                return
            self.ledger.acknowledged(name, partition, offset)
            self.pauses.acknowledged(partition, time.monotonic())

    # ---- the end

    def ends(self) -> list[int]:
        """The current end offset of each partition."""
        with self._plain_consumer() as consumer:
            return [
                consumer.get_watermark_offsets(TopicPartition(self.topic, number), timeout=30)[1]
                for number in range(self.ledger.partitions)
            ]

    def caught_up(self, ends: list[int]) -> bool:
        with self.lock:
            return all(
                self.ledger.reader(name).position(number) >= end
                for name in (GROUP, WITNESS)
                for number, end in enumerate(ends)
            )

    def stored(self, ends: list[int]) -> Iterator[tuple[int, int, Name | None]]:
        """All stored records, from the beginning."""
        with self._plain_consumer() as consumer:
            missing = {number for number, end in enumerate(ends) if end}
            consumer.assign([TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in sorted(missing)])
            deadline_s = time.monotonic() + AUDIT_TIMEOUT_S
            while missing:
                for message in consumer.consume(READ_AT_ONCE, timeout=1):
                    partition, offset, name = _told(message, self)
                    if partition < 0:
                        continue
                    yield partition, offset, name
                    deadline_s = time.monotonic() + AUDIT_TIMEOUT_S
                    if offset + 1 >= ends[partition]:
                        missing.discard(partition)
                if time.monotonic() > deadline_s:
                    self.problem(f"partitions {sorted(missing)} cannot be read to the end")
                    return

    def stamps(self, ends: list[int]) -> list[Stamps]:
        """The producer ids, epochs and sequences of the batches of each partition, as far as they can be read."""
        found = [Stamps() for _ in ends]
        try:
            with Cluster(ClientSettings.from_properties(self._properties)) as cluster:
                starts = cluster.list_offsets({RawPartition(self.topic, n): EARLIEST for n in range(len(ends))})
                ranges = [
                    PartitionRange(self.topic, number, starts[RawPartition(self.topic, number)].offset, end)
                    for number, end in enumerate(ends)
                ]
                for fetched in fetch_ranges(cluster, ranges):
                    for header in headers(fetched.records):
                        found[fetched.partition].add(header)
        except ClientError as error:
            self.problem(f"the batches that hold duplicates cannot be read: {error}")
        return found

    @contextmanager
    def _plain_consumer(self) -> Iterator[Consumer]:
        consumer = Consumer({**self.settings, "group.id": f"{self.group}-audit", "enable.auto.commit": False})
        try:
            yield consumer
        finally:
            consumer.close()


GROUP: Final = "group"
WITNESS: Final = "lone reader"


class Writer(threading.Thread):
    def __init__(self, load: Load, number: int, rate: float, value_bytes: int) -> None:
        super().__init__(name=f"producer {number}", daemon=True)
        self._load = load
        self._number = number
        self._pause_s = 1 / rate
        self._padding = b" " * value_bytes
        self._producer = Producer(
            {
                "linger.ms": LINGER_MS,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS + SOCKET_MARGIN_MS,
                **load.settings,
                "enable.idempotence": True,
                "acks": "all",
            }
        )

    def run(self) -> None:
        load, partition = self._load, self._number % self._load.ledger.partitions
        next_s = time.monotonic()
        while not load.stop_sending.is_set():
            self._send(partition)
            partition = (partition + 1) % load.ledger.partitions
            # After a fault the backlog is sent at once, as real producers do.
            next_s += self._pause_s
            left_s = next_s - time.monotonic()
            # Sleep only every few records: at thousands per second a sleep for each would cost more than the record.
            if left_s >= min(self._pause_s, SEND_EVERY_S) or left_s < -BEHIND_S:
                self._producer.poll(max(0.0, left_s))
        self._producer.flush(DELIVERY_TIMEOUT_MS / 1000)

    def _send(self, partition: int) -> None:
        load = self._load
        with load.lock:
            name = load.ledger.sent(self._number, partition)
        value = encode(name).ljust(len(self._padding))
        while True:
            try:
                self._producer.produce(
                    load.topic, value, partition=partition,
                    on_delivery=lambda error, message: self._delivered(name, partition, error, message),
                )  # fmt: skip
            except BufferError:
                self._producer.poll(POLL_S)
            except KafkaException as error:
                load.problem(f"producer {self._number} cannot continue: {error.args[0].str()}")
                with load.lock:
                    load.ledger.failed(name, partition)
                load.stop_sending.wait(POLL_S)
                return
            else:
                return

    def _delivered(self, name: Name, partition: int, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        self._load.delivered(name, partition, None if error is not None else -1 if offset is None else offset)


class Member(threading.Thread):
    """One consumer of the group."""

    def __init__(self, load: Load, name: str, group_protocol: str) -> None:
        super().__init__(name=name, daemon=True)
        self._load = load
        self._reader = load.ledger.reader(GROUP)
        self._protocol: dict[str, object] = (
            {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS}
            if group_protocol == "classic"
            else {"group.protocol": "consumer"}
        )
        self._consumer = Consumer(
            {
                **self._protocol,
                **load.settings,
                "group.id": load.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "on_commit": self._committed,
            }
        )

    def run(self) -> None:
        consumer, load = self._consumer, self._load
        consumer.subscribe([load.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        next_commit_s, commits = time.monotonic() + COMMIT_EVERY_S, 0
        while not load.stop_reading.is_set():
            _take(consumer, load, GROUP, self.name)
            if time.monotonic() >= next_commit_s:
                commits += 1
                self._commit(wait=commits % WAIT_FOR_EVERY == 0)
                next_commit_s = time.monotonic() + COMMIT_EVERY_S
        close_member(consumer, self._protocol)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        with self._load.lock:
            for one in partitions:
                self._reader.assigned(self.name, one.partition)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit(wait=True)
        with self._load.lock:
            for one in partitions:
                self._reader.revoked(self.name, one.partition)

    def _commit(self, *, wait: bool) -> None:
        # A commit may fail during a rebalance or without a coordinator; the next one will succeed.
        with suppress(KafkaException):
            positions = [one for one in self._consumer.position(self._consumer.assignment()) if one.offset >= 0]
            if positions and wait:
                began_s = time.monotonic()
                try:
                    done = self._consumer.commit(offsets=positions, asynchronous=False)
                finally:
                    self._load.committed_within(time.monotonic() - began_s, self.name)
                self._committed(None, done or [])
            elif positions:
                self._consumer.commit(offsets=positions, asynchronous=True)

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if error is not None:
            return
        with self._load.lock:
            for one in partitions:
                if one.error is None and one.offset >= 0:
                    self._reader.committed(one.partition, one.offset)


class Witness(threading.Thread):
    """Reads everything without a group: nothing is ever reassigned, so it must never go back."""

    def __init__(self, load: Load) -> None:
        super().__init__(name=WITNESS, daemon=True)
        self._load = load
        self._consumer = Consumer(
            {
                **load.settings,
                "group.id": f"{load.group}-witness",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )

    def run(self) -> None:
        load, numbers = self._load, range(self._load.ledger.partitions)
        with load.lock:
            for number in numbers:
                load.ledger.reader(WITNESS).assigned(self.name, number)
        self._consumer.assign([TopicPartition(load.topic, number, 0) for number in numbers])
        while not load.stop_reading.is_set():
            _take(self._consumer, load, WITNESS, self.name)
        self._consumer.close()


def _take(consumer: Consumer, load: Load, reader: str, member: str) -> None:
    messages = [_told(message, load) for message in consumer.consume(READ_AT_ONCE, timeout=POLL_S)]
    with load.lock:
        account = load.ledger.reader(reader)
        for partition, offset, name in messages:
            if partition >= 0:
                account.read(member, partition, offset, name)


_FATAL = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}


def _told(message: Message, load: Load) -> tuple[int, int, Name | None]:
    """Partition, offset and name; a negative partition if the message is not a record."""
    error = message.error()
    partition, offset = message.partition(), message.offset()
    if error is not None:
        if error.code() in _FATAL:
            load.problem(f"a reader of partition {partition} got the error: {error.str()}")
        return -1, -1, None
    assert partition is not None
    assert offset is not None
    return partition, offset, decode(message.value())
