"""The listener on which other nodes reach this node's controller.

It serves requests from the start of the process: other nodes ask for the cluster id while a cluster is formed, and may
need this node's vote before it is ready. Requests that need the quorum are refused until there is one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from functools import partial

from penstock.broker.apis import sasl_authenticate, sasl_handshake
from penstock.broker.apis.api_versions import with_features
from penstock.broker.apis.controllers import CONTROLLER_HANDLERS
from penstock.broker.gate import Gate
from penstock.broker.net.access import ListenerInfo
from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode, advertised
from penstock.broker.observability.metrics import BrokerMetrics
from penstock.broker.quorum.formation import CONTROLLERS
from penstock.broker.quorum.forwarding import Decide
from penstock.broker.replicas.partition import Wakes
from penstock.broker.service import Service
from penstock.config import BrokerConfig
from penstock.runtime import Listener, Runtime, SocketOptions, Tls
from penstock.runtime.eventlog import EventLog
from penstock.telemetry.samples import Sample, counter
from penstock.wire.acls import ResourceKind
from penstock.wire.apis import OF_CONTROLLERS, ApiKey
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


class ControllerListener:
    def __init__(self, runtime: Runtime, config: BrokerConfig, events: EventLog, wakes: Wakes, gate: Gate) -> None:
        self._runtime = runtime
        self._config = config
        self._metrics = BrokerMetrics()
        self._service = Service(runtime, config, events, self._metrics, wakes, OF_CONTROLLERS, gate)
        self._service.add(ApiKey.API_VERSIONS, self._tell_versions)
        self._service.add(ApiKey.DESCRIBE_CLUSTER, self._tell_cluster)
        self._service.add(ApiKey.SASL_HANDSHAKE, partial(sasl_handshake.serve, None))
        self._service.add(ApiKey.SASL_AUTHENTICATE, partial(sasl_authenticate.serve, None))
        for key, decide in CONTROLLER_HANDLERS.items():
            self._service.add(key, partial(self._serve, decide))
        self.cluster_id = ""
        """Set once this node knows its cluster."""
        self.node: ControllerNode | None = None
        """Set once there is a quorum."""

    async def listen(self, options: SocketOptions, tls: Tls | None = None) -> Listener:
        endpoint = self._config.controller_listeners[0]
        listener_info = ListenerInfo(endpoint.name, True, endpoint.security_protocol)
        connection = partial(self._service.connection, listener_info)
        listener = await self._runtime.listen(endpoint.host, endpoint.port, connection, options, tls)
        self._service.open()
        return listener

    def samples(self) -> Iterator[Sample]:
        """Counters of invalid requests on this listener."""
        refused = 0 if self.node is None else self.node.quorum.peers.refused
        for name, text, value in (
            ("frames_refused", "Connections closed because of an invalid request frame", self._metrics.refused_frames),
            ("unexpected_errors", "Unexpected exceptions in request handlers", self._metrics.unexpected_errors),
            ("quorum_messages_refused", "Invalid requests and answers between quorum nodes", refused),
        ):
            yield counter(f"penstock_controller_{name}_total", text, value)

    async def drain(self) -> None:
        await self._service.drain(0)

    def _tell_versions(self, request: Request, body: ApiVersionsRequest) -> ApiVersionsResponse:
        error = ErrorCode.UNSUPPORTED_VERSION if request.version < 0 else ErrorCode.NONE
        response = ApiVersionsResponse(error_code=error, api_keys=advertised(OF_CONTROLLERS))
        node = self.node
        return response if node is None else with_features(response, node.image, request.version)

    def _tell_cluster(self, request: Request, body: DescribeClusterRequest) -> DescribeClusterResponse:
        if body.endpoint_type != CONTROLLERS:
            raise KafkaError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "this listener belongs to a controller: ask for controllers (endpoint type 2)",
            )
        node = self.node
        endpoints = {} if node is None else node.quorum.peers.endpoints()
        return DescribeClusterResponse(
            endpoint_type=CONTROLLERS,
            cluster_id=self.cluster_id,
            controller_id=-1 if node is None else node.controller_id,
            brokers=[
                DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=None)
                for node_id, (host, port) in sorted(endpoints.items())
            ],
            cluster_authorized_operations=request.operations(
                ResourceKind.CLUSTER, asked=body.include_cluster_authorized_operations
            ),
        )

    def _serve(self, decide: Decide, request: Request, body: Message) -> Message | Awaitable[Message]:
        if self.node is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this node is still starting")
        return decide(self.node, request, body)
