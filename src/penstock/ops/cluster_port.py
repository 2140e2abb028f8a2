"""Reads and changes a cluster through Kafka's protocol, for planning and moving partitions. Works with any Kafka.

Requests are retried for a while if a broker becomes unreachable. Unreachable brokers are omitted where possible (their
disks cannot be queried), because moves continue while a broker restarts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from penstock.balance import Broker, ClusterModel, Key, Move, Partition, Rates, Throttled
from penstock.balance.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from penstock.client import (
    EARLIEST,
    LATEST,
    Address,
    BrokerError,
    Cluster,
    ConnectionFailed,
    RequestTimedOut,
    TopicPartition,
)
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from penstock.client import Connection

T = TypeVar("T")

FENCED_FROM: Final = 2
"""The version of DescribeCluster that also lists fenced brokers."""
REASSIGNED_AT_ONCE_MAX: Final = 5_000
"""Partitions per request: more are split, so that no request keeps the controller busy for long."""
TOPICS_AT_ONCE_MAX: Final = 500
"""Topics whose settings one request reads or changes."""
PAUSE_S: Final = 0.2
PROBES: Final = 3
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
FROM_TOPIC: Final = 1
FROM_BROKER: Final = 2
SET: Final = 0
DELETE: Final = 1
PREFERRED: Final = 0
_DONE_ALREADY = (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
_NOT_ELECTED_YET = (
    ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)  # fmt: skip


class _Disks(NamedTuple):
    total_bytes: int | None
    usable_bytes: int | None
    sizes: dict[tuple[str, int], int]


class ProtocolPort:
    """One cluster. `timeout_s` is how long a request is repeated while brokers come and go."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._addresses: dict[int, Address] = {}
        self._copied: dict[int, int] = {}

    # ---- reading

    def observe(self, topics: Iterable[str] | None = None, *, disks: bool = False) -> ClusterModel:
        """Read the current state of the cluster."""
        wanted = None if topics is None else sorted(topics)
        described = self._ask(self._describe)
        # In this order: a move that finishes in between is still seen as moving, not as an unplanned change.
        ongoing = self._ask(_reassignments)
        answer = self._ask(lambda connection: self._metadata(connection, wanted))
        serving = {one.node_id for one in answer.brokers}
        fenced = {one.broker_id for one in described.brokers if one.is_fenced}
        self._addresses = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
        stored = {broker: self._disks(broker) for broker in sorted(serving)} if disks else {}
        brokers = []
        for one in described.brokers:
            held = stored.get(one.broker_id)
            brokers.append(
                Broker(
                    one.broker_id,
                    one.rack or None,
                    in_service=one.broker_id in serving and one.broker_id not in fenced,
                    total_bytes=held.total_bytes if held is not None else None,
                    usable_bytes=held.usable_bytes if held is not None else None,
                )
            )
        partitions = []
        for topic in answer.topics:
            name = topic.name or ""
            for part in topic.partitions:
                key = (name, part.partition_index)
                move = ongoing.get(key)
                sizes = [held.sizes[key] for held in stored.values() if held is not None and key in held.sizes]
                leading = stored.get(part.leader_id)
                partitions.append(
                    Partition(
                        name,
                        part.partition_index,
                        tuple(move.replicas if move is not None else part.replica_nodes),
                        leader=part.leader_id,
                        in_sync=tuple(part.isr_nodes),
                        adding=tuple(move.adding_replicas) if move is not None else (),
                        removing=tuple(move.removing_replicas) if move is not None else (),
                        size_bytes=leading.sizes[key] if leading and key in leading.sizes else max(sizes, default=0),
                    )
                )
        return ClusterModel(described.cluster_id, brokers, partitions)

    def with_traffic(self, model: ClusterModel, seconds: float) -> ClusterModel:
        """The model with the write rate of each partition: records in that time, times the average record size."""
        led = [TopicPartition(one.topic, one.index) for one in model.partitions if one.leader >= 0]
        first = self._cluster.list_offsets(dict.fromkeys(led, EARLIEST))
        begin = self._cluster.list_offsets(dict.fromkeys(led, LATEST))
        started_s = time.monotonic()
        self.pause(seconds)
        end = self._cluster.list_offsets(dict.fromkeys(led, LATEST))
        passed_s = time.monotonic() - started_s
        partitions = []
        for one in model.partitions:
            key = TopicPartition(one.topic, one.index)
            rate = 0.0
            if key in end:
                stored = max(1, end[key].offset - first[key].offset)
                written = max(0, end[key].offset - begin[key].offset)
                rate = written * (one.size_bytes / stored) / passed_s
            partitions.append(msgspec.structs.replace(one, rate=rate))
        return ClusterModel(model.cluster_id, model.brokers.values(), partitions)

    def copied_bytes(self, moves: Sequence[Move]) -> int:
        """Bytes that the new replicas have copied. An unreachable broker counts with its last known value."""
        by_broker: dict[int, dict[str, list[int]]] = {}
        for move in moves:
            for broker in move.coming:
                by_broker.setdefault(broker, {}).setdefault(move.topic, []).append(move.index)
        for broker, topics in by_broker.items():
            held = self._disks(broker, topics)
            if held is not None:
                self._copied[broker] = sum(held.sizes.values())
        return sum(self._copied.get(broker, 0) for broker in by_broker)

    def rates(self, brokers: Sequence[int]) -> dict[int, Rates]:
        found: dict[int, Rates] = {}
        for broker in brokers:
            resource = DescribeConfigsResource(BROKER_RESOURCE, str(broker), [LEADER_RATE, FOLLOWER_RATE])
            request = DescribeConfigsRequest([resource])
            answer = self._ask_broker(broker, lambda connection, request=request: _configs(connection, request))  # type: ignore[misc]
            if answer is None:
                continue
            values = _values(answer[0], FROM_BROKER)
            found[broker] = (_rate(values.get(LEADER_RATE)), _rate(values.get(FOLLOWER_RATE)))
        return found

    def throttled(self, topics: Sequence[str]) -> dict[str, Throttled]:
        keys = [LEADER_REPLICAS, FOLLOWER_REPLICAS]
        found: dict[str, Throttled] = {}
        for names in _pieces(topics, TOPICS_AT_ONCE_MAX):
            request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, name, keys) for name in names])
            results = self._ask(lambda connection, request=request: _configs(connection, request))  # type: ignore[misc]
            for result in results:
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                values = _values(result, FROM_TOPIC)
                found[result.resource_name] = Throttled(_list(values.get(keys[0])), _list(values.get(keys[1])))
        return found

    def latency_ms(self) -> float:
        """How long the slowest broker takes to answer a small request; the best of a few."""
        worst = 0.0
        for broker in sorted(self._addresses):
            best = self._ask_broker(broker, _probe)
            worst = max(worst, best or 0.0)
        return worst

    # ---- changing

    def reassign(self, targets: Mapping[Key, tuple[int, ...] | None]) -> None:
        for items in _pieces(list(targets.items()), REASSIGNED_AT_ONCE_MAX):
            topics: dict[str, list[ReassignablePartition]] = {}
            for key, replicas in items:
                wanted = None if replicas is None else list(replicas)
                topics.setdefault(key.topic, []).append(ReassignablePartition(key.partition, wanted))
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=int(self._timeout_s * 1000),
                topics=[ReassignableTopic(name, partitions) for name, partitions in topics.items()],
            )
            self._ask(lambda connection, request=request: _reassign(connection, request))  # type: ignore[misc]

    def elect(self, keys: Sequence[Key]) -> None:
        topics: dict[str, list[int]] = {}
        for key in keys:
            topics.setdefault(key.topic, []).append(key.partition)
        wanted = [TopicPartitions(topic, partitions) for topic, partitions in topics.items()]
        request = ElectLeadersRequest(PREFERRED, wanted, int(self._timeout_s * 1000))
        self._ask(lambda connection: _elect(connection, request))

    def set_rates(self, rates: Mapping[int, Rates]) -> None:
        for broker, (leader, follower) in rates.items():
            configs = [_config(LEADER_RATE, leader), _config(FOLLOWER_RATE, follower)]
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER_RESOURCE, str(broker), configs)])
            self._ask_broker(broker, lambda connection, request=request: _alter(connection, request))  # type: ignore[misc]

    def set_throttled(self, topics: Mapping[str, Throttled]) -> None:
        resources = []
        for topic, lists in topics.items():
            configs = [
                _config(LEADER_REPLICAS, ",".join(lists.leaders) or None),
                _config(FOLLOWER_REPLICAS, ",".join(lists.followers) or None),
            ]
            resources.append(AlterConfigsResource(TOPIC_RESOURCE, topic, configs))
        for piece in _pieces(resources, TOPICS_AT_ONCE_MAX):
            request = IncrementalAlterConfigsRequest(piece)
            self._ask(lambda connection, request=request: _alter(connection, request))  # type: ignore[misc]

    def unregister(self, broker: int) -> None:
        """Unregister a broker that was removed for good."""

        def unregister(connection: Connection) -> None:
            answer = connection.call(UnregisterBrokerRequest(broker), UnregisterBrokerResponse)
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
                raise BrokerError(answer.error_code, answer.error_message, doing=f"unregister broker {broker}")

        self._ask(unregister)

    # ---- time

    def now_s(self) -> float:
        return time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    # ---- asking

    def _ask(self, ask: Callable[[Connection], T]) -> T:
        """Send a request to any reachable broker, and retry transient errors."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask(self._cluster.any_broker())
            except (ConnectionFailed, RequestTimedOut):
                if time.monotonic() > deadline_s:
                    raise
            except BrokerError as error:
                if not error.code.retriable or time.monotonic() > deadline_s:
                    raise
            time.sleep(PAUSE_S)

    def _ask_broker(self, broker: int, ask: Callable[[Connection], T]) -> T | None:
        """Send a request to one broker; None if it is unreachable."""
        address = self._addresses.get(broker)
        if address is None:
            return None
        try:
            return ask(self._cluster.connect(address))
        except (ConnectionFailed, RequestTimedOut):
            return None

    def _describe(self, connection: Connection) -> DescribeClusterResponse:
        tells_fenced = connection.version_of(DescribeClusterRequest) >= FENCED_FROM
        request = DescribeClusterRequest(include_fenced_brokers=tells_fenced)
        answer = connection.call(request, DescribeClusterResponse)
        _check(answer.error_code, answer.error_message, "describe the cluster")
        return answer

    def _metadata(self, connection: Connection, topics: list[str] | None) -> MetadataResponse:
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer = connection.call(MetadataRequest(asked, allow_auto_topic_creation=False), MetadataResponse)
        _check(answer.error_code, None, "ask for metadata")
        for topic in answer.topics:
            if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                continue
            _check(topic.error_code, None, f"ask for metadata of {topic.name}")
        return answer

    def _disks(self, broker: int, topics: Mapping[str, list[int]] | None = None) -> _Disks | None:
        wanted = None if topics is None else [DescribableLogDirTopic(name, list(of)) for name, of in topics.items()]

        def ask(connection: Connection) -> _Disks:
            answer = connection.call(DescribeLogDirsRequest(wanted), DescribeLogDirsResponse)
            _check(answer.error_code, None, f"ask for the log directories of broker {broker}")
            well = [one for one in answer.results if one.error_code == ErrorCode.NONE]
            told = [one for one in well if one.total_bytes >= 0 and one.usable_bytes >= 0]
            return _Disks(
                sum(one.total_bytes for one in told) if told else None,
                sum(one.usable_bytes for one in told) if told else None,
                {
                    (topic.name, partition.partition_index): partition.partition_size
                    for one in well
                    for topic in one.topics
                    for partition in topic.partitions
                    if not partition.is_future_key
                },
            )

        return self._ask_broker(broker, ask)


def _pieces(items: Sequence[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def _reassignments(connection: Connection) -> dict[tuple[str, int], OngoingPartitionReassignment]:
    answer = connection.call(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse)
    _check(answer.error_code, answer.error_message, "list reassignments")
    return {(topic.name, one.partition_index): one for topic in answer.topics for one in topic.partitions}


def _reassign(connection: Connection, request: AlterPartitionReassignmentsRequest) -> None:
    answer = connection.call(request, AlterPartitionReassignmentsResponse)
    _check(answer.error_code, answer.error_message, "reassign partitions")
    for topic in answer.responses:
        for one in topic.partitions:
            if one.error_code not in _DONE_ALREADY:
                raise BrokerError(
                    one.error_code, one.error_message, topic=topic.name, partition=one.partition_index, doing="reassign"
                )


def _elect(connection: Connection, request: ElectLeadersRequest) -> None:
    answer = connection.call(request, ElectLeadersResponse)
    _check(answer.error_code, None, "elect leaders")
    for topic in answer.replica_election_results:
        for one in topic.partition_result:
            if one.error_code not in _NOT_ELECTED_YET:
                _check(one.error_code, one.error_message, f"elect the leader of {topic.topic}-{one.partition_id}")


def _configs(connection: Connection, request: DescribeConfigsRequest) -> list[DescribeConfigsResult]:
    answer = connection.call(request, DescribeConfigsResponse)
    for one in answer.results:
        if one.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            _check(one.error_code, one.error_message, f"read settings of {one.resource_name}")
    return answer.results


def _alter(connection: Connection, request: IncrementalAlterConfigsRequest) -> bool:
    answer = connection.call(request, IncrementalAlterConfigsResponse)
    for one in answer.responses:
        _check(one.error_code, one.error_message, f"change settings of {one.resource_name}")
    return True


def _probe(connection: Connection) -> float:
    times = []
    for _ in range(PROBES):
        started_s = time.perf_counter()
        connection.call(MetadataRequest([], allow_auto_topic_creation=False), MetadataResponse)
        times.append((time.perf_counter() - started_s) * 1000)
    return min(times)


def _check(code: int, message: str | None, doing: str) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(code, message, doing=doing)


def _config(name: str, value: int | str | None) -> AlterableConfig:
    return AlterableConfig(name, DELETE if value is None else SET, None if value is None else str(value))


def _values(result: DescribeConfigsResult, source: int) -> dict[str, str]:
    return {one.name: one.value for one in result.configs if one.config_source == source and one.value}


def _rate(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdecimal() else None


def _list(value: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (value or "").split(",") if part.strip())
