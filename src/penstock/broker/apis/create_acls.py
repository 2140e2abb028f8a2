"""CreateAcls (30): allow or deny principals operations on resources.

Served: v1–v3. v1 adds prefixed patterns (KIP-290), v2 is flexible, v3 adds the resource type USER. Each ACL succeeds or
fails alone; one that exists already succeeds. Decided by the active controller. Without authoriser SECURITY_DISABLED.
"""

from __future__ import annotations

from penstock.broker.apis import absent_features
from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.broker.quorum.forwarding import created_acl
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def decide(node: ControllerNode, request: Request, body: CreateAclsRequest) -> CreateAclsResponse:
    if not request.has_acls:
        return absent_features.create_acls(body)
    acls = [created_acl(creation) for creation in body.creations]
    outcomes = await node.quorum.submit(lambda controller: controller.decide_create_acls(acls))
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=outcome.error, error_message=outcome.message or "") for outcome in outcomes
        ]
    )
