"""Tables between Spark and Spark."""

from __future__ import annotations

import datetime
import decimal
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.pipeline.lake import LakeError, Step, compact_table, read_table, to_table
from pipeline.lake.tables import DAY, Driver, ids_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ALL_TYPES = """
    id long, tiny byte, small short, whole int, half float, full double, yes boolean, text string, raw binary,
    day date, moment timestamp, wall timestamp_ntz, price decimal(20, 4), list array<string>,
    pairs map<string, int>, deep struct<a: int, b: array<struct<c: string>>>, `dotted.name` int, shop string
"""


def all_types(spark: SparkSession) -> DataFrame:
    moment = datetime.datetime(2026, 1, 31, 23, 59, 59, 999999)
    old = datetime.datetime(1900, 1, 1)
    rows: list[tuple[Any, ...]] = [
        (
            1, 1, 2, 3, 0.5, 0.25, True, "x", b"\x00\xff", datetime.date(1969, 1, 1), moment, moment,
            decimal.Decimal("1234.5678"), ["a", None], {"k": 1, "n": None}, (1, [("c",), None]), 7, "a b:c/%d",
        ),
        (
            2, -1, -2, -3, float("nan"), float("-inf"), False, "", b"", datetime.date(9999, 12, 31), old, old,
            decimal.Decimal("-0.0001"), [], {}, (None, []), None, "plain",
        ),
        (3, *[None] * 17),
    ]  # fmt: skip
    return spark.createDataFrame(rows, ALL_TYPES)


def same_rows(left: DataFrame, right: DataFrame) -> None:
    assert left.columns == right.columns
    assert [str(row) for row in left.orderBy("id").collect()] == [str(row) for row in right.orderBy("id").collect()]


def test_every_type_comes_back_as_it_went_in(spark: SparkSession, tmp_path: Path) -> None:
    frame = all_types(spark)
    write = to_table(tmp_path / "t [x]", partition_by=["shop"], app_id="test")
    write(frame, 0)
    same_rows(read_table(spark, tmp_path / "t [x]"), frame)
    write(frame.selectExpr("id + 10 AS id", "shop"), 1)
    compact_table(tmp_path / "t [x]")
    found = read_table(spark, tmp_path / "t [x]")
    same_rows(found.where("id < 10"), frame)
    assert found.where("id > 10 AND text IS NULL").count() == 3
    assert found.where("shop = 'a b:c/%d'").count() == 2
    assert read_table(spark, tmp_path / "t [x]", version=0).count() == 3


def test_partition_values_of_every_type_come_back(spark: SparkSession, tmp_path: Path) -> None:
    names = ["yes", "tiny", "whole", "big", "day", "text"]
    frame = spark.createDataFrame(
        [
            (1, True, 1, -5, 2**60, datetime.date(2026, 1, 31), "007"),
            (2, False, -1, 0, -1, datetime.date(1900, 1, 1), "__x"),
            (3, None, None, None, None, None, None),
        ],
        "id long, yes boolean, tiny byte, whole int, big long, day date, text string",
    )
    to_table(tmp_path, partition_by=names, app_id="test")(frame, 0)
    same_rows(read_table(spark, tmp_path), frame)
    assert read_table(spark, tmp_path).where("text = '007' AND big > 5 AND yes").count() == 1


def test_a_timestamp_makes_partitions_by_its_day_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT * FROM VALUES (1, timestamp_micros(-1)), (2, timestamp_micros(0)), (3, NULL) AS t(id, at)"
    )
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        to_table(tmp_path / "t", date_column="AT", app_id="test")(frame, 0)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = read_table(spark, tmp_path / "t")
    days = {row.id: row.date for row in found.collect()}
    assert days == {1: datetime.date(1969, 12, 31), 2: datetime.date(1970, 1, 1), 3: None}
    plan = found.where("date = DATE '1970-01-01'")._jdf.queryExecution().toString()
    assert "PartitionFilters: [isnotnull(date" in plan, "a query reads only the days it asks for"
    assert [path.name for path in (tmp_path / "t").glob("date=*")]


def test_only_timestamps_and_free_names_make_dates(spark: SparkSession, tmp_path: Path) -> None:
    cases = (("1 AS id", "no column 'at'"), ("'x' AS at", "'at' is string"), ("now() AS at, 1 AS date", "has one"))
    for columns, complaint in cases:
        with pytest.raises(LakeError, match=complaint):
            to_table(tmp_path, date_column="at", app_id="test")(spark.sql(f"SELECT {columns}"), 0)


def test_outside_of_a_query_an_id_has_to_be_given(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="not a micro-batch of a streaming query"):
        to_table(tmp_path)(spark.range(1), 0)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"mode": "overwrite"}, "mode 'overwrite' is not known"),
        ({"mode": "update"}, "mode 'update' needs a key"),
        ({"key": ["id"]}, "mode 'append' has no use for a key"),
        ({"schema_evolution": "guess"}, "schema_evolution 'guess'"),
        ({"compression": "rar"}, "compression 'rar'"),
        ({"compact_every": 0}, "compact_every is 0"),
        ({"path": "ftp://x"}, "ftp://"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(LakeError, match=complaint):
        to_table(**{"path": "t", **options})


def test_complete_and_update_modes_replace_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[list[tuple[str | None, int]]] = [[("a", 1), (None, 1)], [("a", 2), ("b", 1)]]
    counts = [spark.createDataFrame(some, "shop string, n long") for some in rows]
    for mode, expected in (("complete", {"a": 2, "b": 1}), ("update", {"a": 2, "b": 1, None: 1})):
        write = to_table(tmp_path / mode, mode=mode, key=["shop"] if mode == "update" else [], app_id="test")  # type: ignore[arg-type]
        for batch_id, frame in enumerate(counts):
            write(frame, batch_id)
        assert {row.shop: row.n for row in read_table(spark, tmp_path / mode).collect()} == expected


class Stop(Exception):
    """Ends a query at a step, as a crash would."""


@pytest.fixture
def events(tmp_path: Path) -> Callable[[int], None]:
    """Adds files of events, each of which is one micro-batch."""
    (tmp_path / "in").mkdir()

    def add(number: int) -> None:
        lines = [json.dumps({"id": 10 * number + offset, "user": f"u{offset % 2}"}) for offset in range(4)]
        staged = tmp_path / f"{number}.json"
        staged.write_text("\n".join(lines))
        staged.rename(tmp_path / "in" / staged.name)

    return add


def test_batches_are_whole_and_once_through_stops_at_every_step(
    spark: SparkSession, tmp_path: Path, events: Callable[[int], None]
) -> None:
    """A stateful query with a random column, in update mode and appending, on another number of tasks each time."""
    steps: list[tuple[str, Step, int]] = []
    stops: list[Step] = []

    def on_step(name: str) -> Callable[[Step, int], None]:
        def told(step: Step, batch_id: int) -> None:
            steps.append((name, step, batch_id))
            if stops and stops[0] is step:
                stops.pop(0)
                raise Stop

        return told

    def run(tasks: int) -> str:
        events = spark.readStream.schema("id long, user string")
        stream = events.option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        rows = stream.dropDuplicates(["id"]).repartition(tasks).selectExpr("*", "uuid() AS random")
        counts = stream.groupBy("user").count()
        for name, frame, options in (
            ("rows", rows, {}),
            ("counts", counts, {"mode": "update", "key": ["user"]}),
        ):
            query = (
                frame.writeStream.foreachBatch(to_table(tmp_path / name, on_step=on_step(name), **options))  # type: ignore[arg-type]
                .outputMode("update" if options else "append")
                .option("checkpointLocation", str(tmp_path / f"{name}.checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            failure = _end_of(query)
            if failure:
                assert "Stop" in failure
                return name
        return ""

    events(0)
    for number, step in enumerate([Step.STARTED, Step.WRITTEN, Step.COMMITTED]):
        events(number + 1)
        stops.append(step)
        assert run(tasks=number + 1) == "rows"
        assert not stops
    assert run(tasks=2) == ""
    events(4)
    stops.append(Step.COMMITTED)
    assert run(tasks=2) == "rows"
    assert run(tasks=1) == ""
    repeated = [batch_id for name, step, batch_id in steps if name == "rows" and step is Step.REPEATED]
    assert repeated, "a batch was in the table when Spark ran it again"
    everything = sorted(10 * number + offset for number in range(5) for offset in range(4))
    assert ids_in(tmp_path / "rows") == everything
    counts = {row["user"]: row["count"] for row in read_table(spark, tmp_path / "counts").collect()}
    assert counts == {"u0": 10, "u1": 10}


def _end_of(query: StreamingQuery) -> str:
    """What a query failed with, if it did."""
    try:
        query.awaitTermination()
    except Exception as error:
        return str(error)
    return ""


def test_partition_values_come_from_the_log_where_directories_do_not_tell_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    driver = Driver(tmp_path / "t", partition_by=("date",))
    driver.run(0, [1], DAY)
    driver.run(1, [2], None)
    log = tmp_path / "t" / "_delta_log"
    for number, file in enumerate(sorted((tmp_path / "t").glob("date=*/*.parquet"))):
        relative = file.relative_to(tmp_path / "t").as_posix()
        (tmp_path / "t" / f"x{number}").mkdir()
        shutil.move(file, tmp_path / "t" / f"x{number}" / "date=1999-01-01.parquet")
        for commit in log.glob("*.json"):
            commit.write_text(commit.read_text().replace(relative, f"x{number}/date=1999-01-01.parquet"))
    found = {row.id: row.date for row in read_table(spark, tmp_path / "t").collect()}
    assert found == {1: DAY, 2: None}


def test_timestamps_that_others_partition_by_are_the_same_in_every_time_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    noon = datetime.datetime(2026, 1, 31, 12, 30, 0, 5)
    for name, kind in (("at", pa.timestamp("us", "UTC")), ("clock", pa.timestamp("us"))):
        for number in range(2):
            rows = pa.table({"id": [number], "p": pa.array([noon], kind)})
            write_deltalake(tmp_path / name, rows, partition_by=["p"], mode="append")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for _ in range(2):
            found = [
                row[0]
                for name, column in (("at", "unix_micros(p)"), ("clock", "CAST(p AS STRING)"))
                for row in read_table(spark, tmp_path / name).selectExpr(column).collect()
            ]
            micros = round(noon.replace(tzinfo=datetime.UTC).timestamp() * 1_000_000)
            assert found == [micros] * 2 + ["2026-01-31 12:30:00.000005"] * 2
            for name in ("at", "clock"):  # as compaction writes them, once more
                compact_table(tmp_path / name)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    write_deltalake(tmp_path / "binary", pa.table({"id": [1], "p": pa.array([b"ab"])}), partition_by=["p"])
    with pytest.raises(LakeError, match="'p', which is binary"):
        read_table(spark, tmp_path / "binary")


def test_an_empty_table_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    Driver(tmp_path).run(0, [])
    found = read_table(spark, tmp_path)
    assert found.columns == ["id", "text", "date"]
    assert found.count() == 0


def test_tables_that_need_more_than_files_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    Driver(tmp_path).run(0, [1])
    first = tmp_path / "_delta_log" / f"{0:020d}.json"
    plain = first.read_text()
    features = '"readerFeatures":["typeWidening"],"writerFeatures":["typeWidening"]'
    demands = f'"minReaderVersion":3,"minWriterVersion":7,{features}'
    first.write_text(plain.replace('{"minReaderVersion":1,"minWriterVersion":2}', f"{{{demands}}}"))
    assert first.read_text() != plain
    with pytest.raises(LakeError, match=r"reader feature typeWidening|cannot open the table"):
        read_table(spark, tmp_path)
    with pytest.raises(LakeError, match=r"there is no Delta table at"):
        read_table(spark, tmp_path / "nothing")


def test_constraints_of_others_stop_a_query_before_it_writes(spark: SparkSession, tmp_path: Path) -> None:
    Driver(tmp_path).run(0, [1])
    DeltaTable(str(tmp_path)).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(LakeError, match="constraint 'positive'"):
        to_table(tmp_path, app_id="test")(spark.sql("SELECT -1L AS id"), 0)
    assert ids_in(tmp_path) == [1]


def test_statistics_of_files_let_other_engines_leave_them_out(spark: SparkSession, tmp_path: Path) -> None:
    to_table(tmp_path, app_id="test")(spark.range(1000).repartitionByRange(2, "id"), 0)
    told = pa.table(DeltaTable(str(tmp_path)).get_add_actions(flatten=True)).to_pylist()
    assert sorted((file["min.id"], file["max.id"]) for file in told)[0][0] == 0
    assert sum(file["num_records"] for file in told) == 1000
    assert max(file["max.id"] for file in told) == 999
    assert len(told) == 2


def test_types_of_a_batch_are_cast_to_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    Driver(tmp_path).run(0, [1])
    to_table(tmp_path, app_id="test")(spark.sql("SELECT CAST(2 AS TINYINT) AS ID, 'x' AS more"), 0)
    found = read_table(spark, tmp_path).orderBy("id").collect()
    assert [(row.id, row.text, row.more) for row in found] == [(1, "text 1", None), (2, None, "x")]
