"""AddRaftVoter (80): one more voter of the metadata quorum (KIP-853).

Served: v0–v1. v1 may answer before the change is committed; here the answer always waits for it. The new voter must be
running as an observer and have caught up: one that lags would hold up every commit. It must also be a node of this
cluster that answers where it is said to listen: nobody could ask another one for its vote. One change at a time.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.formation import cluster_of
from penstock.broker.quorum.wire import check_cluster
from penstock.raft import AddVoter, Endpoint, Voter
from penstock.wire import valid
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.wire.uuids import ZERO_UUID


async def decide(node: ControllerNode, request: Request, body: AddRaftVoterRequest) -> AddRaftVoterResponse:
    check_cluster(body.cluster_id, node.cluster_id)
    if node.quorum.controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    check_voter(body)
    await check_reachable(node, body)
    voter = Voter(
        body.voter_id,
        body.voter_directory_id,
        tuple(Endpoint(at.name, at.host, at.port) for at in body.listeners),
    )
    result = await node.quorum.change_voters(lambda number: AddVoter(number, voter))
    return AddRaftVoterResponse(error_code=result.error, error_message=result.message or None)


def check_voter(body: AddRaftVoterRequest) -> None:
    if body.voter_id < 0 or body.voter_directory_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Add voter request didn't include a valid voter.")
    valid.check_directory_id(body.voter_directory_id)
    if not 1 <= len(body.listeners) <= valid.ENDPOINTS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A voter needs a listener at which the others reach it.")
    for at in body.listeners:
        valid.check_endpoint(at.name, at.host, at.port)


async def check_reachable(node: ControllerNode, body: AddRaftVoterRequest) -> None:
    if node.quorum.core.voter_set.get(body.voter_id) is not None:
        return  # the core has an answer of its own
    at = body.listeners[0]
    found = await cluster_of(node.peers, (at.host, at.port))
    if found is None:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"No controller answers at {at.host}:{at.port}, where node {body.voter_id} is said to listen. Start it "
            "there as an observer (process.roles=controller, controller.quorum.bootstrap.servers) and retry.",
        )
    check_cluster(found or None, node.cluster_id)
