"""The lineage of a pipeline, as a tree and as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

from penstock.pipeline.graph import graph_of, svg_of, tree_lines
from penstock.pipeline.sql_file import parse_sql

SHOP = """
SET lake = 'lake';
CREATE STREAM orders (id STRING, product STRING) WITH (topic = 'orders', dead_letters = 'orders.dead');
CREATE STREAM seen (id STRING) WITH (topic = 'clicks <b>');
CREATE TABLE products (product STRING) WITH (path = 'lake/products');
CREATE VIEW named AS SELECT * FROM orders JOIN products USING (product);
CREATE TABLE kept AS SELECT * FROM named JOIN seen USING (id);
CREATE STREAM big WITH (topic = 'big-orders') AS SELECT * FROM named;
CREATE TABLE shown WITH (sink = 'console') AS SELECT * FROM seen;
"""


def test_the_tree_shows_every_way_of_the_rows() -> None:
    assert list(tree_lines(graph_of(parse_sql(SHOP, name="shop")))) == [
        "topic orders",
        "├─ view named",
        "│  ├─ query kept",
        "│  │  └─ table lake/kept",
        "│  └─ query big",
        "│     └─ topic big-orders",
        "└─ topic orders.dead, dead letters of orders",
        "topic clicks <b>, read as seen",
        "├─ query kept (drawn above)",
        "└─ query shown",
        "   └─ console",
        "table lake/products, joined as products",
        "└─ view named (drawn above)",
    ]


def test_the_picture_has_a_box_for_each_node_and_an_arrow_for_each_edge() -> None:
    graph = graph_of(parse_sql(SHOP, name="shop"))
    picture = ElementTree.fromstring(svg_of(graph, "shop"))
    of = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{of}rect")) == len(graph.nodes) == 11
    assert len(picture.findall(f"{of}path")) == len(graph.edges) == 10
    lefts = [float(box.attrib["x"]) for box in picture.findall(f"{of}rect")]
    assert all(lefts[start] < lefts[to] for start, to in graph.edges), "from left to right"
    assert "clicks <b>" in {text.text for text in picture.findall(f"{of}text")}
