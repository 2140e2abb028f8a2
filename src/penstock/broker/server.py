"""One broker, from its data directory to its last answer.

Start: lock the directory, format it if it is new, open the metadata quorum, register with the controller, open the
partitions, listen. Stop: take no new connections, finish what is under way, close the logs so that the next start
need not look at them, say so on disk.
"""

from __future__ import annotations

from functools import partial

from penstock.broker.apis import HANDLERS
from penstock.broker.apis.fetch import Fetch
from penstock.broker.apis.produce import Produce
from penstock.broker.coordination import Coordinators
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.gauges import Gauges
from penstock.broker.group_gauges import GroupGauges
from penstock.broker.http import MetricsConnection
from penstock.broker.lag_gauges import LagGauges
from penstock.broker.layout import META_PROPERTIES, METADATA_DIRECTORY
from penstock.broker.metrics import RATE_INTERVAL_MS, BrokerMetrics, exposition
from penstock.broker.node import Node
from penstock.broker.partition import Wakes
from penstock.broker.partitions import PartitionManager
from penstock.broker.producer_ids import Block, ProducerIds
from penstock.broker.quorum import MetadataQuorum
from penstock.broker.service import Service
from penstock.config import BrokerConfig
from penstock.log import LogDirectory
from penstock.metadata import (
    SUPPORTED_FEATURES,
    Controller,
    Listener,
    MetadataDelta,
    MetadataImage,
    MetaProperties,
    MetaPropertiesError,
    Registration,
    ResourceType,
    check_meta_properties,
    format_directory,
    parse_meta_properties,
)
from penstock.raft import Endpoint, RaftConfig, ReplicaKey, Voter, VoterSet
from penstock.runtime import Listener as ListeningSocket
from penstock.runtime import Lock, Runtime, SocketOptions, Timer
from penstock.runtime.eventlog import EventLog
from penstock.runtime.paths import TEMPORARY_SUFFIX
from penstock.wire.apis import ApiKey
from penstock.wire.uuids import format_uuid

PLAINTEXT = 0
DRAIN_MS = 5_000
"""How long a stopping broker waits for requests that are under way."""


CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
FILES_OF_A_NEW_DIRECTORY = (
    ".lock",
    "lost+found",
    METADATA_DIRECTORY,
    META_PROPERTIES + TEMPORARY_SUFFIX,
    "penstock.pid",
)
"""What may be there before `meta.properties` is: a lock, a file system's own, and a format that was cut short."""


class StartRefused(Exception):
    """The broker cannot start; the message says why and what to do."""


class Broker:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        events: EventLog,
        *,
        metrics_address: tuple[str, int] | None = None,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._events = events
        self._metrics_address = metrics_address
        self._listeners: list[ListeningSocket] = []
        self._lock: Lock | None = None
        self._ticker: Timer | None = None
        self.metrics = BrokerMetrics()
        self.metrics_port: int | None = None
        self.address = ("", 0)
        """Where clients connect."""

    # ---- start

    async def start(self) -> None:
        runtime, config = self._runtime, self._config
        self._lock = runtime.disk.lock("")
        self._wakes = Wakes(runtime.call_soon)
        self.service = Service(runtime, config, self._events, self.metrics, self._wakes)
        # Listen first: a port in use is found before anything is written, and the port may be the system's choice.
        await self._listen()
        try:
            self._identity = await self._identify()
            self._directory = LogDirectory(runtime)
            await self._directory.load()
            await self._start_quorum()
            await self._start_partitions()
            await self._register()
            await self._start_serving()
        except MetaPropertiesError as error:
            raise StartRefused(f"{runtime.disk.root}: {error}") from None

    async def _listen(self) -> None:
        """Accept connections, and hold their requests until the broker is ready to serve them."""
        (endpoint,) = self._config.listeners
        options = SocketOptions(
            self._config.socket_listen_backlog_size,
            self._config.socket_send_buffer_bytes,
            self._config.socket_receive_buffer_bytes,
        )
        listener = await self._runtime.listen(endpoint.host, endpoint.port, self.service.connection, options)
        self._listeners.append(listener)
        self.address = (endpoint.host, listener.port)
        if self._metrics_address is not None:
            host, port = self._metrics_address
            metrics = await self._runtime.listen(
                host, port, lambda: MetricsConnection(self._runtime, self._render_metrics)
            )
            self._listeners.append(metrics)
            self.metrics_port = metrics.port

    async def _identify(self) -> MetaProperties:
        """Whose data directory this is; a new one becomes this node's, and the beginning of a cluster."""
        disk, config = self._runtime.disk, self._config
        if disk.exists(META_PROPERTIES):
            found = parse_meta_properties(disk.read_bytes(META_PROPERTIES))
            check_meta_properties(found, node_id=config.node_id, cluster_id=None)
            return found
        strangers = [name for name in disk.list("") if name not in FILES_OF_A_NEW_DIRECTORY]
        if strangers:
            raise StartRefused(
                f"{disk.root} has no {META_PROPERTIES} but is not empty ({', '.join(strangers[:3])} …): "
                "it is not a data directory, or was damaged. Name an empty one"
            )
        identity = MetaProperties(format_uuid(self._runtime.uuid()), config.node_id, self._runtime.uuid())
        endpoint = Endpoint("CONTROLLER", self.address[0], self.address[1])
        voters = VoterSet.of([Voter(config.node_id, identity.directory_id, (endpoint,))])
        disk.mkdir(METADATA_DIRECTORY)
        for name, data in format_directory(identity, voters, timestamp_ms=self._runtime.wall_ms()).items():
            await disk.replace_bytes(name, data)
        await disk.sync_dir("")
        self._events.info("formatted", directory=disk.root, cluster_id=identity.cluster_id)
        return identity

    async def _start_quorum(self) -> None:
        runtime, config = self._runtime, self._config
        self._clean_epoch = await self._take_clean_shutdown()
        self.quorum = MetadataQuorum(
            runtime,
            self._events,
            ReplicaKey(config.node_id, self._identity.directory_id),
            RaftConfig(
                election_timeout_ms=config.controller_quorum_election_timeout_ms,
                fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
                election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
                request_timeout_ms=config.controller_quorum_request_timeout_ms,
                retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
            ),
            self._new_controller,
            snapshot_after_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        )
        self.quorum.add_publisher(self._apply_configs)
        await self.quorum.open(self._directory)

    def _new_controller(self, image: MetadataImage) -> Controller:
        return Controller(
            image,
            cluster_id=self._identity.cluster_id,
            config=self._config,
            rng=self._runtime.rng,
            new_uuid=self._runtime.uuid,
        )

    async def _take_clean_shutdown(self) -> int:
        """The broker epoch under which this node stopped cleanly, or -1. It counts once: a crash must not find it."""
        disk = self._runtime.disk
        if not disk.exists(CLEAN_SHUTDOWN):
            return -1
        epoch = parse_clean_shutdown(disk.read_bytes(CLEAN_SHUTDOWN))
        disk.unlink(CLEAN_SHUTDOWN)
        await disk.sync_dir("")
        return epoch

    async def _start_partitions(self) -> None:
        self.manager = PartitionManager(
            self._runtime, self._events, self._config, self._wakes, self._directory
        )
        await self.manager.open(self.quorum.image)
        self.quorum.add_publisher(self.manager.on_image)

    async def _register(self) -> None:
        """Join under a new incarnation. Without proof of a clean stop every led partition gets a new epoch."""
        config = self._config
        request = Registration(
            broker_id=config.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=self._runtime.uuid(),
            listeners=self._advertised(),
            directories=(self._identity.directory_id,),
            features=SUPPORTED_FEATURES,
            rack=config.broker_rack,
            previous_broker_epoch=self._clean_epoch,
        )
        next_offset = self.quorum.next_offset
        reply = await self.quorum.submit(
            lambda controller: controller.decide_register_broker(request, next_offset, fenced=False)
        )
        self._broker_epoch = reply.broker_epoch

    def _advertised(self) -> tuple[Listener, ...]:
        advertised = []
        for endpoint in self._config.advertised_listeners:
            port = endpoint.port or self.address[1]
            advertised.append(Listener(endpoint.name, endpoint.host or self.address[0], port, PLAINTEXT))
        return tuple(advertised)

    async def _start_serving(self) -> None:
        runtime = self._runtime
        self.producer_ids = ProducerIds(runtime, self._next_producer_ids)
        self.coordinators = Coordinators(runtime, self._events, self._config, self.quorum, self.manager)
        self.coordinators.start()
        self.node = Node(
            runtime,
            self._events,
            self._config,
            self.quorum,
            self.manager,
            self.coordinators,
            self.producer_ids,
            self._identity.cluster_id,
            (self._advertised()[0].host, self._advertised()[0].port),
        )
        sessions = FetchSessions(
            runtime.rng, runtime.now_ms, self._config.max_incremental_fetch_session_cache_slots
        )
        self._fetch = Fetch(runtime, self.manager.table, sessions, self.metrics)
        self._fetch.response_bytes_max = self._config.fetch_max_bytes
        self.service.add_raw(ApiKey.PRODUCE, Produce(runtime, self.manager.table, self.metrics).serve)
        self.service.add_raw(ApiKey.FETCH, self._fetch.serve)
        for key, serve in HANDLERS.items():
            self.service.add(key, partial(serve, self.node))
        self.metrics.add_gauges(Gauges(runtime, self.node, self.service, sessions).samples)
        self.metrics.add_gauges(GroupGauges(self.coordinators).samples)
        self.metrics.add_gauges(LagGauges(self.coordinators, self.manager.table).samples)
        self._tick()
        self.service.open()
        self._events.info(
            "ready",
            listener=f"{self.address[0]}:{self.address[1]}",
            cluster_id=self._identity.cluster_id,
            topics=self.quorum.image.topic_count,
            partitions=self.quorum.image.partition_count,
            recovering=self.manager.recovering,
        )

    async def _next_producer_ids(self) -> Block:
        block = await self.quorum.submit(
            lambda controller: controller.decide_allocate_producer_ids(self._config.node_id, self._broker_epoch)
        )
        return Block(block.first, block.size)

    # ---- while it runs

    async def _apply_configs(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Settings of brokers made at run time take effect here."""
        node_id = self._config.node_id
        if not any(kind == ResourceType.BROKER for kind, _ in delta.configs_changed):
            return
        before = self._config
        defaults = image.config(ResourceType.BROKER, "")
        own = image.config(ResourceType.BROKER, str(node_id))
        self._config = before.with_dynamic(defaults, own)
        changed = self._config.changed_since(before)
        if not changed:
            return
        self._events.info("config changed", properties=",".join(changed))
        self.service.configure(self._config)
        if self.quorum.controller is not None:
            self.quorum.controller.config = self._config
        if hasattr(self, "node"):
            self.node.config = self._config
            self._fetch.response_bytes_max = self._config.fetch_max_bytes
            self._fetch.sessions.slots = self._config.max_incremental_fetch_session_cache_slots
            self.manager.configure(self._config, image)
            self.coordinators.configure(self._config)

    def _tick(self) -> None:
        self.metrics.tick()
        for late_ms in self._runtime.loop_stalls().samples_ms:
            self.metrics.stalls.record(late_ms)
        self._ticker = self._runtime.call_later(RATE_INTERVAL_MS, self._tick)

    def _render_metrics(self) -> str:
        return exposition(self.metrics.samples())

    # ---- stop

    async def stop(self) -> None:
        """Finish what is under way and leave a directory that the next start can trust."""
        runtime = self._runtime
        for listener in self._listeners:
            listener.close()
        self.coordinators.close()
        await self.service.drain(DRAIN_MS)
        if self._ticker is not None:
            self._ticker.cancel()
        await self.manager.close()
        self.quorum.close()
        await self._directory.close()
        await runtime.disk.replace_bytes(CLEAN_SHUTDOWN, clean_shutdown_text(self._broker_epoch))
        self._events.info("stopped")
        if self._lock is not None:
            self._lock.release()


def clean_shutdown_text(broker_epoch: int) -> bytes:
    """Kafka's clean shutdown file."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def parse_clean_shutdown(data: bytes) -> int:
    """The broker epoch; -1 for what is no proof."""
    text = data.decode(errors="replace")
    head, found, tail = text.partition('"brokerEpoch":')
    number = tail.rstrip("}").strip()
    return int(number) if head.startswith("{") and found and number.isascii() and number.isdigit() else -1
