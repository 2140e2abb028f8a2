"""Plans for up to a million partitions: what `penstock brokers add` and `drain` need to decide what goes where.

The planner is pure, so this is the processor time and the memory of planning alone, without reading the cluster's
state. Each size is measured in a process of its own.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

from bench.scale_controller import BROKERS, PARTITIONS_PER_TOPIC, RACKS, REPLICATION_FACTOR, Measured, Said
from penstock.balance import Broker, ClusterModel, Partition, Plan, add_brokers, drain_brokers

FEW = 3
SIZE_BYTES = 1_000_000


def measure(partitions: int, said: Said) -> Measured:
    """All numbers of one size. `said` is told what is being done."""
    measured: Measured = {"partitions": partitions}
    said("a fourth broker")
    measured |= planned("fourth", add_brokers, spread(partitions, FEW, 1), FEW + 1)
    said("one broker more")
    many = spread(partitions, BROKERS, RACKS)
    measured |= planned("added", add_brokers, many, BROKERS + 1)
    said("draining a broker")
    measured |= planned("drained", drain_brokers, many, 1)
    measured["plan_peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return measured


def spread(partitions: int, brokers: int, racks: int) -> ClusterModel:
    """A cluster with replicas dealt out in turn, and one broker that holds nothing yet."""
    made = []
    for number in range(partitions):
        replicas = tuple((number + place) % brokers + 1 for place in range(REPLICATION_FACTOR))
        topic, index = divmod(number, PARTITIONS_PER_TOPIC)
        made.append(
            Partition(
                f"topic-{topic:06d}", index, replicas, leader=replicas[0], in_sync=replicas, size_bytes=SIZE_BYTES
            )
        )
    known = [Broker(broker, f"rack-{broker % racks}" if racks > 1 else None) for broker in range(1, brokers + 2)]
    return ClusterModel("a-cluster", known, made)


def planned(name: str, make: Callable[[ClusterModel, list[int]], Plan], model: ClusterModel, broker: int) -> Measured:
    began_s = time.process_time()
    plan = make(model, [broker])
    return {f"{name}_s": time.process_time() - began_s, f"{name}_replicas": plan.replicas_to_move}
