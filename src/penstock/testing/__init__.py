"""Real brokers inside a test process, with fault injection: for the tests of applications that use Kafka.

    from penstock.testing import Cluster

    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=3)
        cluster.produce("orders", [("k", "v1"), ("k", "v2")])
        cluster.leader("orders").kill()
        assert [record.value for record in cluster.consume("orders", 2)] == [b"v1", b"v2"]

pytest users need no import: the fixtures of `penstock.testing.plugin` are there once Penstock is installed.

How it works. Every node is the complete broker, `penstock.broker.server.Broker`, with its own thread and event loop.
It listens on loopback ports that the cluster reserves for its whole lifetime, so that a killed node returns at the same
address and no other process can take it. Its data is in a temporary directory, which is removed with the cluster.

Faults are injected at the engine's interface to the outside, `penstock.runtime`: `runtime.NodeRuntime` is the
production runtime with a disk that can be slowed (`disk`), connections that can be held (`network`), a loop that can be
paused, and a fatal error that ends the node but not the process. The engine is unchanged, and so is the client: any
Kafka client, in this process or another, sees what it would see in the real fault.

Differences from production: nothing is synced to the device (a test cannot lose power), election and session timeouts
are short, and internal topics are small. `cluster.DEFAULTS` lists the settings, `Cluster(settings=…)` overrides them.

Names are imported on first use: every pytest run on a machine with Penstock imports the plugin, and runs without a
broker should not pay for one.
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
