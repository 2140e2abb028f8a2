"""Scenes from the life of a transactional id, played to a Penstock broker and to Apache Kafka: both must say the same.

Producer ids differ between brokers, so they become names in the order of their appearance. Answers that depend on how
fast markers are written are not compared: each scene waits until a transaction is complete.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

import pytest

from penstock.wire.apis import api_named
from penstock.wire.codec import Message, decode, encode
from penstock.wire.errors import ErrorCode
from penstock.wire.headers import has_tagged_response_header, write_request_header
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.apache_kafka import SHORT_LIVED, ApacheKafka, available
from support.penstock import PenstockServer

pytestmark = [
    pytest.mark.needs_maven,
    pytest.mark.xdist_group("transactions of Apache Kafka"),
    pytest.mark.timeout(300),
]

SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
}
PATIENCE_S = 60
TRANSIENT = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
)
NOBODY = (-1, -1)
Producer = tuple[int, int]
_SIZE = Struct(">i")


class Wire:
    """One connection that speaks the protocol, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)

    def call(self, request: Message, version: int) -> Any:
        api = api_named(type(request).__name__.removesuffix("Request"))
        out = bytearray(4)
        write_request_header(out, api.key, version, 7, "scenes")
        encode(request, version, out)
        _SIZE.pack_into(out, 0, len(out) - 4)
        self._socket.sendall(out)
        (size,) = _SIZE.unpack(self._read(4))
        frame = self._read(size)
        return decode(api.response, version, frame, 4 + has_tagged_response_header(api.key, version))[0]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data


class Scene:
    """What happens in one world, as plain values."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.wire = wire
        self.name = name
        self.said: list[object] = []
        self._ids: dict[int, str] = {-1: "none"}

    def note(self, what: str, code: int, *more: object) -> None:
        self.said.append((what, ErrorCode(code).name, *more))

    def known(self, producer_id: int) -> str:
        return self._ids.setdefault(producer_id, f"id {len(self._ids)}")

    def settled(self, ask: Callable[[], Any], code_of: Callable[[Any], int]) -> Any:
        """The answer, when it is none of those that only say «not yet»."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = ask()
            if ErrorCode(code_of(answer)) not in TRANSIENT or time.monotonic() > deadline:
                return answer
            time.sleep(0.02)

    def init(self, known: Producer = NOBODY, *, timeout_ms: int = 60_000, version: int = 5, name: str = "") -> Producer:
        request = InitProducerIdRequest(self.name + name, timeout_ms, *known)
        answer = self.settled(lambda: self.wire.call(request, version), lambda one: one.error_code)
        self.note("init", answer.error_code, self.known(answer.producer_id), answer.producer_epoch)
        return answer.producer_id, answer.producer_epoch

    def add(self, producer: Producer, *partitions: int, version: int = 3, topic: str = "t", name: str = "") -> None:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name + name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        )
        answer = self.settled(
            lambda: self.wire.call(request, version),
            lambda one: one.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        self.said.append(
            ("add", sorted((one.partition_index, ErrorCode(one.partition_error_code).name) for one in results))
        )

    def register(self, producer: Producer, *partitions: int, verify: bool = False, version: int = 5) -> None:
        """As a broker does it, for a transaction of version 2."""
        topics = [AddPartitionsToTxnTopic(name="t", partitions=list(partitions))]
        request = AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(self.name, *producer, verify, topics)])
        answer = self.settled(
            lambda: self.wire.call(request, version),
            lambda one: one.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code,
        )
        results = answer.results_by_transaction[0].topic_results[0].results_by_partition
        self.said.append(
            ("register", sorted((one.partition_index, ErrorCode(one.partition_error_code).name) for one in results))
        )

    def add_offsets(self, producer: Producer, version: int = 4) -> None:
        request = AddOffsetsToTxnRequest(self.name, *producer, f"{self.name}-group")
        answer = self.settled(lambda: self.wire.call(request, version), lambda one: one.error_code)
        self.note("add offsets", answer.error_code)

    def commit_offset(self, producer: Producer, version: int = 5, *, generation: int = -1, member: str = "") -> None:
        commit = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topic = TxnOffsetCommitRequestTopic(name="t", partitions=[commit])
        request = TxnOffsetCommitRequest(
            self.name, f"{self.name}-group", *producer, generation_id=generation, member_id=member, topics=[topic]
        )
        answer = self.settled(
            lambda: self.wire.call(request, version), lambda one: one.topics[0].partitions[0].error_code
        )
        self.note("offset", answer.topics[0].partitions[0].error_code)

    def end(self, producer: Producer, committed: bool, version: int = 5, *, name: str = "") -> Producer:
        request = EndTxnRequest(self.name + name, *producer, committed)
        answer = self.settled(lambda: self.wire.call(request, version), lambda one: one.error_code)
        after = (self.known(answer.producer_id), answer.producer_epoch) if version >= 5 else ()
        self.note("commit" if committed else "abort", answer.error_code, *after)
        return answer.producer_id, answer.producer_epoch

    def state(self, *, name: str = "") -> None:
        """When no markers are under way."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            request = DescribeTransactionsRequest(transactional_ids=[self.name + name])
            (state,) = self.wire.call(request, 0).transaction_states
            if not state.transaction_state.startswith("Prepare") or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        topics = sorted((topic.topic, sorted(topic.partitions)) for topic in state.topics)
        partitions = [(topic, numbers if topic == "t" else len(numbers)) for topic, numbers in topics]
        self.note(
            "state",
            state.error_code,
            state.transaction_state,
            self.known(state.producer_id) if not state.error_code else "",
            state.producer_epoch,
            state.transaction_timeout_ms,
            partitions,
        )

    def until(self, wanted: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            request = DescribeTransactionsRequest(transactional_ids=[self.name])
            (state,) = self.wire.call(request, 0).transaction_states
            if state.transaction_state == wanted:
                return
            time.sleep(0.05)
        raise AssertionError(f"it does not become {wanted}: {state}")

    def listed(self, **filters: Any) -> None:
        answer = self.wire.call(ListTransactionsRequest(**filters), 2 if "transactional_id_pattern" in filters else 1)
        own = sorted(
            (one.transactional_id.removeprefix(self.name), one.transaction_state)
            for one in answer.transaction_states
            if one.transactional_id.startswith(self.name)
        )
        self.note("listed", answer.error_code, answer.unknown_state_filters, own)


# -- scenes ------------------------------------------------------------------------------------------------------------


def a_commit_and_an_abort_of_version_2(s: Scene) -> None:
    producer = s.init()
    s.register(producer, 0, 1)
    s.state()
    after = s.end(producer, True)
    s.state()
    s.end(producer, True)
    s.end(producer, False)
    s.register(after, 2)
    s.end(producer, True)
    s.end(producer, False)
    last = s.end(after, False)
    s.state()
    s.end(after, False)
    s.end(after, True)
    s.end(last, True)
    s.end(last, False)
    s.state()


def a_commit_and_an_abort_of_version_1(s: Scene) -> None:
    producer = s.init()
    s.end(producer, True, 4)
    s.end(producer, False, 4)
    s.add(producer, 0, 2)
    s.state()
    s.end(producer, True, 4)
    s.state()
    s.end(producer, True, 4)
    s.end(producer, False, 4)
    s.add(producer, 1)
    s.end(producer, False, 4)
    s.state()
    s.end(producer, False, 4)
    s.end(producer, True, 4)


def wrong_ids_and_epochs(s: Scene) -> None:
    producer_id, epoch = s.init()
    for version in (0, 2, 3):
        s.add((producer_id, epoch + 1), 0, version=version)
        s.add((producer_id + 7, epoch), 0, version=version)
        s.add((producer_id, epoch), 0, version=version, name="unknown")
    for version in (0, 2, 4, 5):
        s.end((producer_id, epoch + 1), True, version)
        s.end((producer_id + 7, epoch), True, version)
        s.end((producer_id, epoch), True, version, name="unknown")
    s.add((producer_id, epoch), 0, 9)
    s.add((producer_id, epoch), 0, topic="nowhere")
    s.add((producer_id, epoch), 0, topic="__consumer_offsets")
    s.state()
    s.state(name="unknown")


def producers_that_start_again(s: Scene) -> None:
    first = s.init()
    second = s.init()
    s.add(first, 0)
    s.init(first)
    third = s.init(second)
    s.init(second)
    s.init(third)
    s.init((third[0], -1))
    s.init((-1, 3))
    s.init((third[0] + 9, 0))
    for version in (3, 4):
        s.init(first, version=version)
    s.init(timeout_ms=0)
    s.init(timeout_ms=900_000)
    s.init(timeout_ms=900_001)
    s.init((77, 3), name="unknown")


def a_new_producer_aborts_the_transaction_of_the_old_one(s: Scene) -> None:
    old = s.init()
    s.register(old, 0)
    new = s.init()
    s.state()
    s.end(old, True)
    s.end(old, False)
    s.register(old, 0)
    s.register(new, 1)
    s.end(new, True)
    s.state()


def a_new_producer_of_version_1_aborts_the_transaction_of_the_old_one(s: Scene) -> None:
    old = s.init()
    s.add(old, 0)
    s.init()
    s.state()
    s.end(old, True, 4)


def a_timeout(s: Scene) -> None:
    producer = s.init(timeout_ms=300)
    s.register(producer, 0)
    s.until("CompleteAbort")
    s.state()
    s.register(producer, 1)
    s.end(producer, True)
    s.end(producer, False)
    s.init(producer)


def a_timeout_of_version_1(s: Scene) -> None:
    producer = s.init(timeout_ms=300)
    s.add(producer, 0)
    s.until("CompleteAbort")
    s.state()
    s.add(producer, 1)
    s.end(producer, True, 4)
    s.end(producer, False, 4)
    s.init(producer)


def verification(s: Scene) -> None:
    producer = s.init()
    s.register(producer, 0, verify=True)
    s.add(producer, 0)
    s.register(producer, 0, verify=True)
    s.register(producer, 0, 1, verify=True)
    s.register((producer[0], producer[1] + 1), 0, verify=True)
    s.register((producer[0] + 5, producer[1]), 0, verify=True)
    s.end(producer, True, 4)
    s.state()
    s.register(producer, 0, verify=True)


def offsets(s: Scene) -> None:
    producer = s.init()
    s.commit_offset(producer, 3)
    s.commit_offset(producer, 4)
    s.add_offsets(producer)
    s.commit_offset(producer, 3)
    s.state()
    s.commit_offset(producer, 3, generation=4, member="somebody")
    s.commit_offset((producer[0], producer[1] + 1), 4)
    s.end(producer, True, 4)
    s.state()
    s.commit_offset(producer, 5)
    s.state()
    after = s.end(producer, False)
    s.state()
    s.commit_offset(producer, 5)
    s.commit_offset(after, 5, generation=4, member="somebody")
    s.add_offsets((after[0], after[1] + 3), 1)
    s.add_offsets((after[0], after[1] + 3))


def lists(s: Scene) -> None:
    producer = s.init(name="-a")
    s.init(name="-b")
    s.add(producer, 0, name="-a")
    s.listed()
    s.listed(state_filters=["Ongoing"])
    s.listed(state_filters=["Ongoing", "Odd"])
    s.listed(state_filters=["Empty"], producer_id_filters=[producer[0]])
    s.listed(producer_id_filters=[producer[0]])
    s.listed(duration_filter=100_000)
    s.listed(transactional_id_pattern=f"{s.name}-[a]")
    s.listed(transactional_id_pattern=f"{s.name}")
    s.listed(transactional_id_pattern="(")


SCENES = [
    a_commit_and_an_abort_of_version_2,
    a_commit_and_an_abort_of_version_1,
    wrong_ids_and_epochs,
    producers_that_start_again,
    a_new_producer_aborts_the_transaction_of_the_old_one,
    a_new_producer_of_version_1_aborts_the_transaction_of_the_old_one,
    a_timeout,
    a_timeout_of_version_1,
    verification,
    offsets,
    lists,
]


@pytest.fixture(scope="module")
def apache() -> Iterator[Wire]:
    reason = available()
    if reason is not None:
        pytest.skip(reason)
    with ApacheKafka(properties=SETTINGS, jvm_flags=SHORT_LIVED) as running:
        yield prepared(Wire(running.port))


@pytest.fixture(scope="module")
def ours() -> Iterator[Wire]:
    with PenstockServer(SETTINGS) as running:
        yield prepared(Wire(running.port))


def prepared(wire: Wire) -> Wire:
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    assert wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0].error_code == 0
    for key_type in (0, 1):
        while (
            wire.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4).coordinators[0].error_code
        ):
            time.sleep(0.05)
    return wire


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_both_say_the_same(apache: Wire, ours: Wire, scene: Callable[[Scene], None]) -> None:
    theirs, own = Scene(apache, scene.__name__), Scene(ours, scene.__name__)
    scene(theirs)
    scene(own)
    assert own.said == theirs.said
