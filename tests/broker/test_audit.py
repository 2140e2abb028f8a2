"""The audit log: what is recorded about whom, that nothing secret is, and that it never holds the broker up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.acl_session import (
    ALTER,
    CLUSTER,
    READ,
    SECURED,
    TOPIC,
    WRITE,
    acl,
    creation,
    deletion,
    login,
)
from broker.clusters import a_cluster
from broker.damaging import copy_of, put
from broker.session import Session, batch, produce_request, run_session, simulated
from broker.test_authorization import request_of
from penstock.broker.audit import ADMINISTRATIVE, AuditLog
from penstock.broker.audit.naming import errors_in, resources_of
from penstock.sim import SimRuntime
from penstock.sim.broker import ProtocolClient, SimBroker
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.metadata import MetadataRequest

AUDITED = SECURED | {"penstock.audit.destination": "file"}
PATH = "audit/audit.jsonl"


def lines(node: SimBroker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read(node).splitlines()]


def read(node: SimBroker, path: str = PATH) -> bytes:
    return copy_of(node.host.disk).get(path, b"")


async def written(s: Session, count: int) -> list[dict[str, Any]]:
    await s.until(lambda: len(lines(s.node)) >= count)
    return lines(s.node)


def audit_of(node: SimBroker) -> AuditLog:
    assert node.served.audit is not None
    return node.served.audit


# -- what is recorded --------------------------------------------------------------------------------------------------


@simulated(AUDITED)
async def test_a_denied_access_is_recorded_with_everything_an_auditor_asks_for(s: Session) -> None:
    await s.create("t")
    await written(s, 2)
    alice = await login(s.runtime, s.node, "alice")
    await alice.call(produce_request("t", batch(b"one")), 11)
    *_, line = await written(s, 3)
    assert line.pop("time_ms") > 0
    assert line == {
        "event": "access",
        "principal": "User:alice",
        "host": "10.0.0.7",
        "listener": "PLAINTEXT",
        "client_id": "sim",
        "api": "Produce",
        "operation": "WRITE",
        "resource_type": "TOPIC",
        "resource": "t",
        "allowed": False,
        "rule": "no ACL allows it",
    }


@simulated(AUDITED)
async def test_an_administrative_action_is_recorded_with_the_rule_that_allowed_it_and_its_result(s: Session) -> None:
    allowing = acl(ALTER, CLUSTER)
    await s.call(creation(allowing), 3)
    alice = await login(s.runtime, s.node, "alice")
    mine = acl(READ, TOPIC, "t")
    await alice.call(creation(mine, mine._replace(host="nowhere")), 3)
    found = [line for line in await written(s, 4) if line["principal"] == "User:alice"]
    access, request = found
    assert (access["operation"], access["resource"], access["allowed"]) == ("ALTER", "kafka-cluster", True)
    assert access["rule"] == "ALLOW User:alice from *: ALTER on CLUSTER kafka-cluster"
    assert (request["event"], request["api"]) == ("request", "CreateAcls")
    assert request["resources"] == ["t", "User:alice"]
    assert request["errors"] == {"INVALID_REQUEST": 1}


@simulated(AUDITED)
async def test_super_users_are_recorded_too(s: Session) -> None:
    await s.create("t")
    access, request = await written(s, 2)
    assert (access["api"], access["operation"], access["rule"]) == ("CreateTopics", "CREATE", "super user")
    assert (request["resources"], request["errors"]) == (["t"], {})


@simulated(AUDITED)
async def test_what_a_client_did_not_ask_for_is_no_attempt(s: Session) -> None:
    """Lists leave out what may not be seen, and authorised operations are tried one by one."""
    await s.create("t")
    alice = await login(s.runtime, s.node, "alice")
    await alice.call(MetadataRequest(topics=None, include_cluster_authorized_operations=True), 10)
    await written(s, 2)
    await s.runtime.sleep(1_000)
    assert not [line for line in lines(s.node) if line["principal"] == "User:alice"]


@pytest.mark.parametrize("recorded", [False, True])
def test_data_access_is_recorded_on_request_and_counted(recorded: bool) -> None:
    async def scenario(s: Session) -> None:
        await s.create("t")
        await s.call(creation(acl(WRITE, TOPIC, "t")), 3)
        alice = await login(s.runtime, s.node, "alice")
        for _ in range(50):
            assert (await alice.call(produce_request("t", batch(b"one")), 11)).responses

    settings = AUDITED | {"penstock.audit.data.access": str(recorded).lower()}
    node = run_session(scenario, settings)
    produced = [line for line in lines(node) if line.get("principal") == "User:alice"]
    assert sum(line.get("count", 1) for line in produced) == (50 if recorded else 0)
    assert len(produced) < 20, "identical events of one moment are one line"


@simulated({"penstock.audit.destination": "file"})
async def test_without_an_authoriser_administrative_actions_are_recorded_all_the_same(s: Session) -> None:
    await s.create("t")
    access, request = await written(s, 2)
    assert (access["principal"], access["rule"]) == ("User:ANONYMOUS", "no authorizer is configured")
    assert request["resources"] == ["t"]
    answer = await s.call(creation(acl(READ)), 3)
    assert answer.results[0].error_message == "No Authorizer is configured."


@simulated(AUDITED)
async def test_logins_are_recorded(s: Session) -> None:
    audit_of(s.node).login(
        principal="User:mallory", host="192.0.2.1", listener="SASL_SSL", mechanism="PLAIN", succeeded=False, reason="no"
    )
    (line,) = await written(s, 1)
    assert (line["event"], line["principal"], line["host"], line["allowed"], line["rule"]) == (
        "login", "User:mallory", "192.0.2.1", False, "no",
    )  # fmt: skip


def test_a_forwarded_request_is_recorded_by_the_controller_under_its_clients_name() -> None:
    with a_cluster(3, AUDITED) as cluster:
        controller = cluster.await_controller()
        other = next(node for node in cluster.nodes if node is not controller)

        async def exchange(runtime: SimRuntime) -> None:
            await (await ProtocolClient.connect(runtime, other)).call(creation(acl(ALTER, CLUSTER)), 3)
            alice = await login(runtime, other, "alice", "192.0.2.7")
            await alice.call(creation(acl(READ, TOPIC, "t")), 3)
            await runtime.sleep(1_000)

        cluster.world.execute(exchange)
        found = [line for line in lines(controller) if line["principal"] == "User:alice"]
        assert [(line["event"], line["host"], line["forwarded"]) for line in found] == [
            ("access", "192.0.2.7", True),
            ("request", "192.0.2.7", True),
        ]
        assert not lines(other)


# -- what is not -------------------------------------------------------------------------------------------------------


@simulated(AUDITED)
async def test_no_secret_and_no_value_is_recorded(s: Session) -> None:
    scram = ScramCredentialUpsertion(
        name="bob", mechanism=1, iterations=4096, salt=b"SECRET-salt", salted_password=b"SECRET-password"
    )
    await s.call(AlterUserScramCredentialsRequest(upsertions=[scram]), 0)
    config = AlterableConfig(name="ssl.keystore.password", config_operation=0, value="SECRET-value")
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    await s.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    await written(s, 3)
    data = read(s.node)
    assert b"bob" in data
    assert b"SECRET" not in data


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in SERVED.values()])
def test_names_are_read_from_every_request_without_its_bytes(row: Any) -> None:
    body = request_of(row, row.max_version, b"i" * 16)
    names, _ = resources_of(body)
    assert all(isinstance(name, str) for name in names)
    assert errors_in(row.response()) == ()


def test_a_request_with_many_resources_is_cut() -> None:
    topics = [CreatableTopic(name=f"t{number}") for number in range(100)]
    names, more = resources_of(CreateTopicsRequest(topics=topics))
    assert (len(names), more) == (20, 80)


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_file_is_renamed_when_it_is_full_and_the_oldest_is_deleted() -> None:
    settings = AUDITED | {"penstock.audit.file.max.bytes": "65536", "penstock.audit.file.max.count": "2"}

    async def scenario(s: Session) -> None:
        for burst in range(12):
            for number in range(100):
                login_event(s.node, f"User:{burst}-{number}-{'x' * 100}")
            await s.runtime.sleep(300)

    node = run_session(scenario, settings)
    sizes = {name: len(read(node, name)) for name in (PATH, f"{PATH}.1", f"{PATH}.2", f"{PATH}.3")}
    assert 0 < sizes[PATH] <= 65_536
    assert 30_000 < sizes[f"{PATH}.1"] <= 65_536
    assert 30_000 < sizes[f"{PATH}.2"] <= 65_536
    assert sizes[f"{PATH}.3"] == 0
    assert lines(node)[-1]["principal"].startswith("User:11-99-")


def login_event(node: SimBroker, principal: str) -> None:
    audit_of(node).login(principal=principal, host="h", listener="L", mechanism="PLAIN", succeeded=False)


@simulated(AUDITED)
async def test_a_line_that_a_crash_cut_off_does_not_spoil_the_next(s: Session) -> None:
    login_event(s.node, "User:one")
    await written(s, 1)
    s.node.host.kill()
    files = copy_of(s.node.host.disk)
    put(s.node.host.disk, files | {PATH: files[PATH] + b'{"cut'})
    await s.started()
    login_event(s.node, "User:two")
    await s.until(lambda: read(s.node).count(b"\n") >= 3)
    first, torn, last = read(s.node).splitlines()
    assert (json.loads(first)["principal"], torn, json.loads(last)["principal"]) == ("User:one", b'{"cut', "User:two")


@simulated(AUDITED)
async def test_a_flood_is_bounded_and_what_is_dropped_is_told(s: Session) -> None:
    audit = audit_of(s.node)
    for number in range(15_000):
        login_event(s.node, f"User:{number}")
    assert len(audit._pending) == 10_000
    assert audit.dropped == 5_000
    await s.until(lambda: not audit._pending)
    await s.until(lambda: any(line["event"] == "dropped" for line in lines(s.node)))
    found = lines(s.node)
    (told,) = [line for line in found if line["event"] == "dropped"]
    assert (told["count"], len(found)) == (5_000, 10_001)


@simulated(AUDITED)
async def test_a_disk_that_fails_costs_events_and_nothing_else(s: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = audit_of(s.node)

    def full(end: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit._file, "_append", full)
    await s.create("t")
    await s.until(lambda: audit.failures >= 1)
    assert audit.dropped >= 1
    assert s.node.events.named("audit log not written")
    monkeypatch.undo()
    login_event(s.node, "User:later")
    told, later = await written(s, 2)
    assert (told["event"], told["count"], later["principal"]) == ("dropped", audit.dropped, "User:later")


def test_everything_is_written_when_the_broker_stops() -> None:
    async def scenario(s: Session) -> None:
        for number in range(100):
            login_event(s.node, f"User:{number}")

    assert len(lines(run_session(scenario, AUDITED))) == 100


def test_an_administrative_api_is_one_that_exists() -> None:
    forwarded = {key for key, row in SERVED.items() if row.is_forwarded}
    assert forwarded - ADMINISTRATIVE == {ApiKey.DESCRIBE_QUORUM, ApiKey.LIST_PARTITION_REASSIGNMENTS}


def test_deletions_name_what_they_delete() -> None:
    names, _ = resources_of(deletion(acl(READ, TOPIC, "orders")))
    assert names == ("orders", "User:alice")
