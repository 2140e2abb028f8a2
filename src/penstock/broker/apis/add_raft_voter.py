"""AddRaftVoter (80): one more voter of the metadata quorum (KIP-853).

Served: v0–v1. v1 may answer before the change is committed; here the answer always waits for it. The new voter must be
running as an observer and have caught up: one that lags would hold up every commit. One change at a time.
"""

from __future__ import annotations

from penstock.broker.controlling import Caller
from penstock.broker.node import ControllerNode
from penstock.broker.quorum_wire import check_cluster
from penstock.raft import AddVoter, Endpoint, Voter
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


async def decide(node: ControllerNode, caller: Caller, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    try:
        check_cluster(request.cluster_id, node.cluster_id)
        if node.quorum.controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if not request.listeners:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A voter needs a listener at which the others reach it.")
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
    voter = Voter(
        request.voter_id,
        request.voter_directory_id,
        tuple(Endpoint(at.name, at.host, at.port) for at in request.listeners),
    )
    result = await node.quorum.change_voters(lambda number: AddVoter(number, voter))
    return AddRaftVoterResponse(error_code=result.error, error_message=result.message or None)
