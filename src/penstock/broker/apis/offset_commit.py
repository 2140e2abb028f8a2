"""OffsetCommit (8): how far a group has come.

Served: v2–v10. v5 drops the retention time (KIP-211), v6 leader epochs (KIP-320), v7 static members (KIP-345), v8
flexible, v9 members of the consumer protocol (KIP-848), v10 topic ids (KIP-848). The answer leaves when the offsets are
committed.
"""

from __future__ import annotations

from functools import partial

from penstock.broker.node import Node
from penstock.broker.service import RequestContext
from penstock.coordinators.groups.shard import GroupShard
from penstock.coordinators.host import Asked
from penstock.wire.commits import PlainCommit
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def serve(node: Node, context: RequestContext, request: OffsetCommitRequest | PlainCommit) -> Asked:
    if isinstance(request, PlainCommit):
        return node.coordinators.ask(
            request.group_id,
            GroupShard.offset_commit_plain,
            context,
            request,
            lambda code: refused(request.request(), code),
        )
    return node.coordinators.ask(
        request.group_id, GroupShard.offset_commit, context, request, partial(refused, request)
    )


def refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=code)
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
