"""DeleteGroups (42): groups without members, and their offsets, go (KIP-229).

Served: v0–v2. v2 is flexible. Each group succeeds or fails on its own.
"""

from __future__ import annotations

from functools import partial

from penstock.broker.net.slices import Slices
from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.coordinators.groups import GroupShard, RequestInfo
from penstock.coordinators.shard import Ticket, Turn
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def serve(node: Node, context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    coordinators = node.coordinators
    with context.slices() as slices:
        asked = []
        # All are asked before the first answer is waited for, so that they share batches.
        for group_id in dict.fromkeys(request.groups_names):
            asked.append(coordinators.ask(group_id, delete, context, group_id, partial(refused, group_id)))
            await slices.breathe()
    response = DeleteGroupsResponse()
    others = Slices(node.runtime)
    for one in asked:
        response.results.append(await coordinators.settled(one, DeletableGroupResult))
        await others.breathe()
    return response


def delete(shard: GroupShard, turn: Turn, ticket: Ticket, info: RequestInfo, group_id: str) -> None:
    shard.delete_group(turn, ticket, group_id)


def refused(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)
