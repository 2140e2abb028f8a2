from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from clients.groups.brokers import broker_under_test
from support.server_process import ServerProcess


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with broker_under_test() as running:
        yield running
        assert running.alive(), f"{running.name} ended by itself:\n{running.log_tail()}"


@pytest.fixture
def group_id() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"
