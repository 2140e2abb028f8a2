"""Fixtures for pytest: real brokers for a test, a module or a session.

    def test_orders_are_counted(penstock):                 # one broker, of this test alone
        topic = penstock.new_topic("orders")
        penstock.produce(topic, ["a", "b"])
        assert count_orders(penstock.bootstrap_servers, topic) == 2

    fixture                      brokers   lives for
    penstock                     1         one test
    penstock_module              1         the tests of a module
    penstock_session             1         the session
    penstock_cluster             3         one test
    penstock_cluster_module      3         the tests of a module
    penstock_cluster_session     3         the session
    penstock_topic               the name of a new topic, on the cluster that the test uses (default: `penstock`)

`@pytest.mark.penstock(brokers=2, settings={"message.max.bytes": "1000"})` changes the cluster of a test (or, as
`pytestmark`, of a module). The ini option `penstock_settings` (lines of `name=value`) applies to all. When a test
fails, the logs of its brokers are shown with it.

pytest imports this module in every project that has Penstock installed, so it imports nothing but pytest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.cluster import Cluster

SINGLE = ("penstock", "penstock_module", "penstock_session")
SEVERAL = ("penstock_cluster", "penstock_cluster_module", "penstock_cluster_session")
BROKERS_OF_SEVERAL = 3
LOG_CHARACTERS_MAX = 8_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("penstock_settings", "Broker properties (name=value) of the penstock fixtures.", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "penstock(brokers=…, settings={…}): the cluster that the penstock fixtures make for this test"
    )


def _cluster(request: pytest.FixtureRequest, brokers: int) -> Iterator[Cluster]:
    from penstock.testing.cluster import Cluster

    marker = request.node.get_closest_marker("penstock") if hasattr(request.node, "get_closest_marker") else None
    asked: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    unknown = sorted(set(asked) - {"brokers", "settings"})
    if unknown or (marker is not None and marker.args):
        raise pytest.UsageError("@pytest.mark.penstock takes brokers=… and settings={…}")
    settings = {**_settings_of(request.config), **asked.get("settings", {})}
    with Cluster(asked.get("brokers", brokers), settings=settings) as cluster:
        yield cluster


def _settings_of(config: pytest.Config) -> dict[str, str]:
    settings = {}
    for line in config.getini("penstock_settings"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"penstock_settings: {line!r} is not name=value")
        settings[name.strip()] = value.strip()
    return settings


@pytest.fixture
def penstock(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One real broker for this test."""
    yield from _cluster(request, 1)


@pytest.fixture(scope="module")
def penstock_module(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One real broker for the tests of a module."""
    yield from _cluster(request, 1)


@pytest.fixture(scope="session")
def penstock_session(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One real broker for the whole session."""
    yield from _cluster(request, 1)


@pytest.fixture
def penstock_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three real brokers for this test."""
    yield from _cluster(request, BROKERS_OF_SEVERAL)


@pytest.fixture(scope="module")
def penstock_cluster_module(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three real brokers for the tests of a module."""
    yield from _cluster(request, BROKERS_OF_SEVERAL)


@pytest.fixture(scope="session")
def penstock_cluster_session(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three real brokers for the whole session."""
    yield from _cluster(request, BROKERS_OF_SEVERAL)


@pytest.fixture
def penstock_topic(request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition, which no other test has."""
    used = next((name for name in request.fixturenames if name in SINGLE + SEVERAL), "penstock")
    cluster: Cluster = request.getfixturevalue(used)
    return cluster.new_topic(re.sub("^test_", "", request.node.name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Adds the brokers' logs to the report of a failed test."""
    report = yield
    if report.failed:
        values: dict[str, Any] = getattr(item, "funcargs", {})
        for name in SINGLE + SEVERAL:
            if name in values:
                report.sections.append((f"Brokers of {name}", values[name].logs()[-LOG_CHARACTERS_MAX:]))
    return report
