"""A blocking client that speaks Kafka's protocol itself: for readers that want raw batches, and for tools.

    settings = ClientSettings.from_properties({"bootstrap.servers": "localhost:9092"})
    with Cluster(settings) as cluster:
        orders = TopicPartition("orders", 0)
        end = cluster.list_offsets({orders: LATEST})[orders].offset
        for fetched in fetch_range(cluster, *orders, 0, end):
            fetched.records     # whole record batches, as they are stored; `penstock.arrow` decodes them

Theory of operation
-------------------
librdkafka is the better client for nearly everything, and what writes here writes with it. But it hands out one
message object per record, which costs more than all the rest of a bulk reader, and it lacks some administrative
requests. So this package does four things, each a module (and no threads, no callbacks, no state in the background):

- `settings`  client properties, under Java's or librdkafka's names, as one frozen and picklable `ClientSettings`.
  What only librdkafka can do raises `UnsupportedSetting`, so that callers fall back; `librdkafka_properties` then
  translates. `jaas`, `tls` and `sasl` are its parts: login strings, certificates, mechanisms as pure exchanges.
- `connection` one socket to one broker: versions agreed on, authenticated, answers in the order of requests. Requests
  may be sent ahead of the answers (`send`, then `receive`), which is how a reader keeps a broker busy while it decodes.
- `cluster`   which broker to ask: bootstrap, metadata, leaders, coordinators, offsets; asks again where the
  protocol says that this helps, with a back-off and within a deadline.
- `fetch`     ranges of partitions as raw batches. A range ends by position, not by record: offsets may be missing
  (compaction, transaction markers), so the reader follows batch headers and the broker's log ends, never records.

Brokers are not trusted more than clients are: frames, element counts, token answers and SCRAM iterations all have named
limits, and what is read before authentication has small ones. Every error is a `ClientError` that names the thing and
the fix.

One `Cluster` belongs to one thread. Everything is picklable that a Spark task needs: settings, ranges, errors.
"""

from penstock.client.cluster import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Cluster,
    CoordinatorKind,
    IsolationLevel,
    ListedOffset,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
)
from penstock.client.connection import Connection
from penstock.client.errors import (
    AuthenticationFailed,
    BrokerError,
    ClientError,
    ConnectionFailed,
    OffsetOutOfRange,
    ProtocolError,
    RangeUnavailable,
    RequestTimedOut,
    SettingsError,
    TopicRecreated,
    UnknownTopic,
    UnsupportedApi,
    UnsupportedSetting,
)
from penstock.client.fetch import Fetched, PartitionRange, fetch_range, fetch_ranges
from penstock.client.librdkafka import librdkafka_properties
from penstock.client.settings import Address, ClientSettings

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Address",
    "AuthenticationFailed",
    "BrokerError",
    "ClientError",
    "ClientSettings",
    "Cluster",
    "Connection",
    "ConnectionFailed",
    "CoordinatorKind",
    "Fetched",
    "IsolationLevel",
    "ListedOffset",
    "OffsetOutOfRange",
    "PartitionMetadata",
    "PartitionRange",
    "ProtocolError",
    "RangeUnavailable",
    "RequestTimedOut",
    "SettingsError",
    "TopicMetadata",
    "TopicPartition",
    "TopicRecreated",
    "UnknownTopic",
    "UnsupportedApi",
    "UnsupportedSetting",
    "fetch_range",
    "fetch_ranges",
    "librdkafka_properties",
]
