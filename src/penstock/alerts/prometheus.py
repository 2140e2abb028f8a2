"""The rules for Prometheus and Alertmanager, from the same catalogue. Pure text.

The rules read the series that `penstock monitor` serves. Prometheus' `keep_firing_for` stands for our resolve time; the
hysteresis of values has no counterpart there. The Alertmanager example hides the lower steps of a family (label `step`)
while a higher one fires, as the engine does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.alerts.catalogue import RULES, UNREACHABLE, UNREACHABLE_FOR_S, Rule
from penstock.monitor.exposing import series_name
from penstock.monitor.samples import Kind
from penstock.planning.catalogue import Catalogue

LABELS: Final = {Kind.CLUSTER: "cluster", Kind.BROKER: "broker", Kind.GROUP: "group", Kind.TOPIC: "topic",
                 Kind.PIPELINE: "pipeline", Kind.PARTITION: "partition"}  # fmt: skip
STEPS_MAX: Final = 3


def expression(rule: Rule, catalogue: Catalogue) -> str:
    return f"{series_name(rule.kind, rule.metric)} {rule.comparison} {catalogue[rule.bound]:.10g}"


def step_of(rule: Rule, rules: Sequence[Rule] = RULES) -> int:
    """The place of a rule in its family, the worst first, from 1."""
    order = ("critical", "warning", "info")
    family = [one for one in rules if one.family == rule.family] if rule.family else [rule]
    family.sort(key=lambda one: order.index(one.severity))
    return family.index(rule) + 1


def rules_file(catalogue: Catalogue | None = None, rules: Sequence[Rule] = RULES) -> str:
    """A rule file for Prometheus."""
    values = catalogue or Catalogue()
    lines = ["# Alerts for Penstock and Apache Kafka, on the series of `penstock monitor`.", "groups:"]
    lines += ["- name: penstock-monitor", "  rules:", *_unreachable()]
    for kind in dict.fromkeys(rule.kind for rule in rules):
        lines += [f"- name: penstock-{kind}", "  rules:"]
        for rule in rules:
            if rule.kind is kind:
                lines += _entry(rule, values, rules)
    return "\n".join(lines) + "\n"


def _unreachable() -> Iterator[str]:
    yield f"  - alert: {UNREACHABLE}"
    yield "    expr: penstock_monitor_reached == 0"
    yield f"    for: {UNREACHABLE_FOR_S}s"
    yield "    labels:"
    yield "      severity: critical"
    yield "    annotations:"
    yield '      summary: "no broker of the cluster answers"'
    yield '      command: "penstock cluster describe"'
    yield "  - alert: MonitorDown"
    yield "    expr: absent(penstock_monitor_rounds_total)"
    yield "    for: 300s"
    yield "    labels:"
    yield "      severity: warning"
    yield "    annotations:"
    yield '      summary: "no monitor reports to Prometheus"'
    yield '      command: "penstock monitor --metrics HOST:PORT"'


def _entry(rule: Rule, catalogue: Catalogue, rules: Sequence[Rule]) -> Iterator[str]:
    yield f"  - alert: {rule.name}"
    yield f"    expr: {expression(rule, catalogue)}"
    yield f"    for: {rule.for_s}s"
    yield f"    keep_firing_for: {rule.resolve_s}s"
    yield "    labels:"
    yield f"      severity: {rule.severity}"
    if rule.family:
        yield f"      family: {rule.family}"
        yield f'      step: "{step_of(rule, rules)}"'
    yield "    annotations:"
    for name, text in (("summary", rule.text), ("description", rule.meaning), ("command", rule.command)):
        yield f"      {name}: {json.dumps(_template(rule, text), ensure_ascii=False)}"
    yield f"      source: {json.dumps(rule.source)}"


def _template(rule: Rule, text: str) -> str:
    label = "{{ $labels." + LABELS[rule.kind] + " }}"
    words = {"{name}": label, "{value}": "{{ $value | humanize }}", "{percent}": "{{ $value | humanizePercentage }}"}
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    return text


def alertmanager_file(webhook: str) -> str:
    """An example for Alertmanager: one receiver, grouped by alert, lower steps of a family hidden."""
    lines = [
        "# An example for Alertmanager. Put your own receiver in place of the webhook.",
        "route:",
        "  receiver: operators",
        "  group_by: [alertname, cluster]",
        "  group_wait: 5s",
        "  group_interval: 1m",
        "  repeat_interval: 4h",
        "  routes:",
        '  - matchers: ["severity=info"]',
        "    receiver: nobody",
        "inhibit_rules:",
    ]
    for step in range(1, STEPS_MAX):
        lower = "|".join(str(number) for number in range(step + 1, STEPS_MAX + 1))
        lines += [
            f"- source_matchers: ['step=\"{step}\"', 'family!=\"\"']",
            f"  target_matchers: ['step=~\"{lower}\"']",
            "  equal: [family, cluster, broker, group]",
        ]
    lines += [
        '- source_matchers: ["alertname=BrokerDown"]',
        '  target_matchers: ["family=under-replicated", "severity=warning"]',
        "  equal: [cluster]",
        "receivers:",
        "- name: nobody",
        "- name: operators",
        "  webhook_configs:",
        f"  - url: {json.dumps(webhook)}",
        "    send_resolved: true",
    ]
    return "\n".join(lines) + "\n"
