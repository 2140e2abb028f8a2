"""A cluster plan as one HTML page: tables and charts as inline SVG, no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from penstock.planning.catalogue import Catalogue
from penstock.planning.design import ClusterPlan, Variant
from penstock.planning.rules import sources
from penstock.planning.storage import amount

TOPICS_SHOWN_MAX: Final = 500
BAR_WIDTH: Final = 320
BAR_HEIGHT: Final = 18
ROW_HEIGHT: Final = 26
LABEL_WIDTH: Final = 260
VALUE_WIDTH: Final = 120

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #d5dae1; padding-bottom: .2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .3rem .6rem; }
tr + tr td { border-top: 1px solid #e6e9ee; } td.number, th.number { text-align: right; }
.headline { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 1rem; margin: 1.5rem 0; }
.headline div { border: 1px solid #d5dae1; border-radius: 6px; padding: .6rem .9rem; }
.headline strong { display: block; font-size: 1.5rem; } .muted { color: #5c6878; } svg text { font-size: 13px; }
.bar { fill: #4f7cac; } .bar.most { fill: #c8553d; }
@media (prefers-color-scheme: dark) { body { color: #e3e8ef; background: #14181f; } .muted { color: #98a4b5; }
  h2, .headline div { border-color: #343d4b; } tr + tr td { border-color: #2a323e; } svg text { fill: #e3e8ef; } }
"""


def html_report(plan: ClusterPlan, catalogue: Catalogue) -> str:
    """The whole page."""
    parts = [
        f"<h1>{escape(plan.name)}</h1>",
        '<p class="muted">A plan by <code>penstock plan cluster</code></p>',
        _headline(plan),
        "<h2>What decides the number of brokers</h2>",
        bars([(name, float(count), f"{count:,} brokers") for name, count in plan.constraints]),
        "<h2>One broker at peak</h2>",
        _table(("figure", "value"), _broker_rows(plan)),
        "<h2>Cost a month</h2>",
        bars(_cost_bars(plan)),
        "<h2>Alternatives</h2>",
        _variants(plan.alternatives),
        "<h2>What would change it</h2>",
        _variants(plan.sensitivity),
        "<h2>Topics</h2>",
        _topics(plan),
        "<h2>Why</h2>",
        _list(plan.reasons),
        "<h2>Notes</h2>",
        _list(plan.notes),
        "<h2>Sources</h2>",
        _list(f"{rule.name}: {rule.source}. {rule.formula}" for rule in sources(plan.rules)),
    ]
    if catalogue.replaced:
        own = (f"{name} = {catalogue.values[name].shown}" for name in sorted(catalogue.replaced))
        parts += ["<h2>Values of your own</h2>", _list(own)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(plan.name)}: cluster plan</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """A chart of bars: label, length and the text beside each. The longest has another colour."""
    longest = max((length for _, length, _ in rows), default=0.0)
    height = ROW_HEIGHT * len(rows)
    width = LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH
    drawn = []
    for number, (label, length, told) in enumerate(rows):
        top = number * ROW_HEIGHT
        size = BAR_WIDTH * length / longest if longest else 0.0
        style = "bar most" if length == longest and longest else "bar"
        drawn.append(
            f'<text x="{LABEL_WIDTH - 8}" y="{top + 14}" text-anchor="end">{escape(label)}</text>'
            f'<rect class="{style}" x="{LABEL_WIDTH}" y="{top}" width="{size:.1f}" height="{BAR_HEIGHT}" rx="2"/>'
            f'<text x="{LABEL_WIDTH + size + 8:.1f}" y="{top + 14}">{escape(told)}</text>'
        )
    return (
        f'<svg role="img" viewBox="0 0 {width} {height}" width="100%" fill="currentColor" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(drawn)}</svg>'
    )


def _headline(plan: ClusterPlan) -> str:
    cells = (
        ("brokers", f"{plan.brokers:,}", f"decided by {plan.binding}"),
        ("a month", f"${plan.cost.total:,.0f}", f"${plan.cost.per_million_messages:,.3f} per million messages"),
        ("at peak", f"{plan.peak_mb_s:,.0f} MB/s", f"{plan.peak_messages_per_s:,.0f} messages/s"),
        ("disk to buy", amount(plan.disk_bytes), f"{amount(plan.disk_bytes_per_broker)} per broker"),
        ("partitions", f"{plan.partitions:,}", f"{plan.replicas_per_broker:,.0f} replicas per broker"),
    )
    drawn = "".join(
        f'<div><span class="muted">{escape(name)}</span><strong>{escape(value)}</strong>{escape(more)}</div>'
        for name, value, more in cells
    )
    return f'<div class="headline">{drawn}</div>'


def _broker_rows(plan: ClusterPlan) -> list[tuple[str, str]]:
    return [
        ("network in", f"{plan.network_in_mb_s:,.1f} MB/s"),
        ("network out", f"{plan.network_out_mb_s:,.1f} MB/s"),
        ("disk writes", f"{plan.disk_write_mb_s:,.1f} MB/s"),
        ("utilisation", f"{plan.utilisation:.0%}"),
        ("utilisation after a failure", f"{plan.utilisation_degraded:.0%}"),
        ("page cache reaches back", f"{plan.page_cache_s:,.0f} s"),
        ("reads from disk", f"{plan.cold_share:.0%}"),
        ("time to rebuild it", f"{plan.rebuild_hours:,.1f} h"),
    ]


def _cost_bars(plan: ClusterPlan) -> list[tuple[str, float, str]]:
    cost = plan.cost
    rows = [
        ("brokers", cost.compute),
        ("storage", cost.storage),
        ("egress", cost.egress),
        ("between zones", cost.cross_zone),
        ("load balancers and monitoring", cost.load_balancers + cost.monitoring),
        ("people", cost.operations),
    ]
    return [(name, dollars, f"${dollars:,.0f}") for name, dollars in rows if dollars]


def _variants(variants: Sequence[Variant]) -> str:
    return _table(
        ("change", "brokers", "a month", "difference", "then decided by"),
        [
            (one.name, f"{one.brokers:,}", f"${one.cost:,.0f}", f"{one.cost_more:+,.0f}", one.binding)
            for one in variants
        ],
        numbers=(1, 2, 3),
    )


def _topics(plan: ClusterPlan) -> str:
    largest = sorted(plan.topics, key=lambda topic: (-topic.stored_bytes, topic.name))[:TOPICS_SHOWN_MAX]
    table = _table(
        ("topic", "how many", "partitions each", "decided by", "copies", "peak", "stored"),
        [
            (
                topic.name,
                f"{topic.count:,}",
                f"{topic.partitions:,}",
                topic.decided_by,
                str(topic.replication_factor),
                f"{topic.peak_mb_s:,.1f} MB/s",
                amount(topic.stored_bytes),
            )
            for topic in largest
        ],
        numbers=(1, 2, 4, 5, 6),
    )
    left = len(plan.topics) - len(largest)
    return table + (f"<p>{left:,} smaller topics are not shown.</p>" if left else "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        number = f'<{tag} class="number">'
        return "".join(
            f"{number if place in numbers else f'<{tag}>'}{escape(text)}</{tag}>" for place, text in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
