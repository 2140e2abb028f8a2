"""AlterReplicaLogDirs (34): move replicas of this broker between its log directories (KIP-113).

Served: v1–v2 (v2 is flexible). A broker has one directory. A replica that is to move there is there already; any other
directory does not exist.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def serve(node: Node, request: Request, body: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    # Each once, however often it was named; the last directory that was named for it counts, as in Kafka.
    wanted = {
        (topic.name, index): directory.path
        for directory in body.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), path in wanted.items():
        result = results.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        result.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=outcome(node, name, index, path))
        )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def outcome(node: Node, topic: str, index: int, path: str) -> ErrorCode:
    if path != node.runtime.disk.root:
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = node.table.find(topic.encode(), index)
    return ErrorCode.NONE if partition is not None and partition.log is not None else ErrorCode.REPLICA_NOT_AVAILABLE
