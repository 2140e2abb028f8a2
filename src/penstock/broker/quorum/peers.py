"""The other replicas of the metadata log: their addresses, and the requests that this node's Raft core sends them.

A request of the core becomes a Kafka request on one of two connections to its node: fetches are parked there, and votes
must not wait behind them. The response is returned to the core as an event. So is a missing response. The core is also
told when the leader is certainly gone: nothing listens at its address any more, or it says itself that it does not
lead, although it led in this epoch (it was restarted, and never leads twice in one epoch).

Nodes announce their addresses in requests and responses. The latest announcement has priority over the voter set, which
is updated only by a voter change.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.net.peers import Address, Peers, PeerUnavailable
from penstock.broker.quorum import wire as translate
from penstock.raft import (
    ANY_BOOTSTRAP_SERVER,
    NO_NODE,
    Event,
    LeaderGone,
    RaftCore,
    RequestFailed,
)
from penstock.raft import messages as m
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire import valid
from penstock.wire.errors import ErrorCode, KafkaError, WireError

FETCH_CHANNEL = "metadata"
"""Fetches are parked, so they have their own connection: votes must not wait behind them."""
QUORUM_CHANNEL = "quorum"
ENDPOINTS_MAX = 1_000
"""Addresses of nodes that are not voters or have moved; the oldest is forgotten first."""


class QuorumPeers:
    core: RaftCore
    """Set as soon as there is one."""

    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        peers: Peers,
        node_id: int,
        *,
        cluster_id: str,
        request_timeout_ms: float,
        servers: tuple[Address, ...],
        own_endpoint: tuple[str, str, int] | None,
        on_event: Callable[[Event], None],
        on_fetched: Callable[[m.FetchResponse], None],
    ) -> None:
        """`servers`: where to ask for the quorum while its voters are unknown. `own_endpoint`: name, host, port.
        `on_event` receives the result of each request; `on_fetched` is then called for a fetch."""
        self._runtime = runtime
        self._events = events
        self._peers = peers
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._request_timeout_ms = request_timeout_ms
        self._servers = servers
        self._own_endpoint = own_endpoint
        self._on_event = on_event
        self._on_fetched = on_fetched
        self._learned: dict[int, Address] = {}
        self.resigning = 0
        """Nodes that are being told that this node has resigned."""
        self.refused = 0
        """Number of invalid requests and responses from other nodes."""

    # ---- addresses

    def endpoints(self) -> dict[int, Address]:
        """The controller addresses of all known nodes, including this one."""
        own = {} if self._own_endpoint is None else {self._node_id: self._own_endpoint[1:]}
        return {**translate.voter_endpoints(self.core.voter_set), **self._learned, **own}

    def address_of(self, node_id: int) -> Address | None:
        return None if node_id == NO_NODE else self.endpoints().get(node_id)

    def learn_endpoint(self, node_id: int, address: Address) -> None:
        """Record the address of a node as announced by another. Raises KafkaError(INVALID_REQUEST) if it is invalid."""
        valid.check_address(*address)
        if node_id != self._node_id and node_id >= 0:
            self._learned.pop(node_id, None)
            self._learned[node_id] = address
            if len(self._learned) > ENDPOINTS_MAX:
                del self._learned[next(iter(self._learned))]

    def _learn_told(self, by: int, node_id: int, address: Address) -> None:
        """Like `learn_endpoint`, but only logs an invalid address: the rest of the response may still be useful."""
        try:
            self.learn_endpoint(node_id, address)
        except KafkaError as error:
            self._events.limited("address refused", told_by=by, node=node_id, reason=error.message)

    # ---- requests

    def send(self, request: m.Request) -> None:
        self.resigning += isinstance(request, m.EndQuorumEpochRequest)
        self._runtime.spawn(self._request(request), "quorum request")

    async def _request(self, request: m.Request) -> None:
        """Send a request of the core, and pass it the response, or the fact that there was none."""
        target: Address | None
        if request.target == ANY_BOOTSTRAP_SERVER:
            target = self._servers[self._runtime.rng.randrange(len(self._servers))] if self._servers else None
        else:
            target = self.address_of(request.target)
        if target is None:
            self.resigning -= isinstance(request, m.EndQuorumEpochRequest)
            self._on_event(RequestFailed(request.request_id))
            return
        fetches = isinstance(request, m.FetchRequest | m.FetchSnapshotRequest)
        try:
            response = await self._peers.call(
                target,
                translate.to_request(request, self._cluster_id, self._own_endpoint),
                timeout_ms=self._request_timeout_ms,
                channel=FETCH_CHANNEL if fetches else QUORUM_CHANNEL,
            )
            for node_id, address in translate.endpoints_in(response).items():
                self._learn_told(request.target, node_id, address)
            event: Event = translate.from_response(request, response, self.core.epoch)
        except PeerUnavailable as error:
            if error.refused and isinstance(request, m.FetchRequest) and request.target == self.core.leader_id:
                self._on_event(LeaderGone(request.target, request.epoch))
            event = RequestFailed(request.request_id)
        except (translate.Inconsistent, KafkaError, WireError) as error:
            self.refused += 1
            self._events.recurring("quorum request refused", request.target, node=request.target, reason=str(error))
            event = RequestFailed(request.request_id)
        except Exception as error:
            self._runtime.task_failed("quorum request", error)
            event = RequestFailed(request.request_id)
        self.resigning -= isinstance(request, m.EndQuorumEpochRequest)
        if isinstance(event, m.FetchResponse) and self._leads_no_longer(event):
            self._on_event(LeaderGone(event.source, event.epoch))
        self._on_event(event)
        if isinstance(event, m.FetchResponse):
            self._on_fetched(event)

    def _leads_no_longer(self, response: m.FetchResponse) -> bool:
        """Whether the leader itself says so: it was restarted, and never leads twice in one epoch."""
        resigned = response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and response.source == self.core.leader_id
        return resigned and response.epoch == self.core.epoch and response.leader_id == NO_NODE
