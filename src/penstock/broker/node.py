"""A node as its API handlers see it: `ControllerNode` has the parts of every node, `Node` adds those of brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.client_metrics.manager import ClientMetrics
from penstock.broker.net.access import ListenerInfo
from penstock.broker.producer_ids import ProducerIds
from penstock.broker.replicas.partition_table import PartitionTable
from penstock.broker.replicas.partitions import PartitionManager
from penstock.config import BrokerConfig
from penstock.metadata import BrokerRegistration, MetadataImage
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.apis import SERVED, ApiKey, ServedApi
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.api_versions import ApiVersion

if TYPE_CHECKING:
    from penstock.broker.coordination import Coordinators
    from penstock.broker.gate import Gate
    from penstock.broker.net.peers import Peers
    from penstock.broker.observability.loggers import Loggers
    from penstock.broker.produce.verifying import Verifier
    from penstock.broker.quorum.controlling import ControllerDuties
    from penstock.broker.quorum.forwarding import Administration
    from penstock.broker.quorum.shell import MetadataQuorum


TELEMETRY_APIS = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


def advertised(served: dict[ApiKey, ServedApi]) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
        for api in served.values()
    ]


class ControllerNode:
    """The parts of a node that the controller's listeners and administrative requests need."""

    def __init__(
        self,
        runtime: Runtime,
        events: Loggers,
        config: BrokerConfig,
        quorum: MetadataQuorum,
        peers: Peers,
        duties: ControllerDuties,
        gate: Gate,
    ) -> None:
        self.runtime = runtime
        self.events: EventLog = events
        self.loggers = events
        """The same object, with the methods that change which events are logged."""
        self.config = config
        """The configuration in force: a new object after each change at run time."""
        self.quorum = quorum
        self.peers = peers
        self.duties = duties
        self.gate = gate
        self.cluster_id = quorum.cluster_id
        self.node_id = config.node_id

    def check_is_own(self, name: str) -> None:
        """Raise KafkaError unless `name` is this node: each node knows only its own configuration."""
        if name != str(self.node_id):
            reason = f"Unexpected broker id, expected {self.node_id} but received {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    @property
    def controller_id(self) -> int:
        """The leader of the quorum; -1 if none is known."""
        return self.quorum.leader_id


class Node(ControllerNode):
    def __init__(
        self,
        shared: ControllerNode,
        administration: Administration,
        manager: PartitionManager,
        coordination: Coordinators,
        producer_ids: ProducerIds,
    ) -> None:
        super().__init__(
            shared.runtime, shared.loggers, shared.config, shared.quorum, shared.peers, shared.duties, shared.gate
        )
        self.administration = administration
        self.manager = manager
        self.table: PartitionTable = manager.table
        self.coordination = coordination
        """Of all kinds."""
        self.coordinators = coordination.groups
        """Of groups."""
        self.transactions = coordination.transactions
        """The coordinators of transactional ids."""
        self.producer_ids = producer_ids
        self.client_metrics = ClientMetrics(shared.runtime.now_ms, shared.runtime.uuid)
        """Metrics that clients push."""
        self.verifier: Verifier
        """Asks transaction coordinators. Set by the server."""
        self._apis = advertised(SERVED)
        self._apis_without_telemetry = [api for api in self._apis if api.api_key not in TELEMETRY_APIS]

    @property
    def advertised_apis(self) -> list[ApiVersion]:
        """The APIs that ApiVersions names. Those of client metrics only while somebody has subscribed to metrics: a
        client that knows them asks at once, and librdkafka prints a line about it. Kafka names them only if it has a
        plug-in that receives metrics."""
        return self._apis if self.client_metrics.has_subscriptions else self._apis_without_telemetry

    @property
    def controller_id(self) -> int:
        """The broker to which clients may send administrative requests. This broker, if the controller is not a broker
        and so clients cannot reach it."""
        leader_id = self.quorum.leader_id
        return leader_id if self.is_live(leader_id) else self.node_id

    def address_of(self, broker: BrokerRegistration, listener_info: ListenerInfo) -> tuple[str, int] | None:
        """The broker's address for clients of this listener: its listener of the same name. None if it has none."""
        listener = broker.listener(listener_info.listener)
        return None if listener is None else (listener.host, listener.port)

    def live_brokers(self) -> list[BrokerRegistration]:
        return [broker for broker in self.image.brokers.values() if not broker.fenced]

    def is_live(self, node_id: int) -> bool:
        broker = self.image.brokers.get(node_id)
        return broker is not None and not broker.fenced

    def is_leading(self, node_id: int) -> bool:
        """Whether clients should be sent to this leader. A node whose connections have just closed has probably failed.
        A client that is told so retries soon; a client that is sent there waits for a timeout first."""
        return self.is_live(node_id) and not self.manager.roles.fetchers.is_gone(node_id)

    def offline(self, replicas: tuple[int, ...]) -> list[int]:
        return [replica for replica in replicas if not self.is_live(replica)]
