"""`penstock quotas` against a cluster: Penstock, and Apache Kafka."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest

from cli.running import Run
from penstock.cli import exit_codes

WAIT_S = 20.0


@pytest.fixture
def user() -> str:
    return f"user-{uuid.uuid4().hex[:8]}"


def listed(on: Run, *arguments: str) -> list[Any]:
    result = on("quotas", "list", *arguments, "--json")
    assert result.code == exit_codes.OK, result.messages
    found: list[Any] = json.loads(result.output)
    return found


def wait_for(on: Run, wanted: list[Any], *arguments: str) -> None:
    """Kafka's broker follows its controller, and describes a quota as soon as it has heard of it."""
    deadline_s = time.monotonic() + WAIT_S
    while (found := listed(on, *arguments)) != wanted:
        assert time.monotonic() < deadline_s, found


def test_quotas_are_set_listed_and_removed(on: Run, user: str) -> None:
    done = on("quotas", "set", "--user", user, "producer_byte_rate=10MB", "request_percentage=12.5")
    assert (done.code, done.output) == (exit_codes.OK, f"quotas of user {user} are set\n")
    pair = ("--user", user, "--default-client-id")
    assert on("quotas", "set", *pair, "consumer_byte_rate=7").code == exit_codes.OK
    alone = {"entity": {"user": user}, "quotas": {"producer_byte_rate": 10_000_000.0, "request_percentage": 12.5}}
    both = {"entity": {"user": user, "client-id": None}, "quotas": {"consumer_byte_rate": 7.0}}
    wait_for(on, [alone, both], "--user", user)
    assert on("quotas", "remove", "--user", user, "request_percentage").code == exit_codes.OK
    alone["quotas"] = {"producer_byte_rate": 10_000_000.0}
    wait_for(on, [alone, both], "--user", user)
    assert on("quotas", "remove", "--user", user).code == exit_codes.OK
    wait_for(on, [both], "--user", user)
    assert on("quotas", "remove", *pair).code == exit_codes.OK
    wait_for(on, [], "--user", user)
    assert on("quotas", "remove", "--user", user).code == exit_codes.NOT_FOUND


def test_a_quota_of_an_address_is_a_rate_of_connections(on: Run) -> None:
    assert on("quotas", "set", "--ip", "10.11.12.13", "connection_creation_rate=5").code == exit_codes.OK
    wanted = {"entity": {"ip": "10.11.12.13"}, "quotas": {"connection_creation_rate": 5.0}}
    wait_for(on, [wanted], "--ip", "10.11.12.13")
    assert on("quotas", "remove", "--ip", "10.11.12.13").code == exit_codes.OK


def test_a_dry_run_changes_nothing(on: Run, user: str) -> None:
    done = on("quotas", "set", "--user", user, "producer_byte_rate=1", "--dry-run")
    assert (done.code, done.output) == (exit_codes.OK, f"quotas of user {user} would be set\n")
    assert listed(on, "--user", user) == []


def test_mistakes_are_explained(on: Run, user: str) -> None:
    for arguments, code, words in (
        (("set", "producer_byte_rate=1"), exit_codes.USAGE, "whose quota?"),
        (("set", "--user", user, "--default-user", "producer_byte_rate=1"), exit_codes.USAGE, "exclude each other"),
        (("set", "--user", user, "producer_byte_rate=much"), exit_codes.USAGE, "no number of bytes"),
        (("set", "--user", user, "request_percentage=much"), exit_codes.USAGE, "no number"),
        (("set", "--user", user, "no_such=1"), exit_codes.FAILED, "Invalid configuration key no_such"),
        (("set", "--user", user, "producer_byte_rate=0"), exit_codes.FAILED, "greater than 0"),
    ):
        result = on("quotas", *arguments)
        assert result.code == code, (arguments, result.messages)
        assert words in result.messages
