"""DescribeUserScramCredentials (50): which users can log in with SCRAM, and how often their passwords are hashed.

Served: v0. Keys and salts are never told. Any broker or controller answers from its metadata.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

ABSENT: Final = (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist")
NAMED_TWICE: Final = (
    ErrorCode.DUPLICATE_RESOURCE,
    "Cannot describe SCRAM credentials for the same user twice in a single request",
)


def serve(
    node: ControllerNode, request: Request, body: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    infos: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), credential in node.image.scram.items():
        infos.setdefault(user, []).append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    # Kafka describes all users for a missing list and for an empty one.
    named = Counter(user.name for user in body.users) if body.users else Counter(dict.fromkeys(infos, 1))
    return DescribeUserScramCredentialsResponse(
        error_message="", results=[_result(user, times, infos) for user, times in named.items()]
    )


def _result(user: str, times: int, infos: dict[str, list[CredentialInfo]]) -> DescribeUserScramCredentialsResult:
    if times > 1 or user not in infos:
        code, reason = NAMED_TWICE if times > 1 else ABSENT
        return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=f"{reason}: {user}")
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos[user])
