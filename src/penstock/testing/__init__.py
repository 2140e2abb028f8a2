"""Real brokers inside a test process, and the ways to harm them: for the tests of whoever uses Kafka.

    from penstock.testing import Cluster

    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.produce("orders", [("k", "v1"), ("k", "v2")])
        cluster.leader("orders").kill()
        assert [record.value for record in cluster.consume("orders", 2)] == [b"v1", b"v2"]

pytest users need no import: the fixtures of `penstock.testing.plugin` are there once Penstock is installed.

How it works. Every node is the whole broker, `penstock.broker.server.Broker`, on a thread of its own with an event loop
of its own. It listens on loopback ports that the cluster holds from its first moment to its last, so that a node that
is killed comes back where it was, and no other process can take its place. Its data is in a temporary directory, which
goes when the cluster goes.

Faults come in where the engine meets the world, at `penstock.runtime`: `runtime.NodeRuntime` is the production runtime
with a disk that can be slowed (`disk`), connections that can be held (`network`), a loop that can be stopped and an end
that ends the node and not the process. The engine above it is unchanged, and so is the client below: any Kafka client,
in this process or another, meets what it would meet in the real fault.

What is not as in production: nothing is synced to the device (there is no power to lose in a test), elections and
sessions are short, and internal topics are small. `cluster.DEFAULTS` lists the settings, `Cluster(settings=…)` changes
them.

Names are loaded when they are asked for: the plugin is imported by every run of pytest on a machine that has Penstock,
and those that use no broker shall not pay for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.cluster import Cluster, ClusterFailed
    from penstock.testing.node import Node, NodeFailed
    from penstock.testing.records import Record

__all__ = ["Cluster", "ClusterFailed", "Node", "NodeFailed", "Record"]

_HOMES = {
    "Cluster": "cluster",
    "ClusterFailed": "cluster",
    "Node": "node",
    "NodeFailed": "node",
    "Record": "records",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
