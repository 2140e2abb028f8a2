"""ElectLeaders (43): elect the preferred replicas, or (unclean) any remaining replica.

Served: v0–v2. v1 adds unclean elections (KIP-460), v2 is flexible. Without a list of partitions all that need an
election get one, and only those are in the answer. Decided by the active controller.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.portions import decide_in_portions
from penstock.metadata import Election, PartitionElection
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


async def decide(node: ControllerNode, request: Request, body: ElectLeadersRequest) -> ElectLeadersResponse:
    slices = Slices(node.runtime)
    wanted = None
    if body.topic_partitions is not None:
        wanted = []
        for topic in body.topic_partitions:
            for index in topic.partitions:
                wanted.append(PartitionElection(topic.topic, index))
                await slices.breathe()
    if body.election_type not in (Election.PREFERRED, Election.UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no election of type {body.election_type}.")
    election = Election(body.election_type)
    if wanted is None:
        results = await node.quorum.submit(lambda controller: controller.decide_elect_leaders(election, None))
    else:
        results = await decide_in_portions(
            node, lambda portion, controller: controller.decide_elect_leaders(election, portion), wanted, slices
        )
    topics: dict[str, list[PartitionResult]] = {}
    for result in results:
        await slices.breathe()
        outcome = result.outcome
        topics.setdefault(result.topic, []).append(
            PartitionResult(partition_id=result.partition, error_code=outcome.error, error_message=outcome.message)
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=partitions) for topic, partitions in topics.items()
        ]
    )
