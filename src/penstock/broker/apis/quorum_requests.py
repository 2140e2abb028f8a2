"""What requests between replicas of the metadata quorum have in common: ask the core, put its answer on the wire."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from penstock.broker.node import ControllerNode
from penstock.broker.quorum import wire as quorum_wire
from penstock.broker.quorum.controlling import Caller
from penstock.raft import messages as m
from penstock.wire.codec import Message
from penstock.wire.errors import KafkaError


async def answered(node: ControllerNode, caller: Caller, request: Message, response: type[Message]) -> Message:
    """The core's answer; what is no request for it is refused with Kafka's error, as a whole."""
    wire: Any = request
    quorum = node.quorum
    try:
        quorum_wire.check_cluster(wire.cluster_id, node.cluster_id)
        event = quorum_wire.to_core(request, node.node_id, quorum.next_number(), quorum.core.epoch)
        if isinstance(event, m.BeginQuorumEpochRequest) and quorum.may_lead(event.source, event.epoch):
            for endpoint in wire.leader_endpoints[:1]:
                quorum.peers.learn_endpoint(event.source, (endpoint.host, endpoint.port))
        return await _answer(node, await quorum.ask(event))
    except KafkaError as error:
        quorum.peers.refused += 1
        node.events.limited("quorum request refused", peer=caller.peer, reason=error.message)
        return response(error_code=error.code)


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
