"""Rules for Prometheus, an example for Alertmanager and a dashboard for Grafana: checked by the real programs."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.alerts.catalogue import RULES, UNREACHABLE, Comparison
from penstock.alerts.grafana import dashboard, query
from penstock.alerts.prometheus import LABELS, alertmanager_file, expression, rules_file, step_of
from penstock.monitor.exposing import series_name
from penstock.monitor.samples import METRICS, Kind
from penstock.planning.catalogue import Catalogue
from support.waiting import wait_until

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing (Debian: prometheus)")
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
VALUES = Catalogue()


def promtool(*arguments: object) -> None:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules_file())
    promtool("check", "rules", tmp_path / "rules.yml")


@needs_promtool
def test_promtool_fires_every_rule_after_its_time_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules_file())
    tests = []
    for rule in RULES:
        bound = VALUES[rule.bound]
        bad = bound - 1 if rule.comparison is Comparison.BELOW else bound + 1
        labels = {"cluster": "c", LABELS[rule.kind]: "x"} | ({"cluster": "c"} if rule.kind is not Kind.CLUSTER else {})
        written = ",".join(f'{key}="{value}"' for key, value in labels.items())
        series = {"series": f"{series_name(rule.kind, rule.metric)}{{{written}}}", "values": f"{bad:.10g}+0x300"}
        told = {**labels, "severity": str(rule.severity)}
        if rule.family:
            told |= {"family": rule.family, "step": str(step_of(rule))}
        tests.append(
            {
                "name": rule.name,
                "interval": "10s",
                "input_series": [series],
                "alert_rule_test": [
                    {"alertname": rule.name, "eval_time": f"{max(0, rule.for_s - 10)}s", "exp_alerts": []},
                ],
            }
        )
        assert told["severity"]
    (tmp_path / "before.yml").write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "10s", "tests": tests})
    )
    promtool("test", "rules", tmp_path / "before.yml")
    for rule, test in zip(RULES, tests, strict=True):
        test["alert_rule_test"] = [{"alertname": rule.name, "eval_time": f"{rule.for_s + 20}s", "exp_alerts": []}]
    (tmp_path / "after.yml").write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": "10s", "tests": tests})
    )
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "after.yml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert [rule.name for rule in RULES if f"alertname: {rule.name}," not in output] == []


def test_every_rule_reads_a_series_that_the_monitor_serves() -> None:
    text = rules_file()
    for rule in RULES:
        assert f"alert: {rule.name}\n" in text
        assert expression(rule, VALUES).split()[0] == series_name(rule.kind, rule.metric)
    assert UNREACHABLE in text


def test_own_thresholds_are_in_the_file() -> None:
    assert "penstock_monitor_group_lag_records > 77\n" in rules_file(
        VALUES.with_overrides("[alert]\nlag_records_warning = 77\n")
    )


@needs_promtool
def test_the_queries_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    every = dashboard()["panels"]
    assert isinstance(every, list)
    panels = [one for one in every if one["type"] != "row"]
    assert len(panels) == sum(metric.kind is not Kind.PARTITION for metric in METRICS.values())
    rules = [
        {"record": f"check:{number}", "expr": target["expr"].replace("$cluster", "c")}
        for number, panel in enumerate(panels)
        for target in panel["targets"]
    ]
    (tmp_path / "queries.yml").write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "queries.yml")


def test_the_dashboard_has_thresholds_and_places_that_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert isinstance(panels, list)
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels]
    assert len(set(places)) == len(places)
    assert len({one["id"] for one in panels}) == len(panels)
    lag = next(one for one in panels if one.get("description", "").startswith("group lag_records,"))
    steps = lag["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["value"] for step in steps] == [None, 10_000, 50_000, 100_000]
    assert query(METRICS[Kind.BROKER, "up"]) == 'penstock_monitor_broker_up{cluster="$cluster"}'


class Receiver(BaseHTTPRequestHandler):
    bodies: list[bytes] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.mark.skipif(ALERTMANAGER is None, reason="Alertmanager is missing (Debian: prometheus-alertmanager)")
def test_alertmanager_runs_the_example_and_hides_lower_steps(tmp_path: Path) -> None:
    Receiver.bodies = []
    with socket.socket() as free, ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        config = tmp_path / "alertmanager.yml"
        text = alertmanager_file(f"http://127.0.0.1:{server.server_port}/")
        config.write_text(text.replace("group_wait: 5s", "group_wait: 1s"))
        assert ALERTMANAGER is not None
        process = subprocess.Popen(
            [
                ALERTMANAGER, f"--config.file={config}", f"--storage.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            lower, upper = (next(r for r in RULES if r.name == n) for n in ("ConsumerLag", "ConsumerLagCritical"))
            alerts = [
                {
                    "labels": {
                        "alertname": rule.name, "severity": str(rule.severity), "family": rule.family,
                        "step": str(step_of(rule)), "group": "g", "cluster": "c",
                    },
                    "annotations": {"summary": "s"},
                }
                for rule in (upper, lower)
            ]  # fmt: skip

            def posted() -> bool:
                request = urllib.request.Request(
                    f"http://127.0.0.1:{port}/api/v2/alerts",
                    json.dumps(alerts).encode(),
                    {"Content-Type": "application/json"},
                )
                try:
                    with urllib.request.urlopen(request, timeout=5) as answer:
                        return bool(answer.status == 200)
                except (urllib.error.URLError, OSError):
                    return False

            wait_until(posted)
            wait_until(lambda: Receiver.bodies)
            names = {one["labels"]["alertname"] for body in Receiver.bodies for one in json.loads(body)["alerts"]}
            assert names == {"ConsumerLagCritical"}
        finally:
            process.terminate()
            process.wait(10)
            server.shutdown()
            thread.join()
