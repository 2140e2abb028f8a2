"""Python pipeline files: the same model by calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipeline.checking import check_declarations
from penstock.pipeline.loading import load_pipeline
from penstock.pipeline.model import Delivery, Pipeline, PipelineError, Problem, SinkKind, Sql, TriggerKind
from penstock.pipeline.starters import PYTHON, SQL

HEAD = """\
from penstock.pipeline import define, variable
p = define("shop", checkpoint="cp", trigger="every 5 seconds", delivery="at-least-once")
"""
ORDERS = 'p.stream("orders", "id STRING NOT NULL, at TIMESTAMP", watermark="at 10 minutes", dead_letters="dead")\n'


def load(tmp_path: Path, text: str, **overrides: str) -> Pipeline:
    path = tmp_path / "shop.py"
    path.write_text(text)
    return load_pipeline(path, overrides={name.replace("__", "."): value for name, value in overrides.items()})


def problem(tmp_path: Path, text: str, **overrides: str) -> Problem:
    with pytest.raises(PipelineError) as failed:
        load(tmp_path, text, **overrides)
    [only] = failed.value.problems
    return only


def test_functions_are_given_what_their_parameters_name(tmp_path: Path) -> None:
    pipeline = load(
        tmp_path,
        HEAD
        + ORDERS
        + """
p.table("products", "lake/products")

@p.view
def named(orders, products):
    return orders.join(products, "id")

@p.to_table("lake/named", partition_by="day")
def kept(named):
    return named

@p.to_topic("big", key="id")
def big(named):
    return named

p.to_topic("small", name="small", query="SELECT * FROM named")
p.to_console(name="shown", query=lambda rows: rows, inputs=["named"])
""",
    )
    assert (pipeline.name, pipeline.checkpoint, pipeline.trigger.kind) == ("shop", "cp", TriggerKind.EVERY)
    [source] = pipeline.sources
    assert (source.topic, source.dead_letters, source.delivery) == ("orders", "dead", Delivery.AT_LEAST_ONCE)
    assert source.place.line == 3
    assert [one.path for one in pipeline.references] == ["lake/products"]
    assert [(one.name, one.inputs) for one in pipeline.transformations] == [
        ("named", ("orders", "products")),
        ("kept", ("named",)),
        ("big", ("named",)),
        ("small", ("named",)),
        ("shown", ("named",)),
    ]
    assert isinstance(pipeline.transformations[3].query, Sql)
    kept, big, small, shown = pipeline.sinks
    assert (kept.kind, kept.partition_by, kept.input) == (SinkKind.TABLE, ("day",), "kept")
    assert (big.topic, big.key, big.delivery) == ("big", ("id",), Delivery.AT_LEAST_ONCE)
    assert (small.name, shown.kind) == ("small", SinkKind.CONSOLE)
    # Python 3.11 counts a function's first line at its decorator.
    assert kept.place.line in (10, 11)


def test_both_starters_say_the_same(tmp_path: Path) -> None:
    found = []
    for template in (SQL, PYTHON):
        path = tmp_path / f"revenue{template.suffix}"
        path.write_text(template.text)
        found.append(load_pipeline(path))
    sql, python = found
    assert sql.name == python.name == "revenue"
    assert (sql.trigger, sql.checkpoint, sql.bootstrap_servers) == (
        python.trigger, python.checkpoint, python.bootstrap_servers,
    )  # fmt: skip
    assert [(one.name, one.type, one.nullable) for one in sql.sources[0].columns] == [
        (one.name, one.type, one.nullable) for one in python.sources[0].columns
    ]
    assert sql.sources[0].dead_letters == python.sources[0].dead_letters
    assert [(one.name, one.kind, one.path) for one in sql.sinks] == [
        (one.name, one.kind, one.path) for one in python.sinks
    ]


def test_settings_and_variables_come_from_the_command_line(tmp_path: Path) -> None:
    text = HEAD + 'p.stream("orders", "id STRING", topic=variable("TOPIC", "orders"))\n'
    assert load(tmp_path, text).sources[0].topic == "orders"
    pipeline = load(tmp_path, text, TOPIC="other", trigger="once", kafka__client__id="me", spark__x="1")
    assert pipeline.sources[0].topic == "other"
    assert pipeline.trigger.kind is TriggerKind.ONCE
    assert pipeline.properties == {"client.id": "me"}
    assert pipeline.spark == {"spark.x": "1"}
    assert "nothing says what the variable NAME is" in problem(tmp_path, text + 'variable("NAME")').message


def test_a_query_may_have_a_name_with_a_hyphen(tmp_path: Path) -> None:
    text = HEAD + 'p.stream("orders", "id STRING")\np.to_nothing(name="big-orders", query="SELECT * FROM orders")\n'
    pipeline = load(tmp_path, text)
    assert [(sink.name, sink.input) for sink in pipeline.sinks] == [("big-orders", "big_orders")]
    assert check_declarations(pipeline) == []


def test_names_that_are_there_twice_or_too_late_are_found(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
p.stream("orders", "id STRING")
@p.view
def a(b): return b
@p.view
def b(orders): return orders
p.sql("b", "SELECT * FROM orders")
p.to_nothing(name="c", query="SELECT * FROM a")
"""
    )
    messages = [one.message for one in check_declarations(load(tmp_path, text))]
    assert len(messages) == 2
    assert messages[0].startswith("b is defined twice")
    assert messages[1].startswith("a reads b, which is defined after it, in line")


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("x = 1\n", "this file defines no pipeline", 0),
        ("def f(:\n", "this is not Python", 1),
        ("import nothing_of_that_name\n", "ModuleNotFoundError", 1),
        ("x = 1\ny = x / 0\n", "ZeroDivisionError: division by zero", 2),
        ("import sys; sys.exit()\n", "ends the program", 0),
        (HEAD + 'q = define("other")\n', "this file defines 2 pipelines: other, shop", 0),
        (HEAD + 'p.stream("s", "id STRING", format="jsn")\n', "format cannot be 'jsn'", 3),
        (HEAD + 'p.stream("s", "id")\n', "column id has no type", 3),
        (HEAD + 'p.stream("s", "t TIMESTAMP", watermark="t")\n', "'t' is no watermark", 3),
        (HEAD + 'p.to_table("x", query="SELECT 1")\n', "a sink with a query needs a name", 3),
        ('from penstock.pipeline import define\np = define("x", trigger="daily")\n', "'daily' is no trigger", 2),
        ("null\0byte", "this is not Python", 0),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, message: str, line: int) -> None:
    found = problem(tmp_path, text)
    assert message in found.message
    assert found.line == line


def test_functions_of_the_file_are_pickled_by_value(tmp_path: Path) -> None:
    """Spark's workers cannot import the file."""
    from penstock.pipeline.python_file import parse_python

    pipeline = parse_python(HEAD + "def double(x): return 2 * x\n@p.view\ndef v(orders): return double(21)\n",
                            path=tmp_path / "f.py")  # fmt: skip
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    query = pipeline.transformations[0].query
    copy = cloudpickle.loads(cloudpickle.dumps(query))
    assert copy.__globals__ is not query.__globals__
    assert copy(None) == 42
