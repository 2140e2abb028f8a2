"""Finds the broker for each request, and retries.

Metadata is cached until something shows that it is stale: an error that names another leader, or a broken connection.
Every method retries retriable errors (an election, a restarting broker, a loading coordinator) with a growing back-off
until `default.api.timeout.ms` has passed, then raises the last error. Two cases fail sooner, because waiting rarely
helps: a cluster that never answered, and a topic that does not exist.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from penstock.client.connection import Connection, Credentials, Sent
from penstock.client.errors import (
    AuthenticationFailed,
    BrokerError,
    ClientError,
    ConnectionFailed,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedApi,
    error_code,
)
from penstock.client.settings import Address, ClientSettings
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

T = TypeVar("T")
R = TypeVar("R", bound=Message)

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
_MAX_TIMESTAMP_VERSION: Final = 7  # of ListOffsets (KIP-734)
_CONSUMER: Final = -1  # the replica id that means "not a replica"

FIRST_CONTACT_TIMEOUT_S: Final = 10.0
UNKNOWN_TOPIC_TIMEOUT_S: Final = 1.0

NO_LEADER: Final = -1
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_TOPIC_EXCEPTION)
_BAD_NAME = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicPartition(NamedTuple):
    """A named tuple, equal to the plain pair `("orders", 0)`."""

    topic: str
    partition: int


class IsolationLevel(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class PartitionMetadata(NamedTuple):
    partition: int
    leader_id: int
    """−1 if there is no leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicMetadata(NamedTuple):
    name: str
    topic_id: bytes
    """All zero if the cluster has no topic ids."""
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]
    """Sorted by index; may lack a partition that is being created."""

    def find(self, index: int) -> PartitionMetadata | None:
        """The partition of that index, if there is one."""
        if index < len(self.partitions) and self.partitions[index].partition == index:
            return self.partitions[index]
        return next((one for one in self.partitions if one.partition == index), None)

    def partition(self, index: int) -> PartitionMetadata:
        """The partition of that index; raises UnknownTopic if there is none."""
        if (found := self.find(index)) is not None:
            return found
        raise UnknownTopic(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no such partition, the topic has {len(self.partitions)}",
            topic=self.name,
            partition=index,
        )


class ListedOffset(NamedTuple):
    offset: int
    """−1 if no record has that timestamp or a later one."""
    timestamp: int
    """The timestamp of the record found; −1 for earliest and latest."""
    leader_epoch: int


class Retries:
    """Back-off within a deadline."""

    def __init__(self, settings: ClientSettings, timeout_s: float | None = None) -> None:
        self._settings = settings
        self._started_s = time.monotonic()
        self._timeout_s = settings.api_timeout_ms / 1000 if timeout_s is None else timeout_s
        self._attempt = 0

    def passed_s(self) -> float:
        return time.monotonic() - self._started_s

    def restart(self) -> None:
        """Resets the back-off and the deadline after progress."""
        self._started_s = time.monotonic()
        self._attempt = 0

    def next_pause_s(self, timeout_s: float | None = None) -> float | None:
        """How long to wait before the next retry; None once the deadline has passed."""
        limit_s = self._timeout_s if timeout_s is None else min(self._timeout_s, timeout_s)
        if self.passed_s() >= limit_s:
            return None
        pause_ms = min(self._settings.retry_backoff_ms << min(self._attempt, 20), self._settings.retry_backoff_max_ms)
        self._attempt += 1
        # Jitter: clients that failed together should not all retry together.
        return min(pause_ms / 1000 * random.uniform(0.8, 1.2), limit_s)


class Cluster:
    """Connections to the brokers of a cluster, opened on first use. Not thread-safe."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._credentials = Credentials(settings)
        self._connections: dict[Address, list[Connection]] = {}
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._reached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connections in self._connections.values():
            for connection in connections:
                connection.close()
        self._connections.clear()

    # Topics

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicMetadata]:
        """All topics, or those named; raises UnknownTopic if one is missing. Never creates topics."""
        wanted = None if names is None else list(dict.fromkeys(names))
        if wanted == []:
            return {}
        return self._retrying(lambda: self._ask_topics(wanted, missing_ok=False))

    def existing_topics(self, names: Iterable[str]) -> dict[str, TopicMetadata]:
        """Those of the named topics that exist; the others are left out."""
        wanted = list(dict.fromkeys(names))
        return self._retrying(lambda: self._ask_topics(wanted, missing_ok=True)) if wanted else {}

    def known_topic(self, name: str) -> TopicMetadata:
        """The cached metadata of a topic; fetched if there is none."""
        return self._topics.get(name) or self.topics([name])[name]

    def forget(self, topic: str) -> None:
        """Drops the cached metadata of a topic, so that it is fetched again when next needed."""
        self._topics.pop(topic, None)

    # Offsets

    def list_offsets(
        self,
        wanted: Mapping[tuple[str, int], int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by time: EARLIEST, LATEST, MAX_TIMESTAMP, or a timestamp in ms, for each partition.

        LATEST is the high watermark, and with READ_COMMITTED the last stable offset.
        """
        found: dict[TopicPartition, ListedOffset] = {}
        missing = {TopicPartition(*key): timestamp for key, timestamp in wanted.items()}

        def attempt() -> dict[TopicPartition, ListedOffset]:
            problem = self._list_offsets_once(missing, found, isolation)
            if problem is not None:
                raise problem
            return {key: found[key] for key in (TopicPartition(*key) for key in wanted)}

        return self._retrying(attempt)

    # Brokers

    def leader(self, topic: str, partition: int) -> Connection:
        """A connection to the partition's leader, with no request in flight."""
        return self._retrying(lambda: self._leader_once(topic, partition))

    def coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> Connection:
        """A connection to the coordinator of a group, transactional id or share group."""
        return self._retrying(lambda: self._coordinator_once(key, kind))

    def any_broker(self) -> Connection:
        """A connection to any broker that answers."""
        return self._retrying(self._any_once)

    def broker(self, node_id: int) -> Connection:
        """A connection to this broker; raises if it is unknown or cannot be reached at once."""
        address = self._brokers.get(node_id)
        if address is None:
            raise ConnectionFailed(f"broker {node_id} is not in the cluster's metadata")
        return self.connect(address)

    def broker_addresses(self) -> dict[int, Address]:
        """The brokers in the last metadata; empty before the first request."""
        return dict(self._brokers)

    def broker_ids(self) -> list[int]:
        """The ids of the brokers in the last metadata."""
        return sorted(self._brokers)

    # Single attempts, without retries

    def _ask_topics(self, names: list[str] | None, *, missing_ok: bool) -> dict[str, TopicMetadata]:
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = self._any_once().call(request, MetadataResponse)
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, doing="ask for metadata")
        if answer.brokers:
            self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        found: dict[str, TopicMetadata] = {}
        for topic in answer.topics:
            if (metadata := self._learn(topic, missing_ok=missing_ok or names is None)) is not None:
                found[metadata.name] = metadata
        if names is None or missing_ok:
            return found
        return {name: found[name] for name in names}

    def _learn(self, topic: MetadataResponseTopic, *, missing_ok: bool) -> TopicMetadata | None:
        name = topic.name or ""
        if topic.error_code in _UNKNOWN:
            self._topics.pop(name, None)
            if missing_ok and topic.error_code != _BAD_NAME:
                return None
            message = "invalid topic name" if topic.error_code == _BAD_NAME else "there is no such topic"
            raise UnknownTopic(topic.error_code, message, topic=name)
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise BrokerError(topic.error_code, topic=name, doing="ask for metadata")
        metadata = TopicMetadata(
            name,
            bytes(topic.topic_id),
            topic.is_internal,
            tuple(
                PartitionMetadata(
                    one.partition_index,
                    one.leader_id,
                    one.leader_epoch,
                    tuple(one.replica_nodes),
                    tuple(one.isr_nodes),
                )
                for one in sorted(topic.partitions, key=lambda one: one.partition_index)
            ),
        )
        self._topics[name] = metadata
        return metadata

    def leader_of(self, topic: str, partition: int) -> PartitionMetadata:
        """The partition, from cached metadata if possible; raises a retriable error while it has no leader."""
        metadata = self._topics.get(topic)
        if metadata is None or metadata.find(partition) is None:
            metadata = self._ask_topics([topic], missing_ok=False)[topic]
        found = metadata.partition(partition)
        if found.leader_id == NO_LEADER or found.leader_id not in self._brokers:
            self.forget(topic)
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, topic=topic, partition=partition)
        return found

    def _leader_once(self, topic: str, partition: int) -> Connection:
        try:
            return self.broker(self.leader_of(topic, partition).leader_id)
        except ConnectionFailed:
            self.forget(topic)
            raise

    def _list_offsets_once(
        self,
        missing: dict[TopicPartition, int],
        found: dict[TopicPartition, ListedOffset],
        isolation: IsolationLevel,
    ) -> ClientError | None:
        """Moves answered partitions from `missing` to `found`; returns the error that prevented the rest, if any."""
        problem: ClientError | None = None
        unknown = {key.topic for key in missing} - self._topics.keys()
        if unknown:
            self._ask_topics(sorted(unknown), missing_ok=False)
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for key in missing:
            try:
                leader = self.leader_of(*key)
            except BrokerError as error:
                if isinstance(error, UnknownTopic):
                    self.forget(key.topic)
                problem = error
                continue
            by_leader.setdefault(leader.leader_id, {})[key] = leader.leader_epoch
        asked: list[tuple[Connection, Sent, Iterable[TopicPartition]]] = []
        try:
            for leader_id, epochs in by_leader.items():
                try:
                    connection = self.broker(leader_id)
                    asked.append((connection, self._send_list_offsets(connection, epochs, missing, isolation), epochs))
                except (ConnectionFailed, RequestTimedOut) as error:
                    problem = self._forget_leaders(epochs, error)
            for connection, sent, keys in asked:
                try:
                    answer = connection.receive(sent, ListOffsetsResponse)
                except (ConnectionFailed, RequestTimedOut) as error:
                    problem = self._forget_leaders(keys, error)
                    continue
                problem = self._take_offsets(answer, missing, found) or problem
        finally:
            # After an error, responses may still be unread: close those connections.
            for connection, _, _ in asked:
                if connection.in_flight:
                    connection.close()
        if missing and problem is None:
            topic, partition = next(iter(missing))
            message = "the leader's response did not include this partition"
            problem = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, message, topic=topic, partition=partition)
        return problem

    def _send_list_offsets(
        self,
        connection: Connection,
        epochs: Mapping[TopicPartition, int],
        timestamps: Mapping[TopicPartition, int],
        isolation: IsolationLevel,
    ) -> Sent:
        topics: dict[str, ListOffsetsTopic] = {}
        for key, epoch in epochs.items():
            topic = topics.setdefault(key.topic, ListOffsetsTopic(name=key.topic, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=key.partition, current_leader_epoch=epoch, timestamp=timestamps[key]
                )
            )
        version = connection.version_of(ListOffsetsRequest)
        if version < _MAX_TIMESTAMP_VERSION and any(timestamps[key] == MAX_TIMESTAMP for key in epochs):
            raise UnsupportedApi(f"{connection.address} is too old to list offsets by largest timestamp")
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=isolation,
            topics=list(topics.values()),
            timeout_ms=self.settings.request_timeout_ms,
        )
        return connection.send(request, version=version)

    def _take_offsets(
        self,
        answer: ListOffsetsResponse,
        missing: dict[TopicPartition, int],
        found: dict[TopicPartition, ListedOffset],
    ) -> BrokerError | None:
        problem: BrokerError | None = None
        for topic in answer.topics:
            for one in topic.partitions:
                key = TopicPartition(topic.name, one.partition_index)
                if key not in missing:
                    continue
                if one.error_code == ErrorCode.NONE:
                    found[key] = ListedOffset(one.offset, one.timestamp, one.leader_epoch)
                    del missing[key]
                    continue
                self.forget(key.topic)
                kind = UnknownTopic if one.error_code in _UNKNOWN else BrokerError
                problem = kind(one.error_code, topic=key.topic, partition=key.partition, doing="look up offsets")
                if not problem.code.retriable:
                    raise problem
        return problem

    def _forget_leaders(self, keys: Iterable[TopicPartition], error: ClientError) -> ClientError:
        if isinstance(error, AuthenticationFailed):
            raise error
        for key in keys:
            self.forget(key.topic)
        return error

    def _coordinator_once(self, key: str, kind: CoordinatorKind) -> Connection:
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        answer = self._any_once().call(request, FindCoordinatorResponse)
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code != ErrorCode.NONE:
            raise BrokerError(found.error_code, found.error_message, doing=f"find the coordinator of {key}")
        return self.connect(Address(found.host, found.port))

    def _any_once(self) -> Connection:
        for connections in self._connections.values():
            for connection in connections:
                if _usable(connection):
                    return connection
        addresses = list(self._brokers.values())
        random.shuffle(addresses)
        bootstrap = [address for address in self.settings.bootstrap_servers if address not in addresses]
        random.shuffle(bootstrap)
        problems: list[str] = []
        for address in addresses + bootstrap:
            try:
                return self.connect(address)
            except AuthenticationFailed:
                raise
            except (ConnectionFailed, RequestTimedOut) as error:
                problems.append(str(error))
        names = ",".join(str(address) for address in self.settings.bootstrap_servers)
        raise ConnectionFailed(f"cannot reach a Kafka cluster at {names}: {'; '.join(problems)}")

    def connect(self, address: Address) -> Connection:
        """A connection with no request in flight: a cached one if possible, or a new one."""
        kept = [connection for connection in self._connections.get(address, []) if not connection.closed]
        self._connections[address] = kept
        for connection in kept:
            if _usable(connection):
                return connection
            if connection.in_flight == 0:
                connection.close()
        connection = Connection(self.settings, address, self._credentials)
        kept.append(connection)
        self._reached = True
        return connection

    def _retrying(self, attempt: Callable[[], T]) -> T:
        retries = Retries(self.settings)
        while True:
            try:
                return attempt()
            except (UnsupportedApi, AuthenticationFailed):
                raise
            except (ConnectionFailed, RequestTimedOut) as error:
                pause_s = retries.next_pause_s(None if self._reached else FIRST_CONTACT_TIMEOUT_S)
                if pause_s is None:
                    raise error from None
            except BrokerError as error:
                pause_s = retries.next_pause_s(UNKNOWN_TOPIC_TIMEOUT_S if isinstance(error, UnknownTopic) else None)
                if pause_s is None or not passes(error):
                    raise error from None
            time.sleep(pause_s)


def passes(error: BrokerError) -> bool:
    """Whether the error is retriable."""
    return error_code(error.code).retriable and error.code != _BAD_NAME


def _usable(connection: Connection) -> bool:
    return not (connection.closed or connection.expired or connection.in_flight)
