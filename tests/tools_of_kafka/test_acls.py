"""ACLs: kafka-acls adds, lists and removes them as on Apache Kafka, and requests get Kafka's answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from broker.acl_session import ALLOW, LITERAL, creation, deletion, description
from clients.groups.brokers import SETTINGS
from penstock.acls import ANY, MATCH, Acl
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_acls import CreateAclsResponse
from support.apache_kafka import SHORT_LIVED, ApacheKafka
from support.kafka_tools import KafkaTools
from support.penstock import PenstockServer
from support.server_process import ServerProcess
from tools_of_kafka.asking import ask
from tools_of_kafka.both import Both

pytestmark = [pytest.mark.needs_maven, pytest.mark.xdist_group("tools of Kafka")]
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def secured(tools: KafkaTools) -> Iterator[Both]:
    kafka = ApacheKafka(heap="256M", properties=SETTINGS | SECURED, jvm_flags=SHORT_LIVED)
    with kafka, PenstockServer(SETTINGS | SECURED) as penstock:
        yield Both(kafka, penstock, tools)
        assert penstock.alive(), f"Penstock ended by itself:\n{penstock.log_tail()}"


@pytest.mark.parametrize(
    "options",
    [
        ("--allow-principal", "User:NAME", "--operation", "Read", "--topic", "NAME"),
        ("--deny-principal", "User:NAME", "--deny-host", "10.0.0.1", "--operation", "All", "--group", "NAME"),
        ("--allow-principal", "User:NAME", "--producer", "--topic", "NAME", "--transactional-id", "NAME"),
        ("--allow-principal", "User:NAME", "--consumer", "--topic", "NAME", "--group", "NAME"),
        ("--allow-principal", "User:NAME", "--topic", "NAME", "--resource-pattern-type", "prefixed"),
        ("--allow-principal", "User:NAME", "--operation", "Describe", "--delegation-token", "NAME"),
        ("--allow-principal", "User:NAME", "--operation", "CreateTokens", "--user-principal", "User:NAME"),
    ],
    ids=lambda options: " ".join(options).replace("NAME", "x"),
)
def test_acls_are_added_listed_and_removed(secured: Both, name: str, options: tuple[str, ...]) -> None:
    given = [option.replace("NAME", name) for option in options]
    # Both tell the ACLs in an order of their own, that of a hash table: only one line can be compared as it is.
    for server in (secured.kafka, secured.penstock):
        added = secured.run(server, "kafka-acls", "--add", *given)
        assert added.code == 0, added
    secured.wait_for(name, "kafka-acls", "--list", "--principal", f"User:{name}")
    kafka, penstock = secured.each(
        lambda server: sorted(
            secured.run(server, "kafka-acls", "--list", "--principal", f"User:{name}").output.splitlines()
        )
    )
    assert penstock == kafka
    assert any(name in line for line in penstock)
    for server in (secured.kafka, secured.penstock):
        assert secured.run(server, "kafka-acls", "--remove", "--force", *given).code == 0
    assert name not in secured.run(secured.penstock, "kafka-acls", "--list").output


ONE = Acl(2, "t", LITERAL, "User:a", "*", 3, ALLOW)


@pytest.mark.parametrize(
    "acl",
    [
        ONE._replace(resource_type=1),
        ONE._replace(resource_type=0),
        ONE._replace(pattern_type=ANY),
        ONE._replace(pattern_type=MATCH),
        ONE._replace(operation=1),
        ONE._replace(permission=1),
        ONE._replace(resource_name=""),
        ONE._replace(resource_type=4, resource_name="not-the-cluster"),
    ],
    ids=repr,
)
def test_what_kafka_refuses_is_refused_as_invalid(secured: Both, acl: Acl) -> None:
    """For some of these Kafka says UNKNOWN_SERVER_ERROR, or closes the connection."""
    (refused,) = codes(secured.penstock, acl)
    assert refused == ErrorCode.INVALID_REQUEST
    with suppress(ConnectionError):
        assert codes(secured.kafka, acl) in ([refused], [ErrorCode.UNKNOWN_SERVER_ERROR])


def codes(server: ServerProcess, acl: Acl) -> list[int]:
    answer = ask(server, creation(acl), 3)
    assert isinstance(answer, CreateAclsResponse)
    return [result.error_code for result in answer.results]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_answers_are_kafkas(secured: Both, version: int) -> None:
    for request in (creation(ONE), deletion(ONE), deletion(ONE), description(resource_name_filter="none")):
        kafka, penstock = secured.each(lambda server, request=request: ask(server, request, version))
        assert penstock == kafka
