"""Fixtures for every folder of tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from support.spark import spark

__all__ = ["spark"]

# The same examples in every run, so that a run fails by what was changed and not by chance; PENSTOCK_EXAMPLES=fresh
# looks for others. How long an example takes tells of the machine, not of the code.
settings.register_profile(
    "penstock",
    derandomize=os.environ.get("PENSTOCK_EXAMPLES") != "fresh",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("penstock")


def pytest_configure(config: pytest.Config) -> None:
    """The mark that xdist knows is set below with and without it."""
    config.addinivalue_line("markers", "xdist_group(name): tests that one process runs (pytest-xdist)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what takes long to start run in one process: one Spark session, one Apache Kafka per folder.

    What is tested with both brokers is tested with Penstock in every run, and with Apache Kafka by `make compat`.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif "apache-kafka" in item.name:
            item.add_marker(pytest.mark.xdist_group(f"apache-kafka {item.path.parent}"))
        if "apache-kafka" in item.name:
            item.add_marker(pytest.mark.compat)
