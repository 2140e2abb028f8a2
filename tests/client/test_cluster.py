"""Which broker is asked, and when again: against brokers that fail as they are told."""

from __future__ import annotations

import pickle
import time

import pytest

from client.scripted import TOPIC, MemoryLog, ScriptedBroker
from penstock.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    BrokerError,
    Cluster,
    ConnectionFailed,
    CoordinatorKind,
    IsolationLevel,
    OffsetOutOfRange,
    TopicPartition,
    UnknownTopic,
    UnsupportedApi,
)
from penstock.client import cluster as cluster_module
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.records import Record, build_batch

PARTITION = TopicPartition(TOPIC, 0)


def batch(offset: int, count: int = 10) -> bytes:
    return build_batch([Record(timestamp=n, value=b"v%d" % n) for n in range(count)], base_offset=offset)


def test_asking_for_topics_creates_none() -> None:
    with ScriptedBroker() as broker:
        MemoryLog(broker)
        with Cluster(broker.settings()) as cluster:
            assert list(cluster.topics()) == [TOPIC]
            assert cluster.topics([TOPIC])[TOPIC].partitions[0].leader_id == 0
            assert cluster.topics([]) == {}
            assert cluster.broker_ids() == [0]
    for request in broker.requests(ApiKey.METADATA):
        assert isinstance(request, MetadataRequest)
        assert not request.allow_auto_topic_creation


def test_a_topic_that_is_not_there_is_named_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "UNKNOWN_TOPIC_TIMEOUT_S", 0.05)
    with ScriptedBroker() as broker:
        MemoryLog(broker).exists = False
        with Cluster(broker.settings(default_api_timeout_ms=60_000)) as cluster:
            with pytest.raises(UnknownTopic, match="t: there is no such topic"):
                cluster.topics([TOPIC])
            assert cluster.existing_topics([TOPIC]) == {}
            with pytest.raises(UnknownTopic):
                cluster.list_offsets({PARTITION: LATEST})


def test_a_cluster_that_is_not_there_is_named_with_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "FIRST_CONTACT_TIMEOUT_S", 0.05)
    with ScriptedBroker() as one, ScriptedBroker() as two:
        pass
    settings = one.settings(bootstrap_servers=f"{one.bootstrap},{two.bootstrap}", default_api_timeout_ms=60_000)
    with Cluster(settings) as cluster, pytest.raises(ConnectionFailed) as caught:
        cluster.topics()
    assert f"{one.bootstrap}: nothing listens" in str(caught.value)
    assert f"{two.bootstrap}: nothing listens" in str(caught.value)


def test_the_next_address_is_tried_when_one_is_dead() -> None:
    with ScriptedBroker() as dead:
        pass
    with ScriptedBroker() as alive:
        MemoryLog(alive)
        with Cluster(alive.settings(bootstrap_servers=f"{dead.bootstrap},{alive.bootstrap}")) as cluster:
            assert cluster.topics()


def test_offsets_are_asked_of_the_leader_and_again_after_it_moved() -> None:
    with ScriptedBroker() as old, ScriptedBroker() as new:
        log = MemoryLog(old, new)
        log.append(batch(0))
        with Cluster(old.settings()) as cluster:
            assert cluster.list_offsets({PARTITION: LATEST})[PARTITION].offset == 10
            log.leader, log.leader_epoch = 1, 1
            old.handlers[ApiKey.LIST_OFFSETS] = lambda *_: answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert cluster.list_offsets({PARTITION: EARLIEST})[PARTITION].offset == 0
    (request,) = new.requests(ApiKey.LIST_OFFSETS)
    assert isinstance(request, ListOffsetsRequest)
    assert (request.replica_id, request.topics[0].partitions[0].current_leader_epoch) == (-1, 1)


def test_offsets_are_asked_again_after_the_leader_died() -> None:
    with ScriptedBroker() as old, ScriptedBroker() as new:
        log = MemoryLog(old, new)
        with Cluster(old.settings(bootstrap_servers=f"{old.bootstrap},{new.bootstrap}")) as cluster:
            cluster.list_offsets({PARTITION: LATEST})
            log.leader = 1
            old.stop()
            assert cluster.list_offsets({PARTITION: LATEST})[PARTITION].offset == 0


def answer(code: int) -> ListOffsetsResponse:
    one = ListOffsetsPartitionResponse(partition_index=0, error_code=code)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[one])])


def test_what_passes_is_waited_for_only_so_long_and_what_does_not_is_raised_at_once() -> None:
    with ScriptedBroker({ApiKey.LIST_OFFSETS: lambda *_: answer(ErrorCode.LEADER_NOT_AVAILABLE)}) as broker:
        MemoryLog(broker)
        with Cluster(broker.settings(default_api_timeout_ms=1_000)) as cluster:
            with pytest.raises(BrokerError, match=r"t-0: .*\(LEADER_NOT_AVAILABLE\)"):
                cluster.list_offsets({PARTITION: LATEST})
            asked = len(broker.requests(ApiKey.LIST_OFFSETS))
            assert asked > 2
            broker.handlers[ApiKey.LIST_OFFSETS] = lambda *_: answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                cluster.list_offsets({PARTITION: LATEST})
            assert len(broker.requests(ApiKey.LIST_OFFSETS)) == asked + 1


def test_an_error_of_one_leader_leaves_no_answer_of_another_behind() -> None:
    with ScriptedBroker() as first, ScriptedBroker() as second:
        log = MemoryLog(first, second, partitions=2)
        log.leaders[1] = 1
        first.handlers[ApiKey.LIST_OFFSETS] = lambda *_: answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with Cluster(first.settings()) as cluster:
            with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                cluster.list_offsets({(TOPIC, 0): LATEST, (TOPIC, 1): LATEST})
            open_ones = [one for kept in cluster._connections.values() for one in kept if not one.closed]
            assert [one.in_flight for one in open_ones] == [0]


def test_an_answer_without_the_partition_is_an_error_not_a_loop() -> None:
    with ScriptedBroker({ApiKey.LIST_OFFSETS: lambda *_: ListOffsetsResponse()}) as broker:
        MemoryLog(broker)
        with Cluster(broker.settings()) as cluster, pytest.raises(BrokerError, match="did not include this partition"):
            cluster.list_offsets({PARTITION: LATEST})


def test_isolation_and_partition_reach_the_broker() -> None:
    with ScriptedBroker(versions={ApiKey.LIST_OFFSETS: 6}) as broker:
        MemoryLog(broker)
        with Cluster(broker.settings()) as cluster:
            cluster.list_offsets({PARTITION: 1234}, isolation=IsolationLevel.READ_COMMITTED)
            with pytest.raises(UnsupportedApi, match="too old"):
                cluster.list_offsets({PARTITION: MAX_TIMESTAMP})
            with pytest.raises(UnknownTopic, match="t-7: there is no such partition, the topic has 1"):
                cluster.list_offsets({(TOPIC, 7): LATEST})
    request = broker.requests(ApiKey.LIST_OFFSETS)[0]
    assert isinstance(request, ListOffsetsRequest)
    assert (request.isolation_level, request.topics[0].partitions[0].timestamp) == (1, 1234)


@pytest.mark.parametrize("version", [3, 6])
def test_a_coordinator_is_looked_for_until_it_is_there(version: int) -> None:
    codes = iter([ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE])

    def find(request: Message, version: int) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        assert (request.coordinator_keys == ["g"]) if version >= 4 else (request.key == "g")
        code = next(codes)
        one = Coordinator(key="g", host="127.0.0.1", port=broker.port, error_code=code)
        return FindCoordinatorResponse(
            coordinators=[one] if version >= 4 else [], host=one.host, port=one.port, error_code=code
        )

    versions = {ApiKey.FIND_COORDINATOR: version}
    with ScriptedBroker({ApiKey.FIND_COORDINATOR: find}, versions=versions) as broker:
        MemoryLog(broker)
        with Cluster(broker.settings()) as cluster:
            assert cluster.coordinator("g", CoordinatorKind.GROUP).address.port == broker.port
            assert next(codes, None) is None


def test_a_connection_with_a_request_in_flight_is_not_given_to_another() -> None:
    with ScriptedBroker() as broker:
        MemoryLog(broker)
        with Cluster(broker.settings()) as cluster:
            first = cluster.any_broker()
            assert cluster.any_broker() is first
            first.send(MetadataRequest())
            assert cluster.any_broker() is not first


def test_giving_up_takes_no_longer_than_it_was_given() -> None:
    with ScriptedBroker({ApiKey.METADATA: lambda *_: None}) as broker:
        started_s = time.monotonic()
        with Cluster(broker.settings(default_api_timeout_ms=200)) as cluster, pytest.raises(ConnectionFailed):
            cluster.topics()
        assert time.monotonic() - started_s < 5


def test_errors_travel_from_tasks_to_the_driver() -> None:
    error = pickle.loads(pickle.dumps(OffsetOutOfRange("t", 3, 5, 10, 20)))
    assert isinstance(error, OffsetOutOfRange)
    assert (error.topic, error.partition, error.offset) == ("t", 3, 5)
    assert (error.log_start_offset, error.log_end_offset) == (10, 20)
    assert "t-3: offset 5 is not in the log, which holds 10 to 20" in str(error)
