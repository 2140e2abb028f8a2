"""Streaming queries: rows, a sink, a trigger and a checkpoint, started."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from penstock.pipeline.model import NOTHING, Delivery, OutputMode, Pipeline, Sink, SinkKind, Trigger, TriggerKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    BatchWriter = Callable[[DataFrame, int], None]

ROWS_SHOWN = 20
_TABLE_MODES: dict[OutputMode, Literal["append", "update", "complete"]] = {
    OutputMode.APPEND: "append",
    OutputMode.UPDATE: "update",
    OutputMode.COMPLETE: "complete",
}


class Stopped(Exception):
    """A batch that was not written because the run is being stopped; it is written by the next one."""


class Gate:
    """Lets batches through one at a time, until it is closed: so a run stops between writes, and not in one.

    Spark stops a query by interrupting it, wherever it is. That loses nothing (an interrupted batch runs again), but a
    write that is nearly done is better finished than undone.
    """

    def __init__(self, write: BatchWriter) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._closed = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._closed:
                raise Stopped("the run is being stopped")
            self._write(batch, batch_id)

    def __getstate__(self) -> dict[str, object]:
        # Spark Connect sends the function to its server; what this one waits for stays here.
        return {"_write": self._write}

    def __setstate__(self, state: dict[str, BatchWriter]) -> None:
        self.__init__(state["_write"])  # type: ignore[misc]

    def close(self, timeout_s: float) -> bool:
        """Waits for the write that goes on, if one does; False if it takes longer. No other begins after it."""
        self._closed = True
        if not self._lock.acquire(timeout=timeout_s):
            return False
        self._lock.release()
        if close := getattr(self._write, "close", None):
            with suppress(Exception):  # the run is over: what was committed is committed
                close()
        return True


def open_gate(pipeline: Pipeline, sink: Sink) -> Gate | None:
    """What writes the batches of a sink; None for one that writes nothing."""
    if sink.kind is SinkKind.TOPIC:
        return Gate(topic_writer(pipeline, sink.topic, sink.delivery, sink.options))
    if sink.kind is SinkKind.TABLE:
        return Gate(_table_writer(sink))
    if sink.kind is SinkKind.CONSOLE:
        return Gate(_ConsoleWriter(sink.name, int(sink.options.get("rows", ROWS_SHOWN))))
    return None


def start_query(
    rows: DataFrame, *, name: str, mode: OutputMode, trigger: Trigger, location: str, gate: Gate | None
) -> StreamingQuery:
    """Starts one query of a pipeline; it goes on from its checkpoint where there is one."""
    writer: DataStreamWriter = rows.writeStream.queryName(name).outputMode(str(mode))
    writer = writer.option("checkpointLocation", location)
    if trigger.kind is TriggerKind.ONCE:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{trigger.interval_ms} milliseconds")
    writer = writer.format("noop") if gate is None else writer.foreachBatch(gate)
    return writer.start()


def topic_writer(
    pipeline: Pipeline, topic: str, delivery: Delivery, options: Mapping[str, str] = NOTHING
) -> BatchWriter:
    """Writes batches to a topic, with the delivery that is asked for."""
    own = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    properties = {**pipeline.properties, **own}
    if delivery is Delivery.EXACTLY_ONCE:
        from penstock.pipeline.to_topic import to_topic

        return to_topic(pipeline.bootstrap_servers, topic=topic, properties=properties)
    return _AtLeastOnce(topic, {"bootstrap.servers": pipeline.bootstrap_servers, **properties})


def _table_writer(sink: Sink) -> BatchWriter:
    from penstock.pipeline.lake import to_table

    every = sink.options.get("compact_every")
    evolution: Literal["add", "refuse"] = "refuse" if sink.options.get("schema_evolution") == "refuse" else "add"
    return to_table(
        sink.path,
        partition_by=sink.partition_by,
        date_column=sink.options.get("date_column"),
        mode=_TABLE_MODES[sink.mode],
        key=sink.key,
        schema_evolution=evolution,
        compact_every=int(every) if every else None,
    )


class _AtLeastOnce:
    """Each batch through the `penstock` sink, by the tasks; a batch that runs again is written again."""

    def __init__(self, topic: str, properties: dict[str, str]) -> None:
        self._options = {"topic": topic, **{f"kafka.{name}": value for name, value in properties.items()}}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        batch.write.format("penstock").options(**self._options).mode("append").save()


class _ConsoleWriter:
    """The first rows of each batch, for a person."""

    def __init__(self, name: str, rows: int) -> None:
        self._name = name
        self._rows = rows

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        found = batch.take(self._rows)
        if not found:
            return
        shown = (", ".join(f"{name}={value}" for name, value in row.asDict().items()) for row in found)
        lines = [f"{self._name}, batch {batch_id}", *(f"  {row}" for row in shown)]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
