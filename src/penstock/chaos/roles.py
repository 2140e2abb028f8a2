"""Finds out by Kafka's protocol which node has which role at the moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from penstock.client import Address, ClientError, ClientSettings, Cluster
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

METADATA_TOPIC = "__cluster_metadata"
REQUEST_TIMEOUT_MS = 3_000
RETRY_TIMEOUT_MS = 500
QUICK = ("request.timeout.ms", "socket.connection.setup.timeout.ms")
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1
TRANSACTIONS_SHARE = 0.7


class Role(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True)
class Standing:
    """The current state of the cluster: leaders and in-sync replicas."""

    leaders: tuple[int, ...]
    replicas: tuple[tuple[int, ...], ...]
    in_sync: tuple[tuple[int, ...], ...]

    @property
    def whole(self) -> bool:
        """Every partition has a leader and all its replicas in sync."""
        return bool(self.leaders) and all(
            leader >= 0 and len(isr) == len(replicas)
            for leader, replicas, isr in zip(self.leaders, self.replicas, self.in_sync, strict=True)
        )


class Roles:
    """Queries a cluster in any state; the result is None if nobody can answer."""

    def __init__(self, properties: Mapping[str, object], topic: str, group: str) -> None:
        quick = {**dict.fromkeys(QUICK, REQUEST_TIMEOUT_MS), "default.api.timeout.ms": RETRY_TIMEOUT_MS}
        self._settings = ClientSettings.from_properties({**properties, **quick})
        self.topic = topic
        self.group = group
        self.transactional_ids: list[str] = []
        """If there are any, a coordinator is that of the group or of one of these, by chance."""

    def whole(self) -> bool:
        """Whether every bootstrap server says so: a server that was cut off may report an outdated state."""
        return all(
            (standing := self.standing(address)) is not None and standing.whole
            for address in self._settings.bootstrap_servers
        )

    def standing(self, address: Address | None = None) -> Standing | None:
        """The state as seen by any node, or by the one at this address."""
        servers = self._settings.bootstrap_servers if address is None else (address,)
        with suppress(ClientError), Cluster(replace(self._settings, bootstrap_servers=servers)) as cluster:
            partitions = cluster.topics([self.topic])[self.topic].partitions
            return Standing(
                tuple(one.leader_id for one in partitions),
                tuple(one.replicas for one in partitions),
                tuple(one.in_sync for one in partitions),
            )
        return None

    def find(self, role: Role, rng: Random) -> int | None:
        """A node that has this role now; a random one if there are several."""
        if role is Role.CONTROLLER:
            return self._controller()
        if role is Role.COORDINATOR:
            return self._coordinator(rng)
        standing = self.standing()
        if standing is None:
            return None
        number = rng.randrange(len(standing.leaders))
        leader = standing.leaders[number]
        if role is Role.LEADER:
            return leader if leader >= 0 else None
        others = [node for node in standing.replicas[number] if node != leader]
        return rng.choice(others) if others else None

    def reassign(self, brokers: Sequence[int], copies: int, rng: Random) -> bool:
        """Give every partition `copies` random replicas; returns whether the cluster accepted it."""
        standing = self.standing()
        if standing is None:
            return False
        wanted = [
            ReassignablePartition(number, rng.sample(brokers, copies)) for number in range(len(standing.replicas))
        ]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=REQUEST_TIMEOUT_MS, topics=[ReassignableTopic(self.topic, wanted)]
        )
        with suppress(ClientError), Cluster(self._settings) as cluster:
            answer = cluster.any_broker().call(request, AlterPartitionReassignmentsResponse)
            codes = [part.error_code for topic in answer.responses for part in topic.partitions]
            return not answer.error_code and not any(codes)
        return False

    def _controller(self) -> int | None:
        asked = [DescribeQuorumRequestTopicData(METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])]
        with suppress(ClientError, IndexError), Cluster(self._settings) as cluster:
            answer = cluster.any_broker().call(DescribeQuorumRequest(asked), DescribeQuorumResponse)
            leader_id = answer.topics[0].partitions[0].leader_id
            return leader_id if leader_id >= 0 else None
        return None

    def _coordinator(self, rng: Random) -> int | None:
        key, kind = self.group, GROUP_COORDINATOR
        if self.transactional_ids and rng.random() < TRANSACTIONS_SHARE:
            key, kind = rng.choice(self.transactional_ids), TRANSACTION_COORDINATOR
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        with suppress(ClientError), Cluster(self._settings) as cluster:
            answer = cluster.any_broker().call(request, FindCoordinatorResponse)
            found = answer.coordinators[0] if answer.coordinators else answer
            return found.node_id if found.error_code == 0 and found.node_id >= 0 else None
        return None
