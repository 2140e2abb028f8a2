"""AlterUserScramCredentials (51): set and delete the SCRAM credentials of users (KIP-554).

Served: v0. The client hashes the password; neither it nor the salted form is stored. A user's changes are made all or
not at all. Decided by the active controller.
"""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.broker.node import ControllerNode
from penstock.metadata.credentials import CredentialDeletion, CredentialUpsertion
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def decide(
    node: ControllerNode, request: Request, body: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    deletions = [CredentialDeletion(entry.name, entry.mechanism) for entry in body.deletions]
    upsertions = [
        CredentialUpsertion(
            entry.name, entry.mechanism, entry.iterations, bytes(entry.salt), bytes(entry.salted_password)
        )
        for entry in body.upsertions
    ]
    results = await node.quorum.submit(lambda controller: controller.decide_alter_credentials(deletions, upsertions))
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=result.user, error_code=result.error, error_message=result.message)
            for result in results
        ]
    )
