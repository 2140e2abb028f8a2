"""Fixtures for every folder of tests."""

from __future__ import annotations

import pytest

from support.spark import spark

__all__ = ["spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what takes long to start run in one process: one Spark session, one Apache Kafka per folder."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif "apache-kafka" in item.name:
            item.add_marker(pytest.mark.xdist_group(f"apache-kafka {item.path.parent}"))
