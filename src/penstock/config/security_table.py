"""Broker properties of TLS and of logins (SASL). Each may be set for one listener: `listener.name.<name>.<property>`.

Key and trust stores are PEM text, in files or inline. They cannot be changed through the protocol: a client with the
right to alter configurations could make the broker read any file, or trust anybody. Files are read again when they
change (`penstock.broker.security.certificates`).
"""

from __future__ import annotations

from penstock.config.definitions import Importance, Kind, Validator, at_least, distinct_of, one_of
from penstock.config.tables import NoAttribute, Section, folded, prop

HIGH, LOW = Importance.HIGH, Importance.LOW
STRING, INT, LONG, LIST, PASSWORD = Kind.STRING, Kind.INT, Kind.LONG, Kind.LIST, Kind.PASSWORD

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
STORE_TYPES = Validator(
    "PEM: convert a JKS or PKCS12 store with keytool and openssl", lambda value: str(value).upper() == "PEM"
)


class Tls(Section, title="TLS"):
    """Certificates, and what a peer must show."""

    ssl_keystore_type: NoAttribute = folded(
        "ssl.keystore.type", STRING, "PEM", STORE_TYPES, "The format of the key store; only PEM.", kafka_default="JKS"
    )
    ssl_keystore_location: str | None = prop(
        "ssl.keystore.location",
        STRING,
        None,
        None,
        "A file with the private key of this node, its certificate and those of intermediate authorities, in PEM "
        "format. It is read again when it changes; open connections continue.",
        importance=HIGH,
    )
    ssl_keystore_key: str | None = prop(
        "ssl.keystore.key",
        PASSWORD,
        None,
        None,
        "The private key in PEM format (PKCS#8), instead of a file. An encrypted key needs `ssl.key.password`.",
        importance=HIGH,
        sensitive=True,
    )
    ssl_keystore_certificate_chain: str | None = prop(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        None,
        "The certificate chain in PEM format, instead of a file.",
        importance=HIGH,
        sensitive=True,
    )
    ssl_key_password: str | None = prop(
        "ssl.key.password",
        PASSWORD,
        None,
        None,
        "The password of the private key, if it is encrypted.",
        importance=HIGH,
        sensitive=True,
    )
    ssl_truststore_type: NoAttribute = folded(
        "ssl.truststore.type",
        STRING,
        "PEM",
        STORE_TYPES,
        "The format of the trust store; only PEM.",
        kafka_default="JKS",
    )
    ssl_truststore_location: str | None = prop(
        "ssl.truststore.location",
        STRING,
        None,
        None,
        "A file with the certificates of the authorities whose certificates this node accepts, in PEM format. It is "
        "read again when it changes.",
        importance=HIGH,
    )
    ssl_truststore_certificates: str | None = prop(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        None,
        "The certificates of authorities in PEM format, instead of a file.",
        importance=HIGH,
        sensitive=True,
    )
    ssl_client_auth: str = prop(
        "ssl.client.auth",
        STRING,
        "none",
        one_of("none", "requested", "required"),
        "Whether clients of a TLS listener show a certificate: `required`, `requested` or `none`. A client without one "
        "is anonymous on an SSL listener.",
    )
    ssl_enabled_protocols: tuple[str, ...] = prop(
        "ssl.enabled.protocols",
        LIST,
        ("TLSv1.2", "TLSv1.3"),
        distinct_of("TLSv1.2", "TLSv1.3"),
        "The accepted TLS versions.",
    )
    ssl_cipher_suites: tuple[str, ...] = prop(
        "ssl.cipher.suites",
        LIST,
        (),
        None,
        "The accepted cipher suites of TLS 1.2, with OpenSSL's names. Empty accepts OpenSSL's default.",
        importance=LOW,
    )
    ssl_endpoint_identification_algorithm: str = prop(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        one_of("https", ""),
        "`https`: connections to other nodes check that the certificate is for the host connected to. Empty turns the "
        "check off.",
        importance=LOW,
    )
    ssl_principal_mapping_rules: str = prop(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        None,
        "Rules that make a user name from the distinguished name of a certificate, as in Kafka: "
        "`RULE:pattern/replacement/[LU]`, separated by commas. The first that matches applies; `DEFAULT` takes the "
        "whole name.",
        importance=LOW,
    )


class Logins(Section, title="Logins"):
    """How clients and other nodes log in on listeners with SASL."""

    sasl_enabled_mechanisms: tuple[str, ...] = prop(
        "sasl.enabled.mechanisms",
        LIST,
        (),
        distinct_of(*MECHANISMS),
        "The mechanisms that a listener with SASL offers: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        kafka_default="GSSAPI",
    )
    sasl_jaas_config: NoAttribute = folded(
        "sasl.jaas.config",
        PASSWORD,
        None,
        None,
        "Logins, in Java's format, as `listener.name.<name>.<mechanism>.sasl.jaas.config`. `username` and `password` "
        'are what this node logs in with to other nodes; `user_<name>="<password>"` are the users of PLAIN.',
        sensitive=True,
    )
    penstock_sasl_plain_users_file: str | None = prop(
        "penstock.sasl.plain.users.file",
        STRING,
        None,
        None,
        "A properties file with the users of PLAIN, one `name=password` per line, besides those of `sasl.jaas.config`. "
        "It is read again when it changes. Only its owner should be able to read it.",
    )
    sasl_mechanism_inter_broker_protocol: str | None = prop(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        None,
        one_of(*MECHANISMS[:3]),
        "The mechanism with which brokers log in to each other.",
        kafka_default="GSSAPI",
    )
    sasl_mechanism_controller_protocol: str | None = prop(
        "sasl.mechanism.controller.protocol",
        STRING,
        None,
        one_of(*MECHANISMS[:3]),
        "The mechanism with which nodes log in to controllers.",
        kafka_default="GSSAPI",
    )
    security_inter_broker_protocol: NoAttribute = folded(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "The security protocol between brokers, if `inter.broker.listener.name` is not set: they use the first "
        "listener with it.",
    )
    sasl_server_max_receive_size: int = prop(
        "sasl.server.max.receive.size",
        INT,
        524_288,
        at_least(1),
        "The maximum size of a request before a client has logged in. A larger one closes the connection.",
    )
    connections_max_reauth_ms: int = prop(
        "connections.max.reauth.ms",
        LONG,
        0,
        at_least(0),
        "How long a login is valid. A client that has not logged in again by then is disconnected at its next request "
        "(KIP-368). 0 sets no limit, except for tokens, which expire.",
    )
    connection_failed_authentication_delay_ms: int = prop(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        at_least(0),
        "How long the answer to a failed login is held back, which slows guessing down.",
        importance=LOW,
    )


class Tokens(Section, title="Tokens"):
    """OAUTHBEARER: which tokens are accepted."""

    jwks_endpoint_url: str | None = prop(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        None,
        None,
        "The keys of the tokens' issuer (JWKS): a URL with https, http or file. A node with OAUTHBEARER does not start "
        "without them.",
    )
    jwks_endpoint_refresh_ms: int = prop(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        3_600_000,
        at_least(1),
        "How often the keys are fetched again. An unknown key id causes a fetch as well, at most every ten seconds.",
        importance=LOW,
    )
    oauth_expected_issuer: str | None = prop(
        "sasl.oauthbearer.expected.issuer",
        STRING,
        None,
        None,
        "The issuer (`iss`) that a token must have.",
        importance=LOW,
    )
    oauth_expected_audience: tuple[str, ...] = prop(
        "sasl.oauthbearer.expected.audience",
        LIST,
        (),
        None,
        "The audiences (`aud`); a token must have one of them.",
        importance=LOW,
    )
    oauth_clock_skew_seconds: int = prop(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        30,
        at_least(0),
        "The tolerated difference between the clocks of the issuer and of this node.",
        importance=LOW,
    )
    oauth_sub_claim_name: str = prop(
        "sasl.oauthbearer.sub.claim.name",
        STRING,
        "sub",
        None,
        "The claim with the user's name.",
        importance=LOW,
    )


LISTENER_SECTIONS = (Tls, Logins, Tokens)
OF_LISTENER = {name: row for section in LISTENER_SECTIONS for name, row in section.definitions.items()}
"""The properties that may be set for a single listener."""
