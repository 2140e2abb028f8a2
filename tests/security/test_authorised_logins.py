"""Logins, ACLs and the audit log together: users may do what was granted to them, and an auditor reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.acl_session import DENY, SECURED, acl, creation
from broker.damaging import copy_of
from broker.session import Session, batch, produce_request, simulated
from penstock.sim.broker import ProtocolClient
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from security.logins import WITH_LOGINS, connected, plain_login, scram_login, set_password

SETTINGS = WITH_LOGINS | SECURED | {"penstock.audit.destination": "file"}


def audited(s: Session) -> list[dict[str, Any]]:
    return [json.loads(line) for line in copy_of(s.node.host.disk).get("audit/audit.jsonl", b"").splitlines()]


async def produced(client: ProtocolClient) -> ErrorCode:
    answer = await client.call(produce_request("t", batch(b"one")), 11)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@simulated(SETTINGS)
async def test_a_user_may_do_what_was_granted_to_it_however_it_logged_in(s: Session) -> None:
    await s.create("t")
    await set_password(s, "alice", "scram-secret")
    by_plain, by_scram, other = await connected(s), await connected(s), await connected(s)
    assert (await plain_login(by_plain, "alice", "alice-secret")).error_code == 0
    assert (await scram_login(by_scram, "SCRAM-SHA-256", "alice", "scram-secret")).error_code == 0
    assert (await plain_login(other, "bob", "b")).error_code == 0
    everyone = (by_plain, by_scram, other)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [await produced(client) for client in everyone] == [denied] * 3
    await s.call(creation(acl(Operation.WRITE, ResourceKind.TOPIC, "t")), 3)
    assert [await produced(client) for client in everyone] == [ErrorCode.NONE, ErrorCode.NONE, denied]
    await s.call(creation(acl(Operation.WRITE, ResourceKind.TOPIC, "t", permission=DENY)), 3)
    assert [await produced(client) for client in everyone] == [denied] * 3


@simulated(SETTINGS)
async def test_logins_are_audited_and_no_password_is(s: Session) -> None:
    good, bad, unknown = await connected(s), await connected(s), await connected(s)
    await plain_login(good, "alice", "alice-secret")
    await plain_login(bad, "alice", "guessed-secret")
    await plain_login(unknown, "mallory", "other-secret")
    await s.until(lambda: len(audited(s)) >= 3)
    found = [(line["principal"], line["allowed"], line["mechanism"], line["listener"]) for line in audited(s)]
    assert found == [
        ("User:alice", True, "PLAIN", "LOGINS"),
        ("User:alice", False, "PLAIN", "LOGINS"),
        ("User:mallory", False, "PLAIN", "LOGINS"),
    ]
    data = copy_of(s.node.host.disk)["audit/audit.jsonl"]
    assert b"secret" not in data
    assert all(line["host"] for line in audited(s))


@simulated(SETTINGS)
async def test_credentials_are_changed_by_those_who_may_alter_the_cluster_only(s: Session) -> None:
    alice = await connected(s)
    await plain_login(alice, "alice", "alice-secret")
    mine = Session(s.runtime, s.node, alice)
    with pytest.raises(AssertionError):
        await set_password(mine, "alice", "scram-secret")
    await s.call(creation(acl(Operation.ALTER, ResourceKind.CLUSTER)), 3)
    await set_password(mine, "alice", "scram-secret")
    await s.until(lambda: any(line["event"] == "request" and line["principal"] == "User:alice" for line in audited(s)))
    assert b"scram-secret" not in copy_of(s.node.host.disk)["audit/audit.jsonl"]
