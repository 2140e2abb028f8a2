"""Properties of a node: who it is, where it is reached, how it finds the quorum, and what its connections may take."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config.definitions import (
    INT32_MAX,
    Importance,
    Kind,
    UpdateMode,
    at_least,
    at_least_or,
    distinct_of,
    non_empty,
)
from penstock.config.listeners import Endpoint, QuorumVoter
from penstock.config.tables import NoAttribute, Section, folded, prop

HIGH, LOW = Importance.HIGH, Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
BOOLEAN, STRING, INT, LONG, LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.LIST

DEFAULT_LISTENER = "PLAINTEXT://127.0.0.1:9092"
DEFAULT_DATA_DIRECTORY = "data"
DEFAULT_NODE_ID = 1


class Identity(Section, title="Identity and storage"):
    """Who a node is, and where it keeps its data."""

    node_id: int = prop(
        "node.id", INT, DEFAULT_NODE_ID, at_least(0),
        "This node's number, unique in its cluster. It is written into the data directory at first start "
        "and must stay the same afterwards. `broker.id` is accepted as another name for it.",
        importance=HIGH, kafka_default="none, it must be given",
    )
    process_roles: tuple[str, ...] = prop(
        "process.roles", LIST, ("broker", "controller"), distinct_of("broker", "controller"),
        "What this process does: it holds partitions and serves clients (broker), takes part in the quorum that "
        "keeps the metadata (controller), or both. A single node is a cluster of one, broker and controller together.",
        importance=HIGH, kafka_default="none, it must be given",
    )
    broker_rack: str | None = prop(
        "broker.rack", STRING, None, None,
        "Where this broker stands (a rack, a zone). Replicas are spread over racks.",
    )
    log_dirs: NoAttribute = folded(
        "log.dirs", LIST, None, non_empty(),
        "The data directory; `--data DIR` sets it. One directory per broker: on a machine with several "
        "disks run one broker per disk (`penstock up --brokers N`). Falls back to `log.dir`.",
        importance=HIGH,
    )
    log_dir: str = prop(
        "log.dir", STRING, DEFAULT_DATA_DIRECTORY, None,
        "The data directory where `log.dirs` is not set.",
        importance=HIGH, kafka_default="a folder for temporary files",
    )


class Listeners(Section, title="Listeners"):
    """Where a node is reached."""

    listeners: tuple[Endpoint, ...] = prop(
        "listeners", LIST, (DEFAULT_LISTENER,), non_empty(),
        "Where the broker accepts connections, as NAME://HOST:PORT; `--listen HOST:PORT` sets it. An "
        "empty host means every interface; port 0 takes a free one. The default is this machine only, "
        "because there is no authentication on a plaintext listener.",
        importance=HIGH, kafka_default="PLAINTEXT://:9092",
    )
    advertised_listeners: tuple[Endpoint, ...] = prop(
        "advertised.listeners", LIST, None, non_empty(),
        "Where clients are told to connect, when that differs from `listeners` (behind NAT, in a "
        "container). Every entry needs a listener of the same name.",
        importance=HIGH,
    )
    listener_security_protocol_map: NoAttribute = folded(
        "listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None,
        "The security protocol of each listener name, as NAME:PROTOCOL. Only PLAINTEXT is served yet.",
        importance=LOW,
    )
    inter_broker_listener_name: str = prop(
        "inter.broker.listener.name", STRING, None, None,
        "The listener that brokers use among themselves; the first one unless set.",
        cluster_only=True,
    )
    controller_listeners: tuple[Endpoint, ...] = prop(
        "controller.listener.names", LIST, (), None,
        "Names of the listeners on which controllers are reached by other nodes. Clients are not told of them. "
        "A cluster of one does without.",
        importance=HIGH, kafka_default="none, it must be given",
    )


class Quorum(Section, title="Metadata quorum"):
    """How controllers find each other and elect a leader."""

    quorum_voters: tuple[QuorumVoter, ...] = prop(
        "controller.quorum.voters", LIST, (), None,
        "The controllers that form the metadata quorum, as ID@HOST:PORT, the same on every node. At the first start of "
        "all of them the one with the smallest id founds the cluster and the others join it, so all must be up once.",
        importance=HIGH,
    )
    quorum_servers: tuple[tuple[str, int], ...] = prop(
        "controller.quorum.bootstrap.servers", LIST, (), None,
        "Where to find controllers of a cluster that exists already, as HOST:PORT. A node that names only itself "
        "is its own quorum.",
        importance=HIGH,
    )
    controller_quorum_auto_join_enable: bool = prop(
        "controller.quorum.auto.join.enable", BOOLEAN, False, None,
        "Whether a controller that finds the quorum by `controller.quorum.bootstrap.servers` becomes a voter by "
        "itself. Those that `controller.quorum.voters` names always do.",
        importance=LOW,
    )
    controller_quorum_election_timeout_ms: int = prop(
        "controller.quorum.election.timeout.ms", INT, 1000, at_least(0),
        "How long a candidate waits for votes before it tries again.",
        importance=HIGH,
    )
    controller_quorum_election_backoff_max_ms: int = prop(
        "controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0),
        "The longest random pause before another election, which keeps candidates from colliding.",
        importance=HIGH,
    )
    controller_quorum_fetch_timeout_ms: int = prop(
        "controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0),
        "How long a voter goes without hearing from the leader before it stands for election, and a "
        "leader without a majority of its voters before it resigns.",
        importance=HIGH,
    )
    controller_quorum_request_timeout_ms: int = prop(
        "controller.quorum.request.timeout.ms", INT, 2000, at_least(0),
        "How long a voter waits for an answer of another.",
        cluster_only=True,
    )
    controller_quorum_retry_backoff_ms: int = prop(
        "controller.quorum.retry.backoff.ms", INT, 20, at_least(0),
        "How long a voter waits before it repeats a failed request.",
        importance=LOW, cluster_only=True,
    )
    metadata_log_max_record_bytes_between_snapshots: int = prop(
        "metadata.log.max.record.bytes.between.snapshots", LONG, 20 * 1024 * 1024, at_least(1),
        "Write a snapshot of the metadata once this much has been logged since the last one.",
        importance=HIGH,
    )


class Connections(Section, title="Connections and requests"):
    """How many connections there may be, and how large requests."""

    max_connections: int = prop(
        "max.connections", INT, INT32_MAX, at_least(0),
        "Connections the broker holds at once; further ones are closed at once and counted.",
        CLUSTER_WIDE,
    )
    max_connections_per_ip: int = prop(
        "max.connections.per.ip", INT, INT32_MAX, at_least(0),
        "Connections from one address; 0 admits only the addresses in `max.connections.per.ip.overrides`.",
        CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: Mapping[str, int] = prop(
        "max.connections.per.ip.overrides", STRING, "", None,
        "Other limits for some addresses, as ADDRESS:COUNT, separated by commas.",
        CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = prop(
        "max.connection.creation.rate", INT, INT32_MAX, at_least(0),
        "New connections per second; those beyond it are closed at once and counted, and clients try again.",
        CLUSTER_WIDE,
    )
    connections_max_idle_ms: int = prop(
        "connections.max.idle.ms", LONG, 600_000, None,
        "Close a connection on which nothing happened for so long; a negative value never does.",
    )
    socket_request_max_bytes: int = prop(
        "socket.request.max.bytes", INT, 104_857_600, at_least(1),
        "The largest request; a connection that announces more is closed before anything is read.",
        importance=HIGH,
    )
    socket_send_buffer_bytes: int = prop(
        "socket.send.buffer.bytes", INT, -1, at_least_or(1, -1),
        "The socket's send buffer; -1 leaves it to the operating system, which adapts it to the link.",
        importance=HIGH, kafka_default="102400",
    )
    socket_receive_buffer_bytes: int = prop(
        "socket.receive.buffer.bytes", INT, -1, at_least_or(1, -1),
        "The socket's receive buffer; -1 leaves it to the operating system, which adapts it to the link.",
        importance=HIGH, kafka_default="102400",
    )
    socket_listen_backlog_size: int = prop(
        "socket.listen.backlog.size", INT, 50, at_least(1),
        "Connections that may wait to be accepted; the system's own limit (`net.core.somaxconn`) applies "
        "as well.",
    )
    queued_max_request_bytes: int = prop(
        "queued.max.request.bytes", LONG, -1, at_least_or(1, -1),
        "Memory for requests that are arriving, over all connections; when it is used up, connections wait "
        "to be read. -1 leaves the bound to the broker. Twice `socket.request.max.bytes` is always granted.",
    )


class Fetching(Section, title="Fetching"):
    """How much a fetch returns."""

    fetch_max_bytes: int = prop(
        "fetch.max.bytes", INT, 57_671_680, at_least(1024),
        "The most one fetch is answered with, whatever the client asks for. A first batch larger than "
        "this is still sent, so that a reader never gets stuck.",
    )
    max_incremental_fetch_session_cache_slots: int = prop(
        "max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0),
        "Fetch sessions remembered at once. A client with a session sends only what changed since its "
        "last fetch.",
    )
    max_request_partition_size_limit: int = prop(
        "max.request.partition.size.limit", INT, 2000, at_least(1),
        "The most partitions one DescribeTopicPartitions answer lists; the client asks again for the "
        "rest.",
    )
