"""The properties of a broker that take effect here, with Kafka's names, types, limits and (unless noted) defaults.

What belongs to later work, or has no meaning for this broker, is in `unserved.py`.
"""

from __future__ import annotations

from penstock.config.compaction_table import COMPACTION
from penstock.config.definitions import (
    INT32_MAX,
    INT64_MAX,
    Definition,
    Importance,
    Kind,
    UpdateMode,
    Validator,
    at_least,
    at_least_or,
    between,
    between_or,
    distinct_of,
    non_empty,
    one_of,
)
from penstock.config.group_table import CLASSIC_GROUPS, CONSUMER_GROUPS, OFFSETS
from penstock.config.moving_table import MOVING

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
READ_ONLY, CLUSTER_WIDE = UpdateMode.READ_ONLY, UpdateMode.CLUSTER_WIDE
BOOLEAN, STRING, INT, LONG, LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.LIST

DEFAULT_LISTENER = "PLAINTEXT://127.0.0.1:9092"
DEFAULT_DATA_DIRECTORY = "data"
DEFAULT_NODE_ID = 1

SEGMENT_BYTES_MIN = 1024 * 1024
CLEANUP_POLICY = Validator(
    "delete, compact or both, or empty to keep records for ever",
    lambda value: distinct_of("delete", "compact").check(value),
)

_IDENTITY = (
    Definition(
        "node.id", INT, DEFAULT_NODE_ID, at_least(0),
        "This node's number, unique in its cluster. It is written into the data directory at first start "
        "and must stay the same afterwards. `broker.id` is accepted as another name for it.",
        importance=HIGH, kafka_default="none, it must be given",
    ),
    Definition(
        "process.roles", LIST, ("broker", "controller"), distinct_of("broker", "controller"),
        "What this process does: it holds partitions and serves clients (broker), takes part in the quorum that "
        "keeps the metadata (controller), or both. A single node is a cluster of one, broker and controller together.",
        importance=HIGH, kafka_default="none, it must be given",
    ),
    Definition(
        "broker.rack", STRING, None, None,
        "Where this broker stands (a rack, a zone). Replicas are spread over racks.",
    ),
    Definition(
        "log.dirs", LIST, None, non_empty(),
        "The data directory; `--data DIR` sets it. One directory per broker: on a machine with several "
        "disks run one broker per disk (`penstock up --brokers N`). Falls back to `log.dir`.",
        importance=HIGH,
    ),
    Definition(
        "log.dir", STRING, DEFAULT_DATA_DIRECTORY, None,
        "The data directory where `log.dirs` is not set.",
        importance=HIGH, kafka_default="a folder for temporary files",
    ),
)

_LISTENERS = (
    Definition(
        "listeners", LIST, (DEFAULT_LISTENER,), non_empty(),
        "Where the broker accepts connections, as NAME://HOST:PORT; `--listen HOST:PORT` sets it. An "
        "empty host means every interface; port 0 takes a free one. The default is this machine only, "
        "because there is no authentication on a plaintext listener.",
        importance=HIGH, kafka_default="PLAINTEXT://:9092",
    ),
    Definition(
        "advertised.listeners", LIST, None, non_empty(),
        "Where clients are told to connect, when that differs from `listeners` (behind NAT, in a "
        "container). Every entry needs a listener of the same name.",
        importance=HIGH,
    ),
    Definition(
        "listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None,
        "The security protocol of each listener name, as NAME:PROTOCOL. Only PLAINTEXT is served yet.",
        importance=LOW,
    ),
    Definition(
        "inter.broker.listener.name", STRING, None, None,
        "The listener that brokers use among themselves; the first one unless set.",
        cluster_only=True,
    ),
    Definition(
        "controller.listener.names", LIST, (), None,
        "Names of the listeners on which controllers are reached by other nodes. Clients are not told of them. "
        "A cluster of one does without.",
        importance=HIGH, kafka_default="none, it must be given",
    ),
)

_QUORUM = (
    Definition(
        "controller.quorum.voters", LIST, (), None,
        "The controllers that form the metadata quorum, as ID@HOST:PORT, the same on every node. At the first start of "
        "all of them the one with the smallest id founds the cluster and the others join it, so all must be up once.",
        importance=HIGH,
    ),
    Definition(
        "controller.quorum.bootstrap.servers", LIST, (), None,
        "Where to find controllers of a cluster that exists already, as HOST:PORT. A node that names only itself "
        "is its own quorum.",
        importance=HIGH,
    ),
    Definition(
        "controller.quorum.auto.join.enable", BOOLEAN, False, None,
        "Whether a controller that finds the quorum by `controller.quorum.bootstrap.servers` becomes a voter by "
        "itself. Those that `controller.quorum.voters` names always do.",
        importance=LOW,
    ),
    Definition(
        "controller.quorum.election.timeout.ms", INT, 1000, at_least(0),
        "How long a candidate waits for votes before it tries again.",
        importance=HIGH,
    ),
    Definition(
        "controller.quorum.election.backoff.max.ms", INT, 1000, at_least(0),
        "The longest random pause before another election, which keeps candidates from colliding.",
        importance=HIGH,
    ),
    Definition(
        "controller.quorum.fetch.timeout.ms", INT, 2000, at_least(0),
        "How long a voter goes without hearing from the leader before it stands for election, and a "
        "leader without a majority of its voters before it resigns.",
        importance=HIGH,
    ),
    Definition(
        "controller.quorum.request.timeout.ms", INT, 2000, at_least(0),
        "How long a voter waits for an answer of another.",
        cluster_only=True,
    ),
    Definition(
        "controller.quorum.retry.backoff.ms", INT, 20, at_least(0),
        "How long a voter waits before it repeats a failed request.",
        importance=LOW, cluster_only=True,
    ),
    Definition(
        "metadata.log.max.record.bytes.between.snapshots", LONG, 20 * 1024 * 1024, at_least(1),
        "Write a snapshot of the metadata once this much has been logged since the last one.",
        importance=HIGH,
    ),
)

_TOPICS = (
    Definition(
        "num.partitions", INT, 1, at_least(1),
        "Partitions of a topic whose creator does not say, and of topics that are created automatically.",
    ),
    Definition(
        "default.replication.factor", INT, 1, at_least(1),
        "Replicas of a topic whose creator does not say, and of topics that are created automatically.",
    ),
    Definition(
        "auto.create.topics.enable", BOOLEAN, True, None,
        "Create a topic when a client that allows it asks for one that is not there. Switch it off where "
        "a typing error in a topic's name should be an error.",
        importance=HIGH,
    ),
    Definition(
        "delete.topic.enable", BOOLEAN, True, None,
        "Let administrators delete topics.",
        importance=HIGH,
    ),
    Definition(
        "min.insync.replicas", INT, 1, at_least(1),
        "Replicas that must have a record before a producer with acks=all is told that it is safe.",
        CLUSTER_WIDE, HIGH,
    ),
    Definition(
        "unclean.leader.election.enable", BOOLEAN, False, None,
        "Let a replica that is not in sync become leader when no other is left. That brings a partition "
        "back at the price of records that were acknowledged.",
        CLUSTER_WIDE, HIGH, cluster_only=True,
    ),
)

_RECORDS = (
    Definition(
        "message.max.bytes", INT, 1_048_588, at_least(0),
        "The largest record batch a producer may send, after compression. Raise it together with "
        "`replica.fetch.max.bytes` and the consumers' own limits.",
        CLUSTER_WIDE, HIGH,
    ),
    Definition(
        "log.message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "Whose clock stamps a record: the producer's, or the broker's at the moment of writing.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.message.timestamp.before.max.ms", LONG, INT64_MAX, at_least(0),
        "How far a producer's timestamp may lie behind the broker's clock; older records are refused. "
        "Ignored with LogAppendTime.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.message.timestamp.after.max.ms", LONG, 3_600_000, at_least(0),
        "How far a producer's timestamp may lie ahead of the broker's clock; records from further in the "
        "future are refused. Ignored with LogAppendTime.",
        CLUSTER_WIDE,
    ),
    Definition(
        "compression.type", STRING, "producer", one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "How batches are stored. `producer` keeps what the producer chose, and costs nothing; anything "
        "else makes the broker compress again where the producer's codec differs.",
        CLUSTER_WIDE, HIGH,
    ),
    Definition(
        "penstock.produce.validation", STRING, "full", one_of("full", "header"),
        "How much of a batch is checked before it is taken. `full` looks at every record, as Kafka does, and "
        "decompresses batches for that: what no consumer could read is refused. `header` looks at the batch's header "
        "and checksum only, but for the keys of compacted topics and `message.timestamp.before.max.ms`. It saves "
        "processor time where all producers are trusted.",
        CLUSTER_WIDE,
    ),
    Definition(
        "penstock.decompression.request.bytes.max", LONG, 128 << 20, between(1 << 20, 256 << 20),
        "What the compressed batches of one produce request may decompress to, all together; beyond it they are "
        "refused with MESSAGE_TOO_LARGE. Memory is taken only as far as a batch needs it.",
    ),
    Definition(
        "penstock.decompression.bytes.max", LONG, 128 << 20, between(1 << 20, 1 << 40),
        "What all batches that are being checked or compressed may decompress to at a time; others wait. Takes up to "
        "three times as much memory. A batch that decompresses to more is refused.",
    ),
    Definition(
        "compression.gzip.level", INT, -1, between_or(1, 9, -1),
        "Level used where the broker itself compresses with gzip; -1 is gzip's own default.",
        CLUSTER_WIDE,
    ),
    Definition(
        "compression.lz4.level", INT, 9, between(1, 17),
        "Level used where the broker itself compresses with lz4.",
        CLUSTER_WIDE,
    ),
    Definition(
        "compression.zstd.level", INT, 3, between(-131_072, 22),
        "Level used where the broker itself compresses with zstd.",
        CLUSTER_WIDE,
    ),
    Definition(
        "producer.id.expiration.ms", INT, 86_400_000, at_least(1),
        "How long an idempotent producer that writes nothing is remembered for the detection of "
        "duplicates.",
        CLUSTER_WIDE, LOW,
    ),
    Definition(
        "producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1),
        "How often expired producers are looked for.",
        importance=LOW, hidden=True,
    ),
)

_SEGMENTS = (
    Definition(
        "log.segment.bytes", INT, 1024**3, at_least(SEGMENT_BYTES_MIN),
        "A segment that would grow beyond this is closed and a new one begun. Retention removes whole "
        "segments.",
        CLUSTER_WIDE, HIGH,
    ),
    Definition(
        "log.roll.ms", LONG, None, at_least(1),
        "A segment older than this is closed even if it is not full, so that retention can remove it. "
        "Falls back to `log.roll.hours`.",
        CLUSTER_WIDE, HIGH,
    ),
    Definition(
        "log.roll.hours", INT, 168, at_least(1),
        "The same in hours, where `log.roll.ms` is not set.",
        importance=HIGH,
    ),
    Definition(
        "log.roll.jitter.ms", LONG, None, at_least(0),
        "Take a random time up to this off the age at which a segment is closed, so that many partitions "
        "do not all do it at once. Falls back to `log.roll.jitter.hours`.",
        CLUSTER_WIDE, HIGH,
    ),
    Definition(
        "log.roll.jitter.hours", INT, 0, at_least(0),
        "The same in hours, where `log.roll.jitter.ms` is not set.",
        importance=HIGH,
    ),
    Definition(
        "log.index.interval.bytes", INT, 4096, at_least(0),
        "Add an entry to the offset index for about every so many bytes of the log. Fewer bytes: finer "
        "look-ups, larger index.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.index.size.max.bytes", INT, 10 * 1024 * 1024, at_least(4),
        "The largest an index may become; a segment whose index is full is closed.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.segment.delete.delay.ms", LONG, 60_000, at_least(0),
        "How long a removed segment's files stay on disk, for those who are still reading them.",
        CLUSTER_WIDE, HIGH,
    ),
)

_RETENTION = (
    Definition(
        "log.cleanup.policy", LIST, ("delete",), CLEANUP_POLICY,
        "What happens to old segments: `delete` removes them by age and size, `compact` keeps the newest value of "
        "each key, `compact,delete` does both; an empty value keeps everything for ever.",
        CLUSTER_WIDE,
    ),
    Definition(
        "log.retention.ms", LONG, None, at_least_or(1, -1),
        "How long records are kept; -1 keeps them for ever. Falls back to `log.retention.minutes`, then "
        "`log.retention.hours`.",
        CLUSTER_WIDE, HIGH,
    ),
    Definition(
        "log.retention.minutes", INT, None, at_least_or(1, -1),
        "The same in minutes, where `log.retention.ms` is not set.",
        importance=HIGH,
    ),
    Definition(
        "log.retention.hours", INT, 168, at_least_or(1, -1),
        "The same in hours, where neither of the finer ones is set.",
        importance=HIGH,
    ),
    Definition(
        "log.retention.bytes", LONG, -1, at_least(-1),
        "Remove the oldest segments of a partition once it is larger than this; -1 sets no bound.",
        CLUSTER_WIDE, HIGH,
    ),
    Definition(
        "log.retention.check.interval.ms", LONG, 300_000, at_least(1),
        "How often the broker looks for segments to remove.",
    ),
    Definition(
        "penstock.stray.retention.ms", LONG, 7 * 86_400_000, at_least_or(0, -1),
        "How long data is kept that was set aside: directories that the metadata does not know, what a recovery cut "
        "off a log, damaged metadata. -1 keeps it for ever. `penstock log strays` lists it.",
        CLUSTER_WIDE, kafka_default="no such property",
    ),
)

_DURABILITY = (
    Definition(
        "log.flush.interval.messages", LONG, INT64_MAX, at_least(1),
        "Sync a partition to disk after so many records. With 1 a record is acknowledged only once it is "
        "on disk.",
        CLUSTER_WIDE, HIGH,
    ),
    Definition(
        "log.flush.interval.ms", LONG, None, at_least(0),
        "Sync a partition to disk when its oldest unsynced record is this old. Falls back to "
        "`log.flush.scheduler.interval.ms`.",
        CLUSTER_WIDE, HIGH,
    ),
    Definition(
        "log.flush.scheduler.interval.ms", LONG, INT64_MAX, at_least(1),
        "The same, where `log.flush.interval.ms` is not set. There is no scheduler here that looks for "
        "logs that are due: each is synced when it is.",
        importance=HIGH,
    ),
    Definition(
        "log.flush.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
        "How often the offset up to which each log is known to be on disk is written down. After a crash,"
        " recovery begins there.",
        importance=HIGH,
    ),
    Definition(
        "log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, at_least(0),
        "How often the first offset of each log is written down, so that deleted records stay deleted.",
        importance=HIGH,
    ),
    Definition(
        "num.recovery.threads.per.data.dir", INT, 2, at_least(1),
        "How many logs are read at once when the broker starts after a crash. A change at run time counts from the "
        "next start on.",
        mode=CLUSTER_WIDE, importance=HIGH,
    ),
    Definition(
        "num.io.threads", INT, 8, at_least(1),
        "Threads that wait for the disk: reads that the page cache cannot answer, and syncs. Requests "
        "themselves are served by one event loop.",
        mode=CLUSTER_WIDE, importance=HIGH,
    ),
)

_CONNECTIONS = (
    Definition(
        "max.connections", INT, INT32_MAX, at_least(0),
        "Connections the broker holds at once; further ones are closed at once and counted.",
        CLUSTER_WIDE,
    ),
    Definition(
        "max.connections.per.ip", INT, INT32_MAX, at_least(0),
        "Connections from one address; 0 admits only the addresses in `max.connections.per.ip.overrides`.",
        CLUSTER_WIDE,
    ),
    Definition(
        "max.connections.per.ip.overrides", STRING, "", None,
        "Other limits for some addresses, as ADDRESS:COUNT, separated by commas.",
        CLUSTER_WIDE,
    ),
    Definition(
        "max.connection.creation.rate", INT, INT32_MAX, at_least(0),
        "New connections per second; those beyond it are closed at once and counted, and clients try again.",
        CLUSTER_WIDE,
    ),
    Definition(
        "connections.max.idle.ms", LONG, 600_000, None,
        "Close a connection on which nothing happened for so long; a negative value never does.",
    ),
    Definition(
        "socket.request.max.bytes", INT, 104_857_600, at_least(1),
        "The largest request; a connection that announces more is closed before anything is read.",
        importance=HIGH,
    ),
    Definition(
        "socket.send.buffer.bytes", INT, -1, at_least_or(1, -1),
        "The socket's send buffer; -1 leaves it to the operating system, which adapts it to the link.",
        importance=HIGH, kafka_default="102400",
    ),
    Definition(
        "socket.receive.buffer.bytes", INT, -1, at_least_or(1, -1),
        "The socket's receive buffer; -1 leaves it to the operating system, which adapts it to the link.",
        importance=HIGH, kafka_default="102400",
    ),
    Definition(
        "socket.listen.backlog.size", INT, 50, at_least(1),
        "Connections that may wait to be accepted; the system's own limit (`net.core.somaxconn`) applies "
        "as well.",
    ),
    Definition(
        "queued.max.request.bytes", LONG, -1, at_least_or(1, -1),
        "Memory for requests that are arriving, over all connections; when it is used up, connections wait "
        "to be read. -1 leaves the bound to the broker. Twice `socket.request.max.bytes` is always granted.",
    ),
)

_FETCH = (
    Definition(
        "fetch.max.bytes", INT, 57_671_680, at_least(1024),
        "The most one fetch is answered with, whatever the client asks for. A first batch larger than "
        "this is still sent, so that a reader never gets stuck.",
    ),
    Definition(
        "max.incremental.fetch.session.cache.slots", INT, 1000, at_least(0),
        "Fetch sessions remembered at once. A client with a session sends only what changed since its "
        "last fetch.",
    ),
    Definition(
        "max.request.partition.size.limit", INT, 2000, at_least(1),
        "The most partitions one DescribeTopicPartitions answer lists; the client asks again for the "
        "rest.",
    ),
)

_REPLICATION = (
    Definition(
        "replica.lag.time.max.ms", LONG, 30_000, at_least(1),
        "A follower that has not caught up for this long leaves the in-sync replicas.",
        importance=HIGH, cluster_only=True,
    ),
    Definition(
        "replica.fetch.min.bytes", INT, 1, at_least(0),
        "Bytes a follower waits for before its fetch is answered.",
        importance=HIGH, cluster_only=True,
    ),
    Definition(
        "replica.fetch.max.bytes", INT, 1_048_576, at_least(0),
        "Bytes a follower asks for per partition. A larger first batch is still sent whole.",
        cluster_only=True,
    ),
    Definition(
        "replica.fetch.response.max.bytes", INT, 10_485_760, at_least(0),
        "Bytes a follower asks for in one fetch.",
        cluster_only=True,
    ),
    Definition(
        "replica.fetch.wait.max.ms", INT, 500, at_least(0),
        "The longest a follower's fetch waits for `replica.fetch.min.bytes`. Not above "
        "`replica.lag.time.max.ms`.",
        importance=HIGH, cluster_only=True,
    ),
    Definition(
        "replica.fetch.backoff.ms", INT, 1000, at_least(0),
        "How long a follower waits after a failed fetch.",
        cluster_only=True,
    ),
    Definition(
        "replica.socket.timeout.ms", INT, 30_000, at_least(1),
        "How long a follower waits for an answer. Not below `replica.fetch.wait.max.ms`.",
        importance=HIGH, cluster_only=True,
    ),
    Definition(
        "replica.high.watermark.checkpoint.interval.ms", LONG, 5000, at_least(1),
        "How often high watermarks are written down.",
        importance=HIGH, cluster_only=True,
    ),
    Definition(
        "broker.heartbeat.interval.ms", INT, 2000, at_least(1),
        "How often a broker tells the controller that it is alive.",
        cluster_only=True,
    ),
    Definition(
        "broker.session.timeout.ms", INT, 9000, at_least(1),
        "A broker that the controller has not heard from for this long is taken out of service. One whose process is "
        "gone is taken out at once.",
        cluster_only=True,
    ),
    Definition(
        "initial.broker.registration.timeout.ms", INT, 60_000, at_least(0),
        "How long a starting broker tries to register before it gives up.",
        cluster_only=True,
    ),
    Definition(
        "auto.leader.rebalance.enable", BOOLEAN, True, None,
        "Give leadership back to the preferred replicas from time to time.",
        importance=HIGH, cluster_only=True,
    ),
    Definition(
        "leader.imbalance.check.interval.seconds", LONG, 300, at_least(1),
        "How often the balance of leaders is looked at.",
        importance=HIGH, cluster_only=True,
    ),
    Definition(
        "controlled.shutdown.enable", BOOLEAN, True, None,
        "Hand leadership over before stopping.",
        cluster_only=True,
    ),
)

SECTIONS: tuple[tuple[str, tuple[Definition, ...]], ...] = (
    ("Identity and storage", _IDENTITY),
    ("Listeners", _LISTENERS),
    ("Metadata quorum", _QUORUM),
    ("Topics", _TOPICS),
    ("Records", _RECORDS),
    ("Segments and indexes", _SEGMENTS),
    ("Retention", _RETENTION),
    ("Compaction", COMPACTION),
    ("Durability and disk", _DURABILITY),
    ("Connections and requests", _CONNECTIONS),
    ("Fetching", _FETCH),
    ("Replication", _REPLICATION),
    ("Moving partitions, reading from followers", MOVING),
    ("Groups", CLASSIC_GROUPS),
    ("Consumer groups (KIP-848)", CONSUMER_GROUPS),
    ("Committed offsets", OFFSETS),
)

BROKER: dict[str, Definition] = {
    definition.name: definition for _, definitions in SECTIONS for definition in definitions
}

HOUR_MS = 3_600_000
MINUTE_MS = 60_000

SYNONYMS: tuple[tuple[tuple[str, int], ...], ...] = (
    # Each chain ends in the coarsest unit; the first that is set counts, times its factor.
    (("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)),
    (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)),
    (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
)
SYNONYM_CHAIN: dict[str, tuple[tuple[str, int], ...]] = {name: chain for chain in SYNONYMS for name, _ in chain}
