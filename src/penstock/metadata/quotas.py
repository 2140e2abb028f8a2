"""Client quotas: whom they limit, and which names and values Kafka accepts.

An entity is a user, a client id, both together, or an IP address. A part without a name is the default: it applies to
every user, client id or address that has no quota of its own. How quotas are chosen and enforced is the broker's part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

import msgspec

from penstock.wire.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""The quotas of users and client ids."""
IP_KEYS: Final = (CONNECTION_CREATION_RATE,)
INTEGER_MAX: Final = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""The quotas that must be whole numbers, and their largest value."""
TYPE_NAMES: Final = {2**63 - 1: "a LONG", 2**31 - 1: "an INT"}
FRACTION_MAX: Final = 1e-6

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) of each part, sorted by type. Name None: the default."""


class ClientQuota(msgspec.Struct, frozen=True):
    """The quotas of one entity."""

    entity: Entity
    values: Mapping[str, float]


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    return tuple(sorted(dict(parts).items()))


def entity_key(entity: Entity) -> bytes:
    """The key of an entity in the image."""
    return msgspec.json.encode(entity)


def check_entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Raises KafkaError(INVALID_REQUEST) unless quotas can be set for this entity."""
    seen: dict[str, str | None] = {}
    for kind, name in parts:
        if kind in seen:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        seen[kind] = name
    if not seen:
        raise _invalid("Invalid empty client quota entity")
    if IP in seen:
        if len(seen) > 1:
            raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
        _check_ip(seen[IP])
    return entity_of(seen.items())


def _check_ip(name: str | None) -> None:
    """Kafka also takes the name of a host; it is not resolved here, as that would make the controller wait."""
    try:
        if name is not None and str(ip_address(name)) != name:
            raise _invalid(f"{name} is not the usual form of this IP address: use {ip_address(name)}.")
    except ValueError:
        raise _invalid(f"{name} is not a valid IP address.") from None


def check_quota(entity: Entity, key: str, value: float) -> None:
    """Raises KafkaError(INVALID_REQUEST) unless this entity can have this quota."""
    if key not in (IP_KEYS if entity[0][0] == IP else CLIENT_KEYS):
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0.0:  # NaN, too
        raise _invalid(f"Quota {key} must be greater than 0")
    largest = INTEGER_MAX.get(key)
    if largest is None:
        return
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large for {TYPE_NAMES[largest]}.")
    if value % 1.0 > FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
