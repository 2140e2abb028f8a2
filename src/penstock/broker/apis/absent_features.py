"""APIs of features that this broker does not have yet, answered as Kafka answers while it has none of them.

Kafka's tools, and clients that ask without looking at ApiVersions first (sarama), call these. A connection that is
closed on them tells nothing; an answer does:

- ACLs (29–31), on a node without an authorizer: SECURITY_DISABLED, with Kafka's words
- SASL (17, 36): ILLEGAL_SASL_STATE, as on a plaintext listener
- delegation tokens (38–41): DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as on a plaintext listener
- SCRAM credentials (50, 51): there are none, and none can be set. Accepting them would promise a protection that nobody
  enforces
- transactions (66): there are none

Requests that would make a client begin to use such a feature are not here and not in the table: transactions
(AddPartitionsToTxn …), share groups, streams groups, telemetry. Whoever adds a feature moves its APIs to modules of
their own. Each function gets the request alone, so controllers and brokers answer alike.

The APIs of transactions are for brokers only, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from penstock.broker.net.access import ANONYMOUS
from penstock.coordinators.groups.consumer.regexes import compile_regex
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from penstock.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from penstock.wire.messages.describe_acls import DescribeAclsResponse
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenResponse
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from penstock.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenResponse
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from penstock.wire.messages.sasl_handshake import SaslHandshakeResponse

NO_SCRAM: Final = "SCRAM credentials are not served by this version of Penstock, so nobody could log in with this one."
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


# ---- SASL and delegation tokens


def sasl_handshake(body: Message) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(body: Message) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SASL is not served by this version of Penstock; connect with security.protocol=PLAINTEXT.",
    )


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


# ---- SCRAM credentials

CREDENTIAL_ABSENT: Final = (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist")
CREDENTIAL_NAMED_TWICE: Final = (
    ErrorCode.DUPLICATE_RESOURCE, "Cannot describe SCRAM credentials for the same user twice in a single request"
)  # fmt: skip


def describe_user_scram_credentials(
    body: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse:
    named = Counter(user.name for user in body.users or [])
    return DescribeUserScramCredentialsResponse(
        results=[
            DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=f"{reason}: {user}")
            for user, times in named.items()
            for code, reason in ((CREDENTIAL_ABSENT if times == 1 else CREDENTIAL_NAMED_TWICE),)
        ]
    )


def alter_user_scram_credentials(body: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    """One result for each user; of several alterations of one user the first that fails is told, as in Kafka."""
    problems = {user.name: (ErrorCode.UNSUPPORTED_VERSION, NO_SCRAM) for user in body.upsertions}
    absent = (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    problems.update({user.name: absent for user in body.deletions})
    if "" in problems:
        problems[""] = (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
            for user, (code, message) in problems.items()
        ]
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
    ApiKey.SASL_HANDSHAKE: sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: sasl_authenticate,
    ApiKey.CREATE_DELEGATION_TOKEN: create_delegation_token,
    ApiKey.RENEW_DELEGATION_TOKEN: renew_delegation_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
}
