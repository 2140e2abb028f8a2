"""APIs of features that this broker does not have yet, answered as Kafka answers while it has none of them.

Kafka's tools, and clients that ask without looking at ApiVersions first (sarama), call these. A connection that is
closed on them tells nothing; an answer does:

- ACLs (29–31), on a node without an authorizer: SECURITY_DISABLED, with Kafka's words
- delegation tokens (38–41): DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on a plaintext listener

Requests that would make a client begin to use such a feature are not here and not in the table: share groups, streams
groups, telemetry. Whoever adds a feature moves its APIs to modules of their own. Each function gets the request alone,
so controllers and brokers answer alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker.net.access import ANONYMOUS
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from penstock.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from penstock.wire.messages.describe_acls import DescribeAclsResponse
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenResponse
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenResponse

TOKENS_REFUSED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NO_TIMESTAMP: Final = -1

Answer = Callable[[Any], Message]


def answering(key: ApiKey) -> Callable[[object, object, Any], Message]:
    """The handler of an API whose answer depends on nothing but the body of the request."""
    answer = ANSWERS[key]
    return lambda node, request, body: answer(body)


# ---- ACLs


def describe_acls(body: Message) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )


def create_acls(body: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured.")
    return CreateAclsResponse(results=[refused] * len(body.creations))


def delete_acls(body: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return DeleteAclsResponse(filter_results=[refused] * len(body.filters))


# ---- delegation tokens


def create_delegation_token(body: Message) -> CreateDelegationTokenResponse:
    kind, name, _ = ANONYMOUS
    return CreateDelegationTokenResponse(
        error_code=TOKENS_REFUSED,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )


def renew_delegation_token(body: Message) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=TOKENS_REFUSED, expiry_timestamp_ms=NO_TIMESTAMP)


def expire_delegation_token(body: Message) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=TOKENS_REFUSED, expiry_timestamp_ms=NO_TIMESTAMP)


def describe_delegation_token(body: Message) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=TOKENS_REFUSED)


ANSWERS: Final[dict[ApiKey, Answer]] = {
    ApiKey.CREATE_DELEGATION_TOKEN: create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
}
