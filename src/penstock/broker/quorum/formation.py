"""How a node with an empty data directory finds its cluster, and how a controller becomes a voter.

The id of a new cluster and the directory ids of its voters are not configured, so the nodes negotiate them. Of the
controllers in `controller.quorum.voters`, the one with the smallest id *founds* the cluster, as its only voter, but
only after every other one has confirmed that it knows of no cluster. All others *join*: they ask until a node names the
cluster, then follow its log as observers. The controllers among them are then added to the voters, one at a time.

So a node whose disk was wiped never founds a second cluster: another node always knows the first. It joins under a new
directory id, as a new replica, and replaces the lost one (KIP-853).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.net.peers import Address, Peers, PeerUnavailable
from penstock.broker.node import ControllerNode
from penstock.config import BrokerConfig
from penstock.metadata import CLUSTER_METADATA
from penstock.raft import ReplicaKey
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages import describe_quorum as quorum
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.valid import check_cluster_id

CONTROLLERS = 2
"""The endpoint type in DescribeCluster that stands for controllers (KIP-919)."""
ASK_MS = 1_000
ASK_AGAIN_MS = 100
CHECK_AGAIN_MS = 1_000
JOIN_CALL_MS = 5_000
JOIN_AGAIN_MS = 200
CHANNEL = "join"


class NoOneCluster(Exception):
    """The nodes named in the configuration belong to different clusters."""


async def find_cluster(
    runtime: Runtime, events: EventLog, peers: Peers, config: BrokerConfig, stopping: Callable[[], bool]
) -> str | None:
    """The id of the cluster to join; None if this node must found one."""
    others = config.quorum_servers
    if not others:
        return None
    founds = "controller" in config.process_roles and bool(config.quorum_voters)
    founds = founds and config.quorum_voters[0].id == config.node_id
    while not stopping():
        known: dict[str, Address] = {}
        silent: list[Address] = []
        for address in others:
            cluster_id = await cluster_of(peers, address)
            if cluster_id is None:
                silent.append(address)
            elif cluster_id:
                known.setdefault(cluster_id, address)
        if len(known) > 1:
            raise NoOneCluster(
                "the controllers named in the configuration belong to different clusters: "
                + ", ".join(f"{host}:{port} to {cluster_id}" for cluster_id, (host, port) in known.items())
            )
        if known:
            return next(iter(known))
        if founds and not silent:
            return None
        waiting = ", ".join(f"{host}:{port}" for host, port in silent)
        events.recurring(
            "looking for the cluster",
            "",
            reason=f"no response yet from {waiting}" if waiting else "no node has founded it yet",
        )
        await runtime.sleep(ASK_AGAIN_MS)
    return None


async def other_cluster(
    runtime: Runtime, peers: Peers, config: BrokerConfig, cluster_id: str, stopping: Callable[[], bool]
) -> str | None:
    """Ask every configured node for its cluster, as soon as it responds. Returns the problem if one belongs to another
    cluster."""
    left = list(config.quorum_servers)
    while left and not stopping():
        for address in list(left):
            found = await cluster_of(peers, address)
            if found:
                left.remove(address)
            if found and found != cluster_id:
                host, port = address
                return (
                    f"the data directory belongs to cluster {cluster_id}, but node {host}:{port} belongs to "
                    f"cluster {found}. "
                    "Start this node with the controllers of its own cluster (controller.quorum.voters), or with an "
                    "empty data directory to join the other cluster"
                )
        if left:
            await runtime.sleep(CHECK_AGAIN_MS)
    return None


async def cluster_of(peers: Peers, address: Address) -> str | None:
    """The cluster that a node belongs to; empty if it knows of none, None if it does not respond."""
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    try:
        response = await peers.call(address, request, version=1, timeout_ms=ASK_MS, channel=CHANNEL)
    except (PeerUnavailable, KafkaError):
        return None
    if response.error_code != ErrorCode.NONE:
        return None
    cluster_id = str(response.cluster_id)
    try:
        if cluster_id:
            check_cluster_id(cluster_id)  # it may be written into `meta.properties`
    except KafkaError:
        return None
    return cluster_id


# -- becoming a voter ------------------------------------------------------------------------------------------------


def wants_to_vote(config: BrokerConfig) -> bool:
    if "controller" not in config.process_roles or not config.quorum_servers:
        return False
    named = any(voter.id == config.node_id for voter in config.quorum_voters)
    return named or config.controller_quorum_auto_join_enable


async def become_voter(node: ControllerNode, endpoint: tuple[str, str, int], stopping: Callable[[], bool]) -> None:
    """Try until this node is one of the voters."""
    runtime, own = node.runtime, node.quorum.key
    while not stopping() and own not in node.quorum.core.voter_set:
        try:
            reason = await _take_place(node, own)
            if not reason:
                reason = await _add(node, own, endpoint)
        except KafkaError as error:
            reason = error.message
        if reason:
            node.events.recurring("not a voter yet", "", reason=reason)
        await runtime.sleep(JOIN_AGAIN_MS)
    if not stopping():
        node.events.info("voter", voters=",".join(map(str, node.quorum.core.voter_set.ids)))


async def _take_place(node: ControllerNode, own: ReplicaKey) -> str:
    """Remove the voter that had this node id before its disk was replaced. Returns the reason if that must wait."""
    old = node.quorum.core.voter_set.get(own.id)
    if old is None or old.key == own:
        return ""
    request = quorum.DescribeQuorumRequest(
        topics=[
            quorum.DescribeQuorumRequestTopicData(
                topic_name=CLUSTER_METADATA, partitions=[quorum.DescribeQuorumRequestPartitionData()]
            )
        ]
    )
    response = await node.peers.controller_call(request, timeout_ms=JOIN_CALL_MS, channel=CHANNEL)
    if response.error_code != ErrorCode.NONE:
        return KafkaError(ErrorCode(response.error_code)).message
    voters = [replica for topic in response.topics for data in topic.partitions for replica in data.current_voters]
    newest = max((replica.last_fetch_timestamp for replica in voters), default=-1)
    for replica in voters:
        if replica.replica_id == own.id and replica.replica_directory_id == old.directory_id:
            silent_ms = newest - replica.last_fetch_timestamp
            if silent_ms < node.quorum.core.config.check_quorum_timeout_ms:
                return f"another live controller has the id {own.id}; node ids must be unique in a cluster"
    removed = await node.peers.controller_call(
        RemoveRaftVoterRequest(cluster_id=node.cluster_id, voter_id=old.id, voter_directory_id=old.directory_id),
        timeout_ms=JOIN_CALL_MS,
        channel=CHANNEL,
    )
    if removed.error_code not in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND):
        return removed.error_message or ErrorCode(removed.error_code).name
    return ""


async def _add(node: ControllerNode, own: ReplicaKey, endpoint: tuple[str, str, int]) -> str:
    name, host, port = endpoint
    response = await node.peers.controller_call(
        AddRaftVoterRequest(
            cluster_id=node.cluster_id,
            timeout_ms=JOIN_CALL_MS,
            voter_id=own.id,
            voter_directory_id=own.directory_id,
            listeners=[Listener(name=name, host=host, port=port)],
        ),
        timeout_ms=JOIN_CALL_MS,
        channel=CHANNEL,
    )
    if response.error_code == ErrorCode.NONE:
        return ""
    return response.error_message or ErrorCode(response.error_code).name
