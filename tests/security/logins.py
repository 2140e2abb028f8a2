"""A broker with logins on a simulated host, and clients that log in."""

from __future__ import annotations

from typing import Any

from broker.session import Session
from penstock.broker.security import scram
from penstock.sim.broker import KAFKA_PORT, ProtocolClient
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest

SASL_PORT = KAFKA_PORT + 10
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="b";'
WITH_LOGINS = {
    "listeners": f"PLAINTEXT://broker:{KAFKA_PORT},LOGINS://broker:{SASL_PORT}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGINS:SASL_PLAINTEXT",
    "listener.name.logins.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.logins.plain.sasl.jaas.config": JAAS,
}
"""A plaintext listener for the test's own requests, and one that asks for a login."""


async def connected(s: Session, port: int = SASL_PORT) -> ProtocolClient:
    return await ProtocolClient.connect(s.runtime, s.node, port=port)


async def handshake(client: ProtocolClient, mechanism: str) -> Any:
    return await client.call(SaslHandshakeRequest(mechanism=mechanism), 1)


async def plain_login(client: ProtocolClient, user: str, password: str) -> Any:
    assert (await handshake(client, "PLAIN")).error_code == 0
    return await client.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)


async def scram_login(client: ProtocolClient, mechanism: str, user: str, password: str) -> Any:
    assert (await handshake(client, mechanism)).error_code == 0
    number = scram.MECHANISMS[mechanism]
    mine = scram.ClientExchange(number, user, "nonce-of-the-test")
    answer = await client.call(SaslAuthenticateRequest(auth_bytes=mine.first()), 2)
    salt, iterations = mine.challenged(answer.auth_bytes)
    final = mine.final(scram.salted_password(number, password, salt, iterations))
    answer = await client.call(SaslAuthenticateRequest(auth_bytes=final), 2)
    if answer.error_code == 0:
        mine.verify(answer.auth_bytes)
    return answer


def upsertion(user: str, password: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    salt = b"salt of the test"
    salted = scram.salted_password(mechanism, password, salt, iterations)
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


async def set_password(s: Session, user: str, password: str, mechanism: int = 1) -> None:
    answer = await s.call(AlterUserScramCredentialsRequest(upsertions=[upsertion(user, password, mechanism)]))
    assert [(result.user, result.error_code) for result in answer.results] == [(user, 0)]
