"""The security of one listener: the broker's properties, with those that `listener.name.<name>.…` sets for it alone.

    listener.name.clients.ssl.client.auth=required
    listener.name.clients.plain.sasl.jaas.config=…PlainLoginModule required user_alice="…";

A login belongs to one mechanism, so its property has the mechanism's name as a further prefix; without it, the login
is for all mechanisms of the listener.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.config.definitions import Value, parse
from penstock.config.jaas import Login, parse_jaas
from penstock.config.listeners import LISTENER_PREFIX
from penstock.config.security_table import MECHANISMS, OF_LISTENER, Logins, Tls, Tokens
from penstock.config.tables import View, fresh

JAAS = "sasl.jaas.config"


class ListenerSecurity(Tls, Logins, Tokens, View):
    """The effective properties of one listener."""

    name: str = ""
    protocol: str = "PLAINTEXT"
    logins: Mapping[str, Login] = fresh(dict)
    """By mechanism."""

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def split_property(name: str, listeners: Iterable[str]) -> tuple[str, str] | None:
    """(listener, property) of `listener.name.<listener>.<property>`; None if there is no such listener."""
    rest = name.removeprefix(LISTENER_PREFIX)
    for listener in listeners:
        if rest.lower().startswith(listener.lower() + "."):
            return listener, rest[len(listener) + 1 :]
    return None


def listener_security(
    name: str, protocol: str, values: Mapping[str, Value], own: Mapping[str, str], problems: list[str]
) -> ListenerSecurity:
    """`values`: those of the broker. `own`: what is set for this listener, by the property's name without prefix."""
    effective = dict(values)
    texts: dict[str, str] = {}
    if isinstance(values[JAAS], str):
        texts.update(dict.fromkeys(MECHANISMS, str(values[JAAS])))
    for key, text in own.items():
        of_mechanism, _, rest = key.partition(".")
        if rest == JAAS and of_mechanism.upper() in MECHANISMS:
            texts[of_mechanism.upper()] = text
        elif key == JAAS:
            texts.update({mechanism: text for mechanism in MECHANISMS if f"{mechanism.lower()}.{JAAS}" not in own})
        elif key in OF_LISTENER:
            try:
                effective[key] = parse(OF_LISTENER[key], text)
            except ValueError as error:
                shown = "" if OF_LISTENER[key].sensitive else f"={text.strip()}"
                problems.append(f"{LISTENER_PREFIX}{name.lower()}.{key}{shown}: {error}")
    logins: dict[str, Login] = {}
    for mechanism, text in texts.items():
        try:
            logins[mechanism] = parse_jaas(text)
        except ValueError as error:
            problems.append(f"{JAAS} for {mechanism} on the listener {name} {error}")
    attributes: dict[str, object] = {
        row.attribute: row.scaled(effective[key]) for key, row in OF_LISTENER.items() if not row.is_folded
    }
    security = ListenerSecurity.of({**attributes, "name": name, "protocol": protocol, "logins": logins})
    _check(security, problems)
    return security


def _check(security: ListenerSecurity, problems: list[str]) -> None:
    where = f"listeners: {security.name} with the protocol {security.protocol}"
    if security.uses_tls:
        inline = security.ssl_keystore_key, security.ssl_keystore_certificate_chain
        if security.ssl_keystore_location is None and None in inline:
            problems.append(
                f"{where} needs a certificate: set ssl.keystore.location, or ssl.keystore.key and "
                "ssl.keystore.certificate.chain"
            )
        if security.ssl_keystore_location is not None and inline != (None, None):
            problems.append(f"{where} has a certificate twice: set ssl.keystore.location or ssl.keystore.key, not both")
        if (
            security.ssl_client_auth != "none"
            and security.ssl_truststore_location is None
            and security.ssl_truststore_certificates is None
        ):
            problems.append(
                f"{where} asks for clients' certificates (ssl.client.auth={security.ssl_client_auth}), but trusts no "
                "authority: set ssl.truststore.location"
            )
    if security.uses_sasl:
        if not security.sasl_enabled_mechanisms:
            problems.append(f"{where} needs sasl.enabled.mechanisms: some of {', '.join(MECHANISMS)}")
        if "OAUTHBEARER" in security.sasl_enabled_mechanisms:
            if security.jwks_endpoint_url is None:
                problems.append(
                    f"{where} offers OAUTHBEARER and needs the issuer's keys: set sasl.oauthbearer.jwks.endpoint.url"
                )
            if not security.oauth_expected_audience:
                problems.append(
                    f"{where} offers OAUTHBEARER and needs sasl.oauthbearer.expected.audience: tokens that the same "
                    "issuer made for other services must not open this one"
                )
