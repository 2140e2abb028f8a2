"""AlterPartition (56): a leader proposes new ISRs for partitions that it leads.

Served on the listeners of controllers: v2–v3. v3 names the epoch of every member, so that a broker which restarted
meanwhile does not enter an ISR by fetches of its earlier life (KIP-903). Each partition is accepted or refused on
its own; the answer tells the state in force.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata import IsrProposal, IsrResult
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)


async def serve(node: ControllerNode, request: Request, body: AlterPartitionRequest) -> AlterPartitionResponse:
    proposals = []
    for topic in body.topics:
        for data in topic.partitions:
            with_epochs = request.version >= 3
            proposals.append(
                IsrProposal(
                    topic.topic_id,
                    data.partition_index,
                    data.leader_epoch,
                    data.partition_epoch,
                    tuple(m.broker_id for m in data.new_isr_with_epochs) if with_epochs else tuple(data.new_isr),
                    tuple(member.broker_epoch for member in data.new_isr_with_epochs) if with_epochs else (),
                    data.leader_recovery_state,
                )
            )
    results = await node.quorum.submit(
        lambda controller: controller.decide_alter_isrs(body.broker_id, body.broker_epoch, proposals)
    )
    topics: dict[bytes, AlterPartitionResponseTopicData] = {}
    for result in results:
        answer = topics.get(result.topic_id)
        if answer is None:
            answer = topics[result.topic_id] = AlterPartitionResponseTopicData(topic_id=result.topic_id, partitions=[])
        answer.partitions.append(answered(result))
    return AlterPartitionResponse(topics=list(topics.values()))


def answered(result: IsrResult) -> AlterPartitionResponsePartitionData:
    state = result.state
    if state is None:
        return AlterPartitionResponsePartitionData(partition_index=result.partition, error_code=result.error)
    return AlterPartitionResponsePartitionData(
        partition_index=result.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=state.partition_epoch,
    )
