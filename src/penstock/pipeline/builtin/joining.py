"""A stream and what a table knows about its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from penstock.pipeline.builtin.parameters import ParameterError, check_columns, names_of
from penstock.pipeline.builtin.reading import topic_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def join_table(
    events: DataFrame,
    table: DataFrame,
    *,
    on: str | Sequence[str],
    columns: str | Sequence[str] = (),
    missing: Literal["keep", "drop"] = "keep",
    prefix: str = "",
) -> DataFrame:
    """Events with the columns of the table's row that has the same key.

        join_table(orders, read_table(spark, "lake/products"), on="product_id", columns=["name", "category"])

    `columns` are those to add (all but the keys if not given), under their names with `prefix`. Events whose key the
    table does not have are kept with nulls, or with `missing="drop"` left out. The table must have one row for each
    key (`latest_by_key` makes one), or events would multiply.

    A table that is read for a stream stays as it was when the query started, in a pipeline file too. For one that
    changes, read it in `foreachBatch`, or start the query again: it goes on where it stopped, with the table of then.
    """
    from pyspark.sql import functions as f

    keys = names_of(on)
    if not keys:
        raise ParameterError("on is empty: name the columns that events and table have in common")
    if missing not in ("keep", "drop"):
        raise ParameterError(f"missing is {missing!r}: it is 'keep' or 'drop'")
    check_columns(events, keys, "on")
    check_columns(table, keys, "on")
    if table.isStreaming:
        raise ParameterError("table is a stream: read it with spark.read or read_table")
    wanted = names_of(columns) or tuple(name for name in table.columns if name not in keys)
    check_columns(table, wanted, "columns")
    taken = {name.lower() for name in events.columns}
    for name in wanted:
        if f"{prefix}{name}".lower() in taken:
            raise ParameterError(
                f"both sides have a column {prefix}{name}: choose others with columns=[…], or add prefix='…'"
            )
    chosen = table.select(*keys, *(f.col(name).alias(f"{prefix}{name}") for name in wanted))
    return events.join(f.broadcast(chosen), list(keys), "left" if missing == "keep" else "inner")


def latest_by_key(rows: DataFrame, *, keys: str | Sequence[str], order: str | Sequence[str]) -> DataFrame:
    """The newest row of each key, by the columns of `order`: a table made of changes. For batches."""
    from pyspark.sql import functions as f

    keys, order = names_of(keys), names_of(order)
    check_columns(rows, keys, "keys")
    check_columns(rows, order, "order")
    if rows.isStreaming:
        raise ParameterError("rows is a stream, whose newest rows nobody knows before it ends: use spark.read")
    whole = f.struct(*(f.col(name) for name in rows.columns))
    newest = rows.groupBy(*(f.col(name).alias(f"_key_{number}") for number, name in enumerate(keys))).agg(
        f.max_by(whole, f.struct(*order)).alias("_row")
    )
    return newest.select("_row.*")


def topic_as_table(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    columns: str,
    *,
    properties: Mapping[str, str] | None = None,
) -> DataFrame:
    """A compacted topic of JSON as a table: the newest value of each key; a record without a value deletes its key.

        products = topic_as_table(spark, "localhost:9092", "products", "name STRING, category STRING")

    Columns: `key` as text, and those of `columns`. Only committed records count (`isolation.level` in `properties`).
    """
    from pyspark.sql import functions as f

    reader = topic_reader(spark.read, {"bootstrap.servers": bootstrap_servers, **(properties or {})})
    records = reader.option("subscribe", topic).load()
    # Records of one key are in one partition, where the offset is their order.
    newest = latest_by_key(
        records.where("key IS NOT NULL").select("key", "value", "offset"), keys="key", order="offset"
    )
    parsed = f.from_json(f.col("value").cast("string"), columns)
    rows = newest.where("value IS NOT NULL").select(f.col("key").cast("string").alias("key"), parsed.alias("_value"))
    return rows.select("key", "_value.*")
