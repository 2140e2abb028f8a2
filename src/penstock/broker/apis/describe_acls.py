"""DescribeAcls (29): the ACLs that a filter matches, grouped by resource pattern.

Served: v1–v3. v1 adds pattern types (KIP-290), v2 is flexible, v3 adds the resource type USER. Every node answers from
its own image. Without an authoriser SECURITY_DISABLED.
"""

from __future__ import annotations

from penstock.acls import Acl, AclFilter, checked_filter
from penstock.broker.apis import absent_features
from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def serve(node: ControllerNode, request: Request, body: DescribeAclsRequest) -> DescribeAclsResponse:
    if not request.has_acls:
        return absent_features.describe_acls(body)
    wanted = checked_filter(
        AclFilter(
            body.resource_type_filter,
            body.resource_name_filter,
            body.pattern_type_filter,
            body.principal_filter,
            body.host_filter,
            body.operation,
            body.permission_type,
        )
    )
    by_pattern: dict[tuple[int, str, int], list[Acl]] = {}
    with request.slices() as slices:
        await slices.begin()
        for acl in node.image.acls.values():
            if wanted.matches(acl):
                pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
                by_pattern.setdefault(pattern, []).append(acl)
            await slices.breathe()
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[described(acl) for acl in sorted(found)],
            )
            for (resource_type, name, pattern_type), found in sorted(by_pattern.items())
        ],
    )


def described(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
    )
