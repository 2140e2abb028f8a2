"""`penstock brokers`: lists the brokers, the partitions each leads and stores, and their disk usage.

`add` and `drain` are in `growing`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from penstock.cli import exit_codes, growing
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
from penstock.cli.output import Cell, note, print_json, print_line, print_table, size_of

if TYPE_CHECKING:
    from penstock.client import Connection

app = Commands(help="Show the brokers of a cluster, put a new one into use, or drain one before it is removed.")
app.command(epilog=growing.ADD_EXAMPLES)(growing.add)
app.command(epilog=growing.DRAIN_EXAMPLES)(growing.drain)

LARGEST_SHOWN = 10
FENCED_FROM = 2
"""The version of DescribeCluster that tells fenced brokers too."""


@app.command(
    "list",
    epilog=examples(
        ("penstock brokers list", "brokers with what they lead, hold and store"),
        ("penstock brokers list --json", "for a script"),
    ),
)
def list_brokers(
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List all brokers, including fenced ones (dead, or not ready yet)."""
    found = _brokers(Cluster(bootstrap_server, command_config, timeout))
    if json:
        print_json(found)
        return
    rows: list[list[Cell]] = [
        [
            one["id"], f"{one['host']}:{one['port']}", one["rack"], one["state"], one["leaders"], one["replicas"],
            None if one["stored_bytes"] is None else size_of(one["stored_bytes"]),
        ]
        for one in found
    ]  # fmt: skip
    print_table("", ("broker", "address", "rack", "state", "leaders", "replicas", "stored"), rows)


@app.command(
    epilog=examples(
        ("penstock brokers describe 2", "its log directories, and the largest partitions it holds"),
    )
)
def describe(
    broker: Annotated[int, typer.Argument(metavar="ID", help="The broker's id; `penstock brokers list` shows them.")],
    json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Show one broker: its address, its leaders, its log directories and its largest partitions."""
    brokers = _brokers(Cluster(bootstrap_server, command_config, timeout))
    found = next((one for one in brokers if one["id"] == broker), None)
    if found is None:
        raise CliError(
            f"there is no broker {broker}", exit_codes.NOT_FOUND, "`penstock brokers list` shows those there are"
        )
    if json:
        print_json(found)
        return
    rack = "" if found["rack"] is None else f", rack {found['rack']}"
    print_line(f"broker {broker} at {found['host']}:{found['port']}{rack}: {found['state']}")
    print_line(f"leads {found['leaders']:,} of the {found['replicas']:,} partitions that it holds")
    directories = found["directories"]
    if directories is None:
        note("Its log directories are unknown: the broker is unreachable, or denies access.")
        return
    print_table(
        "log directories",
        ("directory", "partitions", "stored", "free", "total"),
        [
            [
                one["path"], len(one["partitions"]), size_of(one["stored_bytes"]),
                None if one["usable_bytes"] is None else size_of(one["usable_bytes"]),
                None if one["total_bytes"] is None else size_of(one["total_bytes"]),
            ]
            for one in directories
        ],
    )  # fmt: skip
    largest = sorted(((size, name) for one in directories for name, size in one["partitions"].items()), reverse=True)[
        :LARGEST_SHOWN
    ]
    print_table("largest partitions", ("partition", "stored"), [[name, size_of(size)] for size, name in largest])


class _Directory(TypedDict):
    path: str
    total_bytes: int | None
    usable_bytes: int | None
    stored_bytes: int
    partitions: dict[str, int]


class _Broker(TypedDict):
    id: int
    host: str
    port: int
    rack: str | None
    state: str
    leaders: int
    replicas: int
    stored_bytes: int | None
    directories: list[_Directory] | None


def _brokers(cluster: Cluster) -> list[_Broker]:
    from penstock.cli.protocol import check, reach
    from penstock.client import Address, ClientError
    from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

    topics = cluster.topics()
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for topic in topics.values():
        for partition in topic.partitions.values():
            leaders[partition.leader] += 1
            replicas.update(partition.replicas)
    found: list[_Broker] = []
    with reach(cluster, "describe the brokers") as known:
        connection = known.any_broker()
        tells_fenced = connection.version_of(DescribeClusterRequest) >= FENCED_FROM
        request = DescribeClusterRequest(include_fenced_brokers=tells_fenced)
        answer = connection.call(request, DescribeClusterResponse)
        check(answer.error_code, answer.error_message, "describe the brokers")
        for one in sorted(answer.brokers, key=lambda broker: broker.broker_id):
            directories: list[_Directory] | None = None
            if not one.is_fenced:
                try:
                    directories = _directories(known.connect(Address(one.host, one.port)))
                except ClientError:
                    directories = None
            found.append(
                _Broker(
                    id=one.broker_id,
                    host=one.host,
                    port=one.port,
                    rack=one.rack,
                    state="fenced" if one.is_fenced else "in service" if directories is not None else "unreachable",
                    leaders=leaders[one.broker_id],
                    replicas=replicas[one.broker_id],
                    stored_bytes=None if directories is None else sum(d["stored_bytes"] for d in directories),
                    directories=directories,
                )
            )
    return found


def _directories(connection: Connection) -> list[_Directory]:
    from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

    answer = connection.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    found: list[_Directory] = []
    for one in answer.results:
        partitions = {
            f"{topic.name}-{partition.partition_index}": partition.partition_size
            for topic in one.topics
            for partition in topic.partitions
        }
        found.append(
            _Directory(
                path=one.log_dir,
                total_bytes=one.total_bytes if one.total_bytes >= 0 else None,
                usable_bytes=one.usable_bytes if one.usable_bytes >= 0 else None,
                stored_bytes=sum(partitions.values()),
                partitions=partitions,
            )
        )
    return found
