"""What requests between replicas of the metadata quorum have in common: ask the core, put its answer on the wire."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock.broker import quorum_wire
from penstock.broker.node import ControllerNode
from penstock.raft import messages as m
from penstock.wire.codec import Message
from penstock.wire.errors import KafkaError


async def answered(node: ControllerNode, request: Callable[[int], m.Request]) -> Message:
    """`request` makes the core's request from the number it is to have. Raises KafkaError for what is none."""
    quorum = node.quorum
    response = await quorum.ask(request)
    data, size = b"", 0
    try:
        if isinstance(response, m.FetchResponse):
            data = await quorum.read_for(response)
        elif isinstance(response, m.FetchSnapshotResponse) and not response.error:
            data, size = await quorum.read_snapshot_for(response)
    except KafkaError as error:
        assert isinstance(response, m.FetchResponse | m.FetchSnapshotResponse)
        response = replace(response, error=error.code)
    assert not isinstance(response, m.Request)
    return quorum_wire.to_response(response, quorum.endpoints(), data, size)
