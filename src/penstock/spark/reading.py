"""What a task does: one range of one partition, as Arrow record batches.

What happened to the data between planning and reading is decided here, as Spark decides it: with failOnDataLoss it is
an error, without it the task reads what is left. An error of the network is no loss, and always one.

A worker process of Spark runs one task after another. The reader of the last ones is kept with its connections, because
to connect, authenticate and ask for metadata would cost a small micro-batch more than its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from penstock.client import OffsetOutOfRange, RangeUnavailable, UnknownTopic
from penstock.spark.backend import Reader, SourcePartition, log, open_reader
from penstock.spark.errors import DataLossError, SourceError, told_plainly
from penstock.spark.options import SourceOptions
from penstock.spark.worker_process import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

READERS_MAX: Final = 4
"""Of one worker process: more clusters, or more sets of options, connect more often."""

_readers: dict[object, Reader] = {}


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of a task. Spark makes up a partition where there is nothing to read, which has none."""
    if isinstance(partition, SourcePartition):
        with told_plainly():
            yield from read_range(options, partition, _kept_reader)
            settle()


def read_range(
    options: SourceOptions, part: SourcePartition, reader_of: Callable[[SourceOptions], Reader] = open_reader
) -> Iterator[pa.RecordBatch]:
    from penstock.arrow import CorruptBatch

    position = part.start
    while position < part.end:
        try:
            for batches, next_position in reader_of(options).read(part, position):
                yield from batches
                position = max(position, next_position)
            return
        except OffsetOutOfRange as error:
            _lost(options, part, str(error))
            if error.log_start_offset <= position:
                return
            position = error.log_start_offset
        except RangeUnavailable as error:
            if error.open_transaction:
                raise SourceError(_open_transaction(part, error)) from None
            _lost(options, part, str(error))
            return
        except UnknownTopic as error:
            _lost(options, part, str(error))
            return
        except CorruptBatch as error:
            raise SourceError(
                f"{error}. Nothing of it was given out. If the disk of the partition's leader is at fault, another "
                "replica has it whole: move the leadership there. Else it can only be passed by: a batch read with "
                "startingOffsets behind it; a stream, of which the checkpoint says where it is, when the records up to "
                "there are deleted (kafka-delete-records) and failOnDataLoss is false for that run"
            ) from None


def _lost(options: SourceOptions, part: SourcePartition, what: str) -> None:
    message = f"Cannot read offsets {part.start} to {part.end} (exclusive) of {part.topic}-{part.partition}: {what}"
    if options.fail_on_data_loss:
        raise DataLossError(message) from None
    log.warning("%s (failOnDataLoss is false)", message)


def _open_transaction(part: SourcePartition, error: RangeUnavailable) -> str:
    return (
        f"{error}. {part.topic}-{part.partition} is read with isolation.level read_committed; the producer of that "
        "transaction has to end it, or the broker does after the producer's transaction.timeout.ms"
    )


def _kept_reader(options: SourceOptions) -> Reader:
    properties = tuple(sorted(options.properties.items()))
    key = (options.client, options.include_headers, options.poll_timeout_ms, options.group_id, properties)
    found = _readers.pop(key, None)
    if found is None:
        if len(_readers) >= READERS_MAX:
            _readers.pop(next(iter(_readers))).close()
        found = open_reader(options)
    _readers[key] = found
    return found
