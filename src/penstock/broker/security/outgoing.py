"""How this node connects to other nodes: TLS, and a login if their listener asks for one.

Brokers reach each other on the listener `inter.broker.listener.name`, and every node reaches controllers on
`controller.listener.names`. The security of both comes from this node's own configuration of the listener of that name,
as in Kafka: the nodes of a cluster have the same one. With SSL a node shows the certificate of its key store. With SASL
it logs in with `username` and `password` of the listener's `sasl.jaas.config`, by
`sasl.mechanism.inter.broker.protocol` or `sasl.mechanism.controller.protocol`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from penstock.broker.net.peer_connection import PeerUnavailable
from penstock.broker.security import scram
from penstock.broker.security.plain import plain_message
from penstock.config import ListenerSecurity
from penstock.runtime import Runtime, Tls

Exchange = Callable[[bytes], Awaitable[bytes]]
"""Sends a message of a login, and returns the answer. Raises PeerUnavailable if the peer refuses it."""


class NodeLogin:
    """This node's login to listeners of one name."""

    def __init__(self, runtime: Runtime, mechanism: str, user: str, password: str) -> None:
        self.mechanism = mechanism
        self._runtime = runtime
        self._user = user
        self._password = password
        self._salted: tuple[bytes, int, bytes] | None = None
        """Salt, iterations and salted password of the last login: reconnecting costs no hashing."""

    async def run(self, exchange: Exchange) -> None:
        """Raises PeerUnavailable."""
        if self.mechanism == "PLAIN":
            await exchange(plain_message(self._user, self._password))
            return
        number = scram.MECHANISMS[self.mechanism]
        client = scram.ClientExchange(number, self._user, self._runtime.secret_bytes(scram.NONCE_BYTES).hex())
        try:
            salt, iterations = client.challenged(await exchange(client.first()))
            if self._salted is None or self._salted[:2] != (salt, iterations):
                hashed = await self._runtime.offload(scram.salted_password, number, self._password, salt, iterations)
                self._salted = (salt, iterations, hashed)
            client.verify(await exchange(client.final(self._salted[2])))
        except scram.ScramError as error:
            raise PeerUnavailable(f"login failed: {error}") from None


class PeerSecurity(NamedTuple):
    """The security of connections to listeners of one name. The default is a plain connection."""

    tls: Tls | None = None
    login: NodeLogin | None = None


PLAIN_PEERS = PeerSecurity()


def node_login(runtime: Runtime, security: ListenerSecurity, mechanism: str | None, setting: str) -> NodeLogin | None:
    """Raises ValueError if the settings are incomplete."""
    if not security.uses_sasl:
        return None
    if mechanism is None:
        raise ValueError(f"{setting} must name the mechanism with which nodes log in on the listener {security.name}")
    if mechanism not in security.sasl_enabled_mechanisms:
        raise ValueError(f"{setting}={mechanism} is not in sasl.enabled.mechanisms of the listener {security.name}")
    login = security.logins.get(mechanism)
    user = None if login is None else login.options.get("username")
    password = None if login is None else login.options.get("password")
    if user is None or password is None:
        raise ValueError(
            f"nodes log in on the listener {security.name} with {mechanism}: set username and password in "
            f"listener.name.{security.name.lower()}.{mechanism.lower()}.sasl.jaas.config"
        )
    return NodeLogin(runtime, mechanism, user, password)
