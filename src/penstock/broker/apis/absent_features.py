"""APIs of features that this broker does not have yet, answered as Kafka answers while it has none of them.

Kafka's tools, and clients that ask without looking at ApiVersions first (sarama), call these. A connection that is
closed on them tells nothing; an answer does:

- ACLs (29–31): SECURITY_DISABLED, with Kafka's words for a broker that has no authorizer
- delegation tokens (38–41): DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on a plaintext listener
- quotas (48, 49): there are none, and none can be set. Accepting them would promise a limit that nobody enforces
- transactions (66): there are none

Requests that would make a client begin to use such a feature are not here and not in the table: transactions
(AddPartitionsToTxn …), share groups, streams groups, telemetry. Whoever adds a feature moves its APIs to modules of
their own. Each function gets the request alone, so controllers and brokers answer alike.

DescribeClientQuotas and the APIs of transactions are for brokers only, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker.net.access import ANONYMOUS
from penstock.coordinators.groups.consumer.regexes import compile_regex
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from penstock.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from penstock.wire.messages.describe_acls import DescribeAclsResponse
from penstock.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenResponse
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from penstock.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenResponse

NO_QUOTAS: Final = (
    "Client quotas are not served by this version of Penstock, so the setting would have no effect. The broker's own "
    "limits are max.connections, max.connections.per.ip and max.connection.creation.rate."
)
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


# ---- quotas

QUOTA_ENTITIES: Final = ("user", "client-id", "ip")
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def describe_client_quotas(body: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    check_quota_filter(body.components)
    return DescribeClientQuotasResponse()


def check_quota_filter(components: list[ComponentData]) -> None:
    """Kafka's rules: a filter that makes no sense is told apart from one that finds nothing."""
    seen: list[str] = []
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in seen:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in QUOTA_ENTITIES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        if component.match_type == EXACT and component.match is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        seen.append(kind)
    if "ip" in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        )


def alter_client_quotas(body: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[altered_quota(entry) for entry in body.entries])


def altered_quota(entry: AlterClientQuotasRequestEntryData) -> AlterClientQuotasResponseEntryData:
    sets = any(not operation.remove for operation in entry.ops)
    return AlterClientQuotasResponseEntryData(
        error_code=ErrorCode.UNSUPPORTED_VERSION if sets else ErrorCode.NONE,
        error_message=NO_QUOTAS if sets else None,
        entity=[
            AlterClientQuotasResponseEntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ],
    )


# ---- transactions

TRANSACTION_STATES: Final = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip


def list_transactions(body: ListTransactionsRequest) -> ListTransactionsResponse:
    compile_regex(body.transactional_id_pattern or "")
    return ListTransactionsResponse(
        unknown_state_filters=[state for state in body.state_filters if state not in TRANSACTION_STATES]
    )


ANSWERS: Final[dict[ApiKey, Answer]] = {
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.CREATE_ACLS: create_acls,
    ApiKey.DELETE_ACLS: delete_acls,
    ApiKey.CREATE_DELEGATION_TOKEN: create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
}
