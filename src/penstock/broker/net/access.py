"""What a connection may ask for, by the listener that it came in on.

A broker has listeners for clients, one of which (`inter.broker.listener.name`) is also for other brokers; a controller
has one for nodes. Requests between controllers and brokers (Vote, BrokerHeartbeat, AlterPartition, Envelope …) are in
the table of the controllers' listeners alone, so elsewhere they are not requests at all. What remains to be asked here
is whether a connection of a broker's listener may speak for another broker: as a follower, in Fetch.

A listener that is shared by clients and brokers cannot tell them apart until connections are authenticated: whoever
wants them apart names a listener of its own for brokers, on a network that clients do not reach. `penstock up`,
`penstock chaos` and `penstock.testing` do so (`penstock.config.local_cluster`).
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

NOT_ASKED: Final = -(2**31)
"""What Kafka answers for authorised operations (KIP-430) if the client did not ask for them."""
# One bit for each of Kafka's operations that the type of resource has. Without ACLs everyone may do all of them.
ALL_TOPIC_OPERATIONS: Final = 0b110111111000
"""Read, write, create, delete, alter, describe, describe configs, alter configs."""
ALL_GROUP_OPERATIONS: Final = 0b110101001000
"""Read, delete, describe, describe configs, alter configs."""
ALL_CLUSTER_OPERATIONS: Final = 0b1111110100000
"""Create, alter, describe, cluster action, describe configs, alter configs, idempotent write."""


class Entrance(NamedTuple):
    """A listener, as the connections know it that it took."""

    listener: str = ""
    """Its name; clients are told of the other brokers' listeners of the same name."""
    for_nodes: bool = True
    """Other nodes of the cluster use it."""


class Comer(Protocol):
    """What is known of a connection."""

    entrance: Entrance


def may_speak_for_a_broker(comer: Comer) -> bool:
    """Kafka's CLUSTER_ACTION. Once connections have a principal it is asked here, too."""
    return comer.entrance.for_nodes
