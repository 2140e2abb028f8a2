"""Broker properties of a node: identity, listeners, metadata quorum, and limits on connections and requests."""

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
    """The identity of a node, and its data directory."""

    node_id: int = prop(
        "node.id",
        INT,
        DEFAULT_NODE_ID,
        at_least(0),
        "The id of this node, unique in its cluster. It is written into the data directory at the first start and "
        "must not be changed afterwards. `broker.id` is accepted as another name for it.",
        importance=HIGH,
        kafka_default="none, it must be given",
    )
    process_roles: tuple[str, ...] = prop(
        "process.roles",
        LIST,
        ("broker", "controller"),
        distinct_of("broker", "controller"),
        "The roles of this process: `broker` stores partitions and serves clients, `controller` takes part in the "
        "metadata quorum. A single node with both roles is a cluster of one.",
        importance=HIGH,
        kafka_default="none, it must be given",
    )
    broker_rack: str | None = prop(
        "broker.rack",
        STRING,
        None,
        None,
        "The rack or zone of this broker. Replicas are spread over racks.",
    )
    log_dirs: NoAttribute = folded(
        "log.dirs",
        LIST,
        None,
        non_empty(),
        "The data directory; `--data DIR` sets it. A broker has one: on a machine with several disks run one broker "
        "per disk (`penstock up --brokers N`). Falls back to `log.dir`.",
        importance=HIGH,
    )
    log_dir: str = prop(
        "log.dir",
        STRING,
        DEFAULT_DATA_DIRECTORY,
        None,
        "The data directory if `log.dirs` is not set.",
        importance=HIGH,
        kafka_default="a folder for temporary files",
    )


class Listeners(Section, title="Listeners"):
    """The addresses of a node."""

    listeners: tuple[Endpoint, ...] = prop(
        "listeners",
        LIST,
        (DEFAULT_LISTENER,),
        non_empty(),
        "The addresses on which the broker accepts connections, as NAME://HOST:PORT; `--listen HOST:PORT` sets it. An "
        "empty host means every interface, port 0 any free port. The default accepts connections only from this "
        "machine, because a plaintext listener does not authenticate clients.",
        importance=HIGH,
        kafka_default="PLAINTEXT://:9092",
    )
    advertised_listeners: tuple[Endpoint, ...] = prop(
        "advertised.listeners",
        LIST,
        None,
        non_empty(),
        "The addresses that clients are told to connect to, if they differ from `listeners` (behind NAT, in a "
        "container). Every entry needs a listener of the same name.",
        importance=HIGH,
    )
    listener_security_protocol_map: NoAttribute = folded(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        "The security protocol of each listener name, as NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        importance=LOW,
    )
    inter_broker_listener_name: str = prop(
        "inter.broker.listener.name",
        STRING,
        None,
        None,
        "The listener for connections between brokers. The default is the first listener.",
        cluster_only=True,
    )
    controller_listeners: tuple[Endpoint, ...] = prop(
        "controller.listener.names",
        LIST,
        (),
        None,
        "The names of the listeners on which other nodes reach the controller. They are not advertised to clients. A "
        "cluster of one needs none.",
        importance=HIGH,
        kafka_default="none, it must be given",
    )


class Quorum(Section, title="Metadata quorum"):
    """How controllers find each other and elect a leader."""

    quorum_voters: tuple[QuorumVoter, ...] = prop(
        "controller.quorum.voters",
        LIST,
        (),
        None,
        "The controllers that form the metadata quorum, as ID@HOST:PORT, the same on every node. At the first start "
        "the one with the smallest id creates the cluster and the others join it, so all must be up at the same time "
        "once.",
        importance=HIGH,
    )
    quorum_servers: tuple[tuple[str, int], ...] = prop(
        "controller.quorum.bootstrap.servers",
        LIST,
        (),
        None,
        "The addresses of controllers of an existing cluster, as HOST:PORT. A node that names only itself is its own "
        "quorum.",
        importance=HIGH,
    )
    controller_quorum_auto_join_enable: bool = prop(
        "controller.quorum.auto.join.enable",
        BOOLEAN,
        False,
        None,
        "Whether a controller that finds the quorum by `controller.quorum.bootstrap.servers` becomes a voter "
        "automatically. Controllers named in `controller.quorum.voters` always do.",
        importance=LOW,
    )
    controller_quorum_election_timeout_ms: int = prop(
        "controller.quorum.election.timeout.ms",
        INT,
        1000,
        at_least(0),
        "How long a candidate waits for votes before it starts another election.",
        importance=HIGH,
    )
    controller_quorum_election_backoff_max_ms: int = prop(
        "controller.quorum.election.backoff.max.ms",
        INT,
        1000,
        at_least(0),
        "The maximum random delay before another election. It prevents candidates from colliding repeatedly.",
        importance=HIGH,
    )
    controller_quorum_fetch_timeout_ms: int = prop(
        "controller.quorum.fetch.timeout.ms",
        INT,
        2000,
        at_least(0),
        "The time without contact to the leader after which a voter starts an election. A leader that has not heard "
        "from a majority of voters for this time resigns.",
        importance=HIGH,
    )
    controller_quorum_request_timeout_ms: int = prop(
        "controller.quorum.request.timeout.ms",
        INT,
        2000,
        at_least(0),
        "How long a voter waits for the response to a request to another voter.",
        cluster_only=True,
    )
    controller_quorum_retry_backoff_ms: int = prop(
        "controller.quorum.retry.backoff.ms",
        INT,
        20,
        at_least(0),
        "How long a voter waits before it retries a failed request.",
        importance=LOW,
        cluster_only=True,
    )
    metadata_log_max_record_bytes_between_snapshots: int = prop(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        20 * 1024 * 1024,
        at_least(1),
        "The number of bytes of metadata log after which a new snapshot is written.",
        importance=HIGH,
    )


class Connections(Section, title="Connections and requests"):
    """Limits on connections and requests."""

    max_connections: int = prop(
        "max.connections",
        INT,
        INT32_MAX,
        at_least(0),
        "The maximum number of connections. Further ones are closed immediately and counted.",
        CLUSTER_WIDE,
    )
    max_connections_per_ip: int = prop(
        "max.connections.per.ip",
        INT,
        INT32_MAX,
        at_least(0),
        "The maximum number of connections from one address. 0 admits only addresses in "
        "`max.connections.per.ip.overrides`.",
        CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: Mapping[str, int] = prop(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        None,
        "Limits for specific addresses, as ADDRESS:COUNT, separated by commas.",
        CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = prop(
        "max.connection.creation.rate",
        INT,
        INT32_MAX,
        at_least(0),
        "The maximum number of new connections per second. Further ones are closed immediately and counted; clients "
        "retry.",
        CLUSTER_WIDE,
    )
    connections_max_idle_ms: int = prop(
        "connections.max.idle.ms",
        LONG,
        600_000,
        None,
        "The idle time after which a connection is closed; a negative value disables it.",
    )
    socket_request_max_bytes: int = prop(
        "socket.request.max.bytes",
        INT,
        104_857_600,
        at_least(1),
        "The maximum size of a request. A connection that announces a larger one is closed before it is read.",
        importance=HIGH,
    )
    socket_send_buffer_bytes: int = prop(
        "socket.send.buffer.bytes",
        INT,
        -1,
        at_least_or(1, -1),
        "The size of the socket's send buffer; -1 leaves it to the operating system, which adapts it to the link.",
        importance=HIGH,
        kafka_default="102400",
    )
    socket_receive_buffer_bytes: int = prop(
        "socket.receive.buffer.bytes",
        INT,
        -1,
        at_least_or(1, -1),
        "The size of the socket's receive buffer; -1 leaves it to the operating system, which adapts it to the link.",
        importance=HIGH,
        kafka_default="102400",
    )
    socket_listen_backlog_size: int = prop(
        "socket.listen.backlog.size",
        INT,
        50,
        at_least(1),
        "The maximum number of connections waiting to be accepted. The system's limit (`net.core.somaxconn`) applies "
        "as well.",
    )
    queued_max_request_bytes: int = prop(
        "queued.max.request.bytes",
        LONG,
        -1,
        at_least_or(1, -1),
        "The memory for incoming requests over all connections. When it is used up, connections are not read until "
        "memory is free. -1 uses the broker's own limit. At least twice `socket.request.max.bytes` is always "
        "available.",
    )


class Fetching(Section, title="Fetching"):
    """Limits on fetches."""

    fetch_max_bytes: int = prop(
        "fetch.max.bytes",
        INT,
        57_671_680,
        at_least(1024),
        "The maximum size of a fetch response, whatever the client requests. A first batch that exceeds it is still "
        "sent, so that consumers always make progress.",
    )
    max_incremental_fetch_session_cache_slots: int = prop(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        at_least(0),
        "The maximum number of fetch sessions. A client with a session sends only what changed since its last fetch.",
    )
    max_request_partition_size_limit: int = prop(
        "max.request.partition.size.limit",
        INT,
        2000,
        at_least(1),
        "The maximum number of partitions in one DescribeTopicPartitions response. The client requests the rest "
        "separately.",
    )
