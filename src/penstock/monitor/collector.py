"""Asks a cluster for its state, through Kafka's protocol. Every answer of a broker is optional.

A broker that does not answer, a group that vanished, a request that is not authorised: each costs the figures that
depend on it, and is noted in `Observed.problems`. The methods are the parts of a sample (`pace`); none retries, because
the next round does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from penstock.client import Address, BrokerError, ClientError, Cluster, Connection
from penstock.monitor.observed import (
    BrokerShape,
    Disk,
    Ends,
    GroupView,
    Observed,
    PartitionShape,
    Place,
    Reading,
    Shape,
    TopicShape,
)
from penstock.monitor.scraping import WANTED_OF_BROKERS, WANTED_OF_PIPELINES, ScrapeFailed, scrape
from penstock.wire.errors import ErrorCode, WireError
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from penstock.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from penstock.wire.records import read_header
from penstock.wire.schema import versions_of

T = TypeVar("T")

LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
FENCED_FROM: Final = 2
"""The version of DescribeCluster that lists fenced brokers too."""
GROUPS_OF_REQUEST_FROM: Final = 8
"""The version of OffsetFetch that asks for several groups at once."""
NAMES_UP_TO: Final = 9
"""The last version of OffsetFetch that names topics; later ones have ids."""
GROUPS_AT_ONCE_MAX: Final = 200
GROUPS_MAX: Final = 20_000
TOPICS_AT_ONCE_MAX: Final = 500
FIRST_BATCH_BYTES: Final = 4_096
FIRST_BATCHES_MAX: Final = 100
"""Partitions whose first unread batch is fetched in one round, to learn its time."""
FETCH_NAMES_UP_TO: Final = 12
TOPIC_RESOURCE: Final = 2
MIN_ISR: Final = "min.insync.replicas"


class Collector:
    """Reads one cluster into an `Observed`. Not thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        brokers: Mapping[int, str] | None = None,
        pipelines: Mapping[str, str] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._endpoints = dict(brokers or {})
        self._pipelines = dict(pipelines or {})
        self._now_s = now_s
        self.observed = Observed()

    # ---- the parts of a sample

    def shape(self) -> None:
        """Brokers, topics, leaders, ISRs and reassignments. Raises ClientError if no broker answers."""
        connection = self._cluster.any_broker()
        fenced = connection.version_of(DescribeClusterRequest) >= FENCED_FROM
        described = connection.call(DescribeClusterRequest(include_fenced_brokers=fenced), DescribeClusterResponse)
        if described.error_code != ErrorCode.NONE:
            raise BrokerError(described.error_code, described.error_message, doing="describe the cluster")
        answer = connection.call(MetadataRequest(None, allow_auto_topic_creation=False), MetadataResponse)
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, doing="ask for metadata")
        serving = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
        brokers = {}
        for one in described.brokers:
            is_up = one.broker_id in serving and not one.is_fenced
            answer_ms = self._answer_ms(serving[one.broker_id]) if is_up else None
            address = str(Address(one.host, one.port))
            brokers[one.broker_id] = BrokerShape(one.broker_id, address, one.rack, is_up, answer_ms)
        topics = {}
        for topic in answer.topics:
            if topic.name is None or topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                continue
            partitions = [
                PartitionShape(p.partition_index, p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes))
                for p in topic.partitions
            ]
            partitions.sort()
            topics[topic.name] = TopicShape(topic.name, bytes(topic.topic_id), topic.is_internal, tuple(partitions))
        shape = Shape(
            cluster_id=described.cluster_id,
            controller_id=described.controller_id,
            brokers=brokers,
            topics=topics,
            reassigning=self._attempt(lambda: self._reassigning(connection), "list reassignments") or frozenset(),
        )
        shape.under_min_isr = self._under_min_isr(shape)
        self.observed.shape = shape

    def ends(self) -> None:
        """The high watermark of every partition that has a leader."""
        self.observed.ends.take(self._offsets(LATEST), self._now_s())

    def starts(self) -> None:
        """The first offset of every partition that has a leader."""
        self.observed.starts = self._offsets(EARLIEST)

    def _offsets(self, timestamp: int) -> Ends:
        shape = self.observed.shape
        by_leader: dict[int, list[ListOffsetsTopic]] = {}
        found: Ends = {}
        for topic in shape.topics.values():
            found[topic.name] = [-1] * (topic.partitions[-1].number + 1 if topic.partitions else 0)
            asked: dict[int, list[ListOffsetsPartition]] = {}
            for partition in topic.partitions:
                if partition.leader >= 0:
                    wanted = ListOffsetsPartition(partition_index=partition.number, timestamp=timestamp)
                    asked.setdefault(partition.leader, []).append(wanted)
            for leader, partitions in asked.items():
                by_leader.setdefault(leader, []).append(ListOffsetsTopic(name=topic.name, partitions=partitions))
        for leader, topics in by_leader.items():
            request = ListOffsetsRequest(replica_id=CONSUMER, topics=topics, timeout_ms=self._timeout_ms)
            answer = self._ask(leader, request, ListOffsetsResponse, "list offsets")
            for told in answer.topics if answer is not None else ():
                row = found.get(told.name)
                for one in told.partitions:
                    if row is not None and one.error_code == ErrorCode.NONE and one.partition_index < len(row):
                        row[one.partition_index] = one.offset
        return found

    def disks(self) -> None:
        """Sizes of replicas, replica lag and free space, of every broker."""
        for broker in self._up():
            answer = self._ask(broker, DescribeLogDirsRequest(None), DescribeLogDirsResponse, "ask for log directories")
            if answer is None or answer.error_code != ErrorCode.NONE:
                continue
            disk = _disk(answer)
            self.observed.disks.setdefault(broker, Reading()).take(disk, self._now_s())
            self._note_behind(broker, disk)
        for gone in self.observed.disks.keys() - self.observed.shape.brokers.keys():
            del self.observed.disks[gone]

    def groups(self) -> None:
        """The groups, and where they have committed. Members are kept from the last call of `members`."""
        known = self.observed.groups.value or {}
        found: dict[str, GroupView] = {}
        for broker in self._up():
            listed = self._ask(broker, ListGroupsRequest(), ListGroupsResponse, "list groups")
            if listed is None or listed.error_code != ErrorCode.NONE:
                continue
            views: dict[str, GroupView] = {}
            for one in listed.groups:
                if one.protocol_type not in ("consumer", "") or len(found) + len(views) >= GROUPS_MAX:
                    continue
                old = known.get(one.group_id)
                views[one.group_id] = GroupView(
                    one.group_id,
                    one.group_state,
                    (one.group_type or "classic").lower(),
                    broker,
                    {},
                    old.members if old is not None else None,
                    old.assignor if old is not None else "",
                    old.assigned if old is not None else (),
                )
            for name, committed in self._committed(broker, list(views)):
                found[name] = views[name]._replace(committed=committed)
        self.observed.groups.take(found, self._now_s())

    def members(self) -> None:
        """How many members each group has, and which partitions are theirs."""
        groups = self.observed.groups.value or {}
        by_coordinator: dict[tuple[int, str], list[str]] = {}
        for view in groups.values():
            by_coordinator.setdefault((view.coordinator, view.protocol), []).append(view.name)
        for (broker, protocol), names in by_coordinator.items():
            for piece in _pieces(names, GROUPS_AT_ONCE_MAX):
                told = self._consumer_members if protocol == "consumer" else self._classic_members
                for name, assignor, assigned in told(broker, piece):
                    groups[name] = groups[name]._replace(members=len(assigned), assignor=assignor, assigned=assigned)

    def scrapes(self) -> None:
        """The Prometheus endpoints of brokers and pipelines."""
        observed = self.observed
        for broker, address in self._endpoints.items():
            found = self._scraped(address, WANTED_OF_BROKERS)
            if found is not None:
                observed.scrapes.setdefault(broker, Reading()).take(found, self._now_s())
            else:
                observed.scrapes.pop(broker, None)
        for name, address in self._pipelines.items():
            found = self._scraped(address, WANTED_OF_PIPELINES)
            observed.pipelines_up[name] = found is not None
            if found is not None:
                observed.pipelines.setdefault(name, Reading()).take(found, self._now_s())

    def first_times(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """The time of the record at an offset, in ms, for at most `FIRST_BATCHES_MAX` partitions.

        Read from the header of the batch that holds it; within a batch, times are interpolated.
        """
        found: dict[Place, int] = {}
        by_leader: dict[int, dict[str, list[FetchPartition]]] = {}
        for (name, index), offset in list(offsets.items())[:FIRST_BATCHES_MAX]:
            topic = self.observed.shape.topics.get(name)
            partition = next((p for p in topic.partitions if p.number == index), None) if topic is not None else None
            if partition is not None and partition.leader >= 0:
                wanted = FetchPartition(
                    partition=index, fetch_offset=offset, log_start_offset=-1, partition_max_bytes=FIRST_BATCH_BYTES
                )
                by_leader.setdefault(partition.leader, {}).setdefault(name, []).append(wanted)
        for leader, topics in by_leader.items():
            request = FetchRequest(
                replica_id=CONSUMER,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=FIRST_BATCH_BYTES * FIRST_BATCHES_MAX,
                topics=[FetchTopic(topic=name, partitions=asked) for name, asked in topics.items()],
            )
            answer = self._ask(leader, request, FetchResponse, "read times of records", version_max=FETCH_NAMES_UP_TO)
            for told in answer.responses if answer is not None else ():
                for one in told.partitions:
                    place = (told.topic, one.partition_index)
                    if one.records and place in offsets:
                        time_ms = _time_in_batch(one.records, offsets[place])
                        if time_ms is not None:
                            found[place] = time_ms
        return found

    # ---- asking

    @property
    def _timeout_ms(self) -> int:
        return self._cluster.settings.request_timeout_ms

    def _up(self) -> list[int]:
        return sorted(one.node_id for one in self.observed.shape.brokers.values() if one.is_up)

    def _connection(self, broker: int) -> Connection:
        host, _, port = self.observed.shape.brokers[broker].address.rpartition(":")
        return self._cluster.connect(Address(host.strip("[]"), int(port)))

    def _ask(
        self, broker: int, request: object, response: type[T], doing: str, *, version_max: int | None = None
    ) -> T | None:
        def ask() -> T:
            connection = self._connection(broker)
            version = connection.version_of(type(request))  # type: ignore[arg-type]
            if version_max is not None:
                version = min(version, version_max)
            return connection.call(request, response, version=version)  # type: ignore[type-var,arg-type]

        if broker not in self.observed.shape.brokers:
            return None
        return self._attempt(ask, f"{doing} of broker {broker}")

    def _attempt(self, ask: Callable[[], T], doing: str) -> T | None:
        try:
            return ask()
        except ClientError as error:
            self.observed.problems.append(f"could not {doing}: {error}")
            return None

    def _scraped(self, address: str, wanted: Iterable[str]) -> dict[str, float] | None:
        try:
            return scrape(address, wanted)
        except (ScrapeFailed, ValueError) as error:
            self.observed.problems.append(str(error))
            return None

    def _answer_ms(self, address: Address) -> float | None:
        """How long a broker takes to answer a request that costs it next to nothing."""
        try:
            connection = self._cluster.connect(address)
            began_s = time.monotonic()
            connection.call(MetadataRequest([], allow_auto_topic_creation=False), MetadataResponse)
            return (time.monotonic() - began_s) * 1000
        except ClientError as error:
            self.observed.problems.append(f"broker at {address} does not answer: {error}")
            return None

    @staticmethod
    def _reassigning(connection: Connection) -> frozenset[Place]:
        request = ListPartitionReassignmentsRequest(topics=None)
        answer = connection.call(request, ListPartitionReassignmentsResponse)
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, answer.error_message, doing="list reassignments")
        return frozenset((topic.name, one.partition_index) for topic in answer.topics for one in topic.partitions)

    def _under_min_isr(self, shape: Shape) -> tuple[Place, ...] | None:
        """Settings are only asked for where a replica is missing."""
        suspects = sorted({name for name, _ in shape.under_replicated()})
        minimum: dict[str, int] = {}
        for names in _pieces(suspects, TOPICS_AT_ONCE_MAX):
            request = DescribeConfigsRequest(
                [DescribeConfigsResource(TOPIC_RESOURCE, name, [MIN_ISR]) for name in names]
            )
            answer = self._attempt(
                lambda request=request: self._cluster.any_broker().call(request, DescribeConfigsResponse),  # type: ignore[misc]
                f"read {MIN_ISR}",
            )
            if answer is None:
                return None
            for result in answer.results:
                for config in result.configs:
                    if config.name == MIN_ISR and (config.value or "").isdecimal():
                        minimum[result.resource_name] = int(config.value or "1")
        return tuple(
            (name, p.number)
            for name in suspects
            for p in shape.topics[name].partitions
            if len(p.in_sync) < min(minimum.get(name, 1), len(p.replicas))
        )

    def _committed(self, broker: int, names: Sequence[str]) -> Iterator[tuple[str, dict[Place, int]]]:
        if not names:
            return
        try:
            version = min(self._connection(broker).version_of(OffsetFetchRequest), NAMES_UP_TO)
        except ClientError as error:
            self.observed.problems.append(f"could not ask broker {broker} for offsets: {error}")
            return
        at_once = GROUPS_AT_ONCE_MAX if version >= GROUPS_OF_REQUEST_FROM else 1
        for piece in _pieces(names, at_once):
            if version >= GROUPS_OF_REQUEST_FROM:
                request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None) for name in piece])
            else:
                request = OffsetFetchRequest(group_id=piece[0], topics=None)
            answer = self._ask(broker, request, OffsetFetchResponse, "ask for offsets", version_max=version)
            if answer is None:
                continue
            told: list[tuple[str, int, Sequence[OffsetFetchResponseTopics | OffsetFetchResponseTopic]]]
            told = [(g.group_id, g.error_code, g.topics) for g in answer.groups] or [
                (piece[0], answer.error_code, answer.topics)
            ]
            for name, code, topics in told:
                # A group that was deleted meanwhile is left out; the next round does not list it.
                if code == ErrorCode.NONE and name in piece:
                    yield (
                        name,
                        {
                            (topic.name, one.partition_index): one.committed_offset
                            for topic in topics
                            for one in topic.partitions
                            if one.error_code == ErrorCode.NONE and one.committed_offset >= 0
                        },
                    )

    def _classic_members(
        self, broker: int, names: list[str]
    ) -> Iterator[tuple[str, str, tuple[tuple[Place, ...], ...]]]:
        answer = self._ask(broker, DescribeGroupsRequest(names), DescribeGroupsResponse, "describe groups")
        for group in answer.groups if answer is not None else ():
            if group.error_code == ErrorCode.NONE and group.group_id in names:
                assigned = tuple(_classic_assignment(one.member_assignment) for one in group.members)
                yield group.group_id, group.protocol_data, assigned

    def _consumer_members(
        self, broker: int, names: list[str]
    ) -> Iterator[tuple[str, str, tuple[tuple[Place, ...], ...]]]:
        request = ConsumerGroupDescribeRequest(names)
        answer = self._ask(broker, request, ConsumerGroupDescribeResponse, "describe groups")
        for group in answer.groups if answer is not None else ():
            if group.error_code == ErrorCode.NONE and group.group_id in names:
                assigned = tuple(
                    tuple((t.topic_name, number) for t in one.assignment.topic_partitions for number in t.partitions)
                    for one in group.members
                )
                yield group.group_id, group.assignor_name, assigned

    def _note_behind(self, broker: int, disk: Disk) -> None:
        """Remembers since when each replica has been behind."""
        since, now_s = self.observed.behind_since_s, self._now_s()
        for place in disk.behind:
            since.setdefault((broker, place), now_s)
        for key in [key for key in since if key[0] == broker and key[1] not in disk.behind]:
            del since[key]


def _disk(answer: DescribeLogDirsResponse) -> Disk:
    well = [one for one in answer.results if one.error_code == ErrorCode.NONE]
    told = [one for one in well if one.total_bytes >= 0 and one.usable_bytes >= 0]
    sizes: dict[str, dict[int, int]] = {}
    behind: dict[Place, int] = {}
    for directory in well:
        for topic in directory.topics:
            row = sizes.setdefault(topic.name, {})
            for one in topic.partitions:
                if not one.is_future_key:
                    row[one.partition_index] = one.partition_size
                    if one.offset_lag > 0:
                        behind[topic.name, one.partition_index] = one.offset_lag
    return Disk(
        sum(one.total_bytes for one in told) if told else None,
        sum(one.usable_bytes for one in told) if told else None,
        sizes,
        behind,
    )


def _classic_assignment(data: bytes) -> tuple[Place, ...]:
    """The partitions in a member's assignment; empty if it is of another protocol."""
    from penstock.wire.codec import decode

    if len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big"), max(versions_of(ConsumerProtocolAssignment)))
    try:
        found, _ = decode(ConsumerProtocolAssignment, version, data, 2)
    except WireError:
        return ()
    return tuple((topic.topic, number) for topic in found.assigned_partitions for number in topic.partitions)


def _time_in_batch(data: bytes | memoryview, offset: int) -> int | None:
    try:
        header = read_header(data)
    except WireError:
        return None
    if header.max_timestamp < 0:
        return None
    if header.base_timestamp < 0 or header.last_offset_delta <= 0:
        return header.max_timestamp
    share = min(1.0, max(0.0, (offset - header.base_offset) / header.last_offset_delta))
    return int(header.base_timestamp + share * (header.max_timestamp - header.base_timestamp))


def _pieces(items: Sequence[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
