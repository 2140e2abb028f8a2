"""The invariants that hold at every moment of a trial, and the events seen in it."""

from __future__ import annotations

from collections import Counter

from penstock.sim.cluster import SimCluster, SimNode
from penstock.sim.trials.load import Violation

__all__ = ["Watch"]

Place = tuple[bytes, int]
"""(topic id, partition)."""


class Watch:
    """Inspects the nodes from outside, in ways no client could. `look` is called several times per virtual second."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.seen: Counter[str] = Counter()
        self._quorum_leaders: dict[int, int] = {}
        self._partition_leaders: dict[tuple[Place, int], int] = {}
        self._newest: dict[Place, int] = {}
        self._high_watermarks: dict[tuple[str, Place], tuple[object, int, int]] = {}
        self._committed: dict[str, int] = {}
        self._epochs: dict[tuple[int, object], int] = {}
        self._coordinators: dict[Place, int] = {}

    def look(self) -> None:
        for node in self._cluster.nodes:
            if node.is_alive and node.ready_quorum:
                self._look_at_quorum(node)
                if node.ready and node.is_broker:
                    self._look_at_partitions(node)

    def _look_at_quorum(self, node: SimNode) -> None:
        core = node.served.quorum.core
        if node.is_active_controller:
            first = self._quorum_leaders.setdefault(core.epoch, node.node_id)
            if first != node.node_id:
                raise Violation(f"nodes {first} and {node.node_id} are active controllers of epoch {core.epoch}")
        process = node.process.name
        if core.high_watermark < self._committed.get(process, 0):
            raise Violation(f"{process}: the quorum's high watermark went back to {core.high_watermark}")
        self._committed[process] = core.high_watermark
        # The epoch of a replica never goes back, whatever happens to its process; another disk is another replica. An
        # epoch that is not written yet was sent to no node, and a kill may undo it.
        if node.served.quorum.is_writing:
            return
        replica = node.node_id, core.key
        if core.epoch < self._epochs.get(replica, 0):
            raise Violation(f"{node.name}: the epoch of the quorum went from {self._epochs[replica]} to {core.epoch}")
        self._epochs[replica] = core.epoch

    def _look_at_partitions(self, node: SimNode) -> None:
        process = node.process.name
        for partition in node.served.manager.table.all():
            place = partition.topic_id, partition.index
            if partition.log is None:
                continue
            key = process, place
            high_watermark = partition.high_watermark
            log, repairs, known = self._high_watermarks.get(key, (partition.log, 0, 0))
            # A replica that was moved away and back starts with an empty, different log. A damaged one is truncated.
            if log is partition.log and repairs == partition.repairs and high_watermark < known:
                raise Violation(f"{process}: the high watermark of {partition} went from {known} to {high_watermark}")
            self._high_watermarks[key] = partition.log, partition.repairs, high_watermark
            leader = partition.leader
            if leader is None:
                continue
            first = self._partition_leaders.setdefault((place, leader.leader_epoch), node.node_id)
            if first != node.node_id:
                raise Violation(f"nodes {first} and {node.node_id} lead {partition} in epoch {leader.leader_epoch}")
            if leader.leader_epoch > self._newest.get(place, 0):
                self._newest[place] = leader.leader_epoch
                self.seen["leader change"] += 1
