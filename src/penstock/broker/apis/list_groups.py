"""ListGroups (16): the groups that this broker coordinates.

Served: v0–v5. v3 flexible, v4 filter by state (KIP-518), v5 by type (KIP-848). Clients ask every broker. While a
coordinator is still loading the list would not be whole, so the answer says that and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.net.request import Request
from penstock.broker.net.slices import runs_of
from penstock.broker.node import Node
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.shard import Ticket, Turn
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


async def serve(node: Node, request: Request, body: ListGroupsRequest) -> ListGroupsResponse:
    response = ListGroupsResponse()
    coordinators = node.coordinators
    with request.slices() as slices:
        for host in list(coordinators.hosts()):
            # A shard may have thousands of groups: it lists some at a time.
            for ids in runs_of(host.shard.table.group_ids() if host.is_active else []):

                def call(
                    turn: Turn, ticket: Ticket, shard: GroupShard = host.shard, among: Sequence[str] = ids
                ) -> None:
                    shard.list_groups(turn, ticket, body.states_filter, body.types_filter, among)

                part = await coordinators.settled(host.submit(call, request.refused), ListGroupsResponse)
                if part.error_code == ErrorCode.NOT_COORDINATOR:
                    break
                if part.error_code:
                    return part
                response.groups += part.groups
                await slices.breathe()
    if not request.permits(Operation.DESCRIBE, ResourceKind.CLUSTER):
        response.groups, _ = request.split(
            Operation.DESCRIBE, ResourceKind.GROUP, response.groups, lambda group: group.group_id, listing=True
        )
    return response
