"""RemoveRaftVoter (81): remove a voter from the metadata quorum (KIP-853).

Served: v0. One change at a time. A change is refused if too few of the remaining voters are caught up: the quorum would
stop, and the change could not be undone.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.wire import check_cluster
from penstock.raft import RemoveVoter, ReplicaKey
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


async def decide(node: ControllerNode, request: Request, body: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    key = ReplicaKey(body.voter_id, body.voter_directory_id)
    check_cluster(body.cluster_id, node.cluster_id)
    if node.quorum.controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    check_majority(node, key)
    result = await node.quorum.change_voters(lambda number: RemoveVoter(number, key))
    return RemoveRaftVoterResponse(error_code=result.error, error_message=result.message or None)


def check_majority(node: ControllerNode, key: ReplicaKey) -> None:
    core = node.quorum.core
    if key not in core.voter_set or len(core.voter_set) == 1:
        return  # the core has an answer of its own
    left = core.voter_set.without(key)
    since_ms = node.runtime.now_ms() - core.config.check_quorum_timeout_ms
    described = {info.key: info for info in core.describe().voters}
    keeping = sum(
        voter == core.key or (voter in described and described[voter].last_caught_up_ms >= since_ms)
        for voter in left.keys
    )
    if keeping < left.majority:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Without node {key.id} too few of the voters {list(left.ids)} keep up, and the quorum would stand still. "
            "Bring them back, or remove first those that are gone.",
        )
