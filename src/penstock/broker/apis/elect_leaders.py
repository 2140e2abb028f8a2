"""ElectLeaders (43): give leadership to the preferred replicas, or, unclean, to whoever is left.

Served: v0–v2. v1 adds unclean elections (KIP-460), v2 is flexible. Without a list of partitions all that need an
election get one, and only those are in the answer. Decided by the active controller.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata import Election, PartitionElection
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


async def decide(node: ControllerNode, request: Request, body: ElectLeadersRequest) -> ElectLeadersResponse:
    wanted = None
    if body.topic_partitions is not None:
        wanted = [PartitionElection(t.topic, index) for t in body.topic_partitions for index in t.partitions]
    if body.election_type not in (Election.PREFERRED, Election.UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no election of type {body.election_type}.")
    election = Election(body.election_type)
    results = await node.quorum.submit(lambda controller: controller.decide_elect_leaders(election, wanted))
    topics: dict[str, list[PartitionResult]] = {}
    for result in results:
        outcome = result.outcome
        topics.setdefault(result.topic, []).append(
            PartitionResult(partition_id=result.partition, error_code=outcome.error, error_message=outcome.message)
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=partitions) for topic, partitions in topics.items()
        ]
    )
