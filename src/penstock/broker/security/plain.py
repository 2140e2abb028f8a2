"""PLAIN (RFC 4616): the user's name and password in one message. Only over TLS is that a secret. Pure.

Users are in `sasl.jaas.config` of the listener (`user_alice="…"`) and in `penstock.sasl.plain.users.file`.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

USER_PREFIX: Final = "user_"


class PlainError(Exception):
    """A login that failed. Never told to the peer in detail."""

    def __init__(self, reason: str, user: str = "") -> None:
        super().__init__(reason)
        self.user = user
        """The name that was claimed, for the audit log."""


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """The users in the options of a login module."""
    return {name.removeprefix(USER_PREFIX): text for name, text in options.items() if name.startswith(USER_PREFIX)}


def check_plain(message: bytes, users: Mapping[str, str]) -> str:
    """The user's name. Raises PlainError."""
    parts = message.split(b"\0")
    if len(parts) != 3:
        raise PlainError("not the form of PLAIN: authorisation id, user and password, separated by NUL")
    try:
        authzid, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise PlainError("not UTF-8") from None
    if not user or not password:
        raise PlainError("no user name or no password")
    # Compared in constant time, and for unknown users as well: the time tells neither.
    expected = users.get(user)
    matches = hmac.compare_digest(password.encode(), (expected if expected is not None else password + "x").encode())
    if expected is None or not matches:
        raise PlainError("a wrong password or an unknown user", user)
    if authzid and authzid != user:
        raise PlainError("an authorisation id that differs from the user's name", user)
    return user


def plain_message(user: str, password: str) -> bytes:
    return b"\0" + user.encode() + b"\0" + password.encode()
