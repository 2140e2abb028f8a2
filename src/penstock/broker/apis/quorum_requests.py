"""Requests between replicas of the metadata quorum: passed to the Raft core, whose answer is encoded.

Served on the listeners of controllers, with replicas named by node and directory (KIP-853):

- Vote (52), v1–v2: a replica asks for a vote, or, from v2 on, whether it would get one (KIP-996). The answer leaves
  when what it promises is on disk.
- BeginQuorumEpoch (53), v1: a new leader makes itself known, and where it listens, to voters that do not fetch yet.
- EndQuorumEpoch (54), v1: a leader that gives up tells the voters, and whom it would like to follow it.
- Fetch (1), v17–v18: the metadata log, for voters, observers and brokers. The fetch offset acknowledges everything
  before it; v18 names what the replica knows to be committed, so that a leader that knows more answers at once
  (KIP-1166). Where the log no longer has what is missing the answer names a snapshot, and where it differs, the place
  to cut to.
- FetchSnapshot (59), v1: a snapshot, piece by piece, for a replica that is too far behind for the log.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.broker.quorum import wire as quorum_wire
from penstock.raft import messages as m
from penstock.wire.codec import Message
from penstock.wire.errors import KafkaError


async def serve(node: ControllerNode, request: Request, body: Message) -> Message:
    """The core's answer; an invalid request is refused as a whole, with Kafka's error."""
    wire: Any = body
    quorum = node.quorum
    try:
        quorum_wire.check_cluster(wire.cluster_id, node.cluster_id)
        event = quorum_wire.to_core(body, node.node_id, quorum.next_number(), quorum.core.epoch)
        if isinstance(event, m.BeginQuorumEpochRequest) and quorum.may_lead(event.source, event.epoch):
            for endpoint in wire.leader_endpoints[:1]:
                quorum.peers.learn_endpoint(event.source, (endpoint.host, endpoint.port))
        return await _answer(node, await quorum.ask(event))
    except KafkaError as error:
        quorum.peers.refused += 1
        node.events.limited("quorum request refused", peer=request.peer, reason=error.message)
        raise


async def _answer(node: ControllerNode, response: m.Response) -> Message:
    quorum = node.quorum
    data, size = b"", 0
    try:
        if isinstance(response, m.FetchResponse):
            data = await quorum.read_for(response)
        elif isinstance(response, m.FetchSnapshotResponse) and not response.error:
            data, size = await quorum.store.read_snapshot(response.snapshot, response.position, response.bytes_max)
    except KafkaError as error:
        assert isinstance(response, m.FetchResponse | m.FetchSnapshotResponse)
        response = replace(response, error=error.code)
    return quorum_wire.to_response(response, quorum.peers.endpoints(), data, size)
