"""Clients for any Kafka cluster: friendly ones for applications, and a raw one for readers in bulk and for tools.

    with Producer("localhost:9092") as producer:
        producer.send("orders", b'{"order": 1}', key="berlin").add_callback(print)

    with Consumer("localhost:9092", "orders", group="shipping") as consumer:
        for message in consumer:
            print(message.value())

The friendly layer
------------------
librdkafka, through confluent-kafka, does the work; the layer sets the right defaults, and does what applications would
otherwise each write again. It is thin: messages are confluent-kafka's own, and `native` is its client. None of it is
imported before it is used. From the core outwards:

- `buffer`, `rate_limit`, `quota`, `handed_out`, `commit_tracker`, `lanes`, `workload`, `metrics`  pure: told the time
  and what happened, they say what to do. Everything that is subtle is in here.
- `defaults`, `options`  what is set, and why; Java's and librdkafka's names.
- `Producer`, `AsyncProducer`  over `sending`: librdkafka's producer, and a thread that serves it, so that callbacks are
  called whatever the application does. `delivery` is what becomes of a record.
- `Consumer`, `AsyncConsumer`  no thread: what is asked for is what happens. The asyncio form runs the other in a
  thread.
- `Processor`, `AsyncProcessor`  work side by side, in order of keys; both drive a `Workload`. `failures` says what
  next.
- `Idempotent`, `AsyncIdempotent`  skip what was processed before.
- `stores`  offsets and results in one transaction of a database.
- `serve_metrics`  for Prometheus.

The raw client
--------------
    settings = ClientSettings.from_properties({"bootstrap.servers": "localhost:9092"})
    with Cluster(settings) as cluster:
        orders = TopicPartition("orders", 0)
        end = cluster.list_offsets({orders: LATEST})[orders].offset
        for fetched in fetch_range(cluster, *orders, 0, end):
            fetched.records     # whole record batches, as they are stored; `penstock.arrow` decodes them

librdkafka hands out one message object per record, which costs more than all the rest of a bulk reader, and it lacks
some administrative requests. So there are four modules more (and no threads, no callbacks, no state in the background):

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

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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
    BufferExhausted,
    ClientError,
    CommitFailed,
    ConnectionFailed,
    ConsumeFailed,
    DeliveryFailed,
    OffsetConflict,
    OffsetOutOfRange,
    ProcessingFailed,
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

if TYPE_CHECKING:
    from penstock.client.async_consumer import AsyncConsumer
    from penstock.client.async_processor import AsyncProcessor
    from penstock.client.async_producer import AsyncDelivery, AsyncProducer
    from penstock.client.consumer import Consumer
    from penstock.client.delivery import Delivery, RecordMetadata
    from penstock.client.failures import SKIP, STOP, Backoff, DeadLetters
    from penstock.client.idempotence import AsyncIdempotent, Idempotent, RecentIds
    from penstock.client.metrics_server import MetricsServer, serve_metrics
    from penstock.client.partitioners import RoundRobin
    from penstock.client.processor import Processor
    from penstock.client.producer import Producer
    from penstock.client.rate_limit import RateLimit
    from penstock.client.workload import Order

_LAZY = {
    "AsyncConsumer": "async_consumer",
    "AsyncDelivery": "async_producer",
    "AsyncIdempotent": "idempotence",
    "AsyncProcessor": "async_processor",
    "AsyncProducer": "async_producer",
    "Backoff": "failures",
    "Consumer": "consumer",
    "DeadLetters": "failures",
    "Delivery": "delivery",
    "Idempotent": "idempotence",
    "MetricsServer": "metrics_server",
    "Order": "workload",
    "Processor": "processor",
    "Producer": "producer",
    "RateLimit": "rate_limit",
    "RecentIds": "idempotence",
    "RecordMetadata": "delivery",
    "RoundRobin": "partitioners",
    "SKIP": "failures",
    "STOP": "failures",
    "serve_metrics": "metrics_server",
}
"""The friendly layer, by module: readers in bulk and the command line need not load librdkafka."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = found
    return found


__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "SKIP",
    "STOP",
    "Address",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncIdempotent",
    "AsyncProcessor",
    "AsyncProducer",
    "AuthenticationFailed",
    "Backoff",
    "BrokerError",
    "BufferExhausted",
    "ClientError",
    "ClientSettings",
    "Cluster",
    "CommitFailed",
    "Connection",
    "ConnectionFailed",
    "ConsumeFailed",
    "Consumer",
    "CoordinatorKind",
    "DeadLetters",
    "Delivery",
    "DeliveryFailed",
    "Fetched",
    "Idempotent",
    "IsolationLevel",
    "ListedOffset",
    "MetricsServer",
    "OffsetConflict",
    "OffsetOutOfRange",
    "Order",
    "PartitionMetadata",
    "PartitionRange",
    "ProcessingFailed",
    "Processor",
    "Producer",
    "ProtocolError",
    "RangeUnavailable",
    "RateLimit",
    "RecentIds",
    "RecordMetadata",
    "RequestTimedOut",
    "RoundRobin",
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
    "serve_metrics",
]
