"""All hosts of one kind of coordinator on this broker.

A `Coordinator` follows the leadership of the partitions of its topic: it starts and loads a host when this broker
becomes leader of a partition, restarts it after a failure, and closes it when the broker stops leading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from penstock.broker.coordination.journal import PartitionJournal, batch_bytes_max
from penstock.broker.coordination.kind import Kind, S
from penstock.broker.coordination.loading import Loader
from penstock.broker.net.request import Request
from penstock.broker.replicas.partition import InternalPartition
from penstock.broker.service import trace
from penstock.config import BrokerConfig
from penstock.coordinators.host import Courier, PendingReply, ShardHost
from penstock.coordinators.shard import RequestInfo, Ticket, Turn, Writer
from penstock.coordinators.turn import Pair
from penstock.metadata import MetadataDelta, MetadataImage, NewTopic, ResourceType
from penstock.runtime import Future, Runtime
from penstock.runtime.eventlog import EventLog
from penstock.runtime.steady_clock import SteadyClock
from penstock.telemetry.samples import Histogram
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError, WireError

if TYPE_CHECKING:
    from penstock.broker.quorum.forwarding import Administration
    from penstock.broker.quorum.shell import MetadataQuorum
    from penstock.broker.replicas.partitions import PartitionManager

RESTARTS_APART_MS = 10_000.0
"""A coordinator that fails twice within this time is loaded again only after a pause."""
RESTART_PAUSE_MS = 1_000.0
NO_COORDINATOR = -1

R = TypeVar("R")
M = TypeVar("M", bound=Message)

Refused = Callable[[ErrorCode], Message]


class Counts(NamedTuple):
    """Totals over all hosts, for the metrics."""

    loading: int
    active: int
    failed: int
    waiting: int


class Coordinator(Generic[S]):
    def __init__(
        self,
        kind: Kind[S],
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        quorum: MetadataQuorum,
        manager: PartitionManager,
        administration: Administration,
        clock: SteadyClock,
        loader: Loader,
        courier: Courier,
    ) -> None:
        self.kind = kind
        self.topic = kind.topic
        self._runtime = runtime
        self._events = events
        self._config = config
        self._quorum = quorum
        self._manager = manager
        self._administration = administration
        self._clock = clock
        self._loader = loader
        self._courier = courier
        self._hosts: dict[int, ShardHost[S]] = {}
        self._partitions: dict[int, InternalPartition] = {}
        self._restarted_ms: dict[int, float] = {}
        self._is_closed = False
        self.load_times = Histogram()
        self.batches = 0
        self.records = 0
        """Batches and records that coordinators have written."""
        self.failures = 0
        """How often a coordinator was discarded and loaded again."""

    def start(self) -> None:
        """Start hosts for the partitions that this broker already leads, and follow leadership changes."""
        self._manager.listen(self.topic, self)
        self._quorum.add_publisher(self.on_image)

    def configure(self, config: BrokerConfig) -> None:
        self._config = config
        for index, host in self._hosts.items():
            self._configure(host, self._partitions[index])

    def close(self) -> None:
        """Answer all pending requests and stop coordinating."""
        self._is_closed = True
        hosts, self._hosts = self._hosts, {}
        for host in hosts.values():
            host.close()

    # ---- requests

    def ask(
        self,
        key: str,
        call: Callable[[S, Turn, Ticket, RequestInfo, R], None],
        request: Request,
        body: R,
        refused: Refused,
        *,
        writes: bool = True,
        claim: Writer | None = None,
    ) -> PendingReply:
        """Let the coordinator of this key serve the request. `writes`: the request must write records. `claim`: the
        producer or transaction marker for which it writes."""
        host = self._host_of(key)
        if host is None:
            return nobody(refused)
        if writes and not host.is_writable:
            return host.unavailable(refused)
        shard = host.shard
        may_describe = request.may_describe if request.is_restricted else None
        info = RequestInfo(request.version, request.client_id, f"/{request.host}", may_describe)
        return host.submit(lambda turn, ticket: call(shard, turn, ticket, info, body), refused, claim)

    def ask_partition(
        self,
        index: int,
        call: Callable[[S, Turn, Ticket, R], None],
        body: R,
        refused: Refused,
        *,
        claim: Writer,
    ) -> PendingReply:
        """Let the coordinator in this partition of the topic write for a producer or a transaction marker."""
        host = self._hosts.get(index)
        if host is None:
            return nobody(refused)
        if not host.is_writable:
            return host.unavailable(refused)
        shard = host.shard
        return host.submit(lambda turn, ticket: call(shard, turn, ticket, body), refused, claim)

    def hosts(self) -> Iterator[ShardHost[S]]:
        """All hosts, in partition order."""
        for index in sorted(self._hosts):
            yield self._hosts[index]

    async def settled(self, pending_reply: PendingReply, kind: type[M]) -> M:
        """Wait for the answer: for APIs that combine the answers of several coordinators."""
        if not pending_reply.is_settled:
            done: Future[None] = self._runtime.future()
            pending_reply.then(lambda _: done.set_result(None))
            await done
        if pending_reply.error is not None:
            raise pending_reply.error
        assert isinstance(pending_reply.answer, kind)
        return pending_reply.answer

    def partition_of(self, key: str) -> int | None:
        """The partition of this key; None if the topic does not exist yet."""
        topic = self._quorum.image.topic(self.topic)
        return None if topic is None else self.kind.partition_of(key, len(topic.partitions))

    def _host_of(self, key: str) -> ShardHost[S] | None:
        index = self.partition_of(key)
        return None if index is None else self._hosts.get(index)

    # ---- where coordinators are

    async def ensure_topic(self) -> None:
        """Create the topic if it does not exist. Raises KafkaError."""
        if self._quorum.image.topic(self.topic) is not None:
            return
        error = (await self._administration.create_topics([self.new_topic()])).get(self.topic)
        if error is not None and error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            self._events.error("topic not created", topic=self.topic, error=error.message)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)

    def new_topic(self) -> NewTopic:
        live = sum(not broker.fenced for broker in self._quorum.image.brokers.values())
        return self.kind.new_topic(self._config, live)

    def broker_of(self, key: str) -> int:
        """The broker that leads the partition of this key; -1 if there is no leader or no topic.

        A leader that is cut off from the cluster does not name itself, because it cannot serve requests then.
        """
        topic = self._quorum.image.topic(self.topic)
        if topic is None:
            return NO_COORDINATOR
        index = self.kind.partition_of(key, len(topic.partitions))
        here = self._partitions.get(index)
        if here is not None and here.leader is not None and here.leader.stranded:
            return NO_COORDINATOR
        return topic.partitions[index].leader

    # ---- leadership changes and failures

    def on_leader(self, partition: InternalPartition) -> None:
        if self._is_closed:
            return
        self.on_resign(partition)
        log, leader = partition.led()
        self._clock.start()
        host = ShardHost(
            self.kind.new_shard(self._config, batch_bytes_max(log)),
            PartitionJournal(self._runtime, partition, log, leader),
            self._runtime,
            self._clock,
            lambda: self._quorum.image,
            self._courier,
            self._failed,
        )
        self._hosts[partition.index] = host
        self._partitions[partition.index] = partition
        host.on_written = self._written
        self._configure(host, partition)
        if log.end_offset == log.start_offset:
            host.loaded()
        else:
            self._loader.load(str(partition), host, log, self.load_times.record)

    def on_resign(self, partition: InternalPartition) -> None:
        host = self._hosts.pop(partition.index, None)
        if host is not None:
            host.resign()

    def on_high_watermark(self, partition: InternalPartition) -> None:
        host = self._hosts.get(partition.index)
        if host is not None:
            host.on_high_watermark()

    async def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if (ResourceType.TOPIC, self.topic) in delta.configs_changed:
            for index, host in self._hosts.items():
                self._configure(host, self._partitions[index])
        if self.kind.is_concerned(delta):
            for host in list(self.hosts()):
                host.on_image(delta)

    def _configure(self, host: ShardHost[S], partition: InternalPartition) -> None:
        host.codec, host.linger_ms, host.write_timeout_ms = self.kind.write_settings(self._config)
        if partition.log is not None:
            self.kind.configure(host.shard, self._config, batch_bytes_max(partition.log))

    def _written(self, records: list[Pair]) -> None:
        self.batches += 1
        self.records += len(records)
        self.kind.count(records)

    def _failed(self, host: ShardHost[S], error: Exception) -> None:
        """A host has failed. Load it again if it had been loaded; a shard that could not be loaded stays closed."""
        partition = next((self._partitions[index] for index, known in self._hosts.items() if known is host), None)
        if partition is None:
            return
        del self._hosts[partition.index]
        self.failures += 1
        if isinstance(error, OSError):
            # The disk failed, not the data: stop this broker so that another one can take over.
            self._runtime.fatal(f"{self._runtime.disk.root}/{partition} cannot be read: {error}", error)
        if isinstance(error, WireError):
            self._manager.roles.damage.suspect_all(partition)
        if not host.has_served:
            self._events.error(
                "coordinator not loaded",
                partition=str(partition),
                error=repr(error),
                trace=trace(error),
                hint="its groups stay unavailable until this broker is restarted",
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


def nobody(refused: Refused) -> PendingReply:
    """The NOT_COORDINATOR answer of a broker that does not coordinate the key."""
    pending_reply = PendingReply(refused)
    pending_reply.refuse(ErrorCode.NOT_COORDINATOR)
    return pending_reply
