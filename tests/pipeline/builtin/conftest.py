"""A broker for the built-in pipelines."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from support.penstock import PenstockServer


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The address of a broker."""
    with PenstockServer() as server:
        yield server.bootstrap


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"
