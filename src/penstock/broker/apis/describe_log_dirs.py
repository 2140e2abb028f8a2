"""DescribeLogDirs (35): how much of the disk each partition takes.

Served: v1–v4. v2 is flexible, v3 adds a top-level error, v4 the disk's total and usable bytes (KIP-827).
"""

from __future__ import annotations

from collections.abc import Generator

from penstock.broker.net.request import Request
from penstock.broker.net.slices import in_slices
from penstock.broker.node import Node
from penstock.broker.replicas.partition import Partition
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def serve(node: Node, request: Request, body: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    return await in_slices(request.slices(), describe(node, body))


def describe(node: Node, body: DescribeLogDirsRequest) -> Generator[None, None, DescribeLogDirsResponse]:
    chosen: list[tuple[str, list[Partition]]] = []
    if body.topics is None:
        chosen = [(name.decode(), partitions) for name, partitions in sorted(node.table.by_name.items())]
    else:
        for topic in body.topics:
            found = []
            for index in topic.partitions:
                yield
                partition = node.table.find(topic.topic.encode(), index)
                if partition is not None:
                    found.append(partition)
            chosen.append((topic.topic, found))
    topics = []
    for name, partitions in chosen:
        held = []
        for partition in partitions:
            yield
            if partition.log is not None:
                size = partition.log.size_bytes
                held.append(
                    DescribeLogDirsPartition(partition_index=partition.index, partition_size=size, offset_lag=0)
                )
        if held:
            topics.append(DescribeLogDirsTopic(name=name, partitions=held))
    disk = node.runtime.disk
    result = DescribeLogDirsResult(
        log_dir=disk.root, topics=topics, total_bytes=disk.total_bytes(), usable_bytes=disk.free_bytes()
    )
    return DescribeLogDirsResponse(results=[result])
