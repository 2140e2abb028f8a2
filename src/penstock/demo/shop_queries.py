"""The Spark pipeline of the shop, as anyone could write it with Penstock: three queries over three topics.

| query | reads | does | writes |
|---|---|---|---|
| archive | all events | decodes them | the table `events`; what cannot be read: `shop.dead-letters` |
| hours | all events | without copies and late ones, counts each hour | the table `hours`, and two topics |
| visits | clicks and orders | sessions of each customer | the table `visits`, `shop.sessions` |

The topics of an hour's results are `shop.revenue` and `shop.top-products`.

Tables are written exactly once per batch. Topics are written at least once, which changes nothing here: results are
keyed by what they are about, so a second one replaces the first, and a dead letter says which record it was. They are
a few rows per batch, so the driver writes them itself, with the producer of Penstock's sink: `df.write` would start
processes for each batch, which pays for thousands of rows and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.demo.counting import TOP_COUNT
from penstock.demo.topics import DEAD_LETTERS, EVENTS, REVENUE, SESSIONS, TOP_PRODUCTS
from penstock.pipeline.builtin import deduplicate, sessions, windowed_counts
from penstock.pipeline.columns import parse_columns
from penstock.pipeline.dead_letter_headers import Header, dead_letter_headers
from penstock.pipeline.decoding import BAD, PARSED, decode
from penstock.pipeline.json_reasons import Expected, explain
from penstock.pipeline.model import Place, Source, Unparsed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    Writer = Callable[[DataFrame, int], None]

WATERMARK: Final = "2 hours"
"""The same as `generator.ALLOWED_DELAY_S`, in Spark's words."""
SESSION_GAP: Final = "30 minutes"
HOUR_FORMAT: Final = "yyyy-MM-dd'T'HH:mm:ss'Z'"
RECORDS_PER_TRIGGER: Final = 20_000
COMPACT_EVERY: Final = 30
FLUSH_STEP_S: Final = 1.0

COLUMNS: Final = (
    "event_id STRING NOT NULL, kind STRING NOT NULL, event_time TIMESTAMP NOT NULL, customer STRING NOT NULL, "
    "product STRING, category STRING, order_id STRING, quantity INT, amount_cents BIGINT, page STRING, "
    "referrer STRING, method STRING, status STRING"
)
EVENT_STREAM: Final = Source(
    name="events", topic=",".join(EVENTS), columns=parse_columns(COLUMNS, Place())[0], unparsed=Unparsed.DROP
)
"""As `CREATE STREAM events (…)` of a pipeline file would have it."""
_EXPECTED: Final = [Expected(column.name, column.type, column.nullable) for column in EVENT_STREAM.columns]


@dataclass(frozen=True)
class ShopQuery:
    name: str
    frame: DataFrame
    write: Writer


def shop_queries(spark: SparkSession, address: str, tables: Path) -> list[ShopQuery]:
    """The queries, ready to be started."""
    from penstock.pipeline import to_table

    decoded = decode(read_events(spark, address), EVENT_STREAM)
    good = decoded.rows()
    events = to_table(tables / "events", date_column="event_time", compact_every=COMPACT_EVERY)
    hours = to_table(tables / "hours", compact_every=COMPACT_EVERY)
    visits = to_table(tables / "visits", compact_every=COMPACT_EVERY)
    return [
        ShopQuery("archive", decoded.frame, ArchiveWriter(events, TopicResults(address))),
        ShopQuery("hours", count_hours(good), HoursWriter(hours, TopicResults(address))),
        ShopQuery("visits", count_visits(good), VisitsWriter(visits, TopicResults(address))),
    ]


def read_events(spark: SparkSession, address: str) -> DataFrame:
    return (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", ",".join(EVENTS))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(RECORDS_PER_TRIGGER))
        .load()
    )


def count_hours(events: DataFrame) -> DataFrame:
    """Each event once, per hour, kind and product; an hour comes out when it is over."""
    unique = deduplicate(events, keys="event_id", time="event_time", within=WATERMARK)
    # Behind the deduplication, so that heartbeats still move the watermark.
    trade = unique.where("kind <> 'heartbeat'")
    return windowed_counts(trade, time="event_time", window="1 hour", keys=["kind", "product"], sums="amount_cents")


def count_visits(events: DataFrame) -> DataFrame:
    return sessions(
        events.where("kind IN ('click', 'order', 'heartbeat')"),
        keys="customer",
        time="event_time",
        gap=SESSION_GAP,
        counts={"clicks": "kind = 'click'", "orders": "kind = 'order'"},
        watermark=WATERMARK,
    )


class ArchiveWriter:
    """Readable events to the table, the others to the topic of dead letters."""

    def __init__(self, table: Writer, results: TopicResults) -> None:
        self._table = table
        self._results = results

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            good = batch.where(f"NOT {BAD}").select(f"{PARSED}.r.*", "topic", "partition", "offset")
            self._table(good.where("kind <> 'heartbeat'"), batch_id)
            bad = batch.where(BAD).select("key", "value", "topic", "partition", "offset")
            self._results.send(map(_dead_letter, bad.toArrow().to_pylist()))
        finally:
            batch.unpersist()


def _dead_letter(row: Mapping[str, Any]) -> Record:
    """A record that could not be read, with the reason; they are few, so the reason is found here."""
    headers = dead_letter_headers(row["topic"], row["partition"], row["offset"], explain(row["value"], _EXPECTED))
    return Record(DEAD_LETTERS, row["key"], row["value"], headers)


class HoursWriter:
    """Hours that are over: to the table, and as two results of each hour to their topics."""

    def __init__(self, table: Writer, results: TopicResults) -> None:
        self._table = table
        self._results = results

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            self._table(batch.withColumnRenamed("count", "events"), batch_id)
            self._results.write(revenue_of(batch), "hour", REVENUE)
            self._results.write(best_of(batch), "hour", TOP_PRODUCTS)
        finally:
            batch.unpersist()


class VisitsWriter:
    def __init__(self, table: Writer, results: TopicResults) -> None:
        self._table = table
        self._results = results

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        from pyspark.sql import functions as f

        batch.persist()
        try:
            self._table(batch, batch_id)
            visits = batch.select(
                "customer",
                _iso("session_start").alias("started"),
                f.round(f.col("duration_s") / 60, 1).alias("minutes"),
                "clicks",
                "orders",
            )
            self._results.write(visits, "customer", SESSIONS)
        finally:
            batch.unpersist()


def revenue_of(hours: DataFrame) -> DataFrame:
    """One row for each hour."""
    from pyspark.sql import functions as f

    return hours.groupBy(_iso("window_start").alias("hour")).agg(
        f.sum("count").alias("events"),
        _total("count", "click").alias("clicks"),
        _total("count", "order").alias("orders"),
        _total("amount_cents_sum", "order").alias("revenue_cents"),
    )


def best_of(hours: DataFrame) -> DataFrame:
    """One row for each hour, with its best sellers by revenue."""
    from pyspark.sql import functions as f

    row = f.struct(
        (-f.col("amount_cents_sum")).alias("_order"),
        "product",
        f.col("count").alias("orders"),
        f.col("amount_cents_sum").alias("revenue_cents"),
    )
    top = f.slice(f.array_sort(f.collect_list(row)), 1, TOP_COUNT)
    return (
        hours.where("kind = 'order'")
        .groupBy(_iso("window_start").alias("hour"))
        .agg(f.transform(top, lambda one: one.dropFields("_order")).alias("top"))
    )


class Record(NamedTuple):
    topic: str
    key: bytes | str | None
    value: bytes | str | None
    headers: list[Header] | None = None


class TopicResults:
    """Few records to topics, at least once: when `send` returns, the broker has them all."""

    def __init__(self, address: str) -> None:
        from penstock.spark.producing import Deliveries, open_producer

        self._deliveries = Deliveries()
        properties = {"bootstrap.servers": address, "client.id": "shop-results", "log_level": "0"}
        self._producer = open_producer(properties, self._deliveries)

    def write(self, rows: DataFrame, key: str, topic: str) -> None:
        """Rows as JSON, keyed by one of their columns."""
        from pyspark.sql import functions as f

        records = rows.select(f.col(key).alias("key"), f.to_json(f.struct(*rows.columns)).alias("value"))
        self.send(Record(topic, row["key"], row["value"]) for row in records.toArrow().to_pylist())

    def send(self, records: Iterable[Record]) -> None:
        self._deliveries.reset()
        for record in records:
            self._producer.produce(record.topic, record.value, record.key, headers=record.headers)
            self._producer.poll(0)
        while self._producer.flush(FLUSH_STEP_S):
            self._deliveries.check()
        self._deliveries.check()


def _total(column: str, kind: str) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.sum(f.when(f.col("kind") == kind, f.col(column))), f.lit(0))


def _iso(column: str) -> Column:
    from pyspark.sql import functions as f

    return f.date_format(column, HOUR_FORMAT)
