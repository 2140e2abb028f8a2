"""The distinguished name of a certificate as text, in the form of RFC 2253, which Kafka's rules and ACLs use."""

from __future__ import annotations

from typing import Any, Final

SHORT_NAMES: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL: Final = ',+"\\<>;'


def distinguished_name(subject: Any) -> str:
    """`CN=alice,O=Example,C=DE` from the subject as `ssl.SSLObject.getpeercert` gives it: the last part comes first."""
    return ",".join(
        "+".join(f"{SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in relative)
        for relative in reversed(tuple(subject))
    )


def _escaped(value: str) -> str:
    out = "".join("\\" + letter if letter in _SPECIAL else letter for letter in value)
    if out[:1] in ("#", " "):
        out = "\\" + out
    return out[:-1] + "\\ " if len(out) > 1 and out.endswith(" ") else out
