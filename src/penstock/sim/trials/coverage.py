"""Counts what happened in a set of trials: an event that never happened was not tested."""

from __future__ import annotations

from collections import Counter

from penstock.sim.cluster import SimCluster
from penstock.sim.trials.schedule import OFFSETS, TRANSACTION_STATE, Kind

__all__ = ["MUST_HAPPEN", "count_events", "missing"]

MUST_HAPPEN = (
    "leader change",
    "divergent truncation",
    "ISR shrink",
    "ISR expand",
    "snapshot install",
    "coordinator move",
    "retry across a leader change",
    "unclean restart",
    "three faults at once",
    "two nodes down at once",
    Kind.CRASH_IN_RECOVERY.value,
    Kind.POWER_IN_RECOVERY.value,
    Kind.RING.value,
    "cut again while flapping",
    "move begun",
    "served after damage",
    "transaction committed",
    "transaction aborted",
    "transaction coordinator move",
    "zombie",
    "fenced",
    "gave up",
    "late EndTxn",
    "late Produce",
    "record refused outside a transaction",
    "repeated marker refused",
)
"""A set of trials fails if one of these never happened."""


def count_events(cluster: SimCluster) -> Counter[str]:
    """Events counted from the nodes' logs."""
    seen: Counter[str] = Counter()
    for node in cluster.nodes:
        events = node.events
        seen["divergent truncation"] += sum(
            1 for entry in events.named("truncated") if int(str(entry.fields["before"])) > int(str(entry.fields["end"]))
        )
        seen["ISR shrink"] += len(events.named("ISR shrunk"))
        seen["ISR expand"] += len(events.named("ISR expanded"))
        seen["snapshot install"] += len(events.named("metadata snapshot installed"))
        seen["metadata truncation"] += len(events.named("metadata log cut"))
        seen["unclean restart"] += len(events.named("recovering"))
        seen["controller change"] += sum(1 for entry in events.named("controller") if entry.fields["active"])
    loads = Counter(
        (str(entry.fields["partition"]), node.node_id)
        for node in cluster.nodes
        for entry in node.events.named("coordinator loaded")
    )
    places = Counter(partition for partition, _ in loads)
    seen["coordinator move"] += sum(count - 1 for partition, count in places.items() if partition.startswith(OFFSETS))
    seen["transaction coordinator move"] += sum(
        count - 1 for partition, count in places.items() if partition.startswith(TRANSACTION_STATE)
    )
    return seen


def missing(seen: Counter[str]) -> list[str]:
    return [what for what in MUST_HAPPEN if not seen[what]]
