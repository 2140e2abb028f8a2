"""Requests that nobody would send: well-formed ones with odd values, and mutations of those."""

from __future__ import annotations

from random import Random
from struct import pack

from broker.session import batch
from penstock.sim.broker import request_frame
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.codec import Message
from penstock.wire.schema import layout
from wire import sample

NAMES = ("t", "t", "u", "nowhere", "", "1", "bad name", "__cluster_metadata", "x" * 250)
NUMBERS = (0, 0, 1, 2, 3, -1, 1 << 20, -(1 << 31), (1 << 31) - 1)
CONFIGS = ("retention.ms", "cleanup.policy", "max.connections", "segment.bytes", "min.insync.replicas", "nothing")
VALUES = ("1", "-1", "delete", "compact,delete", "", "9" * 5000, "true")
INTERESTING = (
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\xfe\xff",
    b"\0", b"\x01", b"\x7f", b"\x80", b"\xff", b"\0\0\0\0", b"\x00\x00\x00\x01", b"\x00\x01",
)  # fmt: skip
DESTRUCTIVE = (
    ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS,
)  # fmt: skip


def odd_request(key: ApiKey, version: int, rng: Random, ids: dict[str, bytes]) -> Message:
    """A request that the codec has nothing against."""
    request = sample.message(SERVED[key].request, version, rng)
    _season(request, version, rng, ids)
    return request


def _season(message: Message, version: int, rng: Random, ids: dict[str, bytes]) -> None:
    """Give some fields values that mean something, so that handlers are reached and not only their first check."""
    for field in (*layout(type(message), version).fields, *layout(type(message), version).tagged):
        value = getattr(message, field.name)
        if isinstance(value, Message):
            _season(value, version, rng, ids)
        elif isinstance(value, list) and value and isinstance(value[0], Message):
            for element in value:
                _season(element, version, rng, ids)
        elif rng.random() < 0.7:
            seasoned = _value(field.name, value, rng, ids)
            if seasoned is not None:
                setattr(message, field.name, seasoned)


def _value(name: str, value: object, rng: Random, ids: dict[str, bytes]) -> object:
    if name == "records":
        return rng.choice((batch(b"x"), batch(b"x")[:-3], batch(b"x", producer_id=3, epoch=0, sequence=0), b""))
    if name == "topic_id":
        return rng.choice((*ids.values(), bytes(16)))
    if name in ("name", "topic", "topic_name", "resource_name", "key") and isinstance(value, str):
        return rng.choice((*NAMES, *CONFIGS))
    if name in ("topic_names", "coordinator_keys", "configuration_keys") and isinstance(value, list):
        return [rng.choice((*NAMES, *CONFIGS)) for _ in value]
    if name == "value" and isinstance(value, str):
        return rng.choice(VALUES)
    if name in ("partition", "partition_index", "index", "fetch_offset", "offset", "num_partitions", "count"):
        return rng.choice(NUMBERS)
    if name in ("replication_factor", "acks"):
        return rng.choice((-1, 0, 1, 2, -2))
    if name == "resource_type":
        return rng.choice((2, 4, 8, 16, 32, 0, -1))
    if name in ("max_wait_ms", "timeout_ms"):
        return rng.choice((0, 1, 100, -1, (1 << 31) - 1 if name == "timeout_ms" else 1000))
    return None


def mutate(frame: bytes, rng: Random) -> bytes:
    """A few bytes changed, removed, added or repeated; the API and version mostly stay."""
    mutant = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(8 if len(mutant) >= 8 and rng.random() < 0.95 else 0, len(mutant) + 1)
        kind = rng.randrange(5)
        if kind == 0 and place < len(mutant):
            mutant[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            mutant[place : place + rng.randrange(5)] = rng.choice(INTERESTING)
        elif kind == 2:
            del mutant[place:]
        elif kind == 3:
            del mutant[place : place + rng.randrange(1, 9)]
        else:
            mutant[place:place] = mutant[place : place + rng.randrange(1, 60)] or rng.randbytes(3)
    return bytes(mutant)


def random_frame(rng: Random, ids: dict[str, bytes], *, harmless: bool = False) -> bytes:
    """An odd request of any API and version, as it is or mutated; a harmless one leaves topics and settings alone."""
    key = rng.choice([key for key in SERVED if not harmless or key not in DESTRUCTIVE])
    version = rng.choice(list(SERVED[key].versions))
    frame = request_frame(odd_request(key, version, rng, ids), version, rng.randrange(1 << 31), rng.choice((None, "c")))
    return frame if rng.random() < 0.4 else mutate(frame, rng)


def with_length(frame: bytes, length: int | None = None) -> bytes:
    return pack(">i", len(frame) if length is None else length) + frame
