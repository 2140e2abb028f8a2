"""Java's property names → librdkafka's, for those who write with confluent-kafka or fall back to it."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client import jaas, login, tls
from penstock.client.errors import SettingsError, UnsupportedSetting
from penstock.client.sasl import OAUTHBEARER

_SAME = {
    "sasl.mechanism": "sasl.mechanisms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "buffer.memory": "queue.buffering.max.kbytes",
}

_MEANINGLESS = frozenset(
    {
        "key.serializer", "value.serializer", "key.deserializer", "value.deserializer", "metrics.recorder.level",
        "metrics.num.samples", "metrics.sample.window.ms", "metric.reporters", "auto.include.jmx.reporter",
        "interceptor.classes", "client.dns.lookup", "default.api.timeout.ms", "max.poll.records",
        "exclude.internal.topics", "partitioner.class", "ssl.provider", "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm", "ssl.secure.random.implementation", "ssl.protocol",
        "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
        "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.buffer.seconds",
        "sasl.login.callback.handler.class", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms", "max.block.ms",
    }
)  # fmt: skip
"""What only steers Java's own machinery; librdkafka refuses names that it does not know."""


def librdkafka_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """The same settings for a client of confluent-kafka; SettingsError for what librdkafka cannot do either."""
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value).strip()
        for name, value in properties.items()
        if value is not None
    }
    translated: dict[str, str] = {}
    for name, value in texts.items():
        if name in _MEANINGLESS or name.startswith(("ssl.truststore", "ssl.keystore")) or name == jaas.PROPERTY:
            continue
        if name == "buffer.memory":
            value = str(max(1, int(value) // 1024))
        translated[_SAME.get(name, name)] = value
    security = texts.get("security.protocol", "").upper()
    if "TLSv1.2" not in translated.pop("ssl.enabled.protocols", "TLSv1.2"):
        raise SettingsError("ssl.enabled.protocols", "librdkafka cannot be kept from TLSv1.2: name it too")
    if security.endswith("SSL"):
        translated |= _stores(texts)
    if security.startswith("SASL"):
        translated |= _login(texts)
    return translated


def _stores(texts: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        settings = tls.read(texts)
    except UnsupportedSetting:
        # A PKCS#12 key store, which librdkafka reads itself; the trust store still has to be PEM.
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
    if "ssl.endpoint.identification.algorithm" in texts and not settings.check_hostname:
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found


def _login(texts: Mapping[str, str]) -> dict[str, str]:
    if jaas.PROPERTY not in texts:
        return {}
    mechanism = texts.get("sasl.mechanism") or texts.get("sasl.mechanisms") or login.DEFAULT_MECHANISM
    if mechanism != OAUTHBEARER:
        options = jaas.parse(texts[jaas.PROPERTY]).options
        return {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}
    oauth = login.read(texts).oauth
    assert oauth is not None
    if oauth.token_endpoint_url is None:
        claims = dict(oauth.unsecured_claims)
        if list(claims) != ["sub"]:
            raise SettingsError(jaas.PROPERTY, "librdkafka makes unsecured tokens with the claim sub only")
        return {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={claims['sub']} lifeSeconds={oauth.unsecured_lifetime_s}",
        }
    found = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": oauth.client_id,
        "sasl.oauthbearer.client.secret": oauth.client_secret,
        "sasl.oauthbearer.scope": oauth.scope,
        "sasl.oauthbearer.extensions": ",".join(f"{name}={value}" for name, value in oauth.extensions),
    }
    return {name: value for name, value in found.items() if value}
