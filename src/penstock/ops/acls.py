"""ACLs of any Kafka cluster: list, create and delete them, and say which one decides.

`explain` reads the ACLs that apply to a resource and decides as the brokers do (`penstock.acls`). `super.users` and
`allow.everyone.if.no.acl.found` are settings of the brokers. Penstock's brokers describe them; Apache Kafka's do not,
and then the explanation says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.acls import MATCH, Acl, AclFilter, AclIndex, Decisions, Verdict, acl_id, host_matches
from penstock.client import Address, BrokerError, Cluster, Connection
from penstock.wire.acls import Operation, ResourceKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

BROKER = 4
SUPER_USERS = "super.users"
ALLOW_IF_NONE = "allow.everyone.if.no.acl.found"


def list_acls(connection: Connection, wanted: AclFilter) -> list[Acl]:
    """Raises BrokerError."""
    answer = connection.call(
        DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        ),
        DescribeAclsResponse,
    )
    _check(answer.error_code, answer.error_message, "list the ACLs")
    return sorted(
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    )


def create_acls(connection: Connection, acls: Sequence[Acl]) -> None:
    """Raises BrokerError for the first that was refused; the others may have been created."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
    answer = connection.call(request, CreateAclsResponse)
    for acl, result in zip(acls, answer.results, strict=True):
        _check(result.error_code, result.error_message, f"create the ACL {acl}")


def delete_acls(connection: Connection, filters: Iterable[AclFilter]) -> list[Acl]:
    """Returns the ACLs that were deleted. Raises BrokerError."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=wanted.resource_type,
                resource_name_filter=wanted.resource_name,
                pattern_type_filter=wanted.pattern_type,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            )
            for wanted in filters
        ]
    )
    deleted: dict[Acl, None] = {}
    for result in connection.call(request, DeleteAclsResponse).filter_results:
        _check(result.error_code, result.error_message, "delete the ACLs")
        for acl in result.matching_acls:
            _check(acl.error_code, acl.error_message, "delete an ACL")
            found = Acl(
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            deleted[found] = None
    return sorted(deleted)


# ---- explaining


class Settings(NamedTuple):
    """The brokers' own rules; None where they are not told."""

    super_users: tuple[str, ...] | None = None
    allow_if_no_acl_found: bool | None = None


class Explanation(NamedTuple):
    verdict: Verdict
    settings: Settings
    considered: list[Acl]
    """ACLs for this resource and principal, whether they apply or not."""
    elsewhere: list[Acl]
    """Those of them that are for other hosts than the one in question."""


def explain(
    cluster: Cluster, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str
) -> Explanation:
    """Raises BrokerError."""
    acls = list_acls(cluster.any_broker(), AclFilter(kind, name, MATCH))
    settings = broker_settings(cluster)
    decisions = Decisions(
        super_users=settings.super_users or (),
        allow_if_no_acl_found=bool(settings.allow_if_no_acl_found),
        index=AclIndex((acl_id(acl), acl) for acl in acls),
    )
    of_principal = [acl for acl in acls if acl.principal in (principal, "User:*")]
    principal_kind, _, principal_name = principal.partition(":")
    return Explanation(
        decisions.decide(principal_kind, principal_name, host, operation, kind, name),
        settings,
        of_principal,
        [acl for acl in of_principal if not host_matches(acl.host, host)],
    )


def broker_settings(cluster: Cluster) -> Settings:
    """What a broker tells about its authoriser; nothing if that is not allowed or not known."""
    brokers = cluster.any_broker().call(DescribeClusterRequest(), DescribeClusterResponse).brokers
    if not brokers:
        return Settings()
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=BROKER,
                resource_name=str(brokers[0].broker_id),
                configuration_keys=[SUPER_USERS, ALLOW_IF_NONE],
            )
        ]
    )
    connection = cluster.connect(Address(brokers[0].host, brokers[0].port))
    (result,) = connection.call(request, DescribeConfigsResponse).results
    values = {config.name: config.value for config in result.configs}
    users, allowing = values.get(SUPER_USERS), values.get(ALLOW_IF_NONE)
    return Settings(
        None if users is None else tuple(user.strip() for user in users.split(";") if user.strip()),
        None if allowing is None else allowing == "true",
    )


def _check(code: int, message: str | None, doing: str) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(code), message or "", doing=doing)
