"""Clients for any Kafka cluster: high-level ones for applications, and a raw one for bulk readers and tools.

    with Producer("localhost:9092") as producer:
        producer.send("orders", b'{"order": 1}', key="berlin").add_callback(print)

    with Consumer("localhost:9092", "orders", group="shipping") as consumer:
        for message in consumer:
            print(message.value())

The high-level clients
----------------------
librdkafka, through confluent-kafka, does the work. These clients add safe defaults and the code that applications
would otherwise each write again. The layer is thin: messages are confluent-kafka's own, and `native` is its client.
Each module is imported on first use. From the core outwards:

- `buffer`, `rate_limit`, `quota`, `handed_out`, `commit_tracker`, `lanes`, `workload`, `metrics`: pure. They are
  given the time and the events, and return what to do. The difficult logic is here.
- `defaults`, `options`: default values with their reasons; translation of Java's and librdkafka's property names.
- `Producer`, `AsyncProducer`: built on `sending`, which holds librdkafka's producer and a thread that polls it, so
  that callbacks run whatever the application does. `delivery` is the outcome of one record.
- `transactions`: `with producer.transaction(consumer):` records and offsets, all or nothing. `since_commit` (pure)
  knows where a consumer continues after an abort.
- `Consumer`, `AsyncConsumer`: `Consumer` has no thread; work happens only inside its calls. `AsyncConsumer` runs a
  `Consumer` in a thread.
- `Processor`, `AsyncProcessor`: process records in parallel while preserving per-key order; both drive a `Workload`.
  `failures` decides what happens to a record whose handler fails.
- `Idempotent`, `AsyncIdempotent`: skip records that were processed before.
- `stores`: offsets and results in one database transaction.
- `serve_metrics`: a Prometheus endpoint.

The raw client
--------------
    settings = ClientSettings.from_properties({"bootstrap.servers": "localhost:9092"})
    with Cluster(settings) as cluster:
        orders = TopicPartition("orders", 0)
        end = cluster.list_offsets({orders: LATEST})[orders].offset
        for fetched in fetch_range(cluster, *orders, 0, end):
            fetched.records     # whole record batches, as they are stored; `penstock.arrow` decodes them

librdkafka creates one message object per record, which costs a bulk reader more than everything else, and it lacks
some administrative requests. The raw client has four modules (no threads, no callbacks, no background state):

- `settings`: client properties, under Java's or librdkafka's names, as one frozen and picklable `ClientSettings`.
  A property that only librdkafka supports raises `UnsupportedSetting`, so that callers can fall back;
  `librdkafka_properties` then translates the names. Its parts are `jaas` (login strings), `tls` (certificates) and
  `sasl` (mechanisms as pure exchanges).
- `connection`: one socket to one broker: negotiates versions, authenticates, and returns responses in the order of
  requests. Requests may be pipelined (`send`, then `receive`), so that the broker works while the reader decodes.
- `cluster`: finds the broker to ask: bootstrap, metadata, leaders, coordinators, offsets. It retries retriable errors
  with a back-off, within a deadline.
- `fetch`: ranges of partitions as raw batches. A range ends by position, not by record: offsets may be missing
  (compaction, transaction markers), so the reader follows batch headers and the broker's log ends, never records.

Responses are not trusted: frames, element counts, token answers and SCRAM iterations have named limits, and data read
before authentication has smaller ones. Every error is a `ClientError` that names its cause and the fix.

One `Cluster` belongs to one thread. Everything that a Spark task needs is picklable: settings, ranges, errors.
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
    OutcomeUnknown,
    ProcessingFailed,
    ProducerFenced,
    ProtocolError,
    RangeUnavailable,
    RequestTimedOut,
    SettingsError,
    TopicRecreated,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
    TransactionTimedOut,
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
    from penstock.client.transactions import AsyncTransaction, Transaction
    from penstock.client.workload import Order

_LAZY = {
    "AsyncConsumer": "async_consumer",
    "AsyncDelivery": "async_producer",
    "AsyncIdempotent": "idempotence",
    "AsyncProcessor": "async_processor",
    "AsyncProducer": "async_producer",
    "AsyncTransaction": "transactions",
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
    "Transaction": "transactions",
    "serve_metrics": "metrics_server",
}
"""The module of each high-level name, imported on first use: bulk readers and the command line skip librdkafka."""


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
    "AsyncTransaction",
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
    "OutcomeUnknown",
    "PartitionMetadata",
    "PartitionRange",
    "ProcessingFailed",
    "Processor",
    "Producer",
    "ProducerFenced",
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
    "Transaction",
    "TransactionAborted",
    "TransactionError",
    "TransactionFatal",
    "TransactionTimedOut",
    "UnknownTopic",
    "UnsupportedApi",
    "UnsupportedSetting",
    "fetch_range",
    "fetch_ranges",
    "librdkafka_properties",
    "serve_metrics",
]
