"""DeleteGroups (42): delete groups without members, and their offsets (KIP-229).

Served: v0–v2. v2 is flexible. Each group succeeds or fails on its own.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.net.slices import Slices
from penstock.broker.node import Node
from penstock.broker.refusals import element
from penstock.coordinators.groups import GroupShard, RequestInfo
from penstock.coordinators.shard import Ticket, Turn
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def serve(node: Node, request: Request, body: DeleteGroupsRequest) -> DeleteGroupsResponse:
    coordinators = node.coordinators
    names = dict.fromkeys(body.groups_names)
    allowed, denied = request.split(Operation.DELETE, ResourceKind.GROUP, names, lambda name: name)
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    results = [DeletableGroupResult(group_id=group_id, error_code=code) for group_id in denied]
    with request.slices() as slices:
        asked = []
        # All are asked before the first answer is waited for, so that they share batches.
        for group_id in allowed:
            refused = element(DeletableGroupResult, group_id=group_id)
            asked.append(coordinators.ask(group_id, delete, request, group_id, refused))
            await slices.breathe()
    others = Slices(node.runtime)
    for one in asked:
        results.append(await coordinators.settled(one, DeletableGroupResult))
        await others.breathe()
    return DeleteGroupsResponse(results=results)


def delete(shard: GroupShard, turn: Turn, ticket: Ticket, info: RequestInfo, group_id: str) -> None:
    shard.delete_group(turn, ticket, group_id)
