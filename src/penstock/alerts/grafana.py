"""A Grafana dashboard from the same catalogue: one panel per metric, with the thresholds of its rules. Pure.

Import the file in Grafana and choose the Prometheus data source that scrapes `penstock monitor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.alerts.catalogue import RULES, Comparison, Rule, Severity
from penstock.alerts.prometheus import LABELS
from penstock.monitor.exposing import series_name
from penstock.monitor.samples import METRICS, Kind, Metric
from penstock.planning.catalogue import Catalogue

UNITS: Final = {
    "bytes": "bytes", "bytes/s": "Bps", "ms": "ms", "s": "s", "share": "percentunit", "records/s": "cps",
    "operations/s": "iops", "boolean": "bool",
}  # fmt: skip
ROWS: Final = (
    (Kind.CLUSTER, "Cluster"), (Kind.BROKER, "Brokers"), (Kind.TOPIC, "Topics"), (Kind.GROUP, "Consumer groups"),
    (Kind.PIPELINE, "Pipelines"),
)  # fmt: skip
WIDTH, HEIGHT, COLUMNS = 8, 7, 3
TOP: Final = 20
"""Topics and groups shown in one panel: the largest."""


def dashboard(catalogue: Catalogue | None = None, rules: Sequence[Rule] = RULES) -> dict[str, object]:
    values = catalogue or Catalogue()
    panels: list[dict[str, object]] = []
    y = 0
    for kind, title in ROWS:
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
             "gridPos": {"h": 1, "w": WIDTH * COLUMNS, "x": 0, "y": y}}
        )  # fmt: skip
        y += 1
        for number, metric in enumerate(one for one in METRICS.values() if one.kind is kind):
            place = {"h": HEIGHT, "w": WIDTH, "x": number % COLUMNS * WIDTH, "y": y + number // COLUMNS * HEIGHT}
            panels.append(_panel(metric, len(panels) + 1, place, values, rules))
        y += (sum(one.kind is kind for one in METRICS.values()) + COLUMNS - 1) // COLUMNS * HEIGHT
    return {
        "uid": "penstock",
        "title": "Penstock and Apache Kafka",
        "tags": ["kafka", "penstock"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
                {
                    "name": "cluster",
                    "type": "query",
                    "label": "Cluster",
                    "datasource": {"type": "prometheus", "uid": "${datasource}"},
                    "query": "label_values(penstock_monitor_cluster_brokers, cluster)",
                    "refresh": 2,
                },
            ]
        },
        "panels": panels,
    }


def query(metric: Metric) -> str:
    """The expression of a panel; `$cluster` is the dashboard's choice."""
    series = f'{series_name(metric.kind, metric.name)}{{cluster="$cluster"}}'
    return f"topk({TOP}, {series})" if metric.kind in (Kind.TOPIC, Kind.GROUP) else series


def _panel(
    metric: Metric, number: int, place: dict[str, int], catalogue: Catalogue, rules: Sequence[Rule]
) -> dict[str, object]:
    steps: list[dict[str, object]] = [{"color": "green", "value": None}]
    colours = {Severity.CRITICAL: "red", Severity.WARNING: "orange"}
    bounds = {
        (catalogue[rule.bound], colours[rule.severity])
        for rule in rules
        if (rule.kind, rule.metric) == (metric.kind, metric.name)
        and rule.comparison is Comparison.ABOVE
        and rule.severity in colours
    }
    steps += [{"color": colour, "value": bound} for bound, colour in sorted(bounds)]
    label = LABELS[metric.kind]
    return {
        "id": number,
        "type": "timeseries",
        "title": metric.text,
        "description": f"{metric.kind} {metric.name}, in {metric.unit}",
        "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "targets": [
            {
                "refId": "A",
                "expr": query(metric),
                "legendFormat": metric.name if label == "cluster" else f"{{{{{label}}}}}",
            }
        ],
        "fieldConfig": {
            "defaults": {
                "unit": UNITS.get(metric.unit, "short"),
                "thresholds": {"mode": "absolute", "steps": steps},
                "custom": {"thresholdsStyle": {"mode": "line" if bounds else "off"}},
            },
            "overrides": [],
        },
    }
