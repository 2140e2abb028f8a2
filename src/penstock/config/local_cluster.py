"""The settings of one node of a cluster on one machine, as Kafka properties.

Each node has three listeners: PLAINTEXT for clients, INTERNAL for the other brokers (`inter.broker.listener.name`) and,
on voters, CONTROLLER. So a client connection can never act as a broker.

`penstock up --brokers N`, `penstock chaos` and `penstock.testing` all start nodes with these settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.config.local_security import CLIENT_LISTENER, secure_settings

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
"""The properties that `node_settings` sets for each node and that must not be set for all nodes alike."""


class NodeAddress(NamedTuple):
    """The ports and the host of one node."""

    host: str
    clients: int
    brokers: int
    controllers: int


def quorum_size(brokers: int) -> int:
    """How many of the brokers are voters: an odd number, at most five."""
    return 5 if brokers >= 5 else 3 if brokers >= 3 else 1


def node_settings(
    node_id: int, brokers: int, address_of: Callable[[int], NodeAddress], security: str | None = None
) -> dict[str, str]:
    """The settings of node `node_id`, from 1 to `brokers`. `security`: the directory of its certificates, if clients
    log in and nodes authenticate each other (`penstock.config.local_security`)."""
    voters = range(1, quorum_size(brokers) + 1)
    copies = min(brokers, COPIES_MAX)
    own = address_of(node_id)
    clients = "PLAINTEXT" if security is None else CLIENT_LISTENER
    listeners = [f"{clients}://{own.host}:{own.clients}", f"INTERNAL://{own.host}:{own.brokers}"]
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
        **({} if security is None else secure_settings(security, node_id, range(1, brokers + 1))),
    }
