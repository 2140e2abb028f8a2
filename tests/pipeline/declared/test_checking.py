"""What is found before a pipeline runs, without Spark and without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.pipeline.checking import check_checkpoint, check_cluster, check_declarations, validate
from penstock.pipeline.checkpoints import LocalDirectory, held, local_path, query_location
from penstock.pipeline.identity import FILE_NAME, Identity, identity_of, merged
from penstock.pipeline.model import Pipeline, PipelineError, Problem
from penstock.pipeline.planning import source_options
from penstock.pipeline.sql_file import parse_sql

ORDERS = "CREATE STREAM orders (id STRING, at TIMESTAMP) WITH (topic = 'orders');\n"
KEPT = "CREATE TABLE kept WITH (path = 'lake/kept') AS SELECT * FROM orders;\n"


def parse(text: str, checkpoint: Path | str = "checkpoints/p", name: str = "shop") -> Pipeline:
    return parse_sql(f"SET checkpoint = '{checkpoint}';\n{text}", name=name)


def problem(text: str) -> Problem:
    [only] = check_declarations(parse(text))
    return only


def test_nothing_is_wrong_with_a_right_one() -> None:
    assert check_declarations(parse(ORDERS + KEPT)) == []


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        (ORDERS, "the pipeline shop writes nothing", 0),
        ("CREATE TABLE t WITH (path = 't') AS SELECT 1", "the pipeline shop reads nothing", 0),
        ("CREATE STREAM s WITH (topic = 's');\n" + KEPT, "stream s says nothing about its columns", 2),
        ("CREATE STREAM s (x INT) WITH (topic = 'no topic');\n" + KEPT, "'no topic' is no name for a topic", 2),
        ("CREATE STREAM s (x INT, X INT) WITH (topic = 's');\n" + KEPT, "s has two columns X", 2),
        ("CREATE STREAM s (x INT KEY) WITH (topic = 's', format = 'bytes');\n" + KEPT, "x cannot be INT", 2),
        ("CREATE STREAM s (x INT, p STRING METADATA FROM 'partition') WITH (topic = 's');\n" + KEPT, "is INT, not", 2),
        ("CREATE STREAM s (x INT) WITH (topic = 's', format = 'text');\n" + KEPT, "one column of STRING", 2),
        ("CREATE STREAM s WITH (topic = 's', format = 'avro');\n" + KEPT, "is Avro and has no schema", 2),
        ("CREATE STREAM s (x INT) WITH (topic = 's', schema = '{}');\n" + KEPT, "belongs to format = 'avro'", 2),
        ("CREATE STREAM s (x INT, WATERMARK FOR y DELAY OF 1 DAY);\n" + KEPT, "for y, which is no column of s", 2),
        ("CREATE STREAM s (x INT, WATERMARK FOR x DELAY OF 1 DAY);\n" + KEPT, "is INT and not TIMESTAMP", 2),
        ("CREATE STREAM s (x INT) WITH (topic = 's', dead_letters = 's');\n" + KEPT, "its own dead letters", 2),
        ("CREATE STREAM s WITH (topic = 's', format = 'bytes', dead_letters = 'd');\n" + KEPT, "parses as bytes", 2),
        ("CREATE STREAM s (x INT) WITH (topic = 's', starting = 'yesterday');\n" + KEPT, "starting: 'yesterday'", 2),
        ("CREATE STREAM s (x INT) WITH (topic = 's', starting = '{5');\n" + KEPT, "offsets are not JSON", 2),
        ("CREATE STREAM s (x INT) WITH (topic = 's', ending = 'soon');\n" + KEPT, "'soon' is no timestamp", 2),
        (ORDERS + "CREATE STREAM o WITH (topic = 'orders') AS SELECT * FROM orders", "would read what it writes", 3),
        ("CREATE STREAM s (x INT) WITH (topic = 's', starting = '99999999999999999999');\n" + KEPT, "no timestamp", 2),
        ("CREATE STREAM s (x INT) WITH (topic = 's', starting = '²');\n" + KEPT, "no timestamp", 2),
        ("CREATE STREAM s (x INT) WITH (topic = 's', ending = '2026-01-01T00:00:00Z');\n" + KEPT, "no run ends", 2),
        (ORDERS + "CREATE TABLE t WITH (path = 't') AS SELECT *\nFROM v;\nCREATE VIEW v AS SELECT * FROM orders",
         "t reads v, which is defined after it, in line 5", 4),
        (ORDERS + "CREATE TABLE t WITH (path = 't') AS SELECT * FROM t", "t reads itself", 3),
        ("CREATE STREAM s (x INT) WITH (pattern = 'a(');\n" + KEPT, "'a(' is no regular expression", 2),
        ("CREATE STREAM a (x INT) WITH (pattern = 'shop.*');\nCREATE STREAM b WITH (topic = 'shop.b') AS "
         "SELECT * FROM a", "b would read what it writes: shop.b", 3),
        ("CREATE STREAM a (x INT);\nCREATE STREAM b (x INT);\nINSERT INTO b SELECT * FROM a;\n"
         "INSERT INTO a SELECT * FROM b", "a would read what it writes: a", 5),
        ("CREATE STREAM a (x INT) WITH (dead_letters = 'b');\nCREATE STREAM b (x INT) WITH (dead_letters = 'a');\n"
         "CREATE TABLE t WITH (path = 't') AS SELECT * FROM a JOIN b", "b would read its own dead letters", 3),
        (ORDERS + "CREATE TABLE t WITH (path = 't', mode = 'update') AS SELECT * FROM orders", "needs a key", 3),
        (ORDERS + "CREATE TABLE t WITH (path = 't', key = 'id') AS SELECT * FROM orders", "no use for a key", 3),
        (ORDERS + "CREATE TABLE t WITH (path = 't', mode = 'complete') AS SELECT * FROM orders", "as fast as it", 3),
        (ORDERS + "CREATE STREAM a WITH (format = 'avro') AS SELECT * FROM orders", "writes Avro and has no", 3),
        ("SET pipeline = '/';\n" + ORDERS + KEPT, "'/' is no name for a pipeline", 2),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(text: str, message: str, line: int) -> None:
    found = problem(text)
    assert message in found.message
    assert found.line == line
    assert found.fix


def test_reading_its_own_topic_through_a_view_is_found() -> None:
    found = problem(ORDERS + "CREATE VIEW v AS SELECT * FROM orders; CREATE STREAM orders2 WITH (topic = 'orders') "
                    "AS SELECT * FROM v")  # fmt: skip
    assert "would read what it writes" in found.message


def test_dead_letters_that_are_repaired_and_sent_back_are_no_loop() -> None:
    text = """
        CREATE STREAM a (id STRING) WITH (topic = 'a', dead_letters = 'a.dead');
        CREATE STREAM dead WITH (topic = 'a.dead', format = 'text');
        CREATE TABLE t WITH (path = 't') AS SELECT * FROM a;
        CREATE STREAM repaired WITH (topic = 'a', format = 'text') AS SELECT trim(value) AS value FROM dead;
        """
    assert check_declarations(parse(text)) == []


def test_a_cluster_that_cannot_be_reached_is_named_with_a_fix() -> None:
    text = "SET kafka.default.api.timeout.ms = 300; SET bootstrap.servers = '127.0.0.1:1';\n"
    [found] = check_cluster(parse(text + ORDERS + KEPT))
    assert found.message.count("cannot reach a Kafka cluster at 127.0.0.1:1") == 1
    assert "penstock up" in found.fix
    assert found.line == 2


def test_pipelines_read_what_is_committed_unless_they_say_otherwise() -> None:
    def isolation(text: str) -> str:
        pipeline = parse(text + KEPT)
        return source_options(pipeline, pipeline.sources[0], "earliest")["kafka.isolation.level"]

    assert isolation(ORDERS) == "read_committed"
    assert isolation("SET kafka.isolation.level = 'read_uncommitted';\n" + ORDERS) == "read_uncommitted"
    own = ORDERS.replace("'orders')", "'orders', kafka.isolation.level = 'read_uncommitted')")
    assert isolation(own) == "read_uncommitted"


def test_client_settings_that_are_wrong_are_named() -> None:
    [found] = check_cluster(parse("SET kafka.security.protocol = 'TLS';\n" + ORDERS + KEPT))
    assert "security.protocol: TLS is not one of" in found.message


class TestCheckpoint:
    def test_a_new_one_is_anybodys(self, tmp_path: Path) -> None:
        assert check_checkpoint(parse(ORDERS + KEPT, tmp_path / "new"), None) == []
        tmp_path.joinpath("empty").mkdir()
        assert check_checkpoint(parse(ORDERS + KEPT, tmp_path / "empty"), None) == []

    def test_what_a_crash_left_of_our_own_files_is_nothing(self, tmp_path: Path) -> None:
        for name in ("penstock.lock", "penstock-status.json", ".penstock-status.json.4711"):
            (tmp_path / name).write_text("")
        assert check_checkpoint(parse(ORDERS + KEPT, tmp_path), None) == []

    def test_a_directory_of_something_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("all of it")
        [found] = check_checkpoint(parse(ORDERS + KEPT, tmp_path), None)
        assert "is not empty and is no checkpoint" in found.message
        assert found.line == 1

    def test_that_of_another_pipeline_is_refused(self, tmp_path: Path) -> None:
        self.claim(parse(ORDERS + KEPT, tmp_path, name="other"), tmp_path)
        [found] = check_checkpoint(parse(ORDERS + KEPT, tmp_path), None)
        assert "belongs to the pipeline other, not to shop" in found.message
        assert "SET pipeline = 'other'" in found.fix

    def test_its_own_is_fine_also_when_queries_were_added(self, tmp_path: Path) -> None:
        self.claim(parse(ORDERS + KEPT, tmp_path), tmp_path)
        more = "CREATE TABLE more WITH (path = 'm') AS SELECT * FROM orders;\n"
        assert check_checkpoint(parse(ORDERS + KEPT + more, tmp_path), None) == []

    def test_a_query_that_reads_another_topic_is_refused(self, tmp_path: Path) -> None:
        self.claim(parse(ORDERS + KEPT, tmp_path), tmp_path)
        [found] = check_checkpoint(parse(ORDERS.replace("'orders'", "'orders2'") + KEPT, tmp_path), None)
        assert "query kept read orders and now reads orders2" in found.message
        assert found.line == 3

    def test_a_query_that_writes_elsewhere_is_refused(self, tmp_path: Path) -> None:
        self.claim(parse(ORDERS + KEPT, tmp_path), tmp_path)
        [found] = check_checkpoint(parse(ORDERS + KEPT.replace("lake/kept", "lake/2"), tmp_path), None)
        assert "wrote to table lake/kept and now writes to table lake/2" in found.message

    def test_one_of_a_later_version_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / FILE_NAME).write_text(json.dumps({"format": 99}))
        [found] = check_checkpoint(parse(ORDERS + KEPT, tmp_path), None)
        assert "its format is not 1" in found.message

    @pytest.mark.parametrize("text", ["", "{", '{"format": 1}', "[]", '{"format": 1, "queries": 5}'])
    def test_one_that_is_damaged_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / FILE_NAME).write_text(text)
        [found] = check_checkpoint(parse(ORDERS + KEPT, tmp_path), None)
        assert "cannot be read" in found.message

    def test_a_file_instead_of_a_directory_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        [found] = check_checkpoint(parse(ORDERS + KEPT, tmp_path / "file"), None)
        assert "cannot read the checkpoint" in found.message

    def test_a_second_run_is_kept_away(self, tmp_path: Path) -> None:
        pipeline = parse(ORDERS + KEPT, tmp_path / "cp")
        with held(pipeline), pytest.raises(PipelineError, match="runs already"), held(pipeline):
            pass
        with held(pipeline):
            pass

    @staticmethod
    def claim(pipeline: Pipeline, directory: Path) -> None:
        LocalDirectory(directory).write(FILE_NAME, identity_of(pipeline).to_json())


def test_an_identity_survives_its_file() -> None:
    identity = identity_of(parse(ORDERS.replace("')", "', dead_letters = 'd')") + KEPT))
    assert Identity.from_json(identity.to_json()) == identity
    assert list(identity.queries) == ["kept", "orders.dead_letters"]


def test_dead_letters_of_a_stream_that_nothing_reads_are_not_written() -> None:
    unread = "CREATE STREAM u (x INT) WITH (topic = 'u', dead_letters = 'd');\n"
    assert list(identity_of(parse(ORDERS + unread + KEPT)).queries) == ["kept"]


def test_queries_that_are_gone_keep_their_place() -> None:
    old = identity_of(parse(ORDERS + KEPT))
    new = identity_of(parse(ORDERS + KEPT.replace("kept", "other")))
    both = merged(old, new)
    assert (both.id, list(both.queries)) == (old.id, ["kept", "other"])


@pytest.mark.parametrize(
    ("checkpoint", "path"),
    [("a/b", "a/b"), ("/a/b", "/a/b"), ("file:///a/b%20c", "/a/b c"), ("s3://bucket/a", None), ("hdfs://n:1/a", None)],
)
def test_which_checkpoints_are_on_this_machine(checkpoint: str, path: str | None) -> None:
    assert local_path(checkpoint) == (Path(path) if path else None)


def test_each_query_has_a_place_of_its_own_in_the_checkpoint() -> None:
    assert query_location("s3://bucket/cp/", "revenue") == "s3://bucket/cp/queries/revenue"


def test_validate_tells_problems_in_the_order_of_the_file() -> None:
    text = "CREATE STREAM s (x INT, x INT) WITH (topic = 's', starting = 'then');\n" + KEPT
    assert [one.line for one in validate(parse(text), cluster=False)] == [2, 2]
