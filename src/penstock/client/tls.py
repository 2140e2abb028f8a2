"""Certificates: properties → `TlsSettings` → `ssl.SSLContext`.

Of Java's store formats, Python and librdkafka read only PEM. So PEM stores are used directly (files, or text in the
property itself, KIP-651), and Java's binary stores are refused with the command that converts them.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.client.errors import SettingsError, UnsupportedSetting

PEM = "PEM"
PROTOCOLS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PEM_BYTES_MAX = 4 * 1024 * 1024

JAVA = frozenset(
    {
        "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates",
        "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain",
        "ssl.keystore.key", "ssl.key.password", "ssl.endpoint.identification.algorithm", "ssl.protocol",
        "ssl.enabled.protocols", "ssl.provider", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
        "ssl.secure.random.implementation",
    }
)  # fmt: skip
KNOWN = JAVA | {
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location",
    "ssl.key.pem", "enable.ssl.certificate.verification", "https.ca.location", "https.ca.pem",
}  # fmt: skip
"""Every property that is read here, or that has no meaning outside Java."""


@dataclass(frozen=True)
class TlsSettings:
    """TLS settings of a connection; certificates are paths of PEM files, or PEM text."""

    ca_path: str | None = None
    ca_pem: str | None = None
    certificate_path: str | None = None
    certificate_pem: str | None = None
    key_path: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_hostname: bool = True
    protocols: tuple[str, ...] = ()


def read(properties: Mapping[str, str]) -> TlsSettings:
    """The TLS part of client properties."""
    ca_path, ca_pem = _trust(properties)
    certificate_path, certificate_pem, key_path, key_pem = _identity(properties)
    protocols = tuple(name.strip() for name in properties.get("ssl.enabled.protocols", "").split(",") if name.strip())
    if unknown := [name for name in protocols if name not in PROTOCOLS]:
        raise SettingsError("ssl.enabled.protocols", f"{unknown[0]} is not one of {', '.join(PROTOCOLS)}")
    return TlsSettings(
        ca_path=ca_path,
        ca_pem=ca_pem,
        certificate_path=certificate_path,
        certificate_pem=certificate_pem,
        key_path=key_path,
        key_pem=key_pem,
        key_password=properties.get("ssl.key.password"),
        verify=properties.get("enable.ssl.certificate.verification", "true").lower() != "false",
        check_hostname=properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower() == "https",
        protocols=protocols,
    )


def read_https(options: Mapping[str, str], properties: Mapping[str, str]) -> TlsSettings:
    """Settings for the token endpoint, which are independent of the brokers': the system's certificates, unless the
    login options (Java) or `https.ca.*` (librdkafka) name others. The host name is always verified.
    """
    found = replace(read({name: value for name, value in options.items() if name in JAVA}), check_hostname=True)
    if found.ca_path is None and found.ca_pem is None:
        ca_path, ca_pem = _located(properties, "https.ca")
        found = replace(found, ca_path=ca_path, ca_pem=ca_pem)
    return found


def context_of(tls: TlsSettings) -> ssl.SSLContext:
    """An SSL context for the settings; SettingsError names a file that cannot be used."""
    context = _trusting(tls)
    # Java brokers close without a TLS close alert, for which OpenSSL raises; frame lengths reveal a truncation anyway.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    context.minimum_version = min((PROTOCOLS[name] for name in tls.protocols), default=ssl.TLSVersion.TLSv1_2)
    if tls.protocols:
        context.maximum_version = max(PROTOCOLS[name] for name in tls.protocols)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = tls.check_hostname
    if tls.certificate_path is not None or tls.certificate_pem is not None:
        _load_identity(context, tls)
    return context


def _trust(properties: Mapping[str, str]) -> tuple[str | None, str | None]:
    """(path, text) of the certificates to trust; both None for the system's."""
    location = _filled(properties, "ssl.truststore.location")
    certificates = _filled(properties, "ssl.truststore.certificates")
    if location is None and certificates is None:
        return _located(properties, "ssl.ca")
    if properties.get("ssl.truststore.type", "JKS").upper() != PEM:
        raise SettingsError(
            "ssl.truststore.type",
            f"{properties.get('ssl.truststore.type', 'JKS')} stores can only be read in Java; export the certificates "
            f"with `keytool -exportcert -rfc -keystore {location or 'STORE'} -alias ALIAS -file ca.pem` for each alias "
            "and set ssl.truststore.type=PEM and ssl.truststore.location=ca.pem",
        )
    if properties.get("ssl.truststore.password"):
        raise SettingsError("ssl.truststore.password", "a PEM trust store has no password: leave it out")
    if location is not None and certificates is not None:
        raise SettingsError("ssl.truststore.certificates", "is set as well as ssl.truststore.location: keep one")
    return location, certificates


def _located(properties: Mapping[str, str], prefix: str) -> tuple[str | None, str | None]:
    """librdkafka's (path, text) properties; its value "probe" means the system's certificates."""
    path = _filled(properties, f"{prefix}.location")
    return None if path == "probe" else path, _filled(properties, f"{prefix}.pem")


def _filled(properties: Mapping[str, str], name: str) -> str | None:
    value = properties.get(name)
    if value is not None and not value.strip():
        # Perhaps an unset variable: trusting every authority of the system instead would be unsafe.
        raise SettingsError(name, "is empty: fill it in, or leave it out for the authorities of the system")
    return value


def _identity(properties: Mapping[str, str]) -> tuple[str | None, str | None, str | None, str | None]:
    """(certificate path, certificate text, key path, key text)."""
    location = properties.get("ssl.keystore.location")
    chain = properties.get("ssl.keystore.certificate.chain")
    key = properties.get("ssl.keystore.key")
    kind = properties.get("ssl.keystore.type", "JKS").upper()
    if location is None and chain is None and key is None:
        certificate = properties.get("ssl.certificate.location"), properties.get("ssl.certificate.pem")
        return (*certificate, properties.get("ssl.key.location"), properties.get("ssl.key.pem"))
    if kind == "PKCS12" or (kind == "JKS" and str(location).lower().endswith((".p12", ".pfx"))):
        raise UnsupportedSetting("ssl.keystore.location", "PKCS#12 key stores are read by librdkafka only")
    if kind != PEM:
        raise SettingsError(
            "ssl.keystore.type",
            f"{kind} stores can only be read in Java; convert it with `keytool -importkeystore -srckeystore "
            f"{location or 'STORE'} -destkeystore store.p12 -deststoretype PKCS12` and `openssl pkcs12 -in store.p12 "
            "-out store.pem`, and set ssl.keystore.type=PEM and ssl.keystore.location=store.pem",
        )
    if properties.get("ssl.keystore.password"):
        raise SettingsError(
            "ssl.keystore.password", "a PEM key store has no password of its own: the key's is ssl.key.password"
        )
    if location is not None:
        if chain is not None or key is not None:
            raise SettingsError("ssl.keystore.location", "is set as well as certificates in the properties: keep one")
        return location, None, location, None
    if chain is None or key is None:
        missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
        raise SettingsError(missing, "is missing: a certificate needs its key, and a key its certificate")
    return None, chain, None, key


def _trusting(tls: TlsSettings) -> ssl.SSLContext:
    """A context that trusts only the configured certificates, or the system's if there are none."""
    if not tls.verify:
        return ssl.create_default_context()
    try:
        if tls.ca_path is not None and Path(tls.ca_path).is_dir():
            return ssl.create_default_context(capath=tls.ca_path, cadata=tls.ca_pem)
        return ssl.create_default_context(cafile=tls.ca_path, cadata=tls.ca_pem)
    except (OSError, ValueError) as error:
        what = tls.ca_path or "the certificates in the properties"
        raise SettingsError("ssl.truststore.location", f"{what}: {_why(error)}") from None


def _load_identity(context: ssl.SSLContext, tls: TlsSettings) -> None:
    password = tls.key_password or ""
    what = tls.certificate_path or "the certificate in the properties"
    try:
        if tls.certificate_pem is None:
            assert tls.certificate_path is not None
            # Without this callback, OpenSSL would prompt on the terminal for the password of an encrypted key.
            context.load_cert_chain(tls.certificate_path, tls.key_path, lambda: password)
            return
        # OpenSSL reads the pair only from a file: use a private temporary one, deleted right after.
        descriptor, path = tempfile.mkstemp(suffix=".pem")
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"{tls.key_pem or _text_of(tls.key_path)}\n{tls.certificate_pem}\n")
            context.load_cert_chain(path, None, lambda: password)
        finally:
            os.unlink(path)
    except (OSError, ValueError) as error:
        raise SettingsError("ssl.keystore.location", f"{what}: {_why(error)}") from None


def _text_of(path: str | None) -> str:
    if path is None:
        return ""
    with open(path, encoding="ascii") as file:
        return file.read(PEM_BYTES_MAX)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if "KEY_VALUES_MISMATCH" in str(error):
            return "the private key does not belong to the certificate"
        # OpenSSL does not say which of the two is the cause.
        return "contains no PEM certificates (-----BEGIN …-----), or ssl.key.password does not decrypt the key"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
