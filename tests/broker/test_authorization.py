"""Every API asks for what its row of the table names, and answers with Kafka's error if that is not allowed.

An authorizer that denies a few accesses, or allows only a few, stands in for ACLs. Requests are made from their
schemas: one element in each array, and names of things that exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from broker.clusters import a_cluster
from broker.group_session import ConsumerMember, find
from broker.session import Session, batch, simulated
from penstock.broker.net.access import ANONYMOUS, Principal
from penstock.broker.net.request import DENIED, Request
from penstock.sim import SimRuntime
from penstock.sim.broker import CLIENT_ID, ProtocolClient
from penstock.sim.client import FrameClient
from penstock.sim.cluster import CONTROLLER_PORT
from penstock.wire import apis
from penstock.wire.acls import CLUSTER_NAME, Access, Operation, ResourceKind
from penstock.wire.apis import OF_CONTROLLERS, SERVED, ApiKey, ServedApi
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.schema import Field, layout
from penstock.wire.uuids import ZERO_UUID

TOPIC, GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
AUTHORIZATION = set(DENIED.values())
QUICK = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


class Deny:
    """Everything is allowed but these."""

    def __init__(self, *denied: Access) -> None:
        self.denied = denied
        self.asked: list[tuple[Operation, ResourceKind, str]] = []
        self.has_acls = True

    def rule(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> str:
        return "a test"

    def allows(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> bool:
        assert isinstance(name, str)
        assert (name == CLUSTER_NAME) == (kind is ResourceKind.CLUSTER)
        self.asked.append((operation, kind, name))
        return Access(operation, kind) not in self.denied

    def allows_somewhere(self, request: Request, operation: Operation, kind: ResourceKind) -> bool:
        return Access(operation, kind) not in self.denied


class Only(Deny):
    """Nothing is allowed but these."""

    def allows(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> bool:
        return not super().allows(request, operation, kind, name)

    def allows_somewhere(self, request: Request, operation: Operation, kind: ResourceKind) -> bool:
        return not super().allows_somewhere(request, operation, kind)


# -- requests ----------------------------------------------------------------------------------------------------------

TEXTS = {"group_id": "g", "groups": "g", "group_ids": "g", "groups_names": "g", "key": "g", "coordinator_keys": "g"}
SCALARS: dict[str, Any] = {
    "acks": -1,
    "allow_auto_topic_creation": True,
    "cursor": None,
    "generation_id_or_member_epoch": -1,
    "include_authorized_operations": True,
    "instance_id": None,
    "max_bytes": 1 << 20,
    "member_epoch": 0,
    "rack_id": "",
    "replica_id": -1,
    "replica_state": None,
    "resource_type": 2,
    "session_epoch": -1,
    "timestamp": -1,
    "transactional_id": None,
    "transactional_id_pattern": None,
    "upgrade_type": 1,
}
CREATED = {"num_partitions": 1, "replication_factor": 1}


def made(cls: type[Message], version: int, topic_id: bytes, /, **given: Any) -> Any:
    """A message with one element in each array, all of them about topic `t` and group `g`."""
    values = {field.name: value(field, version, topic_id, given) for field in layout(cls, version).fields}
    return cls(**{name: found for name, found in values.items() if found is not ...})


def value(field: Field, version: int, topic_id: bytes, given: dict[str, Any]) -> Any:
    if field.name in given:
        return given[field.name]
    if not isinstance(field.type, str):
        inner = made(field.type, version, topic_id, **given)
        return [inner] if field.array else inner
    if field.name in SCALARS:
        return SCALARS[field.name]
    if field.name == "records":
        return batch(b"one")
    if field.name == "topic_id":
        return topic_id
    if field.type == "string":
        text = TEXTS.get(field.name, "t")
        return [text] if field.array else text
    if field.array:
        return [0]
    return ...


BY_NAME = {"topic_id": ZERO_UUID}
GIVEN: dict[ApiKey, dict[str, Any]] = {
    ApiKey.METADATA: BY_NAME,
    ApiKey.DELETE_TOPICS: BY_NAME,
    ApiKey.CREATE_TOPICS: {"name": "new", **CREATED, "assignments": [], "configs": []},
    ApiKey.CREATE_PARTITIONS: {"count": 3, "assignments": None},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: dict.fromkeys(("subscribed_topic_regex", "server_assignor", "topic_partitions")),
    ApiKey.OFFSET_FETCH: {"member_id": None, "member_epoch": -1},
    ApiKey.INIT_PRODUCER_ID: {"producer_id": -1, "producer_epoch": -1},
    ApiKey.ADD_PARTITIONS_TO_TXN: {"transactional_id": "x"},
    ApiKey.ADD_OFFSETS_TO_TXN: {"transactional_id": "x"},
    ApiKey.END_TXN: {"transactional_id": "x"},
    ApiKey.TXN_OFFSET_COMMIT: {"transactional_id": "x"},
    ApiKey.JOIN_GROUP: {"member_id": "", "group_instance_id": None},
    ApiKey.API_VERSIONS: {"client_software_name": "test", "client_software_version": "1"},
    ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": []},
    ApiKey.LIST_GROUPS: {"states_filter": [], "types_filter": []},
    ApiKey.DESCRIBE_CLUSTER: {"endpoint_type": 1},
}
CONFIGURED = {ResourceKind.TOPIC: (2, "t"), ResourceKind.GROUP: (32, "g"), ResourceKind.CLUSTER: (4, "1")}


def request_of(row: ServedApi, version: int, topic_id: bytes, /, **given: Any) -> Any:
    return made(row.request, version, topic_id, **(GIVEN.get(row.key, {}) | given))


def codes_in(message: Message) -> Iterator[ErrorCode]:
    """Every error code that an answer tells, wherever it has one."""
    for name in message.__struct_fields__:
        inner = getattr(message, name)
        if name in ("error_code", "partition_error_code"):
            yield ErrorCode(inner)
        for item in inner if isinstance(inner, list) else [inner]:
            if isinstance(item, Message):
                yield from codes_in(item)


# -- refused without the right -----------------------------------------------------------------------------------------

ALTERNATIVES: dict[ApiKey, list[tuple[tuple[Access, ...], ErrorCode, dict[str, Any]]]] = {
    ApiKey.PRODUCE: [
        ((apis.WRITE_TOPIC,), TOPIC, {}),
        ((apis.WRITE_TRANSACTIONAL_ID,), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, {"transactional_id": "x"}),
    ],
    ApiKey.FETCH: [((apis.READ_TOPIC,), TOPIC, {})],
    ApiKey.METADATA: [
        ((apis.DESCRIBE_TOPIC,), TOPIC, {}),
        ((apis.CREATE_CLUSTER, apis.CREATE_TOPIC), TOPIC, {"name": "absent"}),
    ],
    ApiKey.FIND_COORDINATOR: [
        ((apis.DESCRIBE_GROUP,), GROUP, {"key_type": 0}),
    ],
    ApiKey.LIST_GROUPS: [],
    ApiKey.CREATE_TOPICS: [((apis.CREATE_CLUSTER, apis.CREATE_TOPIC), TOPIC, {})],
    ApiKey.DELETE_TOPICS: [((apis.DELETE_TOPIC,), TOPIC, {})],
    ApiKey.INIT_PRODUCER_ID: [
        ((apis.WRITE_TRANSACTIONAL_ID,), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, {"transactional_id": "x"}),
        ((apis.IDEMPOTENT_WRITE, apis.WRITE_TOPIC), ErrorCode.CLUSTER_AUTHORIZATION_FAILED, {}),
    ],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [((apis.CLUSTER_ACTION, apis.DESCRIBE_TOPIC), TOPIC, {})],
    ApiKey.WRITE_TXN_MARKERS: [
        ((apis.CLUSTER_ACTION, apis.ALTER_CLUSTER), ErrorCode.CLUSTER_AUTHORIZATION_FAILED, {}),
    ],
    ApiKey.LIST_TRANSACTIONS: [],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [((apis.DESCRIBE_GROUP,), GROUP, {})],
}
"""(what is denied, the error, what is special in the request), where the table alone does not tell."""


def refusals() -> Iterable[Any]:
    for key, row in SERVED.items():
        cases = ALTERNATIVES.get(key)
        if cases is None:
            cases = [((access,), DENIED[access.kind], of_kind(key, access.kind)) for access in row.access]
        if row.whole is not None:
            whole = Access(row.whole, ResourceKind.CLUSTER)
            cases = [*cases, ((whole,), ErrorCode.CLUSTER_AUTHORIZATION_FAILED, {})]
        for denied, expected, given in cases:
            for version in row.versions:
                if key is ApiKey.ADD_PARTITIONS_TO_TXN and (version >= 4) != (apis.CLUSTER_ACTION in denied):
                    continue  # from producers until 3, from brokers since
                told = "+".join(f"{access.operation.name}-{access.kind.name}" for access in denied)
                yield pytest.param(row, version, denied, expected, given, id=f"{row.name}-v{version}-{told}")


def of_kind(key: ApiKey, kind: ResourceKind) -> dict[str, Any]:
    """A request about configurations names a resource of the kind that is denied."""
    if key not in (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        return {}
    number, name = CONFIGURED[kind]
    return {"resource_type": number, "resource_name": name}


@pytest.mark.parametrize(("row", "version", "denied", "expected", "given"), list(refusals()))
@simulated(QUICK)
async def test_without_the_right_it_is_refused_with_kafkas_error(
    s: Session, row: ServedApi, version: int, denied: tuple[Access, ...], expected: ErrorCode, given: dict[str, Any]
) -> None:
    topic_id = await prepared(s)
    s.node.served.gate.configure(authorizer=Deny(*denied))
    answer = await s.call(request_of(row, version, topic_id, **given), version)
    told = set(codes_in(answer)) - {ErrorCode.NONE}
    if row.key is ApiKey.DESCRIBE_LOG_DIRS and version < 3:
        assert (told, answer.results) == (set(), []), "as in Kafka: that version has no place for the error"
    else:
        assert told == {expected}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in SERVED.values()])
@simulated(QUICK)
async def test_with_the_rights_of_its_row_and_no_other_it_is_served(s: Session, row: ServedApi) -> None:
    topic_id = await prepared(s)
    whole = () if row.whole is None else (Access(row.whole, ResourceKind.CLUSTER),)
    authorizer = Only(*row.access, *whole)
    s.node.served.gate.configure(authorizer=authorizer)
    answer = await s.call(request_of(row, row.max_version, topic_id), row.max_version)
    assert not AUTHORIZATION & set(codes_in(answer))
    if row.access or whole:
        assert authorizer.asked or row.key in (ApiKey.INIT_PRODUCER_ID, ApiKey.LIST_TRANSACTIONS)


async def prepared(s: Session) -> bytes:
    await find(s)
    return await s.create("t", partitions=1)


# -- what is hidden ----------------------------------------------------------------------------------------------------


@simulated(QUICK)
async def test_lists_show_only_what_may_be_described(s: Session) -> None:
    topic_id = await prepared(s)
    member = await ConsumerMember.connect(s, "g", ["t"])
    assert (await member.heartbeat()).error_code == 0
    gate = s.node.served.gate
    gate.configure(authorizer=Deny(apis.DESCRIBE_TOPIC, apis.DESCRIBE_GROUP, apis.DESCRIBE_CLUSTER))
    everything = await s.call(MetadataRequest(topics=None, include_cluster_authorized_operations=True), 10)
    assert everything.topics == []
    assert everything.cluster_authorized_operations == 0
    by_id = await s.call(MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)]), 12)
    assert [(topic.error_code, topic.name) for topic in by_id.topics] == [(ErrorCode.UNKNOWN_TOPIC_ID, None)]
    listed = request_of(SERVED[ApiKey.LIST_GROUPS], 5, topic_id)
    assert (await s.call(listed, 5)).groups == []
    gate.configure(authorizer=Deny(apis.DESCRIBE_GROUP))
    assert len((await s.call(listed, 5)).groups) == 1, "Describe on the cluster shows all groups"


@simulated(QUICK)
async def test_a_group_that_reads_hidden_topics_is_not_described(s: Session) -> None:
    await prepared(s)
    member = await ConsumerMember.connect(s, "g", ["t"])
    assert (await member.heartbeat()).error_code == 0
    s.node.served.gate.configure(authorizer=Deny(apis.DESCRIBE_TOPIC))
    (group,) = (await s.call(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)).groups
    assert (group.error_code, group.members) == (TOPIC, [])


@simulated(QUICK)
async def test_a_creator_who_may_not_describe_configs_is_not_told_them(s: Session) -> None:
    s.node.served.gate.configure(authorizer=Deny(apis.DESCRIBE_CONFIGS_TOPIC))
    request = CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)])
    (topic,) = (await s.call(request, 7)).topics
    assert (topic.error_code, topic.topic_config_error_code, topic.configs) == (0, TOPIC, [])
    assert topic.num_partitions == -1


@simulated(QUICK)
async def test_a_topic_that_is_named_by_its_id_keeps_its_name_secret(s: Session) -> None:
    topic_id = await prepared(s)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    gate = s.node.served.gate
    gate.configure(authorizer=Deny(apis.DELETE_TOPIC, apis.DESCRIBE_TOPIC))
    (hidden,) = (await s.call(request, 6)).responses
    gate.configure(authorizer=Deny(apis.DELETE_TOPIC))
    (known,) = (await s.call(request, 6)).responses
    assert (hidden.error_code, hidden.name, known.error_code, known.name) == (TOPIC, None, TOPIC, "t")


@simulated(QUICK)
async def test_authorized_operations_are_those_that_are_allowed(s: Session) -> None:
    await prepared(s)
    s.node.served.gate.configure(authorizer=Only(apis.DESCRIBE_TOPIC, apis.READ_TOPIC))
    topic = MetadataRequestTopic(name="t")
    (found,) = (await s.call(MetadataRequest(topics=[topic], include_topic_authorized_operations=True), 12)).topics
    assert found.topic_authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE


# -- between nodes -----------------------------------------------------------------------------------------------------

MEMBERS_ONLY = [row for row in OF_CONTROLLERS.values() if row.is_for_members]


def test_what_members_alone_may_ask_is_refused_without_cluster_action() -> None:
    with a_cluster() as cluster:
        node = cluster.await_controller()
        deny = Deny(apis.CLUSTER_ACTION)

        async def exchange(runtime: SimRuntime) -> dict[str, set[ErrorCode]]:
            answers = {}
            for row in MEMBERS_ONLY:
                client = ProtocolClient(await FrameClient.connect(runtime, f"node-{node.node_id}", CONTROLLER_PORT))
                node.served.gate.configure(authorizer=deny)
                try:
                    answers[row.name] = set(codes_in(await client.call(row.request(), row.max_version)))
                finally:
                    node.served.gate.configure()
                    client.close()
            return answers

        found = cluster.world.execute(exchange)
        assert found == {row.name: {ErrorCode.CLUSTER_AUTHORIZATION_FAILED} for row in MEMBERS_ONLY}
        assert len(MEMBERS_ONLY) == 10


class Recording(Deny):
    """What the controller knew of those who asked it."""

    def __init__(self) -> None:
        super().__init__()
        self.senders: list[tuple[str, Principal | None, str, str]] = []

    def allows(self, request: Request, operation: Operation, kind: ResourceKind, name: str) -> bool:
        self.senders.append((request.row.name, request.principal, request.client_id, request.host))
        return super().allows(request, operation, kind, name)


def test_the_controller_knows_the_client_of_a_forwarded_request() -> None:
    """Principal and client id come through the envelope; the connection is that of the broker."""
    with a_cluster() as cluster:
        controller = cluster.await_controller()
        other = next(node for node in cluster.nodes if node is not controller)
        alice = Principal("User", "alice", True)
        recording = Recording()
        controller.served.gate.configure(authorizer=recording)

        async def exchange(runtime: SimRuntime) -> Any:
            client = await ProtocolClient.connect(runtime, other)
            for connection in other.served.service._connections.values():
                connection.request.client.principal = alice
                connection.request.client.host = "192.0.2.7"
            topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
            return await client.call(CreateTopicsRequest(topics=[topic]), 7)

        (created,) = cluster.world.execute(exchange).topics
        assert created.error_code == 0
        asked = [sender for sender in recording.senders if sender[0] == "CreateTopics"]
        assert asked
        assert set(asked) == {("CreateTopics", alice, CLIENT_ID, "192.0.2.7")}


def test_a_principal_survives_the_envelope_and_rubbish_does_not() -> None:
    for principal in (ANONYMOUS, Principal("User", "ä" * 200, True)):
        assert Principal.from_bytes(principal.to_bytes()) == principal
    for data in (b"", b"\0", b"\0\1" + ANONYMOUS.to_bytes()[2:], ANONYMOUS.to_bytes() + b"x"):
        with pytest.raises(Exception, match="PRINCIPAL_DESERIALIZATION_FAILURE"):
            Principal.from_bytes(data)
