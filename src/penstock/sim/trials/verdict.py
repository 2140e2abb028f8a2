"""The conditions that must hold after the faults are over and the cluster has had time to heal."""

from __future__ import annotations

from penstock.metadata import snapshot_values
from penstock.sim.cluster import SimCluster, SimNode
from penstock.sim.disk import SimulatedCrash
from penstock.sim.trials.load import Ledger, Violation
from penstock.sim.trials.schedule import OFFSETS, TRANSACTION_STATE

__all__ = ["check_ledger", "check_logs_agree", "check_metadata_agrees", "check_no_unexpected_errors", "is_healed"]


def is_healed(cluster: SimCluster) -> bool:
    """Every node serves, and every replica of every partition is in sync, as the controller sees it."""
    controller = cluster.controller()
    if controller is None or not all(node.is_alive and node.ready for node in cluster.nodes):
        return False
    image = controller.image
    for node in cluster.nodes:
        broker = image.broker(node.node_id)
        if node.is_broker and (broker is None or broker.fenced):
            return False
        if node.image.offset != image.offset:
            return False
    for topic in image.topics():
        for state in topic.partitions:
            if state.leader < 0 or len(state.isr) != len(state.replicas):
                return False
    places = [(topic.name, index) for topic in image.topics() for index in range(len(topic.partitions))]
    return all(_caught_up(cluster, topic, index) for topic, index in places)


def _caught_up(cluster: SimCluster, topic: str, index: int) -> bool:
    places = [_place(node, topic, index) for node in cluster.nodes if node.is_broker]
    ends = {(end, high_watermark) for end, high_watermark in places if end >= 0}
    return len(ends) == 1 and all(end == high_watermark for end, high_watermark in ends)


def _place(node: SimNode, topic: str, index: int) -> tuple[int, int]:
    found = node.served.manager.table.find(topic.encode(), index)
    if found is None or found.log is None:
        return -1, -1
    return found.log.end_offset, found.high_watermark


def check_ledger(ledger: Ledger, final: list[bytes]) -> None:
    """No acknowledged record is lost or moved; none is duplicated or out of order; no record that was read is gone."""
    if len(dict.fromkeys(final)) != len(final):
        twice = [value for value in dict.fromkeys(final) if final.count(value) > 1]
        raise Violation(f"{ledger}: duplicates in the log: {twice[:5]}")
    for offset, value in ledger.acknowledged.items():
        if final[offset : offset + 1] != [value]:
            raise Violation(f"{ledger}: {value!r} was acknowledged at {offset}, found {final[offset : offset + 1]}")
    for offset, value in ledger.read.items():
        if final[offset : offset + 1] != [value]:
            raise Violation(f"{ledger}: {value!r} was read at {offset}, found {final[offset : offset + 1]}")
    last: dict[bytes, bytes] = {}
    for value in final:
        producer = value.split(b"-")[0]
        if value <= last.get(producer, b""):
            raise Violation(f"{ledger}: {value!r} comes after {last[producer]!r}")
        last[producer] = value


def check_logs_agree(cluster: SimCluster, topic: str, index: int) -> None:
    """Checks that all replicas have the same bytes. Compacted topics are left out: replicas compact alone."""
    if topic in (OFFSETS, TRANSACTION_STATE):
        return
    logs: dict[str, bytes] = {}
    for node in cluster.nodes:
        if not node.is_broker:
            continue
        found = node.served.manager.table.find(topic.encode(), index)
        if found is not None and found.log is not None:
            log = found.log
            logs[node.name] = b"".join(
                segment.file.read(segment.size_bytes, 0) for segment in log.segments if segment.size_bytes
            )
    if len(set(logs.values())) > 1:
        sizes = {name: len(data) for name, data in logs.items()}
        raise Violation(f"{topic}-{index}: the replicas differ ({sizes})")


def check_metadata_agrees(cluster: SimCluster) -> None:
    contents = {node.name: tuple(snapshot_values(node.image)) for node in cluster.nodes}
    if len(set(contents.values())) != 1:
        raise Violation(f"the nodes do not agree on the metadata: {[(n, len(c)) for n, c in contents.items()]}")


def check_no_unexpected_errors(cluster: SimCluster, *, storage_faults: dict[int, None]) -> None:
    """No handler raised an unexpected error, and no process ended by itself except for its disk."""
    for node in cluster.nodes:
        surprises = node.events.named("unexpected error")
        told = [f"{entry.fields['error']} at {entry.fields['trace']}" for entry in surprises]
        # A coordinator whose append is refused drops its decisions and reloads its partition.
        told += [
            str(entry.fields)
            for entry in node.events.named("coordinator restarts")
            if "NOT_ENOUGH_REPLICAS" not in str(entry.fields["error"])
        ]
        told += [str(entry.fields) for entry in node.events.named("committed records cut off")]
        if told and node.node_id not in storage_faults:
            raise Violation(f"{node.name}: {told[0]}")
        for exit in node.host.exits:
            failed = exit.error is not None and not isinstance(exit.error, SimulatedCrash)
            by_itself = failed or exit.reason.startswith("fatal")
            if by_itself and node.node_id not in storage_faults:
                raise Violation(f"{node.name} ended by itself: {exit.reason} {exit.error!r}") from exit.error
