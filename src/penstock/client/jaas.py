"""`sasl.jaas.config` of a client: see `penstock.config.jaas`."""

from __future__ import annotations

from penstock.client.errors import SettingsError
from penstock.config.jaas import Login, parse_jaas

__all__ = ["Login", "parse"]

PROPERTY = "sasl.jaas.config"


def parse(text: str) -> Login:
    """The string's login module; raises SettingsError unless there is exactly one."""
    try:
        return parse_jaas(text)
    except ValueError as error:
        raise SettingsError(PROPERTY, str(error)) from None
