"""DeleteAcls (31): delete the ACLs that filters match, and tell which.

Served: v1–v3. v1 adds pattern types (KIP-290), v2 is flexible, v3 adds the resource type USER. Decided by the active
controller. Without an authoriser SECURITY_DISABLED.
"""

from __future__ import annotations

from penstock.acls import Acl, AclFilter
from penstock.broker.apis import absent_features
from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata.requests import AclDeletion
from penstock.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def decide(node: ControllerNode, request: Request, body: DeleteAclsRequest) -> DeleteAclsResponse:
    if not request.has_acls:
        return absent_features.delete_acls(body)
    filters = [filter_of(asked) for asked in body.filters]
    results = await node.quorum.submit(lambda controller: controller.decide_delete_acls(filters))
    return DeleteAclsResponse(filter_results=[result_of(result) for result in results])


def filter_of(asked: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def result_of(result: AclDeletion) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=result.outcome.error,
        error_message=result.outcome.message,
        matching_acls=[deleted(acl) for acl in result.deleted],
    )


def deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
