"""The settings of one node of a cluster on one machine, in Kafka's words.

Each node has three listeners: PLAINTEXT for clients, INTERNAL for the other brokers (`inter.broker.listener.name`) and,
if it is of the quorum, CONTROLLER. So nobody who comes in as a client can speak for a broker.

`penstock up --brokers N`, `penstock chaos` and `penstock.testing` all start nodes that look like this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

COPIES_MAX = 3

NODE_SETTINGS = (
    "node.id",
    "broker.id",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "listener.security.protocol.map",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
)
"""What `node_settings` gives each node, and nobody may give to all alike."""


class NodeAddress(NamedTuple):
    """Where one node listens."""

    host: str
    clients: int
    brokers: int
    controllers: int


def quorum_size(brokers: int) -> int:
    """How many of them vote: an odd number, and not more than five."""
    return 5 if brokers >= 5 else 3 if brokers >= 3 else 1


def node_settings(node_id: int, brokers: int, address_of: Callable[[int], NodeAddress]) -> dict[str, str]:
    """Of node `node_id`, from 1 to `brokers`."""
    voters = range(1, quorum_size(brokers) + 1)
    copies = min(brokers, COPIES_MAX)
    own = address_of(node_id)
    listeners = [f"PLAINTEXT://{own.host}:{own.clients}", f"INTERNAL://{own.host}:{own.brokers}"]
    if node_id in voters:
        listeners.append(f"CONTROLLER://{own.host}:{own.controllers}")
    return {
        "node.id": str(node_id),
        "process.roles": "broker,controller" if node_id in voters else "broker",
        "listeners": ",".join(listeners),
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": ",".join(
            f"{voter}@{address_of(voter).host}:{address_of(voter).controllers}" for voter in voters
        ),
        "default.replication.factor": str(copies),
        "offsets.topic.replication.factor": str(copies),
        "min.insync.replicas": str(max(1, copies - 1)),
    }
