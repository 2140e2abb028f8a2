"""Group coordinators on this broker: one host for every partition of `__consumer_offsets` that it leads.

A group belongs to the partition that its id hashes to, and its coordinator is that partition's leader. `Coordinators`
listens to those partitions: it starts a host and lets it load when this broker begins to lead one, and ends it when the
broker stops. What a host is, and what it promises, is in `penstock.coordinators`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.replicas.partition import InternalPartition
from penstock.broker.service import trace
from penstock.config import BrokerConfig
from penstock.coordinators.clock import SteadyClock
from penstock.coordinators.groups.config import GroupConfig, replace
from penstock.coordinators.groups.memory import GroupMemory
from penstock.coordinators.groups.requests import RequestInfo
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.groups.weighing import weigh
from penstock.coordinators.host import Asked, Pair, ShardHost
from penstock.coordinators.partitioning import partition_of
from penstock.coordinators.shard import Ticket, Turn
from penstock.log import Log
from penstock.metadata import CONSUMER_OFFSETS, MetadataDelta, MetadataImage, NewTopic, ResourceType
from penstock.replication import Leader
from penstock.runtime import Future, Runtime
from penstock.runtime.eventlog import EventLog
from penstock.runtime.tasks import keep_running
from penstock.telemetry.samples import Histogram
from penstock.wire.codec import Message
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError, WireError
from penstock.wire.messages.group_records import GROUP_METADATA_KEY, OFFSET_COMMIT_KEY

if TYPE_CHECKING:
    from penstock.broker.quorum.forwarding import Administration
    from penstock.broker.quorum.shell import MetadataQuorum
    from penstock.broker.replicas.partitions import PartitionManager

READ_BYTES = 1 << 20
RESTARTS_APART_MS = 10_000.0
"""A coordinator that fails twice within this time is left alone for a moment before it is loaded again."""
RESTART_PAUSE_MS = 1_000.0
NO_COORDINATOR = -1
WEIGHINGS_APART_MS = 1_000.0
"""Groups are weighed no more often than that (`penstock.coordinators.groups.memory`)."""
CONSUMER_GROUP_METADATA_KEY = 3

R = TypeVar("R")
M = TypeVar("M", bound=Message)

GroupHost = ShardHost[GroupShard]
GroupCall = Callable[[GroupShard, Turn, Ticket, RequestInfo, R], None]
Refused = Callable[[ErrorCode], Message]


class Counts(NamedTuple):
    """What the metrics tell of all hosts together."""

    loading: int
    active: int
    failed: int
    waiting: int


class Written:
    """What coordinators have written since the broker started, by kind: the records tell what happened."""

    __slots__ = (
        "batches",
        "classic_groups",
        "consumer_epochs",
        "offset_tombstones",
        "offsets",
        "records",
    )

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.offsets = 0
        self.offset_tombstones = 0
        self.classic_groups = 0
        self.consumer_epochs = 0

    def count(self, records: list[Pair]) -> None:
        self.batches += 1
        self.records += len(records)
        for key, value in records:
            kind = key[1]
            if kind == OFFSET_COMMIT_KEY:
                if value is None:
                    self.offset_tombstones += 1
                else:
                    self.offsets += 1
            elif value is not None:
                self.classic_groups += kind == GROUP_METADATA_KEY and has_protocol(value)
                self.consumer_epochs += kind == CONSUMER_GROUP_METADATA_KEY


class Coordinators:
    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        quorum: MetadataQuorum,
        manager: PartitionManager,
        administration: Administration,
    ) -> None:
        self._runtime = runtime
        self._events = events
        self._config = config
        self.group_memory = GroupMemory()
        self.group_memory.weigh_soon = self._weigh_soon
        self._group_config = group_config(config, self.group_memory)
        self._quorum = quorum
        self._manager = manager
        self._administration = administration
        self._clock = SteadyClock(runtime)
        self._hosts: dict[int, GroupHost] = {}
        self._partitions: dict[int, InternalPartition] = {}
        self._restarted_ms: dict[int, float] = {}
        self._to_load: deque[tuple[GroupHost, InternalPartition, Log]] = deque()
        self._is_loading = False
        self._is_closed = False
        self._weighed_ms = float("-inf")
        self.load_times = Histogram()
        self.written = Written()
        self.failures = 0
        """How often a coordinator had to be thrown away and loaded again."""

    def start(self) -> None:
        """Take up the partitions that this broker leads already, and follow what happens to them."""
        self._manager.listen(CONSUMER_OFFSETS, self)
        self._quorum.add_publisher(self.on_image)

    def configure(self, config: BrokerConfig) -> None:
        self._config = config
        self._group_config = group_config(config, self.group_memory)
        for index, host in self._hosts.items():
            self._configure(host, self._partitions[index])

    def close(self) -> None:
        """Answer everyone, and coordinate nothing any more."""
        self._is_closed = True
        self._clock.stop()
        hosts, self._hosts = self._hosts, {}
        for host in hosts.values():
            host.close()

    # ---- requests

    def ask(
        self,
        group_id: str,
        call: GroupCall[R],
        context: Request,
        request: R,
        refused: Refused,
        *,
        writes: bool = True,
    ) -> Asked:
        """Let the group's coordinator serve this request; `writes`: serving it means to write."""
        host = self._host_of(group_id)
        if host is None:
            return nobody(refused)
        if writes and not host.is_writable:
            return host.unavailable(refused)
        shard = host.shard
        info = RequestInfo(context.version, context.client_id, f"/{context.host}")
        return host.submit(lambda turn, ticket: call(shard, turn, ticket, info, request), refused)

    def hosts(self) -> Iterator[GroupHost]:
        """In the order of their partitions."""
        for index in sorted(self._hosts):
            yield self._hosts[index]

    async def settled(self, asked: Asked, kind: type[M]) -> M:
        """The answer, when it is there: for those who ask several coordinators and put their answers together."""
        if not asked.is_settled:
            done: Future[None] = self._runtime.future()
            asked.then(lambda _: done.set_result(None))
            await done
        if asked.error is not None:
            raise asked.error
        assert isinstance(asked.answer, kind)
        return asked.answer

    def _host_of(self, group_id: str) -> GroupHost | None:
        topic = self._quorum.image.topic(CONSUMER_OFFSETS)
        return None if topic is None else self._hosts.get(partition_of(group_id, len(topic.partitions)))

    # ---- where coordinators are

    async def ensure_topic(self) -> None:
        """Create the topic if it is not there. Raises KafkaError."""
        if self._quorum.image.topic(CONSUMER_OFFSETS) is not None:
            return
        topic = self.new_topic(CONSUMER_OFFSETS)
        error = (await self._administration.create_topics([topic])).get(CONSUMER_OFFSETS)
        if error is not None and error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            self._events.error("topic not created", topic=CONSUMER_OFFSETS, error=error.message)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)

    def new_topic(self, name: str) -> NewTopic:
        """A topic that is created because someone uses it: an internal one as its coordinators need it."""
        if name != CONSUMER_OFFSETS:
            return NewTopic(name)
        config = self._config
        live = sum(not broker.fenced for broker in self._quorum.image.brokers.values())
        return NewTopic(
            CONSUMER_OFFSETS,
            config.offsets_topic_num_partitions,
            min(config.offsets_topic_replication_factor, max(live, 1)),
            (),
            (
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ),
        )

    def coordinator_of(self, group_id: str) -> int:
        """The broker that leads the group's partition; -1 if none does, or the topic is not there.

        A broker that is cut off does not name itself: it serves no group then.
        """
        topic = self._quorum.image.topic(CONSUMER_OFFSETS)
        if topic is None:
            return NO_COORDINATOR
        index = partition_of(group_id, len(topic.partitions))
        here = self._partitions.get(index)
        if here is not None and here.leader is not None and here.leader.stranded:
            return NO_COORDINATOR
        return topic.partitions[index].leader

    # ---- what happens to the partitions

    def on_leader(self, partition: InternalPartition) -> None:
        if self._is_closed:
            return
        self.on_resign(partition)
        log, leader = partition.led()
        self._clock.start()
        image = self._quorum.image
        topic = image.topic(CONSUMER_OFFSETS)
        host = ShardHost(
            GroupShard(self._group_config, partition.index + 1 if topic is None else len(topic.partitions)),
            PartitionJournal(self._runtime, partition, log, leader),
            self._runtime,
            self._clock,
            lambda: self._quorum.image,
            self._failed,
        )
        self._hosts[partition.index] = host
        self._partitions[partition.index] = partition
        host.on_written = self.written.count
        self._configure(host, partition)
        if log.end_offset == log.start_offset:
            host.loaded()
        else:
            self._to_load.append((host, partition, log))
            if not self._is_loading:
                self._is_loading = True
                loading = keep_running(self._runtime, self._load, "load coordinators")
                self._runtime.spawn(loading, "load coordinators")

    async def _load(self) -> None:
        """One after another: fifty at once would each take their slice in every turn of the loop."""
        while self._to_load:
            host, partition, log = self._to_load.popleft()
            if not host.is_loading:
                continue
            began_ms = self._runtime.now_ms()
            await host.load(LogSource(log))
            if host.is_active:
                took_ms = self._runtime.now_ms() - began_ms
                self.load_times.record(took_ms)
                self._events.info("coordinator loaded", partition=str(partition), took_ms=round(took_ms))
        self._is_loading = False

    def on_resign(self, partition: InternalPartition) -> None:
        host = self._hosts.pop(partition.index, None)
        if host is not None:
            host.resign()

    def on_high_watermark(self, partition: InternalPartition) -> None:
        host = self._hosts.get(partition.index)
        if host is not None:
            host.on_high_watermark()

    async def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Groups follow the topics that they read, and their own settings."""
        if (ResourceType.TOPIC, CONSUMER_OFFSETS) in delta.configs_changed:
            for index, host in self._hosts.items():
                self._configure(host, self._partitions[index])
        of_groups = any(kind == ResourceType.GROUP for kind, _ in delta.configs_changed)
        if delta.topics_created or delta.topics_changed or delta.topics_deleted or of_groups:
            for host in list(self.hosts()):
                host.on_image(delta)

    def _configure(self, host: GroupHost, partition: InternalPartition) -> None:
        config = self._config
        host.codec = Codec(config.offsets_topic_compression_codec)
        host.linger_ms = config.group_coordinator_append_linger_ms
        host.write_timeout_ms = config.offsets_commit_timeout_ms
        if partition.log is not None:
            host.shard.config = replace(self._group_config, batch_bytes_max=batch_bytes_max(partition.log))

    def _failed(self, host: GroupHost, error: Exception) -> None:
        """A host has given up. What it had served is loaded again; what it could not even load is left alone."""
        partition = next((self._partitions[index] for index, known in self._hosts.items() if known is host), None)
        if partition is None:
            return
        del self._hosts[partition.index]
        self.failures += 1
        if isinstance(error, OSError):
            # The disk, not what is on it: another broker can coordinate these groups, if this one makes way.
            self._runtime.fatal(f"{self._runtime.disk.root}/{partition} cannot be read: {error}", error)
        if isinstance(error, WireError):
            self._manager.roles.damage.suspect_all(partition)
        if not host.has_served:
            self._events.error(
                "coordinator not loaded",
                partition=str(partition),
                error=repr(error),
                trace=trace(error),
                hint="its groups have no coordinator until this broker is started again",
            )
            return
        self._events.error("coordinator restarts", partition=str(partition), error=repr(error), trace=trace(error))
        now_ms = self._runtime.now_ms()
        last_ms = self._restarted_ms.get(partition.index)
        self._restarted_ms[partition.index] = now_ms
        if last_ms is not None and now_ms - last_ms < RESTARTS_APART_MS:
            self._runtime.call_later(RESTART_PAUSE_MS, self._restart, partition)
        else:
            self._runtime.call_soon(self._restart, partition)

    def _restart(self, partition: InternalPartition) -> None:
        leader = partition.leader
        if leader is not None and not leader.stranded and partition.index not in self._hosts:
            self.on_leader(partition)

    # ---- memory

    def _weigh_soon(self) -> None:
        since_ms = self._runtime.now_ms() - self._weighed_ms
        self._runtime.call_later(max(0.0, WEIGHINGS_APART_MS - since_ms), self._begin_weighing)

    def _begin_weighing(self) -> None:
        self._weighed_ms = self._runtime.now_ms()
        self._runtime.spawn(self._weigh(), "weigh groups")

    async def _weigh(self) -> None:
        self.group_memory.weighing()
        slices = Slices(self._runtime)
        total = sum([await slices.drive(weigh(host.shard)) for host in list(self._hosts.values())])
        self.group_memory.weighed(total)

    # ---- metrics

    def counts(self) -> Counts:
        hosts = self._hosts.values()
        led = sum(partition.leader is not None for partition in self._partitions.values())
        return Counts(
            sum(host.is_loading for host in hosts),
            sum(host.is_active for host in hosts),
            max(0, led - len(self._hosts)),
            sum(host.waiting for host in hosts),
        )


class PartitionJournal:
    """A partition under one leader epoch, as the host of its shard sees it (`penstock.coordinators.host.Journal`)."""

    __slots__ = ("_leader", "_log", "_partition", "_wall_ms")

    def __init__(self, runtime: Runtime, partition: InternalPartition, log: Log, leader: Leader) -> None:
        self._wall_ms = runtime.wall_ms
        self._partition = partition
        self._log = log
        self._leader = leader

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        return self._leader.high_watermark

    @property
    def is_writable(self) -> bool:
        return not self._leader.under_min_isr

    @property
    def batch_bytes_max(self) -> int:
        return batch_bytes_max(self._log)

    def append(self, batch: bytearray) -> int:
        if self._partition.leader is not self._leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._partition.append_own(memoryview(batch), self._wall_ms()).last_offset + 1


class LogSource:
    """A log, as it is read to load a shard (`penstock.coordinators.loading.Source`)."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    async def read(self, offset: int, end_offset: int) -> bytes:
        while True:
            version = self._log.version
            found = await self._log.reader.read(offset, READ_BYTES, end_offset)
            found.file.retain()
            try:
                return await found.file.pread(found.size, found.position)
            except FileNotFoundError:
                # Compaction or retention has put another segment in its place.
                if self._log.version == version:
                    raise
            finally:
                found.file.release()


def has_protocol(value: bytes) -> bool:
    """Whether the record of a classic group tells of a generation with members: version, type, generation, protocol."""
    protocol_at = 2 + 2 + int.from_bytes(value[2:4]) + 4
    return value[protocol_at : protocol_at + 2] != b"\xff\xff"


def batch_bytes_max(log: Log) -> int:
    return min(log.config.max_message_bytes, log.config.segment_bytes)


def nobody(refused: Refused) -> Asked:
    """What one gets who asks a broker that does not coordinate the group."""
    asked = Asked(refused)
    asked.refuse(ErrorCode.NOT_COORDINATOR)
    return asked


def group_config(config: BrokerConfig, memory: GroupMemory) -> GroupConfig:
    """What groups need of the broker's configuration."""
    memory.bytes_max = config.penstock_group_state_bytes_max
    return replace(GroupConfig.part_of(config), memory=memory)
