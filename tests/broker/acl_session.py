"""What the tests of ACLs share: brokers with an authoriser, users who connect to them, and ACLs in a few words.

The nodes of the simulation connect in plaintext, as `User:ANONYMOUS`, which is a super user here. A client becomes
another user when `login` says so; tests with real logins are in `tests/processes`.
"""

from __future__ import annotations

from typing import Any

from penstock.acls import ANY, Acl
from penstock.broker.net.access import Principal
from penstock.broker.quotas.admission import lower
from penstock.config.access_table import STANDARD_AUTHORIZER
from penstock.sim import SimRuntime
from penstock.sim.broker import ProtocolClient, SimBroker
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.messages.describe_acls import DescribeAclsRequest

SECURED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3


async def login(runtime: SimRuntime, node: SimBroker, user: str, host: str = "10.0.0.7") -> ProtocolClient:
    """A connection of this user."""
    known = set(node.served.service._connections)
    client = await ProtocolClient.connect(runtime, node)
    connections = node.served.service._connections
    (number,) = set(connections) - known
    of_connection = connections[number].request.client
    of_connection.principal = Principal("User", user)
    counts = node.served.service.admission._per_host
    counts[host] = counts.get(host, 0) + 1
    lower(counts, of_connection.host)
    of_connection.host = host
    return client


def acl(
    operation: int,
    kind: int = ResourceKind.TOPIC,
    name: str = "*",
    *,
    user: str = "alice",
    pattern: int = LITERAL,
    host: str = "*",
    permission: int = ALLOW,
) -> Acl:
    if kind == ResourceKind.CLUSTER:
        name = "kafka-cluster"
    return Acl(kind, name, pattern, f"User:{user}", host, operation, permission)


def creation(*acls: Acl) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                resource_pattern_type=one.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in acls
        ]
    )


def deletion(*acls: Acl) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=one.resource_type,
                resource_name_filter=one.resource_name,
                pattern_type_filter=one.pattern_type,
                principal_filter=one.principal,
                host_filter=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in acls
        ]
    )


def description(**fields: Any) -> DescribeAclsRequest:
    everything: dict[str, Any] = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return DescribeAclsRequest(**(everything | fields))


def described(answer: Any) -> set[Acl]:
    assert answer.error_code == 0, answer.error_message
    return {
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for resource in answer.resources
        for one in resource.acls
    }


READ, WRITE, ALTER, DESCRIBE = Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DESCRIBE
TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
