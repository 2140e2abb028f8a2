"""Random messages generated from their schemas, biased towards edge values."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator

from penstock.wire.messages.index import MESSAGES
from penstock.wire.schema import Field, Message, is_nullable, layout

DATA_CLASSES = {
    "consumer_protocol_assignment": "ConsumerProtocolAssignment",
    "consumer_protocol_subscription": "ConsumerProtocolSubscription",
    "default_principal_data": "DefaultPrincipalData",
    "end_txn_marker": "EndTxnMarker",
    "leader_change_message": "LeaderChangeMessage",
    "snapshot_header_record": "SnapshotHeaderRecord",
    "snapshot_footer_record": "SnapshotFooterRecord",
    "k_raft_version_record": "KRaftVersionRecord",
    "voters_record": "VotersRecord",
}

INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
TIME_MS_MAX = 1 << 40
ERROR_CODE_MAX = 133
ALPHABET = "abcXYZ019._-äß€語𝄞\0"
# Around the length at which a compact length needs a second byte, and beyond what a run of fields packs at once.
LONG_LENGTHS = (126, 127, 128, 300)


def entities() -> Iterator[tuple[str, str, type[Message]]]:
    """(module, kind, class) of every generated message."""
    for messages in MESSAGES.values():
        module = importlib.import_module(f"penstock.wire.messages.{messages.module}")
        yield messages.module, "request", getattr(module, messages.name + "Request")
        yield messages.module, "response", getattr(module, messages.name + "Response")
    for name, class_name in DATA_CLASSES.items():
        yield name, "data", getattr(importlib.import_module(f"penstock.wire.messages.{name}"), class_name)


def message(cls: type[Message], version: int, rng: random.Random) -> Message:
    """A message with a value for every field of the version; the others keep their defaults."""
    shape = layout(cls, version)
    values = {field.name: _field(field, version, rng) for field in shape.fields}
    for field in shape.tagged:
        if rng.random() < 0.5:
            value = _field(field, version, rng)
            # A tagged struct of defaults is not sent, and one that was not sent is decoded as None.
            values[field.name] = None if isinstance(value, Message) and value == type(value)() else value
    return cls(**values)


def _field(field: Field, version: int, rng: random.Random) -> object:
    if is_nullable(field, version) and rng.random() < 0.25:
        return None
    if not field.array:
        return _element(field, version, rng)
    count = rng.choice((0, 1, 2, 3))
    if isinstance(field.type, str) and rng.random() < 0.1:
        count = rng.choice(LONG_LENGTHS)
    return [_element(field, version, rng) for _ in range(count)]


def _element(field: Field, version: int, rng: random.Random) -> object:
    kind = field.type
    if not isinstance(kind, str):
        return message(kind, version, rng)
    if kind in INTEGERS:
        return _integer(field.name, kind, rng)
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.choice((0.0, -1.5, 1e300, rng.random()))
    if kind == "uuid":
        return rng.choice((bytes(16), rng.randbytes(16)))
    length = rng.choice(LONG_LENGTHS) if rng.random() < 0.05 else rng.randrange(8)
    return "".join(rng.choices(ALPHABET, k=length)) if kind == "string" else rng.randbytes(length)


def _integer(name: str, kind: str, rng: random.Random) -> int:
    if name.endswith("error_code"):
        return rng.randint(-1, ERROR_CODE_MAX)
    low, high = INTEGERS[kind]
    if name.endswith("_ms"):
        low, high = 0, min(high, TIME_MS_MAX)
    return rng.choice((low, high, max(low, -1), 0, 1, rng.randint(low, high)))
