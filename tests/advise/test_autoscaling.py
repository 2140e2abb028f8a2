"""The metrics API, called as KEDA's metrics-api scaler and a HorizontalPodAutoscaler call it; and the manifests."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from advise.scenes import NOW_MS, observed, read, situation, written
from penstock.advise import Situation
from penstock.advise.autoscaling import EXTERNAL, METRICS, Autoscaling
from penstock.telemetry.background import BackgroundServer
from penstock.telemetry.http.routes import Routes

EXAMPLES = Path(__file__).parents[2] / "examples/autoscaling"


class Stage:
    found: Situation | None = None


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def url(stage: Stage) -> Iterator[str]:
    routes = Routes()
    Autoscaling(lambda: stage.found, lambda: NOW_MS).add_routes(routes)
    with BackgroundServer("127.0.0.1", 0, routes) as server:
        yield server.url.rstrip("/")


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        return json.load(answer)


def behind(members: int = 2) -> Situation:
    return situation(read(written(observed(), [100.0] * 6), members=members, lag=120_000, per_s=400, lag_s=300))


def test_keda_reads_the_number_of_consumers_at_its_location(stage: Stage, url: str) -> None:
    stage.found = behind()
    text = (EXAMPLES / "keda.yaml").read_text()
    location = re.search(r'valueLocation: "(\w+)"', text)
    path = re.search(r'url: "http://[^/"]+(/[^"]*)"', text)
    assert location is not None
    assert path is not None
    found = get(url + path[1].replace("GROUP", "shipping"))
    assert found[location[1]] == 5
    assert found["consumers"] == 2
    assert found["useful_max"] == 6


def test_an_hpa_reads_external_metrics(stage: Stage, url: str) -> None:
    stage.found = behind()
    text = (EXAMPLES / "hpa.yaml").read_text()
    name = re.search(r"name: (penstock-[\w-]+)\n\s+selector", text)
    assert name is not None
    assert {one["name"] for one in get(url + EXTERNAL)["resources"]} == set(METRICS)
    selector = quote("group=shipping")
    found = get(f"{url}{EXTERNAL}/namespaces/default/{name[1]}?labelSelector={selector}")
    assert found["kind"] == "ExternalMetricValueList"
    assert found["items"][0]["value"] == "5000m"
    lag = get(f"{url}{EXTERNAL}/namespaces/default/penstock-lag-records?labelSelector={selector}")
    assert lag["items"][0]["value"] == "120000000m"


def test_all_groups_are_listed(stage: Stage, url: str) -> None:
    stage.found = behind()
    assert [one["group"] for one in get(f"{url}/api/v1/groups")["groups"]] == ["shipping"]


def test_a_group_that_vanished_has_no_metric_and_no_number(stage: Stage, url: str) -> None:
    stage.found = situation(observed())
    selector = quote("group=shipping")
    assert get(f"{url}{EXTERNAL}/namespaces/x/penstock-lag-records?labelSelector={selector}")["items"] == []
    with pytest.raises(urllib.error.HTTPError) as error:
        get(f"{url}/api/v1/groups/shipping")
    assert error.value.code == 404


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/v1/groups", 503),
        (f"{EXTERNAL}/namespaces/x/unknown?labelSelector=group%3Dg", 404),
        (f"{EXTERNAL}/namespaces/x/penstock-lag-records", 400),
    ],
)
def test_questions_without_an_answer_are_refused(url: str, path: str, code: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as error:
        get(url + path)
    assert error.value.code == code
