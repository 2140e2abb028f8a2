"""Chooses a nearby replica for a consumer to read from (KIP-392).

A consumer names its rack (`client.rack`), and the leader tells it which replica to read from. The rule is that of
Kafka's RackAwareReplicaSelector: a replica in the consumer's rack; the leader if it is in that rack, else the replica
with the highest end offset; the leader if no replica is in that rack. Only replicas count that are in sync, in service
and have the requested offset. Followers serve any consumer that supports this (Fetch v11), up to their high watermark.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.replicas.partition import Partition
from penstock.metadata import MetadataImage
from penstock.replication import Leader

NONE = -1


class RackAwareSelector:
    def __init__(self, node_id: int, image: Callable[[], MetadataImage]) -> None:
        self._node_id = node_id
        self._image = image

    def choose(self, partition: Partition, leader: Leader, rack: str, offset: int) -> int:
        """The replica to read this offset from; -1 if that is the leader, which is this broker."""
        brokers = self._image().brokers
        here = brokers.get(self._node_id)
        if here is None or here.rack == rack:
            return NONE
        best = NONE
        best_rank = (-1, 0.0, 0)
        for replica in leader.isr:
            broker = brokers.get(replica)
            progress = leader.followers.get(replica)
            if broker is None or progress is None or broker.rack != rack or not broker.active:
                continue
            if progress.end < offset or not 0 <= progress.log_start <= offset:
                continue
            rank = (progress.end, progress.caught_up_ms, -replica)
            if rank > best_rank:
                best, best_rank = replica, rank
        return best
