"""SQL pipeline files: what they declare, and what is said about what they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipeline.checking import check_declarations
from penstock.pipeline.model import (
    RECORDS_PER_TRIGGER,
    Delivery,
    Format,
    Nulls,
    OutputMode,
    Pipeline,
    PipelineError,
    Place,
    Problem,
    Role,
    SinkKind,
    Sql,
    TriggerKind,
    Unparsed,
)
from penstock.pipeline.sql_file import parse_sql
from penstock.pipeline.sql_statements import variables_of

ORDERS = "CREATE STREAM orders (id STRING, amount DOUBLE) WITH (topic = 'orders');\n"


def parse(text: str, **overrides: str) -> Pipeline:
    return parse_sql(text, name="shop", overrides={name.replace("__", "."): value for name, value in overrides.items()})


def problems(text: str, **overrides: str) -> tuple[Problem, ...]:
    with pytest.raises(PipelineError) as failed:
        parse(text, **overrides)
    return failed.value.problems


def problem(text: str, **overrides: str) -> Problem:
    [only] = problems(text, **overrides)
    return only


def test_a_whole_pipeline_is_read() -> None:
    pipeline = parse("""
        -- Revenue per minute.
        SET trigger = 'every 5 seconds';
        SET checkpoint = 'checkpoints/shop';
        SET bootstrap.servers = 'kafka:9092';
        SET kafka.security.protocol = 'SSL';
        SET spark.sql.shuffle.partitions = 8;

        CREATE STREAM orders (
            id STRING NOT NULL, amount DECIMAL(10, 2), at TIMESTAMP,
            WATERMARK FOR at DELAY OF 10 MINUTES
        ) WITH (topic = 'orders', format = 'json', dead_letters = 'orders.dead');

        CREATE TABLE revenue PARTITIONED BY (day) WITH (path = 'lake/revenue') AS
            SELECT date(window.start) AS day, sum(amount) AS amount FROM orders GROUP BY window(at, '1 minute');
        """)
    assert pipeline.name == "shop"
    assert (pipeline.trigger.kind, pipeline.trigger.interval_ms) == (TriggerKind.EVERY, 5_000)
    assert (pipeline.checkpoint, pipeline.bootstrap_servers) == ("checkpoints/shop", "kafka:9092")
    assert pipeline.properties == {"security.protocol": "SSL"}
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "8"}
    [source] = pipeline.sources
    assert (source.topic, source.format, source.dead_letters) == ("orders", Format.JSON, "orders.dead")
    assert [(one.name, one.type, one.nullable) for one in source.columns] == [
        ("id", "STRING", False), ("amount", "DECIMAL(10, 2)", True), ("at", "TIMESTAMP", True),
    ]  # fmt: skip
    assert source.watermark is not None
    assert (source.watermark.column, source.watermark.delay) == ("at", "10 MINUTES")
    [sink] = pipeline.sinks
    assert (sink.kind, sink.path, sink.partition_by, sink.input) == (
        SinkKind.TABLE, "lake/revenue", ("day",), "revenue",
    )  # fmt: skip
    [query] = pipeline.transformations
    assert isinstance(query.query, Sql)
    assert query.query.text.startswith("SELECT date(window.start)")
    assert query.query.place == Place(15, 13)
    assert query.inputs == ("orders",)


def test_what_is_not_said_has_a_default() -> None:
    pipeline = parse(ORDERS + "CREATE STREAM big AS SELECT * FROM orders WHERE amount > 10")
    [source] = pipeline.sources
    [sink] = pipeline.sinks
    assert pipeline.checkpoint == "checkpoints/shop"
    assert pipeline.trigger.kind is TriggerKind.CONTINUOUS
    assert (source.starting, source.records_per_trigger) == ("earliest", RECORDS_PER_TRIGGER)
    assert (source.unparsed, source.nulls) == (Unparsed.FAIL, Nulls.DEAD_LETTER)
    assert (sink.kind, sink.topic, sink.mode, sink.delivery) == (
        SinkKind.TOPIC, "big", OutputMode.APPEND, Delivery.EXACTLY_ONCE,
    )  # fmt: skip


def test_columns_may_come_from_the_key_and_from_the_record() -> None:
    [source] = parse("""
        CREATE STREAM orders (
            id STRING KEY, `the amount` DOUBLE, arrived TIMESTAMP METADATA FROM 'timestamp', partition INT METADATA,
            tags MAP<STRING, ARRAY<STRUCT<a: INT, b: DECIMAL(4,2)>>> COMMENT 'nested'
        ) WITH (topic = 'orders');
        CREATE TABLE t WITH (path = 't') AS SELECT * FROM orders""").sources
    assert [(one.name, one.role, one.metadata) for one in source.columns] == [
        ("id", Role.KEY, ""),
        ("the amount", Role.VALUE, ""),
        ("arrived", Role.METADATA, "timestamp"),
        ("partition", Role.METADATA, "partition"),
        ("tags", Role.VALUE, ""),
    ]
    assert source.columns[-1].type == "MAP<STRING, ARRAY<STRUCT<a: INT, b: DECIMAL(4,2)>>>"


@pytest.mark.parametrize("delay", ["10 MINUTES", "INTERVAL 10 MINUTES", "'10 minutes'", "INTERVAL '10' MINUTES"])
def test_a_watermark_is_written_as_an_interval(delay: str) -> None:
    [source] = parse(f"CREATE STREAM s (at TIMESTAMP, WATERMARK FOR at DELAY OF {delay}) WITH (topic = 't')").sources
    assert source.watermark is not None
    assert source.watermark.delay.lower() == "10 minutes"


def test_insert_into_writes_to_what_was_declared() -> None:
    pipeline = parse(
        ORDERS
        + """
        CREATE STREAM big (id STRING KEY, amount DOUBLE) WITH (topic = 'big', delivery = 'at-least-once');
        CREATE TABLE kept (id STRING, amount DOUBLE) WITH (path = 'lake/kept');
        INSERT INTO big SELECT id, amount FROM orders WHERE amount > 10;
        INSERT INTO big WITH (name = 'small') SELECT id, amount FROM orders WHERE amount < 1;
        INSERT INTO kept SELECT id, amount FROM orders;
        """
    )
    assert [source.name for source in pipeline.sources] == ["orders"]
    assert pipeline.references == ()
    big, small, kept = pipeline.sinks
    assert (big.name, big.topic, big.key, big.delivery) == ("big", "big", ("id",), Delivery.AT_LEAST_ONCE)
    assert (small.name, small.topic) == ("small", "big")
    assert (kept.kind, kept.path) == (SinkKind.TABLE, "lake/kept")
    assert [column.name for column in kept.columns] == ["id", "amount"]
    assert [one.name for one in pipeline.transformations] == ["big__rows", "small__rows", "kept__rows"]


def test_a_stream_that_is_written_and_read_is_both() -> None:
    pipeline = parse(
        ORDERS
        + """
        CREATE STREAM big (id STRING) WITH (topic = 'big', starting = 'latest');
        INSERT INTO big SELECT id FROM orders;
        CREATE TABLE t WITH (path = 't') AS SELECT * FROM big;
        """
    )
    assert [source.name for source in pipeline.sources] == ["orders", "big"]
    assert [sink.name for sink in pipeline.sinks] == ["big", "t"]


def test_a_table_without_a_query_is_there_to_be_joined_with() -> None:
    pipeline = parse(
        ORDERS
        + """
        CREATE TABLE products WITH (path = 'products.csv', format = 'csv', option.header = 'true');
        CREATE VIEW named AS SELECT * FROM orders JOIN products USING (id);
        CREATE TABLE t WITH (sink = 'console', rows = 5) AS SELECT * FROM named;
        """
    )
    [products] = pipeline.references
    assert (products.path, products.format, products.options) == ("products.csv", "csv", {"header": "true"})
    assert [one.inputs for one in pipeline.transformations] == [("orders", "products"), ("named",)]
    [sink] = pipeline.sinks
    assert (sink.kind, sink.options) == (SinkKind.CONSOLE, {"rows": "5"})


def test_a_table_in_a_topic_is_its_changes() -> None:
    [sink] = parse(ORDERS + "CREATE TABLE counts WITH (topic = 'c', key = 'id') AS SELECT id FROM orders").sinks
    assert (sink.kind, sink.mode, sink.key) == (SinkKind.TOPIC, OutputMode.UPDATE, ("id",))


def test_settings_for_all_are_overruled_by_one() -> None:
    pipeline = parse("""
        SET delivery = 'at-least-once'; SET records_per_trigger = 10; SET lake = 'lake/';
        CREATE STREAM a (x INT) WITH (topic = 'a');
        CREATE STREAM b (x INT) WITH (topic = 'b', records_per_trigger = 20, delivery = 'exactly-once');
        CREATE STREAM c WITH (delivery = 'exactly-once') AS SELECT * FROM a;
        CREATE TABLE d AS SELECT * FROM b;
        """)
    assert [source.records_per_trigger for source in pipeline.sources] == [10, 20]
    assert [source.delivery for source in pipeline.sources] == [Delivery.AT_LEAST_ONCE, Delivery.EXACTLY_ONCE]
    assert pipeline.sinks[0].delivery is Delivery.EXACTLY_ONCE
    assert pipeline.sinks[1].path == "lake/d"


def test_the_command_line_comes_before_the_file() -> None:
    pipeline = parse(
        "SET trigger = 'once'; SET bootstrap.servers = 'a:1'; " + ORDERS,
        trigger="every 2 minutes",
        bootstrap__servers="b:2",
        spark__ui__enabled="false",
    )
    assert pipeline.trigger.interval_ms == 120_000
    assert pipeline.bootstrap_servers == "b:2"
    assert pipeline.spark == {"spark.ui.enabled": "false"}


def test_variables_stand_for_what_the_command_line_or_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "s3://lake")
    text = """
        CREATE STREAM s (x INT) WITH (topic = '${TOPIC}', starting = '${FROM:-latest}');
        CREATE TABLE t WITH (path = '${LAKE}/t') AS SELECT * FROM s WHERE x > ${MIN:-10}
        """
    pipeline = parse(text, TOPIC="orders")
    [query] = pipeline.transformations
    assert isinstance(query.query, Sql)
    assert query.query.text == "SELECT * FROM s WHERE x > 10"
    assert (pipeline.sources[0].topic, pipeline.sources[0].starting) == ("orders", "latest")
    assert pipeline.sinks[0].path == "s3://lake/t"
    found = problems(text)[0]
    assert found.message == "nothing says what ${TOPIC} is"
    assert "--set TOPIC=" in found.fix
    assert found.place == Place(2, 47)


def test_comments_and_strings_do_not_end_a_statement() -> None:
    pipeline = parse(
        ORDERS
        + """/* a ; b */ CREATE TABLE t WITH (path = 't') AS -- ; c
        SELECT ';' AS a, "it's" AS b, 'it''s; ' AS c, `id` FROM orders;"""
    )
    [query] = pipeline.transformations
    assert isinstance(query.query, Sql)
    assert query.query.text == """SELECT ';' AS a, "it's" AS b, 'it''s; ' AS c, `id` FROM orders"""


def test_a_common_table_expression_is_a_query() -> None:
    pipeline = parse(
        ORDERS
        + """CREATE TABLE t (id STRING) WITH (path = 't');
        INSERT INTO t WITH big AS (SELECT * FROM orders) SELECT id FROM big"""
    )
    assert pipeline.transformations[0].inputs == ("orders",)


def test_an_avro_schema_may_be_a_file_beside_the_pipeline(tmp_path: Path) -> None:
    schema = '{"type": "record", "name": "o", "fields": [{"name": "id", "type": "string"}]}'
    (tmp_path / "order.avsc").write_text(schema)
    text = "CREATE STREAM s WITH (topic = 's', format = 'avro', schema = 'order.avsc')"
    assert parse_sql(text, name="p", path=tmp_path / "p.sql").sources[0].avro_schema == schema
    with pytest.raises(PipelineError, match="cannot read the schema"):
        parse_sql(text.replace("order.avsc", "gone.avsc"), name="p", path=tmp_path / "p.sql")


@pytest.mark.parametrize(
    ("text", "message", "fix", "place"),
    [
        ("CRAETE STREAM x", "CRAETE begins no statement of a pipeline; did you mean CREATE?", "CREATE STREAM", (1, 1)),
        ("SELECT 1", "a query alone goes nowhere", "CREATE TABLE name AS", (1, 1)),
        ("{'json': 1}", "{ begins no statement of a pipeline", "CREATE STREAM", (1, 1)),
        ("", "this file has no statements", "penstock pipeline init", (0, 1)),
        ("-- only a comment", "this file has no statements", "penstock pipeline init", (0, 1)),
        ("SET triger = 'once'", "there is no setting triger; did you mean trigger?", "SET takes", (1, 5)),
        ("SET trigger = 'daily'", "'daily' is no trigger", "every 5 seconds", (1, 15)),
        ("SET trigger = every 5 seconds", "a value of more than one word is text", "quotes", (1, 15)),
        ("SET trigger 'once'", "expected =, found 'once'", "SET trigger = 'value'", (1, 13)),
        ("SET delivery = 'never'", "delivery cannot be 'never'", "at-least-once", (1, 16)),
        ("CREATE OR REPLACE TABLE t AS SELECT 1", "CREATE OR has no meaning here", "CREATE STREAM", (1, 8)),
        ("CREATE STRAEM t", "expected STREAM or TABLE or VIEW, found STRAEM", "CREATE STREAM", (1, 8)),
        ("CREATE STREAM a.b (x INT)", "names have no dots here", "one word", (1, 16)),
        ("CREATE STREAM a (x INT,\n  y) WITH (topic = 'a')", "column y has no type", "y STRING", (2, 4)),
        ("CREATE STREAM a (x INT y INT)", "expected a comma, found y", "separate", (1, 24)),
        ("CREATE STREAM a (x ARRAY<INT> y INT)", "expected a comma, found y", "separate", (1, 31)),
        ("CREATE STREAM a (x INT", "expected ), found the end of the file", "close", (1, 23)),
        ("CREATE STREAM a (x 'INT", "this quote is not closed", "close the quote", (1, 20)),
        ("/* CREATE", "this comment is not closed", "close the comment", (1, 1)),
        ("CREATE STREAM a (x INT) WITH (topci = 'a')", "no option topci; did you mean topic?", "topic", (1, 31)),
        ("CREATE STREAM a (x INT) WITH (subscribe = 'a')", "no option subscribe; use topic", "topic", (1, 31)),
        ("CREATE STREAM a (x INT) WITH (maxOffsetsPerTrigger = 5)", "use records_per_trigger", "", (1, 31)),
        ("CREATE STREAM a (x INT) WITH (failondataloss = 'false')", "use failOnDataLoss", "", (1, 31)),
        ("CREATE STREAM a (x INT) WITH (kafka.bootstrap.servers = 'a')", "use SET bootstrap.servers", "", (1, 31)),
        ("CREATE STREAM a (x INT) WITH (path = 'a')", "path belongs to a table", "leave path out", (1, 31)),
        ("CREATE STREAM a (x INT) WITH (format = 'jsn')", "format cannot be 'jsn'; did you mean json?", "", (1, 40)),
        ("CREATE STREAM a (x INT) WITH (topic = '')", "topic is empty", "", (1, 39)),
        ("CREATE STREAM a (x INT) WITH (records_per_trigger = 0)", "cannot be '0'", "above 0", (1, 53)),
        ("CREATE STREAM a (x INT) WITH (topic = 'a', topic = 'b')", "topic is given twice", "leave out", (1, 44)),
        ("CREATE STREAM a (x INT) WITH (topic = 'a', pattern = 'b')", "exclude each other", "leave out", (1, 44)),
        ("CREATE STREAM a (x INT METADATA FROM 'ofset')", "no 'ofset'; did you mean offset?", "timestamp", (1, 38)),
        ("CREATE STREAM a (x INT, WATERMARK x 5)", "expected FOR", "WATERMARK FOR column DELAY OF", (1, 35)),
        ("CREATE STREAM a (t TIMESTAMP, WATERMARK FOR t DELAY OF)", "needs a delay", "10 MINUTES", (1, 55)),
        ("CREATE TABLE t AS", "expected a query, found the end", "SELECT", (1, 18)),
        ("CREATE TABLE t AS SELEKT 1", "expected a query, found SELEKT", "SELECT", (1, 19)),
        ("CREATE TABLE t WITH (path = 't') SELECT 1", "expected AS, found SELECT", "AS and a query", (1, 34)),
        ("CREATE TABLE t (x INT) WITH (path = 't') AS SELECT 1", "a query has its own columns", "INSERT", (1, 14)),
        ("CREATE TABLE t AS SELECT 1", "nothing says where table t is", "path = 'lake/t'", (1, 14)),
        ("CREATE TABLE t", "neither a path nor a query", "path", (1, 14)),
        ("CREATE TABLE t WITH (path = 't', mode = 'apend') AS SELECT 1", "mode cannot be 'apend'", "", (1, 41)),
        ("CREATE TABLE t WITH (path = 't', headers = 'x') AS SELECT 1", "headers belongs to a topic", "", (1, 34)),
        ("CREATE VIEW v WITH (topic = 't') AS SELECT 1", "a view is written nowhere", "CREATE STREAM", (1, 13)),
        ("CREATE VIEW v", "a view needs a query", "AS SELECT", (1, 13)),
        ("INSERT INTO t SELECT 1", "t is not created in this file", "CREATE TABLE t", (1, 13)),
        ("INSERT OVERWRITE t SELECT 1", "a stream overwrites nothing", "complete", (1, 8)),
        ("INSERT INTO t (a, b) SELECT 1", "columns go by their names here", "leave out the list", (1, 15)),
        ("CREATE TABLE t PARTITIONED BY (x) WITH (partition_by = 'y') AS SELECT 1", "partition_by is given twice",
         "leave out", (1, 41)),
        ("CREATE TABLE t WITH (path = 'a') WITH (path = 'b') AS SELECT 1", "path is given twice", "leave", (1, 40)),
        ("SET trigger = 'once';\nSET trigger = 'once'", "trigger is set twice, first in line 1", "leave", (2, 5)),
        ("CREATE STREAM a (x INT) WITH (records_per_trigger = '²')", "cannot be '²'", "whole number", (1, 53)),
        ("SET records_per_trigger = '²';\nCREATE STREAM a (x INT)", "cannot be '²'", "whole number", (1, 27)),
        ("CREATE STREAM a (x INT) WITH (records_per_trigger = 9999999999)", "cannot be '9999", "up to", (1, 53)),
        ("CREATE STREAM a (x INT) WITH (pattern = 'a\\.b')", "\\. stands for nothing", "write \\\\.", (1, 41)),
        (ORDERS + "CREATE TABLE t (id STRING) WITH (path = 't'); INSERT INTO t SELECT id FROM orders;\n"
         "CREATE VIEW v AS SELECT id FROM t", "t is written by this file", "CREATE VIEW", (3, 33)),
        (ORDERS + "CREATE VIEW ORDERS AS SELECT 1", "ORDERS is created twice, first in line 1", "another", (2, 13)),
        (ORDERS + "CREATE VIEW v AS SELECT 1; INSERT INTO v SELECT 1", "v is a view", "CREATE STREAM v", (2, 40)),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place_and_a_fix(
    text: str, message: str, fix: str, place: tuple[int, int]
) -> None:
    found = problems(text)[0]
    assert message in found.message
    assert fix in found.fix
    assert found.place == place


def test_a_column_is_no_relation_whatever_it_is_called() -> None:
    pipeline = parse(
        ORDERS
        + """SET lake = 'lake';
        CREATE TABLE amount AS SELECT id, amount FROM orders;
        CREATE TABLE b AS SELECT id, later FROM (SELECT id, amount AS later FROM orders);
        CREATE VIEW later AS SELECT id, amount AS revenue FROM orders;
        CREATE STREAM revenue (id STRING, revenue DOUBLE) WITH (topic = 'revenue');
        INSERT INTO revenue SELECT id, revenue FROM later;"""
    )
    assert [source.name for source in pipeline.sources] == ["orders"]
    assert [one.inputs for one in pipeline.transformations] == [("orders",), ("orders",), ("orders",), ("later",)]


def test_a_name_that_a_variable_stands_for_is_read() -> None:
    [query] = parse(ORDERS + "CREATE TABLE t WITH (path = 't') AS SELECT * FROM ${S:-orders}").transformations
    assert query.inputs == ("orders",)


def test_a_comment_has_no_variables() -> None:
    text = ORDERS + "CREATE TABLE t WITH (path = 't') AS SELECT '-- ${A}' /* ${B} */ AS x -- ${C}\nFROM orders"
    [query] = parse(text, A="a").transformations
    assert isinstance(query.query, Sql)
    assert query.query.text == "SELECT '-- a' /* ${B} */ AS x -- ${C}\nFROM orders"
    assert variables_of(text) == ["A"]


def test_a_query_may_have_a_name_with_a_hyphen() -> None:
    pipeline = parse(
        ORDERS
        + """CREATE TABLE t (id STRING) WITH (path = 't');
        CREATE TABLE u WITH (path = 'u', name = 'u-query') AS SELECT id FROM orders;
        INSERT INTO t WITH (name = 'big-orders') SELECT id FROM orders;
        INSERT INTO t WITH (name = 'big_orders') SELECT id FROM orders;"""
    )
    assert [(sink.name, sink.input) for sink in pipeline.sinks] == [
        ("u-query", "u"), ("big-orders", "big_orders__rows"), ("big_orders", "big_orders__rows_"),
    ]  # fmt: skip
    assert check_declarations(pipeline) == []


def test_what_an_insert_says_comes_before_the_declaration() -> None:
    text = "CREATE TABLE t (id STRING) WITH (path = 'a');\nINSERT INTO t WITH (path = 'b') SELECT id FROM orders;"
    assert [sink.path for sink in parse(ORDERS + text).sinks] == ["b"]


def test_words_of_reading_are_refused_where_a_stream_is_only_written() -> None:
    text = "CREATE STREAM big (id STRING) WITH (topic = 'big', starting = 'latest');\n"
    found = problem(ORDERS + text + "INSERT INTO big SELECT id FROM orders;")
    assert "starting belongs to a stream that is read" in found.message
    assert found.place == (2, 52)


def test_a_second_query_into_the_same_target_needs_a_name() -> None:
    """Its place in the checkpoint goes by its name, and must not depend on the order of the file."""
    found = problem(
        ORDERS
        + """CREATE TABLE t (id STRING) WITH (path = 't');
        INSERT INTO t SELECT id FROM orders;
        INSERT INTO t SELECT id FROM orders;"""
    )
    assert found.message == "there is a query named t already"
    assert "WITH (name = 't_2')" in found.fix
    assert found.line == 4


def test_every_problem_of_a_file_is_told_at_once() -> None:
    text = "SET triger = 1;\nCREATE STREAM s (x INT) WITH (topci = 's');\nSELECT 1;\nCREATE TABLE t AS SELECT 1"
    assert [one.line for one in problems(text)] == [1, 2, 3, 4]


def test_a_file_that_is_data_is_not_read_as_a_pipeline() -> None:
    assert "does not look like a pipeline" in problem("x" * 1_000_001).message
