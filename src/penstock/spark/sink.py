"""`df.write` and `df.writeStream` `.format("penstock")`: rows to topics, at least once.

Each task writes its rows with an idempotent producer and is done when the brokers have all of them. A task that fails
and is tried again writes its rows again, and so does a micro-batch that is run again after a crash: at least once, as
with Spark's own Kafka sink. Once, and whole micro-batches or nothing, is what `penstock.pipeline.to_topic` is for.

A stream's complete mode appends the whole result at each trigger, as Spark's Kafka sink does. Update mode never comes
here: Spark refuses it for every sink in Python before it asks one. `to_topic` takes it, through `foreachBatch`.

Spark keeps its Python workers between tasks, and so are the producers kept: to connect anew for each task of each
micro-batch would cost more than most micro-batches. A producer that failed is thrown away with all that it holds.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.client import ClientError, ClientSettings, Cluster, UnsupportedSetting
from penstock.spark.errors import SourceError, told_plainly
from penstock.spark.producing import Deliveries, RecordColumns, RecordSender, SinkError, open_producer
from penstock.spark.sink_options import SinkOptions
from penstock.spark.worker_process import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Producer
    from pyspark.sql.types import StructType

PRODUCERS_MAX: Final = 4
"""Of one worker process. A session that writes to more clusters than this connects more often."""

IDLE_S_MAX: Final = 300.0
"""Older ones are closed: brokers forget connections and producer ids that nobody uses."""


class WriteFailed(SourceError):
    """What the sink tells its users, and Spark shows them without its own frames around it."""


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: made on the driver, sent to the tasks."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._task.run(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: made on the driver for each micro-batch, sent to its tasks."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._task.run(iterator)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of one `df.write`, with Spark's options; WriteFailed says what is wrong with them."""
    with _told():
        if overwrite:
            raise SinkError(
                "Save mode Overwrite not allowed for Kafka: topics are only appended to. Use .mode('append'), or "
                "delete the topic first"
            )
        return BatchWriter(_checked(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of one micro-batch. `overwrite` is complete mode: all rows of the result are appended once more."""
    with _told():
        return StreamWriter(_checked(options, schema))


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver when all of its rows are with the brokers."""

    record_count: int


@dataclass(frozen=True)
class WriteTask:
    """What one task does with its rows."""

    options: SinkOptions
    columns: RecordColumns

    def run(self, batches: Iterator[pa.RecordBatch]) -> Written:
        with _told():
            kept = producers.take(self.options)
            sender = RecordSender(kept.producer, self.columns, kept.deliveries)
            try:
                for batch in batches:
                    sender.send(batch)
                sender.flush()
            except BaseException:
                # What it still holds must not be sent later, behind the back of the task that tries again.
                discard(kept)
                raise
            producers.keep(self.options, kept)
            settle()
            return Written(sender.sent_count)


class Kept(NamedTuple):
    """A producer and who hears of its failures."""

    producer: Producer
    deliveries: Deliveries


class Producers:
    """The producers of a worker process that wait for their next task."""

    def __init__(
        self, opening: Callable[[SinkOptions], Kept] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open = opening or _open
        self._clock = clock
        # In the order in which they were last used.
        self._waiting: dict[tuple[tuple[str, str], ...], tuple[Kept, float]] = {}

    def take(self, options: SinkOptions) -> Kept:
        """One with these properties, for the caller alone."""
        self._drop_idle()
        kept, _ = self._waiting.pop(_key(options), (None, 0.0))
        return kept or self._open(options)

    def keep(self, options: SinkOptions, kept: Kept) -> None:
        """For the next task; only one that has delivered everything."""
        self._drop(self._waiting.pop(_key(options), None))
        self._waiting[_key(options)] = (kept, self._clock())
        while len(self._waiting) > PRODUCERS_MAX:
            self._drop(self._waiting.pop(next(iter(self._waiting))))

    def clear(self) -> None:
        while self._waiting:
            self._drop(self._waiting.popitem()[1])

    def _drop_idle(self) -> None:
        oldest_s = self._clock() - IDLE_S_MAX
        for key in [key for key, (_, used_s) in self._waiting.items() if used_s < oldest_s]:
            self._drop(self._waiting.pop(key))

    def _drop(self, entry: tuple[Kept, float] | None) -> None:
        if entry is not None:
            discard(entry[0])


def discard(kept: Kept) -> None:
    """Ends a producer without sending what it still holds."""
    kept.producer.purge()
    kept.producer.flush(0)


def ensure_reachable(options: SinkOptions) -> None:
    """Asks the cluster once per process, so that a wrong address or password is an error now, not in five minutes.

    A producer would go on trying until `delivery.timeout.ms`, in every task, and again in every attempt of a task.
    """
    key = _key(options)
    if key in _reached:
        return
    try:
        with Cluster(ClientSettings.from_properties(options.properties)) as cluster:
            # About one topic, for an answer that does not grow with the cluster. Asking does not create it.
            cluster.existing_topics([options.topic or "__consumer_offsets"])
    except UnsupportedSetting:
        # Only librdkafka can log in like that.
        return
    except ClientError as error:
        raise SinkError(f"cannot write to {options.bootstrap_servers}: {error}") from error
    if len(_reached) >= PRODUCERS_MAX:
        _reached.clear()
    _reached.add(key)


_reached: set[tuple[tuple[str, str], ...]] = set()


@contextmanager
def _told() -> Iterator[None]:
    with told_plainly():
        try:
            yield
        except SinkError as error:
            raise WriteFailed(str(error)) from None


def _checked(options: Mapping[str, str], schema: StructType) -> WriteTask:
    parsed = SinkOptions.parse(options)
    task = WriteTask(parsed, RecordColumns.of(schema, topic=parsed.topic))
    ensure_reachable(parsed)
    return task


def _key(options: SinkOptions) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(options.properties.items()))


def _open(options: SinkOptions) -> Kept:
    deliveries = Deliveries()
    # What goes wrong is raised; a producer that waits for its next task need not tell of a broker that restarts.
    properties = {"client.id": "penstock-spark", "log_level": "2", **options.properties}
    return Kept(open_producer(properties, deliveries), deliveries)


producers = Producers()
"""Of this process."""

atexit.register(producers.clear)
