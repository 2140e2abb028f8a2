"""`penstock cluster`: shows the nodes of a cluster and its health."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from penstock.cli import balancing, exit_codes
from penstock.cli.commands import Commands
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    DEFAULT_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    Json,
    Timeout,
    examples,
)
from penstock.cli.output import Cell, note, plural, print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cli.library import TopicMetadata

app = Commands(help="Show what a cluster consists of, check its health, and rebalance it.")
app.command("balance", epilog=balancing.EXAMPLES)(balancing.balance_cluster)

SHOWN_PARTITIONS_MAX = 20


@app.command(
    epilog=examples(
        ("penstock cluster describe", "brokers, and partitions that are not well"),
        ("penstock cluster describe --check", "for scripts: exit code 10 if any partition is not well"),
        ("penstock cluster describe --json", "for a script"),
    )
)
def describe(
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 10 if a partition is offline or under-replicated.")
    ] = False,
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the cluster's id, its brokers with their leaders and replicas, and unhealthy partitions."""
    cluster = Cluster(bootstrap_server, command_config, timeout)
    found = cluster.wait(cluster.admin.describe_cluster(request_timeout=timeout), "describe the cluster")
    topics = cluster.topics()
    brokers = sorted(found.nodes, key=lambda node: node.id)
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    offline: list[str] = []
    under_replicated: list[str] = []
    for name, topic in sorted(topics.items()):
        for number, partition in sorted(topic.partitions.items()):
            replicas.update(partition.replicas)
            if partition.leader < 0:
                offline.append(f"{name}-{number}")
            else:
                leaders[partition.leader] += 1
            if len(partition.isrs) < len(partition.replicas):
                under_replicated.append(f"{name}-{number}")
    controller = found.controller.id if found.controller is not None and found.controller.id >= 0 else None
    described: dict[str, object] = {
        "cluster": found.cluster_id,
        "controller": controller,
        "brokers": [
            {
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack or None,
                "leaders": leaders[broker.id],
                "replicas": replicas[broker.id],
            }
            for broker in brokers
        ],
        "topics": _count(topics, internal=False),
        "internal_topics": _count(topics, internal=True),
        "partitions": sum(len(topic.partitions) for topic in topics.values()),
        "offline": offline,
        "under_replicated": under_replicated,
        "features": _features(cluster),
    }
    if json:
        print_json(described)
    else:
        _print(described)
    if check and (offline or under_replicated):
        raise CliError(
            f"{plural(len(offline), 'partition')} offline, {len(under_replicated)} under-replicated",
            exit_codes.UNHEALTHY,
            "find out which broker is missing, and start it",
        )


@app.command(
    epilog=examples(
        ("penstock cluster quorum", "the leader, voters and lag of the metadata quorum"),
        ("penstock cluster quorum --json", "for a script"),
    )
)
def quorum(
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show the quorum that keeps the cluster's metadata: its leader, its voters and observers, and their lag."""
    found = _quorum(Cluster(bootstrap_server, command_config, timeout))
    if json:
        print_json(found)
        return
    print_line(
        f"leader {found['leader']}, epoch {found['epoch']}, high watermark {found['high_watermark']}, "
        f"{plural(sum(one['role'] != 'observer' for one in found['replicas']), 'voter')}"
    )
    rows: list[list[Cell]] = [
        [one["id"], one["role"], one["log_end"], one["lag"], one["behind_ms"]] for one in found["replicas"]
    ]
    print_table("", ("node", "role", "log end", "lag", "caught up ms ago"), rows)


class _Replica(TypedDict):
    id: int
    role: str
    directory: str
    log_end: int
    lag: int
    behind_ms: int | None


class _Quorum(TypedDict):
    leader: int
    epoch: int
    high_watermark: int
    replicas: list[_Replica]


def _quorum(cluster: Cluster) -> _Quorum:
    from penstock.cli.protocol import check, reach
    from penstock.wire.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumRequestPartitionData,
        DescribeQuorumRequestTopicData,
        DescribeQuorumResponse,
    )
    from penstock.wire.uuids import format_uuid

    doing = "describe the quorum"
    topic = DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])
    with reach(cluster, doing) as known:
        answer = known.any_broker().call(DescribeQuorumRequest([topic]), DescribeQuorumResponse)
    check(answer.error_code, answer.error_message, doing)
    found = answer.topics[0].partitions[0]
    check(found.error_code, found.error_message, doing)
    end = max((one.log_end_offset for one in found.current_voters), default=0)
    now_ms = max((one.last_fetch_timestamp for one in found.current_voters), default=-1)
    replicas = [
        _Replica(
            id=one.replica_id,
            role="leader" if one.replica_id == found.leader_id else role,
            directory=format_uuid(one.replica_directory_id),
            log_end=one.log_end_offset,
            lag=max(0, end - one.log_end_offset) if one.log_end_offset >= 0 else end,
            behind_ms=max(0, now_ms - one.last_caught_up_timestamp) if one.last_caught_up_timestamp >= 0 else None,
        )
        for role, those in (("voter", found.current_voters), ("observer", found.observers))
        for one in sorted(those, key=lambda state: state.replica_id)
    ]
    return _Quorum(
        leader=found.leader_id, epoch=found.leader_epoch, high_watermark=found.high_watermark, replicas=replicas
    )


def _count(topics: Mapping[str, TopicMetadata], *, internal: bool) -> int:
    return sum(name.startswith("__") is internal for name in topics)


def _features(cluster: Cluster) -> dict[str, int] | None:
    """The finalized feature levels, which the client library does not tell; None where they cannot be asked for."""
    from penstock.cli.protocol import CannotSpeak, connect

    try:
        with connect(cluster) as broker:
            features = broker.api_versions.finalized_features or []
            return {one.name: one.max_version_level for one in sorted(features, key=lambda one: one.name)}
    except CannotSpeak:
        return None


def _print(described: dict[str, object]) -> None:
    brokers, features = described["brokers"], described["features"]
    assert isinstance(brokers, list)
    assert features is None or isinstance(features, dict)
    controller = described["controller"]
    print_line(
        f"cluster {described['cluster']}  {plural(len(brokers), 'broker')}  "
        f"controller {'-' if controller is None else controller}"
    )
    topics, internal, partitions = described["topics"], described["internal_topics"], described["partitions"]
    assert isinstance(topics, int)
    assert isinstance(partitions, int)
    print_line(f"{plural(topics, 'topic')} (and {internal} internal), {plural(partitions, 'partition')}")
    if features:
        print_line("features: " + "  ".join(f"{name}={level}" for name, level in features.items()))
    rows: list[list[Cell]] = [
        [one["id"], one["host"], one["port"], one["rack"], one["leaders"], one["replicas"]] for one in brokers
    ]
    print_table("", ("broker", "host", "port", "rack", "leaders", "replicas"), rows)
    is_well = True
    for kind, label in (("offline", "offline, without a leader"), ("under_replicated", "under-replicated")):
        places = described[kind]
        assert isinstance(places, list)
        if places:
            is_well = False
            shown = ", ".join(places[:SHOWN_PARTITIONS_MAX])
            more = f" and {len(places) - SHOWN_PARTITIONS_MAX:,} more" if len(places) > SHOWN_PARTITIONS_MAX else ""
            print_line(f"{plural(len(places), 'partition')} {label}: {shown}{more}")
    if is_well:
        note("All partitions have a leader and all their copies.")
