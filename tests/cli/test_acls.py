"""`penstock acls` against clusters with an authoriser: Penstock, and Apache Kafka. Everyone is a super user there."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cli.conftest import CLUSTERS, penstock_server
from cli.running import Run
from penstock.cli import exit_codes
from support.apache_kafka import ApacheKafka, available

WAIT_S = 20.0
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module", params=CLUSTERS)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster with an authoriser."""
    if request.param == "apache-kafka":
        if reason := available():
            pytest.skip(reason)
        with ApacheKafka(heap="256M", properties=SECURED) as kafka:
            yield kafka.bootstrap
    else:
        settings = [part for name, value in SECURED.items() for part in ("--set", f"{name}={value}")]
        with penstock_server(tmp_path_factory.mktemp("penstock"), *settings) as address:
            yield address


@pytest.fixture
def acls(run: Run, secured: str) -> Run:
    return lambda command, *arguments: run("acls", command, *arguments, "--bootstrap-server", secured)


@pytest.fixture
def user() -> str:
    return f"User:user-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def listed(acls: Run, *arguments: str) -> list[tuple[str, ...]]:
    result = acls("list", *arguments, "--json")
    assert result.code == exit_codes.OK, result.messages
    return [tuple(row.values()) for row in json.loads(result.output)]


def wait_for(acls: Run, wanted: Sequence[tuple[str, ...]], *arguments: str) -> None:
    """Kafka's broker follows its controller, and describes an ACL as soon as it has heard of it."""
    deadline_s = time.monotonic() + WAIT_S
    while (found := listed(acls, *arguments)) != wanted:
        assert time.monotonic() < deadline_s, found


def explained(acls: Run, *arguments: str) -> dict[str, Any]:
    result = acls("explain", *arguments, "--json")
    assert result.code == exit_codes.OK, result.messages
    found: dict[str, Any] = json.loads(result.output)
    return found


def test_acls_are_created_listed_and_deleted(acls: Run, user: str, topic: str) -> None:
    done = acls("create", "--allow-principal", user, "--operation", "Read", "--operation", "write", "--topic", topic)
    assert done.code == exit_codes.OK, done.messages
    rows = [
        ("TOPIC", topic, "LITERAL", user, "*", "READ", "ALLOW"),
        ("TOPIC", topic, "LITERAL", user, "*", "WRITE", "ALLOW"),
    ]
    wait_for(acls, rows, "--topic", topic)
    wait_for(acls, rows, "--principal", user)
    again = acls("create", "--allow-principal", user, "--operation", "READ", "--topic", topic)
    assert again.code == exit_codes.OK, "one that exists is no error"
    dry = acls("delete", "--topic", topic, "--operation", "READ", "--dry-run")
    assert "1 ACL would be deleted" in dry.output
    assert acls("delete", "--topic", topic, "--operation", "READ", "--yes").code == exit_codes.OK
    wait_for(acls, rows[1:], "--topic", topic)
    assert acls("delete", "--topic", topic).code == exit_codes.USAGE, "it asks before it deletes"
    gone = acls("delete", "--topic", topic, "--yes", "--json")
    assert [tuple(acl.values()) for acl in json.loads(gone.output)["acls"]] == rows[1:]
    wait_for(acls, [], "--topic", topic)
    assert acls("delete", "--topic", topic, "--yes").code == exit_codes.NOT_FOUND


def test_the_forms_for_producers_and_consumers(acls: Run, user: str, topic: str) -> None:
    created = acls(
        "create", "--allow-principal", user, "--producer", "--idempotent", "--topic", topic, "--transactional-id", "x"
    )
    assert created.code == exit_codes.OK, created.messages
    wait_for(
        acls,
        [
            ("TOPIC", topic, "LITERAL", user, "*", "WRITE", "ALLOW"),
            ("TOPIC", topic, "LITERAL", user, "*", "CREATE", "ALLOW"),
            ("TOPIC", topic, "LITERAL", user, "*", "DESCRIBE", "ALLOW"),
            ("CLUSTER", "kafka-cluster", "LITERAL", user, "*", "IDEMPOTENT_WRITE", "ALLOW"),
            ("TRANSACTIONAL_ID", "x", "LITERAL", user, "*", "WRITE", "ALLOW"),
            ("TRANSACTIONAL_ID", "x", "LITERAL", user, "*", "DESCRIBE", "ALLOW"),
        ],
        "--principal",
        user,
    )
    same = ("--allow-principal", user, "--producer", "--idempotent", "--topic", topic, "--transactional-id", "x")
    assert acls("delete", *same, "--yes").code == exit_codes.OK
    wait_for(acls, [], "--principal", user)
    acls("create", "--allow-principal", user, "--consumer", "--topic", topic, "--group", "g")
    wait_for(
        acls,
        [
            ("TOPIC", topic, "LITERAL", user, "*", "READ", "ALLOW"),
            ("TOPIC", topic, "LITERAL", user, "*", "DESCRIBE", "ALLOW"),
            ("GROUP", "g", "LITERAL", user, "*", "READ", "ALLOW"),
        ],
        "--principal",
        user,
    )


def test_patterns_and_other_resources(acls: Run, user: str, topic: str) -> None:
    prefix = ("--topic", topic[:-2], "--resource-pattern-type", "prefixed")
    acls("create", "--deny-principal", user, "--deny-host", "10.0.0.1", "--operation", "READ", *prefix)
    row = ("TOPIC", topic[:-2], "PREFIXED", user, "10.0.0.1", "READ", "DENY")
    wait_for(acls, [row], "--topic", topic, "--resource-pattern-type", "match", "--principal", user)
    assert listed(acls, "--topic", topic) == []
    resources = ("--delegation-token", "t1", "--user-principal", "User:bob", "--group", "*")
    acls("create", "--allow-principal", user, "--operation", "DESCRIBE", *resources)
    wait_for(
        acls,
        [
            row,
            ("GROUP", "*", "LITERAL", user, "*", "DESCRIBE", "ALLOW"),
            ("DELEGATION_TOKEN", "t1", "LITERAL", user, "*", "DESCRIBE", "ALLOW"),
            ("USER", "User:bob", "LITERAL", user, "*", "DESCRIBE", "ALLOW"),
        ],
        "--principal",
        user,
    )


def test_the_deciding_acl_is_named(acls: Run, user: str, topic: str) -> None:
    asked = ("--principal", user, "--operation", "DESCRIBE", "--topic", topic)
    assert explained(acls, *asked)["reason"] == "no ACL allows it"
    acls("create", "--allow-principal", user, "--operation", "READ", "--topic", topic)
    wait_for(acls, [("TOPIC", topic, "LITERAL", user, "*", "READ", "ALLOW")], "--topic", topic)
    found = explained(acls, *asked)
    assert (found["allowed"], found["acl"]["operation"]) == (True, "READ")
    said = acls("explain", *asked)
    assert f"{user} may DESCRIBE TOPIC {topic}: ALLOW {user} from *: READ on TOPIC {topic}" in said.output
    acls("create", "--deny-principal", user, "--deny-host", "10.0.0.1", "--topic", topic)
    wait_for(
        acls,
        [
            ("TOPIC", topic, "LITERAL", user, "*", "READ", "ALLOW"),
            ("TOPIC", topic, "LITERAL", user, "10.0.0.1", "ALL", "DENY"),
        ],
        "--topic",
        topic,
    )
    assert explained(acls, *asked)["allowed"] is True
    denied = explained(acls, *asked, "--host", "10.0.0.1")
    assert (denied["allowed"], denied["acl"]["permission"]) == (False, "DENY")
    assert "give --host" in acls("explain", *asked).messages


def test_mistakes_are_explained(acls: Run, user: str, topic: str) -> None:
    allow = ("create", "--allow-principal", user)
    for arguments, words in (
        (("create", "--topic", topic), "--allow-principal"),
        (allow, "name a resource"),
        ((*allow, "--topic", topic, "--operation", "FLY"), "is not an operation"),
        ((*allow, "--topic", topic, "--operation", "READ", "--producer"), "cannot be combined"),
        ((*allow, "--producer"), "at least one --topic"),
        ((*allow, "--consumer", "--topic", topic), "one --group"),
        ((*allow, "--topic", topic, "--resource-pattern-type", "any"), "not a pattern type"),
        ((*allow, "--topic", topic, "--allow-host", "example.com"), "not *, an IP address"),
        (("create", "--allow-principal", "alice", "--topic", topic), "User:name"),
        (("delete",), "name a resource"),
        (("explain", "--principal", user, "--operation", "READ"), "name one resource"),
        (("explain", "--principal", "bob", "--operation", "READ", "--topic", topic), "write it as User:bob"),
    ):
        result = acls(*arguments)
        assert result.code == exit_codes.USAGE, (arguments, result.messages)
        assert words in result.messages, (arguments, result.messages)


def test_a_cluster_without_an_authoriser_says_so(run: Run, bootstrap: str) -> None:
    result = run("acls", "list", "--bootstrap-server", bootstrap)
    assert result.code != exit_codes.OK
    assert "No Authorizer is configured" in result.messages
