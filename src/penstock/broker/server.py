"""One node: start, run and stop.

Start: lock the directory, find the cluster if the directory is new, open the metadata quorum, catch up with it; a
broker then opens its partitions, registers with the controller, listens to clients and is put in service. Stop: hand
leadership over, accept no new connections, finish requests in progress, close the logs so that the next start need not
recover them, and record the clean stop on disk.

A node is broker, controller or both. The listeners of controllers have their own table of APIs, and are served as soon
as there is a quorum: other nodes may need this node's vote before it is ready.
"""

from __future__ import annotations

from enum import IntEnum
from functools import partial

from penstock import kernel
from penstock.broker.apis import handlers
from penstock.broker.apis.administrative import ADMINISTRATIVE
from penstock.broker.apis.controllers import decided_here
from penstock.broker.apis.fetch import Fetch
from penstock.broker.apis.produce import Produce
from penstock.broker.apis.replica_fetch import ReplicaFetch
from penstock.broker.audit import AuditLog
from penstock.broker.authorizer import AclAuthorizer, OpenAuthorizer
from penstock.broker.controller_listener import ControllerListener
from penstock.broker.coordination import Coordinators
from penstock.broker.coordination.transaction_questions import TransactionQuestions
from penstock.broker.data_directory import (
    NO_PROOF,
    format_new,
    identity_in,
    leave_clean_shutdown,
    take_clean_shutdown,
)
from penstock.broker.fetch.read_replicas import RackAwareSelector
from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.gate import Gate
from penstock.broker.net.access import ListenerInfo
from penstock.broker.net.peers import SILENCE_MS, Address, Peers
from penstock.broker.node import ControllerNode, Node
from penstock.broker.observability.gauges import Gauges
from penstock.broker.observability.group_gauges import GroupGauges
from penstock.broker.observability.host_gauges import HostGauges
from penstock.broker.observability.lag_gauges import LagGauges
from penstock.broker.observability.loggers import Loggers
from penstock.broker.observability.metrics import BrokerMetrics
from penstock.broker.observability.quota_gauges import QuotaGauges
from penstock.broker.observability.replication_gauges import ReplicationGauges
from penstock.broker.observability.transaction_coordinator_gauges import TransactionCoordinatorGauges
from penstock.broker.observability.transaction_gauges import TransactionGauges
from penstock.broker.produce.preparing import Preparation
from penstock.broker.produce.verifying import Verifier
from penstock.broker.producer_ids import Block, ProducerIds
from penstock.broker.quorum.controlling import ControllerDuties
from penstock.broker.quorum.formation import (
    NoOneCluster,
    become_voter,
    find_cluster,
    other_cluster,
    wants_to_vote,
)
from penstock.broker.quorum.forwarding import Administration
from penstock.broker.quorum.metadata_evidence import UnreadableMetadata
from penstock.broker.quorum.metadata_store import DamagedMetadata
from penstock.broker.quorum.recovered_metadata import read_marker, tell_recovered
from penstock.broker.quorum.shell import MetadataQuorum, WrongDirectory, WrongRole
from penstock.broker.quotas.enforcement import QuotaEnforcement
from penstock.broker.registration import BrokerLifecycle, RegistrationRefused
from penstock.broker.replicas.partition import Wakes
from penstock.broker.replicas.partitions import PartitionManager
from penstock.broker.replicas.remains import NAMED_MAX, remains_in
from penstock.broker.security.authenticator import Authenticator, NoKeys
from penstock.broker.security.certificates import Certificates, StoreError
from penstock.broker.security.outgoing import PLAIN_PEERS, PeerSecurity, node_login
from penstock.broker.service import Service
from penstock.broker.starting import Start, StartInterrupted, StartRefused
from penstock.config import RACK_AWARE_SELECTOR, BrokerConfig, ConfigError
from penstock.config.access_table import AUDIT_OFF
from penstock.config.group_table import ConsumerGroups
from penstock.config.listeners import SECURITY_PROTOCOL_IDS
from penstock.config.live import LiveConfig
from penstock.config.log_table import Compaction, Durability, Records, Retention, Segments, Topics
from penstock.config.node_table import Connections
from penstock.config.quota_table import ClientQuotas
from penstock.config.replication_table import Moving
from penstock.log import CheckpointDamaged, LogDirectory
from penstock.metadata import (
    TRANSACTION_VERSION,
    Controller,
    Listener,
    MetadataDelta,
    MetadataImage,
    MetaProperties,
    MetaPropertiesError,
    ResourceType,
    difference,
)
from penstock.raft import Endpoint, QuorumStateError, RaftConfig, ReplicaKey, Voter, VoterSet
from penstock.runtime import Listener as ListeningSocket
from penstock.runtime import Lock, Runtime, SocketOptions, Timer, Tls
from penstock.runtime.eventlog import EventLog
from penstock.runtime.tasks import keep_running
from penstock.telemetry.samples import RATE_INTERVAL_MS
from penstock.wire.apis import ApiKey
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.uuids import format_uuid

DRAIN_MS = 5_000
"""How long a stopping broker waits for requests in progress."""
PRODUCER_IDS_MS = 10_000
"""How long InitProducerId waits for a block of ids: less than its client's timeout, which then retries."""
QUORUM_WAIT_TOLD_MS = 10_000
QUORUM_WAIT_TOLD_AGAIN_MS = 60_000
"""How often a start that waits for a metadata leader logs that it is waiting."""

REFUSALS = (
    CheckpointDamaged,
    DamagedMetadata,
    MetaPropertiesError,
    NoOneCluster,
    QuorumStateError,
    RegistrationRefused,
    UnreadableMetadata,
    WrongDirectory,
    WrongRole,
)
"""Start-up errors that the operator must fix; not bugs."""


class Stage(IntEnum):
    """The stages of a start. The parts that a stage adds exist from then on."""

    NEW = 0
    QUORUM = 1
    """The node has a replica of the metadata log, which may still catch up: `quorum`, `duties`."""
    PARTITIONS = 2
    """Brokers: the logs are open, and the broker is about to register: `manager`, `lifecycle`."""
    REGISTERED = 3
    """Brokers: the controller has admitted this incarnation."""
    SERVING = 4
    """Brokers: everything that clients need exists: `node`, `coordinators`."""
    READY = 5


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
        self._live = LiveConfig(config)
        self._live.subscribe(lambda config: runtime.disk.use_io_threads(config.num_io_threads), "num.io.threads")
        self._events = Loggers(events)
        self._metrics_address = metrics_address
        self._listeners: list[ListeningSocket] = []
        self._lock: Lock | None = None
        self._ticker: Timer | None = None
        self._starting = Start(runtime)
        self._identity: MetaProperties | None = None
        self._nodes: ControllerListener | None = None
        self._own_endpoint: tuple[str, str, int] | None = None
        self._clean_epoch = -1
        self._is_broker = "broker" in config.process_roles
        self._is_controller = "controller" in config.process_roles
        self.stage = Stage.NEW
        self.gate = Gate()
        """Access control and quotas; by default everything is allowed."""
        self.authorizer = AclAuthorizer(config) if config.authorizer_class_name else None
        self.audit: AuditLog | None = None
        self.gate.configure(authorizer=self.authorizer)
        self.certificates = Certificates(runtime, self._events)
        self.metrics = BrokerMetrics()
        self.metrics_port: int | None = None
        self._bound: dict[str, Address] = {}
        """The addresses of the client listeners, by name: the system may have chosen the port."""
        self.address = ("", 0)
        """The address for clients; for a node without the broker role, the address for other nodes."""

    @property
    def _config(self) -> BrokerConfig:
        """The configuration in force."""
        return self._live.current

    # ---- start

    async def start(self) -> None:
        """Start the node; return when it serves. Raises StartInterrupted if the process is asked to stop meanwhile."""
        runtime, config = self._runtime, self._config
        self._lock = runtime.disk.lock("")
        runtime.on_stop(self._starting.stop)
        self._wakes = Wakes(runtime.call_soon)
        await self._secure()
        self.service = Service(runtime, config, self._events, self.metrics, self._wakes, gate=self.gate)
        self._live.subscribe(self.service.configure, Connections)
        if self.authorizer is not None:
            self.metrics.add_gauges(self.authorizer.samples)
        if config.penstock_audit_destination != AUDIT_OFF:
            self.audit = self.gate.audit = AuditLog(runtime, self._events, config)
            self.metrics.add_gauges(self.audit.samples)
            if self.authorizer is None:
                self.gate.configure(self.gate.authentication, OpenAuthorizer(), self.gate.quotas)
        self.quotas = QuotaEnforcement(self.gate, config, runtime.now_ms)
        self._live.subscribe(self.quotas.configure, ClientQuotas)
        gauges = QuotaGauges(self.quotas.quotas, runtime.now_ms, self.service.throttled_count)
        self.metrics.add_gauges(gauges.samples)
        self.service.admission.host_rate_limit = self.quotas.connection_rate
        self.peers = Peers(
            runtime,
            config.node_id,
            to_brokers=self._peer_security(
                config.inter_broker_listener_name,
                config.sasl_mechanism_inter_broker_protocol,
                "sasl.mechanism.inter.broker.protocol",
            ),
            to_controllers=self._peer_security(
                config.controller_listener_name,
                config.sasl_mechanism_controller_protocol,
                "sasl.mechanism.controller.protocol",
            ),
        )
        # Listen first: a port in use is detected before anything is written, and the system may choose the port.
        await self._listen()
        try:
            await self._start()
        except StartInterrupted:
            await self._undo_start()
            raise
        except REFUSALS as error:
            raise StartRefused(f"{runtime.disk.root}: {error}") from None

    async def _secure(self) -> None:
        """Load certificates, users and keys. A node that cannot protect its listeners as configured does not start."""
        config, runtime = self._config, self._runtime
        own = [endpoint.name for endpoint in (*config.listeners, *config.controller_listeners)]
        security = {name: config.listener_security[name] for name in own}
        try:
            self.authenticator = Authenticator(runtime, self._events, security)
            if self.authenticator.is_needed:
                self.gate.authenticate(self.authenticator)
                self.metrics.add_gauges(self.authenticator.samples)
                await self.authenticator.start(self._starting.is_stopping)
        except (ValueError, NoKeys) as error:
            raise StartRefused(str(error)) from None

    def _peer_security(self, listener: str, mechanism: str | None, setting: str) -> PeerSecurity:
        security = self._config.listener_security.get(listener)
        if security is None or security.protocol == "PLAINTEXT":
            return PLAIN_PEERS
        try:
            return PeerSecurity(
                self.certificates.of_peers(security), node_login(self._runtime, security, mechanism, setting)
            )
        except (StoreError, ValueError) as error:
            raise StartRefused(str(error)) from None

    def _listener_tls(self, name: str) -> Tls | None:
        try:
            return self.certificates.of_listener(self._config.listener_security[name])
        except StoreError as error:
            raise StartRefused(str(error)) from None

    async def _start(self) -> None:
        self.certificates.watch(self._starting.is_stopping)
        self._identity = await self._identify()
        if self._nodes is not None:
            self._nodes.cluster_id = self._identity.cluster_id
        if self._config.quorum_servers:
            check = partial(self._check_cluster, self._identity.cluster_id)
            self._runtime.spawn(keep_running(self._runtime, check, "check cluster"), "check cluster")
        marker = read_marker(self._runtime.disk)
        self._directory = LogDirectory(self._runtime)
        await self._directory.load()
        await self._start_quorum()
        await self._await_quorum()
        if marker is not None:
            tell_recovered(self._events, marker, self.quorum.image, is_closed=self.authorizer is not None)
        if self.authorizer is not None:
            self.authorizer.is_closed = marker is not None
            self.authorizer.load(self.quorum.image)
        if self._is_broker:
            await self._start_partitions()
            await self._register()
            await self._start_serving()
        else:
            self._tick()
        self._events.info(
            "ready",
            listener=f"{self.address[0]}:{self.address[1]}",
            roles=",".join(self._config.process_roles),
            cluster_id=self._identity.cluster_id,
            topics=self.quorum.image.topic_count,
            partitions=self.quorum.image.partition_count,
            recovering=self.manager.recovering if self._is_broker else 0,
            kernels=kernel.FORM,
        )
        self.stage = Stage.READY

    async def _await_quorum(self) -> None:
        """Wait until the image has caught up with the cluster. Log the reason if that takes long."""
        self._ticker = self._runtime.call_later(QUORUM_WAIT_TOLD_MS, self._tell_waiting)
        try:
            await self._starting.unless_stopped(self.quorum.caught_up())
        finally:
            self._ticker.cancel()

    def _tell_waiting(self) -> None:
        quorum = self.quorum
        self._ticker = self._runtime.call_later(QUORUM_WAIT_TOLD_AGAIN_MS, self._tell_waiting)
        self._events.warning(
            "waiting for the quorum",
            leader=quorum.leader_id,
            epoch=quorum.core.epoch,
            voters=",".join(map(str, quorum.core.voter_set.ids)),
            is_voter=quorum.key in quorum.core.voter_set,
            log_suspect=quorum.core.hard.suspect,
        )

    async def _check_cluster(self, cluster_id: str) -> None:
        """Two clusters that are configured as one must not run at the same time: the later one stops."""
        is_stopping = self._starting.is_stopping
        reason = await other_cluster(self._runtime, self.peers, self._config, cluster_id, is_stopping)
        if reason is None or is_stopping():
            return
        refusal = f"{self._runtime.disk.root}: {reason}"
        self._starting.refuse(refusal)
        if self.stage is Stage.READY:
            self._runtime.fatal(refusal)

    async def _listen(self) -> None:
        """Accept connections, and hold their requests until the node is ready to serve them."""
        config = self._config
        options = SocketOptions(
            config.socket_listen_backlog_size,
            config.socket_send_buffer_bytes,
            config.socket_receive_buffer_bytes,
        )
        for endpoint in config.listeners:
            listener_info = ListenerInfo(
                endpoint.name, endpoint.name == config.inter_broker_listener_name, endpoint.security_protocol
            )
            listener = await self._runtime.listen(
                endpoint.host,
                endpoint.port,
                partial(self.service.connection, listener_info),
                options,
                self._listener_tls(endpoint.name),
            )
            self._listeners.append(listener)
            self._bound[endpoint.name] = (endpoint.host, listener.port)
            self.address = self.address if len(self._bound) > 1 else self._bound[endpoint.name]
        if self._is_controller and config.controller_listeners:
            await self._listen_for_nodes(options)
        if self._metrics_address is not None:
            # Imported here, so that a broker without metrics starts without these modules.
            from penstock.telemetry.endpoint import metrics_server

            http = metrics_server(self._runtime, self.metrics.samples, self._http_failed)
            await http.listen(*self._metrics_address)
            self._listeners.append(http)
            self.metrics_port = http.port

    async def _listen_for_nodes(self, options: SocketOptions) -> None:
        endpoint = self._config.controller_listeners[0]
        self._nodes = ControllerListener(self._runtime, self._config, self._events, self._wakes, self.gate)
        self.metrics.add_gauges(self._nodes.samples)
        listener = await self._nodes.listen(options, self._listener_tls(endpoint.name))
        self._listeners.append(listener)
        named = next((voter for voter in self._config.quorum_voters if voter.id == self._config.node_id), None)
        host = named.host if named is not None else endpoint.host or self.address[0] or "localhost"
        self._own_endpoint = (endpoint.name, host, listener.port)
        if not self._is_broker:
            self.address = (endpoint.host, listener.port)

    # ---- the directory and the quorum

    async def _identify(self) -> MetaProperties:
        """The identity of the data directory. A new one is formatted for the cluster that this node joins or founds."""
        disk, config = self._runtime.disk, self._config
        found = identity_in(disk, config.node_id)
        if found is not None:
            return found
        cluster_id = await find_cluster(self._runtime, self._events, self.peers, config, self._starting.is_stopping)
        if self._starting.is_stopping():
            raise StartInterrupted
        directory_id = self._runtime.uuid()
        voters = VoterSet()
        if cluster_id is None:
            name, host, port = self._own_endpoint or ("CONTROLLER", *self.address)
            voters = VoterSet.of([Voter(config.node_id, directory_id, (Endpoint(name, host, port),))])
        identity = MetaProperties(cluster_id or format_uuid(self._runtime.uuid()), config.node_id, directory_id)
        await format_new(disk, identity, voters, self._runtime.wall_ms())
        self._events.info(
            "formatted",
            directory=disk.root,
            cluster_id=identity.cluster_id,
            cluster="founded" if cluster_id is None else "joined",
        )
        return identity

    async def _start_quorum(self) -> None:
        runtime, config = self._runtime, self._config
        assert self._identity is not None
        self._clean_epoch = await take_clean_shutdown(runtime.disk)
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
            cluster_id=self._identity.cluster_id,
            peers=self.peers,
            servers=config.quorum_servers,
            own_endpoint=self._own_endpoint,
            may_vote=self._is_controller,
        )
        self.peers.broker_address = self._broker_address
        self.peers.controller_location = self.quorum.controller_location
        self.quorum.on_leader.append(self.peers.controller_changed)
        self.duties = ControllerDuties(runtime, self._events, config, self.quorum, self.peers)
        shared = ControllerNode(runtime, self._events, config, self.quorum, self.peers, self.duties, self.gate)
        if self._is_controller:
            self.peers.local_controller = partial(decided_here, shared)
        self._shared = shared
        self._live.subscribe(self._configure_controller)
        self.quorum.add_publisher(self._apply_configs)
        self.quorum.add_publisher(self.quotas.on_image)
        if self.authorizer is not None:
            self.quorum.add_publisher(self.authorizer.on_image)
        await self.quorum.open(self._directory)
        self.authenticator.image = lambda: self.quorum.image
        self.stage = Stage.QUORUM
        if self._nodes is not None:
            self._nodes.node = shared
        if wants_to_vote(config) and self.quorum.key not in self.quorum.core.voter_set:
            assert self._own_endpoint is not None
            join = partial(become_voter, shared, self._own_endpoint, self._starting.is_stopping)
            runtime.spawn(keep_running(runtime, join, "become a voter"), "become a voter")

    def _broker_address(self, node_id: int) -> Address | None:
        broker = self.quorum.image.broker(node_id)
        if broker is None:
            return None
        return broker.address(self._config.inter_broker_listener_name)

    def _new_controller(self, image: MetadataImage) -> Controller:
        assert self._identity is not None
        return Controller(
            image,
            cluster_id=self._identity.cluster_id,
            config=self._config,
            rng=self._runtime.rng,
            new_uuid=self._runtime.uuid,
            voter_ids=lambda: self.quorum.core.voter_set.ids,
        )

    # ---- the broker

    async def _start_partitions(self) -> None:
        config = self._config
        self.manager = PartitionManager(
            self._runtime, self._events, config, self._wakes, self._directory, self.peers, self.quorum
        )
        image = self.quorum.image
        await self._expect_directories_known(image)
        await self.manager.open(image)
        # The image may have changed while the logs were opened: topics were created or deleted.
        while (newest := self.quorum.image) is not image:
            await self.manager.on_image(difference(image, newest), newest)
            image = newest
        if self.manager.lost:
            # Partitions that must be copied again must leave their ISRs, as after a crash.
            self._clean_epoch = NO_PROOF
        self.stage = Stage.PARTITIONS
        self.quorum.add_publisher(self.manager.on_image)
        self._live.subscribe(
            self._configure_partitions, Topics, Records, Segments, Retention, Compaction, Durability, Moving
        )
        if self._config is not config:
            self._configure_partitions(self._config)

    async def _expect_directories_known(self, image: MetadataImage) -> None:
        """Detect lost metadata on a node that has the only copy, so that no other replica could reveal the loss.

        A partition's directory is created after its topic was committed, and removed before a snapshot drops the
        deletion. So a directory of a topic that the metadata neither has nor deleted proves that metadata were lost.
        """
        unknown = self.manager.unknown_directories(image) if self.quorum.is_alone else {}
        removed = await self.quorum.removed_topics() if unknown else {}
        lost = [name for name, topic_id in unknown.items() if topic_id not in removed]
        if lost:
            raise StartRefused(
                f"{self._runtime.disk.root}: the metadata does not know {', '.join(lost[:NAMED_MAX])}"
                f"{' …' if len(lost) > NAMED_MAX else ''}, and has not deleted them: it is older than the data, or "
                f"incomplete. Nothing was changed: {remains_in(self._runtime.disk)}. If these directories do not "
                "belong here, move them away. Otherwise see what can be rebuilt with: penstock metadata recover --data "
                f"{self._runtime.disk.root}"
            )

    async def _register(self) -> None:
        """Register as a new incarnation. Without proof of a clean stop every led partition gets a new epoch."""
        assert self._identity is not None
        self.lifecycle = BrokerLifecycle(
            self._runtime,
            self._events,
            self._config,
            self.quorum,
            self.peers,
            listeners=self._advertised(),
            directory_id=self._identity.directory_id,
            previous_epoch=self._clean_epoch,
            contact=self.manager.roles.contact,
        )
        await self._starting.unless_stopped(self.lifecycle.register(self._starting.is_stopping))
        self.manager.roles.registered(self.lifecycle.epoch)
        self.stage = Stage.REGISTERED

    def _advertised(self) -> tuple[Listener, ...]:
        listeners = []
        for endpoint in self._config.advertised_listeners:
            host, port = self._bound[endpoint.name]
            advertised = endpoint.host or host or "localhost"
            protocol = SECURITY_PROTOCOL_IDS[endpoint.security_protocol]
            listeners.append(Listener(endpoint.name, advertised, endpoint.port or port, protocol))
        return tuple(listeners)

    async def _start_serving(self) -> None:
        runtime = self._runtime
        self.producer_ids = ProducerIds(runtime, self._next_producer_ids)
        self.administration = Administration(self._shared, self.peers, ADMINISTRATIVE)
        self.coordinators = Coordinators(
            runtime,
            self._events,
            self._config,
            self.quorum,
            self.manager,
            self.administration,
            self.peers,
            self.producer_ids,
        )
        self.coordinators.start()
        self.node = Node(
            self._shared,
            self.administration,
            self.manager,
            self.coordinators,
            self.producer_ids,
        )
        self._live.subscribe(self._configure_node)
        self._live.subscribe(self.coordinators.configure, ConsumerGroups)
        sessions = FetchSessions(runtime.rng, runtime.now_ms, self._config.max_incremental_fetch_session_cache_slots)
        self._fetch = Fetch(runtime, self.manager.table, sessions, self.metrics)
        self._fetch.response_bytes_max = self._config.fetch_max_bytes
        self._fetch.suspect = self.manager.roles.damage.suspect
        self._fetch.replicas = ReplicaFetch(
            runtime,
            self.manager.table,
            self._config.node_id,
            lambda: self.quorum.image,
            self.manager.roles.isr_changes.propose,
            self.manager.throttles.leader,
            self.manager.roles.contact.heard_follower,
            self.manager.roles.damage.suspect,
        )
        if self._config.replica_selector_class == RACK_AWARE_SELECTOR:
            self._fetch.selector = RackAwareSelector(self._config.node_id, lambda: self.quorum.image)
            self._fetch.replicas.sessions.tells_high_watermarks = True
        served = handlers()
        questions = TransactionQuestions(self.node, served.get(ApiKey.ADD_PARTITIONS_TO_TXN))
        self.verifier = Verifier(runtime, self._events, questions)
        self.node.verifier = self.verifier
        preparation = Preparation(runtime, self._events, self.metrics, self._config, self.verifier)
        produce = Produce(runtime, self.manager.table, self.metrics, preparation, self._adds_partitions)
        self.service.add_raw(ApiKey.PRODUCE, produce.serve)
        self.service.add_raw(ApiKey.FETCH, self._fetch.serve)
        for key, serve in served.items():
            self.service.add(key, partial(serve, self.node))
        self.metrics.add_gauges(Gauges(runtime, self.node, self.service, sessions).samples)
        self.node.client_metrics.load(self.quorum.image)
        self.quorum.add_publisher(self.node.client_metrics.on_image)
        self.metrics.add_gauges(self.node.client_metrics.samples)
        self.metrics.add_gauges(GroupGauges(self.coordinators.groups).samples)
        self.metrics.add_gauges(TransactionCoordinatorGauges(self.coordinators.transactions).samples)
        self.metrics.add_gauges(LagGauges(self.coordinators.groups, self.manager.table).samples)
        self.metrics.add_gauges(ReplicationGauges(runtime, self.manager, self._fetch.replicas).samples)
        self.metrics.add_gauges(TransactionGauges(runtime, self.manager, self.verifier, lambda: self._config).samples)
        self.metrics.add_gauges(HostGauges(runtime).samples)
        self._tick()
        self.stage = Stage.SERVING
        self.service.open()
        self.lifecycle.start()
        await self._starting.unless_stopped(self.lifecycle.in_service())

    def _adds_partitions(self) -> bool:
        """Whether Produce adds partitions to transactions (KIP-890)."""
        return self.quorum.image.features.get(TRANSACTION_VERSION, 0) >= 2

    async def _next_producer_ids(self) -> Block:
        request = AllocateProducerIdsRequest(broker_id=self._config.node_id, broker_epoch=self.lifecycle.epoch)
        response = await self.peers.controller_call(request, timeout_ms=PRODUCER_IDS_MS, silence_ms=SILENCE_MS)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(response.error_code))
        return Block(response.producer_id_start, response.producer_id_len)

    # ---- while it runs

    async def _apply_configs(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply broker settings that were changed at run time."""
        node_id = self._config.node_id
        if not any(kind == ResourceType.BROKER for kind, _ in delta.configs_changed):
            return
        before = self._config
        defaults = image.config(ResourceType.BROKER, "")
        own = image.config(ResourceType.BROKER, str(node_id))
        if (defaults, own) == (before.dynamic_default, before.dynamic_broker):
            return
        try:
            changed = self._live.update(defaults, own)
        except ConfigError as error:
            # The controller validated them with its own static settings; those of this node may differ.
            self._events.error("config not applied", problems="; ".join(error.problems), then="keeping the old values")
            return
        for warning in self._config.warnings:
            if warning not in before.warnings:
                self._events.warning("config", message=warning)
        if changed:
            self._events.info("config changed", properties=",".join(changed))

    def _configure_controller(self, config: BrokerConfig) -> None:
        self._shared.config = config
        if self.quorum.controller is not None:
            self.quorum.controller.config = config

    def _configure_node(self, config: BrokerConfig) -> None:
        self.node.config = config

    def _configure_partitions(self, config: BrokerConfig) -> None:
        self.manager.configure(config, self.quorum.image)

    def _tick(self) -> None:
        self._ticker = self._runtime.call_later(RATE_INTERVAL_MS, self._tick)
        self.metrics.tick()
        for late_ms in self._runtime.loop_stalls().samples_ms:
            self.metrics.stalls.record(late_ms)

    def _http_failed(self, what: str, error: Exception) -> None:
        self._events.limited("http request failed", request=what, error=repr(error))

    # ---- stop

    async def stop(self) -> None:
        """Hand leadership over, finish requests in progress, and record a clean stop for the next start."""
        self._starting.stop()
        if self._is_broker:
            await self.lifecycle.leave()
        await self.quorum.resign()
        for listener in self._listeners:
            listener.close()
        if self._is_broker:
            self.coordinators.close()
        await self.service.drain(DRAIN_MS)
        if self._ticker is not None:
            self._ticker.cancel()
        try:
            if self._is_broker:
                await self.manager.close()
            await self._close_quorum()
            if self._is_broker:
                await leave_clean_shutdown(self._runtime.disk, self.lifecycle.epoch)
        except OSError as error:
            # For example a full disk. The next start recovers as after a crash.
            self._runtime.fatal(f"cannot record a clean stop in {self._runtime.disk.root}: {error}", error)
            raise
        if self.audit is not None:
            await self.audit.close()
        self._events.info("stopped")
        if self._lock is not None:
            self._lock.release()

    async def _close_quorum(self) -> None:
        self.duties.close()
        self.peers.close()
        self.quorum.close()
        if self._nodes is not None:
            await self._nodes.drain()
        await self._directory.close()

    async def _undo_start(self) -> None:
        """Undo a start that was interrupted. The proof of the last clean stop is kept: nothing was written since."""
        for listener in self._listeners:
            listener.close()
        epoch = self._clean_epoch
        if self.stage >= Stage.PARTITIONS:
            self.lifecycle.stop()
            epoch = max(epoch, self.lifecycle.epoch)
        if self.stage >= Stage.SERVING:
            self.coordinators.close()
        if self.stage >= Stage.PARTITIONS:
            await self.manager.close()
        if self.stage >= Stage.QUORUM:
            await self._close_quorum()
            if epoch >= 0:
                await leave_clean_shutdown(self._runtime.disk, epoch)
        self.peers.close()
        self._events.info("stopped", reason="asked to stop during start-up")
        if self._lock is not None:
            self._lock.release()
