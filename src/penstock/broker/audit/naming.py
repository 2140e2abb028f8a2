"""What an administrative request named, and what its answer says: without knowing each API.

Only fields in `NAMES` are read, so a password, a salt or the value of a configuration is never seen here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode

NAMES: Final = (
    "name",
    "topic",
    "topic_name",
    "resource_name",
    "resource_name_filter",
    "principal",
    "principal_filter",
    "group_id",
    "groups_names",
    "feature",
    "entity_name",
    "broker_id",
    "voter_id",
    "principal_name",
)
"""Fields that say what a request is about."""
NAMES_MAX: Final = 20
DEPTH_MAX: Final = 3
ELEMENTS_MAX: Final = 10_000


def resources_of(body: Message) -> tuple[tuple[str, ...], int]:
    """The first names in the request, and how many more there are."""
    found: dict[str, None] = {}
    for name in _names(body, DEPTH_MAX):
        found[name] = None
        if len(found) >= ELEMENTS_MAX:
            break
    names = tuple(found)
    return names[:NAMES_MAX], max(0, len(names) - NAMES_MAX)


def _names(message: Message, depth: int) -> Iterator[str]:
    named = False
    for field in message.__struct_fields__:
        value = getattr(message, field)
        if field in NAMES:
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str | int) and one != "":
                    named = True
                    yield str(one)
    # The elements inside a named thing are its parts: configurations of a topic, partitions.
    if named or depth == 0:
        return
    for field in message.__struct_fields__:
        value = getattr(message, field)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Message):
                yield from _names(one, depth - 1)


def errors_in(response: Message) -> tuple[tuple[str, int], ...]:
    """The error codes of an answer, by name, with how often each occurs. Empty: everything succeeded."""
    counts: dict[str, int] = {}
    for code in _codes(response):
        if code:
            name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
            counts[name] = counts.get(name, 0) + 1
    return tuple(sorted(counts.items()))


def _codes(message: Message) -> Iterator[int]:
    for field in message.__struct_fields__:
        value = getattr(message, field)
        if field == "error_code":
            yield value
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Message):
                yield from _codes(one)
