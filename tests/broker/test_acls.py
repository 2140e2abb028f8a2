"""ACLs on running nodes: deny by default, who may change them, when they are in force, and what they outlive."""

from __future__ import annotations

from typing import Any

import pytest

from broker.acl_session import (
    ALTER,
    CLUSTER,
    DENY,
    DESCRIBE,
    GROUP,
    PREFIXED,
    READ,
    SECURED,
    TOPIC,
    WRITE,
    acl,
    creation,
    deletion,
    described,
    description,
    login,
)
from broker.clusters import a_cluster, create
from broker.group_session import ConsumerMember, find
from broker.session import Session, batch, fetch_request, produce_request, simulated
from broker.test_authorization import AUTHORIZATION, QUICK, codes_in, prepared, refusals, request_of
from penstock.acls import ANY, MATCH, Acl
from penstock.sim import SimRuntime
from penstock.sim.broker import ProtocolClient
from penstock.wire.acls import Access, ResourceKind
from penstock.wire.apis import SERVED, ApiKey, ServedApi
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.metadata import MetadataRequest

DENIED_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DENIED_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def changed(client: Any, request: Any) -> None:
    answer = await client.call(request, 3)
    assert set(codes_in(answer)) <= {ErrorCode.NONE}, answer


async def produced(client: ProtocolClient, topic: str = "t") -> ErrorCode:
    answer = await client.call(produce_request(topic, batch(b"one")), 11)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def names_seen(client: ProtocolClient) -> list[str | None]:
    return [topic.name for topic in (await client.call(MetadataRequest(topics=None), 12)).topics]


# -- one node ----------------------------------------------------------------------------------------------------------


@simulated(SECURED)
async def test_everything_is_denied_until_an_acl_allows_it_and_again_when_it_is_gone(s: Session) -> None:
    await s.create("t")
    alice = await login(s.runtime, s.node, "alice")
    assert (await produced(alice), await names_seen(alice)) == (DENIED_TOPIC, [])
    writing = acl(WRITE, TOPIC, "t")
    await changed(s, creation(writing))
    assert (await produced(alice), await names_seen(alice)) == (ErrorCode.NONE, ["t"])
    bob = await login(s.runtime, s.node, "bob")
    assert (await produced(bob), await names_seen(bob)) == (DENIED_TOPIC, [])
    await changed(s, deletion(writing))
    assert (await produced(alice), await names_seen(alice)) == (DENIED_TOPIC, [])


@simulated(SECURED)
async def test_a_deny_holds_while_rules_around_it_come_and_go(s: Session) -> None:
    await s.create("t")
    alice = await login(s.runtime, s.node, "alice")
    denied = acl(WRITE, TOPIC, "t", permission=DENY)
    other = acl(READ, TOPIC, "t")
    await changed(s, creation(acl(WRITE, TOPIC, "*"), other))
    assert await produced(alice) == ErrorCode.NONE
    await changed(s, creation(denied))
    assert await produced(alice) == DENIED_TOPIC
    await changed(s, deletion(other))
    assert await produced(alice) == DENIED_TOPIC
    await changed(s, deletion(denied))
    assert await produced(alice) == ErrorCode.NONE


@simulated(SECURED)
async def test_an_acl_may_be_limited_to_a_range_of_addresses(s: Session) -> None:
    await s.create("t")
    await changed(s, creation(acl(WRITE, TOPIC, "t", host="10.0.0.0/24")))
    inside = await login(s.runtime, s.node, "alice", "10.0.0.9")
    outside = await login(s.runtime, s.node, "alice", "10.0.1.9")
    assert (await produced(inside), await produced(outside)) == (ErrorCode.NONE, DENIED_TOPIC)


@simulated(SECURED)
async def test_only_who_may_alter_the_cluster_changes_acls_and_only_who_may_describe_it_sees_them(s: Session) -> None:
    alice = await login(s.runtime, s.node, "alice")
    one = acl(READ, TOPIC, "t")
    for request, version in ((creation(one), 3), (deletion(one), 2), (description(), 1)):
        assert set(codes_in(await alice.call(request, version))) == {DENIED_CLUSTER}
    await changed(s, creation(acl(DESCRIBE, CLUSTER)))
    assert described(await alice.call(description(), 3)) == {acl(DESCRIBE, CLUSTER)}
    assert set(codes_in(await alice.call(creation(one), 3))) == {DENIED_CLUSTER}
    await changed(s, creation(acl(ALTER, CLUSTER)))
    await changed(alice, creation(one))
    assert one in described(await alice.call(description(), 2))


@simulated(SECURED)
async def test_filters_select_acls(s: Session) -> None:
    first, second = acl(READ, TOPIC, "orders"), acl(WRITE, TOPIC, "ord", pattern=PREFIXED, user="bob")
    third = acl(READ, GROUP, "*", permission=DENY)
    await changed(s, creation(first, second, third))

    async def found(**fields: Any) -> set[Acl]:
        return described(await s.call(description(**fields), 3))

    assert await found() == {first, second, third}
    assert await found(resource_type_filter=TOPIC) == {first, second}
    assert await found(resource_type_filter=TOPIC, resource_name_filter="orders", pattern_type_filter=MATCH) == {
        first,
        second,
    }
    assert await found(resource_type_filter=TOPIC, resource_name_filter="orders") == {first}
    assert await found(principal_filter="User:bob") == {second}
    assert await found(permission_type=DENY) == {third}
    assert await found(operation=WRITE) == {second}
    assert await found(host_filter="10.0.0.1") == set()
    refused = await s.call(description(operation=99), 3)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", SERVED[ApiKey.CREATE_ACLS].versions)
@simulated(SECURED)
async def test_acls_are_created_described_and_deleted_in_every_version(s: Session, version: int) -> None:
    one = acl(READ, TOPIC, "t")
    bad = one._replace(host="nowhere")
    created = await s.call(creation(one, bad), version)
    assert [result.error_code for result in created.results] == [0, ErrorCode.INVALID_REQUEST]
    assert described(await s.call(description(), version)) == {one}
    (removed,) = (await s.call(deletion(one), version)).filter_results
    assert [(match.principal, match.operation) for match in removed.matching_acls] == [("User:alice", READ)]
    assert described(await s.call(description(), version)) == set()


@simulated()
async def test_without_an_authoriser_there_are_no_acls(s: Session) -> None:
    for request in (creation(acl(READ)), deletion(acl(READ)), description()):
        assert set(codes_in(await s.call(request, 3))) == {ErrorCode.SECURITY_DISABLED}


@simulated(SECURED)
async def test_acls_outlive_a_power_loss(s: Session) -> None:
    await s.create("t")
    await changed(s, creation(acl(WRITE, TOPIC, "t")))
    await s.restarted(power_loss=True)
    alice = await login(s.runtime, s.node, "alice")
    bob = await login(s.runtime, s.node, "bob")
    assert (await produced(alice), await produced(bob)) == (ErrorCode.NONE, DENIED_TOPIC)


@simulated(SECURED)
async def test_nobody_but_super_users_is_a_follower(s: Session) -> None:
    """A forged replica id: who may read a topic may not fetch as a broker, which shows uncommitted records."""
    await s.create("t")
    await changed(s, creation(acl(READ, TOPIC, "*")))
    alice = await login(s.runtime, s.node, "alice")
    request = fetch_request("t", 0)
    assert not set(codes_in(await alice.call(request, 12))) & AUTHORIZATION
    request.replica_id = 1
    assert set(codes_in(await alice.call(request, 12))) & AUTHORIZATION


@simulated(QUICK | SECURED)
async def test_a_regular_expression_matches_only_topics_that_its_member_may_describe(s: Session) -> None:
    seen, hidden = await s.create("data-seen"), await s.create("data-hidden")
    await find(s)
    await changed(s, creation(acl(READ, GROUP, "c"), acl(DESCRIBE, TOPIC, "data-seen")))
    member = await ConsumerMember.connect(s, "c", subscribed_topic_regex="data-.*")
    member.client = await login(s.runtime, s.node, "alice")
    for _ in range(5):
        assert (await member.heartbeat()).error_code == 0
        await s.runtime.sleep(1_000)
    assert (seen in member.owned, hidden in member.owned) == (True, False)
    await changed(s, creation(acl(DESCRIBE, TOPIC, "data-hidden")))
    await s.runtime.sleep(1_000)
    await s.create("data-new")  # the next refresh
    for _ in range(15):
        assert (await member.heartbeat()).error_code == 0
        await s.runtime.sleep(1_000)
    assert set(member.owned) == {seen, hidden}


# -- the whole table ---------------------------------------------------------------------------------------------------


def granted(row: ServedApi) -> list[Acl]:
    whole = () if row.whole is None else (Access(row.whole, ResourceKind.CLUSTER),)
    return [acl(access.operation, access.kind) for access in (*row.access, *whole)]


UNRESTRICTED = {
    ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.DESCRIBE_CLUSTER,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY,
}  # fmt: skip
"""As in Kafka: served to everyone."""
LISTS = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
"""They show nothing to those who may see nothing, and are no error."""
TOKENS = {
    ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}  # fmt: skip
"""A user may always ask for tokens of its own."""


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in SERVED.values()])
@simulated(QUICK | SECURED)
async def test_every_api_is_refused_without_acls_and_served_with_those_of_its_row(s: Session, row: ServedApi) -> None:
    topic_id = await prepared(s)
    alice = await login(s.runtime, s.node, "alice")
    request = request_of(row, row.max_version, topic_id)
    before = set(codes_in(await alice.call(request, row.max_version))) & AUTHORIZATION
    assert bool(before) is (row.key not in UNRESTRICTED | LISTS | TOKENS)
    if granted(row):
        await changed(s, creation(*granted(row)))
    answer = await alice.call(request_of(row, row.max_version, topic_id), row.max_version)
    assert not AUTHORIZATION & set(codes_in(answer))


@pytest.mark.parametrize(
    ("row", "denied", "expected", "given"),
    [
        pytest.param(*case.values[:1], *case.values[2:], id=case.id)
        for case in refusals()
        if case.values[1] == case.values[0].max_version
    ],
)
@simulated(QUICK | SECURED)
async def test_a_deny_refuses_what_everything_else_allows(
    s: Session, row: ServedApi, denied: tuple[Access, ...], expected: ErrorCode, given: dict[str, Any]
) -> None:
    topic_id = await prepared(s)
    every = [acl(2, kind) for kind in ResourceKind]
    await changed(s, creation(*every, *(acl(one.operation, one.kind, permission=DENY) for one in denied)))
    alice = await login(s.runtime, s.node, "alice")
    answer = await alice.call(request_of(row, row.max_version, topic_id, **given), row.max_version)
    assert set(codes_in(answer)) - {ErrorCode.NONE} == {expected}


def test_the_table_names_every_right_of_every_api() -> None:
    """An API without a right in the table is one of the few that Kafka serves to everyone."""
    unnamed = {key for key, row in SERVED.items() if not row.access and row.whole is None}
    assert unnamed == UNRESTRICTED | TOKENS


# -- clusters ----------------------------------------------------------------------------------------------------------


def test_acls_are_in_force_on_all_nodes_and_outlive_their_controller() -> None:
    with a_cluster(3, SECURED) as cluster:
        assert create(cluster, "t", partitions=3).error_code == 0
        controller = cluster.await_controller()
        other = next(node for node in cluster.nodes if node is not controller)
        allowed, denied = acl(READ, TOPIC, "t"), acl(DESCRIBE, TOPIC, "t", user="bob", permission=DENY)

        async def change(runtime: SimRuntime) -> None:
            client = await ProtocolClient.connect(runtime, other)
            await changed(client, creation(allowed, denied, acl(DESCRIBE, TOPIC, "t", user="bob")))
            assert described(await client.call(description(resource_type_filter=ANY), 3)) >= {allowed, denied}, (
                "the node that answered shows the change at once"
            )

        async def look(runtime: SimRuntime) -> list[tuple[list[str | None], list[str | None], int]]:
            seen = []
            for node in cluster.live:
                alice = await login(runtime, node, "alice")
                bob = await login(runtime, node, "bob")
                refused = await alice.call(creation(acl(WRITE)), 3)
                seen.append((await names_seen(alice), await names_seen(bob), refused.results[0].error_code))
            return seen

        cluster.world.execute(change)
        cluster.await_images()
        assert cluster.world.execute(look) == [(["t"], [], DENIED_CLUSTER)] * 3
        controller.crash()
        cluster.await_(lambda: (found := cluster.controller()) is not None and found is not controller)
        assert cluster.world.execute(look) == [(["t"], [], DENIED_CLUSTER)] * 2
        controller.begin()
        cluster.await_ready()
        cluster.await_images()
        assert cluster.world.execute(look) == [(["t"], [], DENIED_CLUSTER)] * 3


def test_a_coordinators_own_requests_need_no_acl() -> None:
    """A broker that is not the controller creates `__consumer_offsets` for a client that may not create topics."""
    with a_cluster(3, SECURED | {"offsets.topic.replication.factor": "3"}) as cluster:
        other = next(node for node in cluster.nodes if node is not cluster.await_controller())

        async def exchange(runtime: SimRuntime) -> Any:
            await changed(await ProtocolClient.connect(runtime, other), creation(acl(DESCRIBE, GROUP)))
            alice = await login(runtime, other, "alice")
            row = SERVED[ApiKey.FIND_COORDINATOR]
            return await alice.call(request_of(row, 4, b"", key_type=0), 4)

        answer = cluster.world.execute(exchange)
        assert set(codes_in(answer)) == {ErrorCode.NONE}
        assert all(node.image.topic("__consumer_offsets") is not None for node in cluster.nodes)


def test_between_nodes_only_those_with_cluster_action_are_served() -> None:
    """With nobody as super user the nodes of this cluster, which are anonymous, cannot even elect a controller."""
    secured = SECURED | {"super.users": "User:admin"}
    with pytest.raises(TimeoutError), a_cluster(3, secured):
        pass
