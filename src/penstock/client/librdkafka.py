"""Translates Java's property names to librdkafka's, for callers that use confluent-kafka or fall back to it.

librdkafka refuses unknown names. So `_TRANSLATED` lists every name that only Java has, with its translation; any other
name is passed through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.client import jaas, login, tls
from penstock.client.errors import SettingsError, UnsupportedSetting
from penstock.client.sasl import OAUTHBEARER

_TRANSLATED: Final[dict[str, str | None]] = {
    "sasl.mechanism": "sasl.mechanisms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "buffer.memory": "queue.buffering.max.kbytes",
} | dict.fromkeys(
    (
        # Configures the Java client's internals.
        "key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "metrics.recorder.level",
        "metrics.num.samples", "metrics.sample.window.ms", "metric.reporters", "auto.include.jmx.reporter",
        "interceptor.classes", "client.dns.lookup", "config.providers", "default.api.timeout.ms", "max.poll.records",
        "exclude.internal.topics", "partitioner.class", "max.block.ms", "socket.connection.setup.timeout.max.ms",
        "throw.on.fetch.stable.offset.unsupported", "ssl.provider", "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm", "ssl.secure.random.implementation", "ssl.protocol",
        "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.buffer.seconds", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms", "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        # Names of Java classes: those with an equivalent are handled here, the others are refused below.
        "sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "sasl.login.class",
        "sasl.oauthbearer.jwt.retriever.class",
        # Evaluated below, together with other properties.
        "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates",
        "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain",
        "ssl.keystore.key", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", jaas.PROPERTY,
        "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret",
    )
)  # fmt: skip
"""librdkafka's name; None if nothing is passed on."""

_KERBEROS: Final = {
    "keyTab": "sasl.kerberos.keytab",
    "principal": "sasl.kerberos.principal",
    "serviceName": "sasl.kerberos.service.name",
}
_ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def librdkafka_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """The same settings for a confluent-kafka client; raises SettingsError for those librdkafka lacks too."""
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value).strip()
        for name, value in properties.items()
        if value is not None
    }
    translated: dict[str, str] = {}
    for name, value in texts.items():
        if (target := _TRANSLATED.get(name, name)) is not None:
            translated[target] = _value(name, value)
    if "TLSv1.2" not in texts.get("ssl.enabled.protocols", "TLSv1.2"):
        raise SettingsError("ssl.enabled.protocols", "librdkafka cannot disable TLSv1.2: include it in the list")
    security = texts.get("security.protocol", "").upper()
    if security.endswith("SSL"):
        translated |= _stores(texts)
    if security.startswith("SASL"):
        translated |= _login(texts)
        if "/" in translated.get("sasl.kerberos.kinit.cmd", "") and " " not in translated["sasl.kerberos.kinit.cmd"]:
            # In Java this is the path of the program, in librdkafka a whole command line, with a good default.
            del translated["sasl.kerberos.kinit.cmd"]
    return translated


def _value(name: str, value: str) -> str:
    if name == "buffer.memory":
        if not value.isdecimal():
            raise SettingsError(name, f"{value!r} is not a whole number")
        return str(max(1, int(value) // 1024))
    if name == "partition.assignment.strategy":
        classes = [one.strip().rpartition(".")[2] for one in value.split(",")]
        return ",".join(_ASSIGNORS.get(one, one) for one in classes)
    return value


def _stores(texts: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        settings = tls.read(texts)
    except UnsupportedSetting:
        # A PKCS#12 key store is read by librdkafka itself; the trust store must still be PEM.
        settings = tls.read({name: value for name, value in texts.items() if not name.startswith("ssl.keystore")})
        found |= {
            name: value for name, value in texts.items() if name in ("ssl.keystore.location", "ssl.keystore.password")
        }
    for name, value in (
        ("ssl.ca.location", settings.ca_path),
        ("ssl.ca.pem", settings.ca_pem),
        ("ssl.certificate.location", settings.certificate_path),
        ("ssl.certificate.pem", settings.certificate_pem),
        ("ssl.key.location", settings.key_path),
        ("ssl.key.pem", settings.key_pem),
    ):
        if value is not None:
            found[name] = value
    if "ssl.endpoint.identification.algorithm" in texts:
        found["ssl.endpoint.identification.algorithm"] = "https" if settings.check_hostname else "none"
    return found


def _login(texts: Mapping[str, str]) -> dict[str, str]:
    login.refuse_foreign_code(texts)
    mechanism = texts.get("sasl.mechanism") or texts.get("sasl.mechanisms") or login.DEFAULT_MECHANISM
    if mechanism == OAUTHBEARER:
        # With neither, the caller must pass a token callback to confluent-kafka.
        has_one = jaas.PROPERTY in texts or "sasl.oauthbearer.token.endpoint.url" in texts
        return _oauth(texts) if has_one else {}
    if jaas.PROPERTY not in texts:
        return {}
    options = jaas.parse(texts[jaas.PROPERTY]).options
    if mechanism != login.DEFAULT_MECHANISM:
        return {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}
    found = {ours: options[name] for name, ours in _KERBEROS.items() if name in options}
    if "keyTab" not in options:
        # The ticket cache is renewed by another program: librdkafka has no keytab to renew it with.
        found["sasl.kerberos.min.time.before.relogin"] = "0"
    return found


def _oauth(texts: Mapping[str, str]) -> dict[str, str]:
    oauth = login.read(texts).oauth
    assert oauth is not None
    if oauth.token_endpoint_url is None:
        claims = dict(oauth.unsecured_claims)
        if list(claims) != ["sub"]:
            raise SettingsError(jaas.PROPERTY, "librdkafka's unsecured tokens support only the claim sub")
        return {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={claims['sub']} lifeSeconds={oauth.unsecured_lifetime_s}",
        }
    if oauth.tls.certificate_path is not None or oauth.tls.certificate_pem is not None:
        raise SettingsError(jaas.PROPERTY, "librdkafka sends no certificate to a token endpoint: omit ssl.keystore.*")
    found = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": oauth.client_id,
        "sasl.oauthbearer.client.secret": oauth.client_secret,
        "sasl.oauthbearer.scope": oauth.scope,
        "sasl.oauthbearer.extensions": ",".join(f"{name}={value}" for name, value in oauth.extensions),
        "https.ca.location": oauth.tls.ca_path,
        "https.ca.pem": oauth.tls.ca_pem,
    }
    return {name: value for name, value in found.items() if value}
