"""SyncGroup (14): the leader of a classic group brings the assignment, everyone gets their part of it.

Served: v0–v5. v3 static members (KIP-345), v4 flexible, v5 checks the protocol's type and name (KIP-559). The answer of
the others waits for the leader's request.
"""

from __future__ import annotations

from functools import partial

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import PendingReply
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.sync_group import SyncGroupRequest


def serve(node: Node, request: Request, body: SyncGroupRequest) -> PendingReply:
    request.check(Operation.READ, ResourceKind.GROUP, body.group_id)
    return node.coordinators.ask(body.group_id, GroupShard.sync_group, request, body, partial(refused, request))


def refused(request: Request, code: ErrorCode) -> Message:
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # The rebalance that this belongs to is forgotten, and clients give up on an error that they do not expect here.
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return request.refused(code)
