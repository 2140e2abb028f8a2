"""JoinGroup (11): a member of a classic group asks to take part in the next generation.

Served: v0–v9. v1 rebalance timeout (KIP-62), v4 the member id must come from the coordinator (KIP-394), v5 static
members (KIP-345), v6 flexible, v7 protocol type and nullable protocol name (KIP-559), v8 a reason (KIP-800), v9 the
leader may skip its assignment (KIP-814). The answer waits until all members have joined or their time is over.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import PendingReply
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.messages.join_group import JoinGroupRequest


def serve(node: Node, request: Request, body: JoinGroupRequest) -> PendingReply:
    request.check(Operation.READ, ResourceKind.GROUP, body.group_id)
    return node.coordinators.ask(body.group_id, GroupShard.join_group, request, body, request.refused)
