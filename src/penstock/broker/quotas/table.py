"""The limits in force, and which of them applies to a user and a client id.

Each quota is looked up by itself, from the most specific entity to the least, in Kafka's order. The entity
that is found also decides who shares the limit: a quota for a user is shared by all its client ids, one for client ids
by all users of that id, and one for both belongs to the pair. `quota.producer.default` and `quota.consumer.default`
come last; they apply to each client id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.metadata.quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    USER,
    ClientQuota,
)

ANY: Final = None
"""The default of a part."""
ABSENT: Final = ""
"""The entity does not have this part. No user or client id with a quota is empty."""

Pair = tuple[str | None, str | None]
"""(user, client id) of an entity."""


class Limit(NamedTuple):
    """The limit of one quota for a client."""

    value: float
    user: str
    client_id: str
    """The user and the client id that share it; empty if all of them do."""


class QuotaTable:
    """Immutable. Built anew when quotas change, which is rare."""

    __slots__ = ("_ips", "_limits", "is_empty")

    def __init__(self, quotas: Iterable[ClientQuota], defaults: Mapping[str, float] | None = None) -> None:
        """`defaults`: the broker's properties, by the name of the quota."""
        self._limits: dict[str, dict[Pair, float]] = {}
        self._ips: dict[str | None, float] = {}
        for quota in quotas:
            parts = dict(quota.entity)
            for key, value in quota.values.items():
                if not value > 0:
                    continue  # written by another release: it cannot be enforced
                if IP in parts:
                    if key == CONNECTION_CREATION_RATE:
                        self._ips[parts[IP]] = value
                elif key in CLIENT_KEYS:
                    pair = (parts.get(USER, ABSENT), parts.get(CLIENT_ID, ABSENT))
                    self._limits.setdefault(key, {})[pair] = value
        for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE):
            if defaults and key in defaults:
                self._limits.setdefault(key, {}).setdefault((ABSENT, ANY), defaults[key])
        self.is_empty = not self._limits

    def has(self, key: str) -> bool:
        """Whether anybody is limited by this quota."""
        return key in self._limits

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        limits = self._limits.get(key)
        if not limits:
            return None
        for pair, by_user, by_client in (
            ((user, client_id), True, True),
            ((user, ANY), True, True),
            ((user, ABSENT), True, False),
            ((ANY, client_id), True, True),
            ((ANY, ANY), True, True),
            ((ANY, ABSENT), True, False),
            ((ABSENT, client_id), False, True),
            ((ABSENT, ANY), False, True),
        ):
            value = limits.get(pair)
            if value is not None and pair != (ABSENT, ABSENT):
                return Limit(value, user if by_user else "", client_id if by_client else "")
        return None

    def connection_rate(self, host: str) -> float | None:
        """Connections per second from this address; None if there is no limit."""
        rate = self._ips.get(host)
        return self._ips.get(ANY) if rate is None else rate


NO_QUOTAS: Final = QuotaTable(())
