"""Transactions of any Kafka cluster: list, describe, find those that hang, and end them.

A transaction is known in two places: its coordinator has its state and its partitions, and each partition's leader has
the producers with open transactions. A transaction *hangs* if a leader has it open and no coordinator will ever end it:
then the last stable offset of the partition stays where it is, and readers of committed records wait for ever. (A
bug before KIP-890, or a late request to an old broker, can cause it.) `find_hanging` compares the two places, and
`abort_on_partition` writes the marker that the coordinator does not write.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.client import (
    Address,
    BrokerError,
    Cluster,
    ConnectionFailed,
    CoordinatorKind,
    TopicPartition,
    UnsupportedApi,
)
from penstock.client.cluster import Retries
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NO_OFFSET: Final = -1
NO_PRODUCER: Final = -1
STATES: Final = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead",
)  # fmt: skip
IDS_PER_REQUEST: Final = 1000
PARTITIONS_PER_REQUEST: Final = 1000
FENCING_TIMEOUT_MS: Final = 60_000
"""The transaction timeout that is left with an id whose producer is fenced. Its next producer sets its own."""


class Listed(NamedTuple):
    """A transactional id, as its coordinator lists it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class Described(NamedTuple):
    """A transactional id with its current transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    """When the transaction began; None if none is open."""
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """A producer of a partition, as the partition's leader knows it."""

    partition: TopicPartition
    leader: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int
    """The first offset of its open transaction, or NO_OFFSET."""


class Hanging(NamedTuple):
    """An open transaction that no coordinator knows."""

    transaction: OpenTransaction
    transactional_id: str | None
    """The id that the producer id belongs to, if a coordinator has one."""


def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> list[Listed]:
    """The transactional ids of all coordinators that pass the filters, sorted by id.

    `longer_than_ms` keeps those that have been open for longer (KIP-994); `pattern` is a regular expression (KIP-1152).
    Raises UnsupportedApi if the brokers are too old for a filter.
    """
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=longer_than_ms,
        transactional_id_pattern=pattern,
    )
    found: list[Listed] = []
    for broker in _brokers(cluster):
        connection = cluster.broker(broker)
        version = connection.version_of(ListTransactionsRequest)
        if (longer_than_ms >= 0 and version < 1) or (pattern is not None and version < 2):
            raise UnsupportedApi(f"broker {broker} is too old to list transactions by duration or pattern")
        retries = Retries(cluster.settings)
        while True:
            answer = connection.call(request, ListTransactionsResponse)
            if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and _paused(retries):
                continue
            break
        _check(answer.error_code, f"list the transactions of broker {broker}")
        found += [
            Listed(one.transactional_id, broker, one.producer_id, one.transaction_state)
            for one in answer.transaction_states
        ]
    return sorted(found)


def describe_transactions(cluster: Cluster, transactional_ids: Iterable[str]) -> list[Described]:
    """Each of these ids; raises BrokerError for one that does not exist."""
    _brokers(cluster)
    addresses = {address: broker for broker, address in cluster.broker_addresses().items()}
    return [_describe(cluster, one, addresses) for one in transactional_ids]


def describe_producers(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
    """All producers that the leaders of these partitions know, with and without an open transaction."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for one in partitions:
        cluster.leader(one.topic, one.partition)
        by_leader.setdefault(cluster.leader_of(one.topic, one.partition).leader_id, []).append(one)
    found: list[OpenTransaction] = []
    for leader, those in sorted(by_leader.items()):
        for start in range(0, len(those), PARTITIONS_PER_REQUEST):
            found += _producers_of(cluster, leader, those[start : start + PARTITIONS_PER_REQUEST])
    return sorted(found)


def find_hanging(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, now_ms: int, older_than_ms: int
) -> list[Hanging]:
    """Transactions whose last record is older than `older_than_ms` and that no coordinator will end.

    `older_than_ms` must be at least `transaction.max.timeout.ms`: a coordinator ends what it knows by then.
    """
    suspects = [
        one
        for one in describe_producers(cluster, partitions)
        if one.start_offset != NO_OFFSET and now_ms - one.last_timestamp_ms > older_than_ms
    ]
    if not suspects:
        return []
    names: dict[int, str] = {}
    ids = sorted({one.producer_id for one in suspects})
    for start in range(0, len(ids), IDS_PER_REQUEST):
        listed = list_transactions(cluster, producer_ids=ids[start : start + IDS_PER_REQUEST])
        names |= {one.producer_id: one.transactional_id for one in listed}
    known = {one.transactional_id: one for one in describe_transactions(cluster, sorted(set(names.values())))}
    hanging: list[Hanging] = []
    for one in suspects:
        name = names.get(one.producer_id)
        if name is None or one.partition not in known[name].partitions:
            hanging.append(Hanging(one, name))
    return hanging


def abort_on_partition(
    cluster: Cluster, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Writes an abort marker to one partition, without its coordinator. Only for transactions that hang."""
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        # A partition that no coordinator has written a marker to has none yet.
        coordinator_epoch=max(0, coordinator_epoch),
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
    )
    doing = f"abort the transaction of producer {producer_id}"
    connection = cluster.leader(partition.topic, partition.partition)
    answer = connection.call(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
    for result in answer.markers:
        for topic in result.topics:
            for one in topic.partitions:
                _check(one.error_code, doing, partition)


def fence(cluster: Cluster, transactional_id: str) -> None:
    """Aborts the id's open transaction through its coordinator, and fences the producer that has it."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=FENCING_TIMEOUT_MS,
        producer_id=NO_PRODUCER,
        producer_epoch=NO_PRODUCER,
    )
    retries = Retries(cluster.settings)
    while True:
        coordinator = cluster.coordinator(transactional_id, CoordinatorKind.TRANSACTION)
        answer = coordinator.call(request, InitProducerIdResponse)
        if answer.error_code != ErrorCode.NONE and ErrorCode(answer.error_code).retriable and _paused(retries):
            continue
        _check(answer.error_code, f"fence the producer of {transactional_id}")
        return


def _describe(cluster: Cluster, transactional_id: str, addresses: dict[Address, int]) -> Described:
    retries = Retries(cluster.settings)
    while True:
        connection = cluster.coordinator(transactional_id, CoordinatorKind.TRANSACTION)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = connection.call(request, DescribeTransactionsResponse)
        one = answer.transaction_states[0]
        if one.error_code != ErrorCode.NONE and ErrorCode(one.error_code).retriable and _paused(retries):
            continue
        _check(one.error_code, f"describe the transactional id {transactional_id}")
        partitions = (TopicPartition(topic.topic, index) for topic in one.topics for index in topic.partitions)
        return Described(
            transactional_id,
            addresses.get(connection.address, -1),
            one.producer_id,
            one.producer_epoch,
            one.transaction_state,
            one.transaction_timeout_ms,
            one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None,
            tuple(sorted(partitions)),
        )


def _producers_of(cluster: Cluster, leader: int, partitions: list[TopicPartition]) -> list[OpenTransaction]:
    topics: dict[str, list[int]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    )
    answer = cluster.broker(leader).call(request, DescribeProducersResponse)
    found: list[OpenTransaction] = []
    for topic in answer.topics:
        for partition in topic.partitions:
            where = TopicPartition(topic.name, partition.partition_index)
            _check(partition.error_code, "describe the producers", where, partition.error_message)
            found += [
                OpenTransaction(
                    where,
                    leader,
                    one.producer_id,
                    one.producer_epoch,
                    one.coordinator_epoch,
                    one.last_sequence,
                    one.last_timestamp,
                    one.current_txn_start_offset,
                )
                for one in partition.active_producers
            ]
    return found


def _brokers(cluster: Cluster) -> list[int]:
    cluster.existing_topics(["__transaction_state"])
    brokers = cluster.broker_ids()
    if not brokers:
        raise ConnectionFailed("the cluster's metadata names no broker")
    return brokers


def _paused(retries: Retries) -> bool:
    """Waits before the next attempt; False once there is no time left."""
    pause_s = retries.next_pause_s()
    if pause_s is None:
        return False
    time.sleep(pause_s)
    return True


def _check(code: int, doing: str, where: TopicPartition | None = None, message: str | None = None) -> None:
    if code != ErrorCode.NONE:
        topic, partition = (None, None) if where is None else where
        raise BrokerError(code, message, topic=topic, partition=partition, doing=doing)
