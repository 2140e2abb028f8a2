"""OffsetDelete (47): forget committed offsets of topics that nobody in the group reads any more (KIP-496).

Served: v0.
"""

from __future__ import annotations

from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import Asked
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


def serve(node: Node, context: RequestContext, request: OffsetDeleteRequest) -> Asked:
    return node.coordinators.ask(request.group_id, GroupShard.offset_delete, context, request, refused)


def refused(code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)
