"""`to_topic`: the batches of a streaming query as Kafka transactions, each seen whole or not at all, and once.

    writer = to_topic("localhost:9092", topic="revenue")
    query = frame.writeStream.foreachBatch(writer).option("checkpointLocation", "…").start()

The guarantee: each micro-batch is one Kafka transaction, seen (by read_committed readers) whole or not at all and once,
per checkpoint, through crashes, retries, speculation and changed parallelism, while checkpoint and marker exist and a
write is shorter than the transaction timeout. Throughput is one producer's.

Theory of operation
-------------------
The driver alone writes. One producer per query, `transactional.id = penstock-<query id>`, where the query id is what
Spark keeps in the checkpoint: a driver that starts from the same checkpoint fences the one before it. What was written
is asked of the topic, not of the checkpoint (`markers`): Spark notes that a batch is done after this function returns,
so a crash in between has Spark run the batch again, and then the marker says that it is there already. Such a batch is
still evaluated, because state that the query keeps (aggregations, deduplication) is made by evaluating.

Transactions per task would be faster and wrong: adaptive execution changes the number of tasks between attempts,
speculative attempts fence each other, and a reader would see some tasks of a batch and not the others.

Rows come to the driver as one Arrow table, evaluated once. So a batch must fit: a cap per trigger is mandatory
(`caps`), and Spark's own `spark.driver.maxResultSize` stands behind it. Holding the rows has its use: a transaction
that is aborted is written again from the very same rows, also where a column is random.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from confluent_kafka import KafkaException, Producer

from penstock.client import (
    BrokerError,
    ClientError,
    ClientSettings,
    Cluster,
    CoordinatorKind,
    SettingsError,
    UnsupportedApi,
    UnsupportedSetting,
)
from penstock.pipeline import caps
from penstock.pipeline.markers import DEFAULT_TOPIC, MarkerTopic
from penstock.pipeline.query_ids import query_id_of, run_id_of
from penstock.pipeline.topic_errors import (
    BatchTooLarge,
    TopicSinkError,
    TransactionsMissing,
    UncappedQuery,
    UnknownQuery,
)
from penstock.pipeline.transactions import QueryTransactions, TransactionalProducer, Watch
from penstock.spark.producing import COLUMN_TYPES, Deliveries, RecordColumns, open_producer, producer_properties
from penstock.wire.errors import ErrorCode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TRANSACTIONAL_ID_PREFIX: Final = "penstock-"
RESULT_SIZE_SETTING: Final = "spark.driver.maxResultSize"
ROWS_PER_SEND: Final = 10_000
TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Kafka's default. The clock of a transaction starts when its rows are there, so it covers writing, not Spark."""

OWN_PROPERTIES: Final[Mapping[str, str]] = {
    "transactional.id": "it is made from the query's id, so that a restarted query fences the one before it",
    "enable.idempotence": "a transactional producer is idempotent",
    "acks": "a transaction needs acks=all",
    "request.required.acks": "a transaction needs acks=all",
    "bootstrap.servers": "it is to_topic's first argument",
    "on_delivery": "deliveries are to_topic's own business",
}
HARMLESS: Final = {"enable.idempotence": ("true",), "acks": ("all", "-1"), "request.required.acks": ("all", "-1")}


def to_topic(
    bootstrap_servers: str,
    *,
    topic: str | None = None,
    marker_topic: str = DEFAULT_TOPIC,
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    query_id: str | None = None,
    watch: Watch | None = None,
) -> TopicWriter:
    """A function for `foreachBatch` that writes each batch in one transaction.

    topic           where to; None takes the rows' own `topic` column
    marker_topic    the compacted topic that says what was written; created if it is missing
    properties      of the producer, under Java's or librdkafka's names: security, compression, `transaction.timeout.ms`
    name            tells writers apart where one query has several
    query_id        whose batches these are, where Spark does not say so (Spark Connect): any name that stays the same
                    as long as the checkpoint does
    watch           called with each step: for progress, and for tests that stop there

    Rows have the columns of Spark's Kafka sink: `value`, and if wanted `key`, `topic`, `partition`, `headers`.
    """
    given = {str(key): str(value) for key, value in (properties or {}).items()}
    for wanted, reason in OWN_PROPERTIES.items():
        if wanted in given and given[wanted].lower() not in HARMLESS.get(wanted, ()):
            raise SettingsError(wanted, f"cannot be set here: {reason}")
    if topic == marker_topic:
        raise SettingsError("topic", f"{topic} is where the markers are kept: choose another one")
    if not marker_topic:
        raise SettingsError("marker_topic", "is empty: name a compacted topic, or leave it out")
    given["bootstrap.servers"] = bootstrap_servers
    with suppress(UnsupportedSetting):  # which only means that librdkafka has to read the markers too
        ClientSettings.from_properties(given)
    return TopicWriter(given, topic, marker_topic, name, query_id, watch)


class TopicWriter:
    """What `to_topic` makes. One writer may serve several queries; each has a producer of its own."""

    def __init__(
        self,
        properties: Mapping[str, str],
        topic: str | None,
        marker_topic: str,
        name: str | None,
        query_id: str | None,
        watch: Watch | None,
    ) -> None:
        self.topic = topic
        self.markers = MarkerTopic(properties, marker_topic)
        self._properties = {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS), **properties}
        self._name = name
        self._query_id = query_id
        self._watch = watch
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()
        producer_properties(self._properties)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Writes one batch; Spark calls this, one batch of a query after the other."""
        run = self._run_of(batch)
        run.transactions.write(batch_id, _SparkBatch(batch, self.topic))

    def close(self) -> None:
        """Lets go of the producers. What was committed stays; the writer can be used again."""
        with self._lock:
            runs, self._runs = self._runs, {}
        for run in runs.values():
            run.transactions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, object]:
        # Spark Connect sends the function to the server's Python; producers and locks stay where they are.
        return {**self.__dict__, "_runs": {}, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def _run_of(self, batch: DataFrame) -> _Run:
        query_id, run_id = self._identity(batch)
        with self._lock:
            run = self._runs.get(query_id)
            if run is not None and run.run_id == run_id:
                return run
            if run is not None:
                # The query was started again. Whatever happened in between, the marker knows, and memory does not.
                run.transactions.close()
            _check_cap(batch, query_id)
            run = self._runs[query_id] = _Run(run_id, self._transactions(query_id))
            return run

    def _identity(self, batch: DataFrame) -> tuple[str, str]:
        """The query's id, which stays with its checkpoint, and the id of this run of it."""
        query_id = self._query_id or query_id_of(batch)
        if not query_id:
            raise UnknownQuery(
                "to_topic cannot tell which query this batch is of: use it as writeStream.foreachBatch(to_topic(…)), "
                "or, with Spark Connect, name the query: to_topic(…, query_id=…), a name that stays with the checkpoint"
            )
        return query_id, run_id_of(batch) or ""

    def _transactions(self, query_id: str) -> QueryTransactions:
        key = query_id if self._name is None else f"{query_id}/{self._name}"
        transactional_id = f"{TRANSACTIONAL_ID_PREFIX}{query_id if self._name is None else f'{query_id}-{self._name}'}"

        def opened(deliveries: Deliveries) -> TransactionalProducer:
            _check_transactions(self.markers.properties, transactional_id)
            self.markers.ensure()
            return OwnedProducer(open_producer({**self._properties, "transactional.id": transactional_id}, deliveries))

        watch = self._watch or (lambda step, batch_id: None)
        return QueryTransactions(transactional_id, key.encode(), opened, self.markers, watch=watch)


class OwnedProducer:
    """A producer that ends when it is told to.

    confluent-kafka's ends when nothing refers to it any more, and an error that Spark keeps refers, through the frames
    of its traceback, to whatever they worked with. Its `close` would do, but waits for brokers that are not there.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer: Producer | None = producer

    @property
    def produce(self) -> Callable[..., None]:
        """The method itself: it is called for each record."""
        return self._inner().produce

    def poll(self, timeout: float = -1) -> int:
        return self._inner().poll(timeout)

    def flush(self, timeout: float = -1) -> int:
        return self._inner().flush(timeout)

    def init_transactions(self, timeout: float = -1) -> None:
        self._inner().init_transactions(timeout)

    def begin_transaction(self) -> None:
        self._inner().begin_transaction()

    def commit_transaction(self, timeout: float = -1) -> None:
        self._inner().commit_transaction(timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        self._inner().abort_transaction(timeout)

    def let_go(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaException):
                producer.purge()

    def _inner(self) -> Producer:
        if self._producer is None:
            raise TopicSinkError("the writer was closed while it wrote: close it when its query has ended")
        return self._producer


class _Run(NamedTuple):
    """One run of a query: from a start to its end."""

    run_id: str
    transactions: QueryTransactions


class _SparkBatch:
    """A micro-batch as a DataFrame."""

    def __init__(self, frame: DataFrame, topic: str | None) -> None:
        self._frame = frame
        self._topic = topic

    def evaluate(self) -> tuple[RecordColumns, Iterable[pa.RecordBatch]]:
        RecordColumns.of(self._frame.schema, topic=self._topic)
        wanted = [column for column in self._frame.columns if column in COLUMN_TYPES]
        frame = self._frame.select(*wanted)
        try:
            table = frame.toArrow()
        except Exception as error:
            if RESULT_SIZE_SETTING in str(error):
                raise BatchTooLarge(
                    f"the batch is larger than {RESULT_SIZE_SETTING}, which bounds what the driver takes: "
                    "lower the source's cap per trigger (maxOffsetsPerTrigger), or raise it and the driver's memory"
                ) from error
            raise
        return RecordColumns.of(frame.schema, topic=self._topic), table.to_batches(max_chunksize=ROWS_PER_SEND)

    def pass_over(self) -> None:
        self._frame.write.format("noop").mode("overwrite").save()


def _check_cap(batch: DataFrame, query_id: str) -> None:
    source = caps.uncapped(caps.visible_sources(batch.sparkSession, query_id))
    if source is not None:
        raise UncappedQuery(
            f"the source {source.description} has no cap per trigger, and a batch that is one transaction must fit the "
            f'driver: set one on the source, .option("{caps.fix_for(source)}", …), and not the trigger `once`, '
            "which ignores it (`availableNow` does not)"
        )


def _check_transactions(properties: Mapping[str, str], transactional_id: str) -> None:
    """Refuses a cluster that answers that it has none; librdkafka would try for a long time, and not say why."""
    try:
        with Cluster(ClientSettings.from_properties(properties)) as cluster:
            cluster.coordinator(transactional_id, CoordinatorKind.TRANSACTION)
    except UnsupportedSetting:
        return
    except (BrokerError, UnsupportedApi) as error:
        if isinstance(error, BrokerError) and error.code not in (
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNSUPPORTED_VERSION,
        ):
            raise TopicSinkError(f"no coordinator for {transactional_id}: {error}") from error
        reason = getattr(error, "message", error)
        raise TransactionsMissing(
            f"this cluster does not serve transactions ({reason}), and exactly once to a topic "
            'needs them: write with .format("penstock") (at least once), to a table with penstock.pipeline.to_table '
            "(exactly once), or to an Apache Kafka cluster"
        ) from error
    except ClientError as error:
        raise TopicSinkError(str(error)) from error
