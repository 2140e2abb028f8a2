"""The HTML report of a plan."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from penstock.planning.catalogue import Catalogue
from penstock.planning.design import plan_cluster
from penstock.planning.report import bars, html_report
from penstock.planning.spec import read_spec

EXAMPLE = (Path(__file__).resolve().parents[2] / "examples" / "cluster.toml").read_text(encoding="utf-8")


class Tags(HTMLParser):
    """Collects open tags and fails on one that is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(name: str = "shop") -> str:
    spec, catalogue = read_spec(EXAMPLE, Catalogue())
    return html_report(plan_cluster(catalogue, replace(spec, name=name)), catalogue)


def test_the_page_is_whole_and_loads_nothing() -> None:
    tags = Tags()
    tags.feed(page())
    assert tags.open == []
    assert {"svg", "table", "style"} <= tags.seen
    assert not tags.seen & {"script", "link", "img", "iframe"}
    assert re.findall(r"(?:src|href)=|url\(|@import", page()) == []


def test_the_page_has_the_answer_and_its_reasons() -> None:
    text = page()
    for part in ("54</strong>", "decided by disk space", "twice the retention", "orders", "002, Broker Scaling"):
        assert part in text


def test_names_from_a_spec_cannot_become_markup() -> None:
    assert "<script>" not in page("<script>alert(1)</script>")
    assert "&lt;script&gt;" in page("<script>alert(1)</script>")


def test_bars_are_as_long_as_their_numbers() -> None:
    drawn = ElementTree.fromstring(bars([("a", 1, "one"), ("b <", 4, "four"), ("c", 0, "none")]))
    widths = [float(one.attrib["width"]) for one in drawn if one.tag.endswith("rect")]
    assert widths == [80, 320, 0]
    assert bars([("a", 0, "none")]).count("most") == 0
