"""A small certificate authority, for clusters on one machine and for tests: it makes PEM text and touches no file.

Keys are ECDSA P-256: a handshake costs a server a tenth of what RSA does. A certificate names every host it is for;
`subject` is its common name, which becomes the principal of a client that shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Issued", "expiry_of"]

CA_DAYS = 3650
CERTIFICATE_DAYS = 825
CLOCK_SLACK = timedelta(minutes=5)
"""Certificates are valid from a little before they are made: clocks differ."""


class Issued(NamedTuple):
    """A private key and its certificate, in PEM format."""

    key: str
    certificate: str

    @property
    def store(self) -> str:
        """Both in one text, as `ssl.keystore.location` wants it."""
        return self.key + self.certificate

    def __repr__(self) -> str:
        return "Issued(…)"


class Authority:
    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def new(cls, name: str = "Penstock CA") -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = (
            _builder(subject, subject, key, timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, key: str, certificate: str) -> Authority:
        """An authority made earlier. Raises ValueError."""
        loaded = serialization.load_pem_private_key(key.encode(), password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of the authority is not an ECDSA key")
        return cls(loaded, x509.load_pem_x509_certificate(certificate.encode()))

    @property
    def key(self) -> str:
        return _key_text(self._key)

    @property
    def certificate(self) -> str:
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self, subject: str, hosts: Sequence[str] = (), *, lifetime: timedelta = timedelta(days=CERTIFICATE_DAYS)
    ) -> Issued:
        """A certificate for a node (with its hosts) or a client. A negative lifetime makes an expired one."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_name(subject), self._certificate.subject, key, lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Issued(_key_text(key), signed.public_bytes(serialization.Encoding.PEM).decode())


def expiry_of(certificate: bytes) -> datetime:
    """When a certificate in DER format expires."""
    return x509.load_der_x509_certificate(certificate).not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    begins = min(now - CLOCK_SLACK, now + lifetime - CLOCK_SLACK)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
