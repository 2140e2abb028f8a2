"""Reads the `sasl.*` properties, under Java's and librdkafka's names, into `SaslSettings`."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from penstock.client import jaas, tls
from penstock.client.errors import SettingsError, UnsupportedSetting
from penstock.client.sasl import MECHANISMS, OAUTHBEARER, PLAIN, OAuthSettings, SaslSettings
from penstock.client.tokens import SCHEMES

DEFAULT_MECHANISM = "GSSAPI"

KNOWN = frozenset(
    {
        "sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "sasl.username", "sasl.password",
        "sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "sasl.login.class",
        "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.scope", "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.config", "enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.jwt.retriever.class",
        # Token refresh and retry timing: fixed in this client.
        "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.buffer.seconds", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms",
        # Kerberos: used only with GSSAPI.
        "sasl.kerberos.service.name", "sasl.kerberos.kinit.cmd", "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor", "sasl.kerberos.min.time.before.relogin",
    }
)  # fmt: skip

_MODULES = {"PlainLoginModule": PLAIN, "ScramLoginModule": "SCRAM-", "OAuthBearerLoginModule": OAUTHBEARER}
_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
_RETRIEVERS = ("ClientCredentialsJwtRetriever", "DefaultJwtRetriever", "FileJwtRetriever")
_UNSECURED = "unsecuredLogin"


def read(properties: Mapping[str, str]) -> SaslSettings:
    """The SASL part of client properties."""
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or DEFAULT_MECHANISM
    if mechanism not in MECHANISMS:
        raise UnsupportedSetting("sasl.mechanism", f"{mechanism} is not one of {', '.join(MECHANISMS)}")
    refuse_foreign_code(properties)
    options = _jaas_options(properties, mechanism)
    if mechanism == OAUTHBEARER:
        return SaslSettings(mechanism, oauth=_oauth(properties, options))
    username = options.get("username", properties.get("sasl.username", ""))
    password = options.get("password", properties.get("sasl.password", ""))
    if not username:
        raise SettingsError(
            "sasl.jaas.config", f'has no username="…" (nor is there a sasl.username), but {mechanism} needs one'
        )
    if "\0" in username or "\0" in password:
        raise SettingsError("sasl.jaas.config", "a user name or password cannot contain a zero byte")
    return SaslSettings(mechanism, username, password, token_auth=options.get("tokenauth", "").lower() == "true")


def _jaas_options(properties: Mapping[str, str], mechanism: str) -> dict[str, str]:
    text = properties.get(jaas.PROPERTY)
    if text is None:
        return {}
    login = jaas.parse(text)
    family = _MODULES.get(login.simple_name)
    if family is None:
        raise UnsupportedSetting(jaas.PROPERTY, f"the login module {login.module} exists in Java only")
    if not mechanism.startswith(family):
        raise SettingsError(
            "sasl.mechanism", f"is {mechanism}, but sasl.jaas.config has {login.simple_name}: make them agree"
        )
    return login.options


def refuse_foreign_code(properties: Mapping[str, str]) -> None:
    for name, known in (
        ("sasl.login.callback.handler.class", _HANDLERS),
        ("sasl.client.callback.handler.class", ()),
        ("sasl.login.class", ()),
        ("sasl.oauthbearer.jwt.retriever.class", _RETRIEVERS),
    ):
        value = properties.get(name)
        if value and value.rpartition(".")[2] not in known:
            raise UnsupportedSetting(name, f"{value} is Java code, which cannot run here")


def _oauth(properties: Mapping[str, str], options: Mapping[str, str]) -> OAuthSettings:
    extensions = tuple(
        (name.partition("_")[2], value)
        for name, value in options.items()
        if name.startswith(("extension_", "unsecuredLoginExtension_"))
    )
    extensions += _pairs("sasl.oauthbearer.extensions", properties.get("sasl.oauthbearer.extensions", ""), ",")
    url = properties.get("sasl.oauthbearer.token.endpoint.url")
    if url is not None:
        if urllib.parse.urlsplit(url).scheme not in SCHEMES:
            name = "sasl.oauthbearer.token.endpoint.url"
            raise SettingsError(name, f"{url} does not begin with https://, http:// or file://")
        return OAuthSettings(
            token_endpoint_url=url,
            client_id=_first(properties, options, "client.id", "clientId"),
            client_secret=_first(properties, options, "client.secret", "clientSecret"),
            scope=properties.get("sasl.oauthbearer.scope", options.get("scope", "")),
            tls=tls.read_https(options, properties),
            extensions=extensions,
        )
    if any(name.startswith(_UNSECURED) for name in options):
        return _unsecured_java(options, extensions)
    if properties.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() == "true":
        return _unsecured_librdkafka(properties.get("sasl.oauthbearer.config", ""), extensions)
    raise SettingsError(
        "sasl.oauthbearer.token.endpoint.url",
        "is missing: OAUTHBEARER needs the address that gives out tokens, with a client id and a client secret",
    )


def _first(properties: Mapping[str, str], options: Mapping[str, str], name: str, option: str) -> str:
    newer = properties.get(f"sasl.oauthbearer.client.credentials.{name}")  # KIP-1139
    return newer or properties.get(f"sasl.oauthbearer.{name}") or options.get(option, "")


def _unsecured_java(options: Mapping[str, str], extensions: tuple[tuple[str, str], ...]) -> OAuthSettings:
    claims: list[tuple[str, str | float]] = []
    for name, value in options.items():
        if name.startswith("unsecuredLoginStringClaim_"):
            claims.append((name.partition("_")[2], value))
        elif name.startswith("unsecuredLoginNumberClaim_"):
            claims.append((name.partition("_")[2], _number(name, value)))
        elif name.startswith("unsecuredLoginListClaim_"):
            raise UnsupportedSetting(jaas.PROPERTY, f"the option {name}: lists in unsecured tokens are not supported")
    lifetime_s = int(_number("unsecuredLoginLifetimeSeconds", options.get("unsecuredLoginLifetimeSeconds", "3600")))
    return OAuthSettings(unsecured_claims=tuple(claims), unsecured_lifetime_s=lifetime_s, extensions=extensions)


def _unsecured_librdkafka(config: str, extensions: tuple[tuple[str, str], ...]) -> OAuthSettings:
    pairs = dict(_pairs("sasl.oauthbearer.config", config, None))
    claims: list[tuple[str, str | float]] = [(pairs.get("principalClaimName", "sub"), pairs.get("principal", ""))]
    if "scope" in pairs:
        raise UnsupportedSetting("sasl.oauthbearer.config", "scopes in unsecured tokens are not supported")
    extensions += tuple(
        (name.removeprefix("extension_"), value) for name, value in pairs.items() if name.startswith("extension_")
    )
    lifetime_s = int(_number("sasl.oauthbearer.config", pairs.get("lifeSeconds", "3600")))
    return OAuthSettings(unsecured_claims=tuple(claims), unsecured_lifetime_s=lifetime_s, extensions=extensions)


def _pairs(name: str, text: str, separator: str | None) -> tuple[tuple[str, str], ...]:
    pairs = []
    for item in text.split(separator):
        key, equals, value = item.strip().partition("=")
        if not equals:
            if key:
                raise SettingsError(name, f"{key!r} is not of the form name=value")
            continue
        pairs.append((key, value))
    return tuple(pairs)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingsError(name, f"{text!r} is not a number") from None
