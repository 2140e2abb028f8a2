"""Odd requests: well-formed ones with unusual values, and mutations of those."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from struct import pack

from penstock.sim.broker import request_frame
from penstock.sim.fuzz import bodies, samples
from penstock.wire.apis import SERVED, ApiKey, ServedApi
from penstock.wire.codec import Message
from penstock.wire.schema import is_nullable, layout

__all__ = ["INTERESTING", "mutate", "odd_request", "random_frame", "with_length"]

HOSTS = (
    "node-1", "node-2", "127.0.0.1", "::1", "[::1]", "", " ", ".", "..", "a..b", "h" * 63, "h" * 64, "h" * 255,
    "h" * 300, ".".join(["h" * 60] * 6), "xn--", "\u00e4" * 70, "\0", "a\0b", "../../etc/passwd", "node-1:9092", "%00",
    "999.999.999.999", "-", "\u202e", "\U0001d11e" * 20,
)  # fmt: skip
HOST_FIELDS = ("host", "hostname")
PORTS = (0, 1, 9092, 9192, 65_535)
NAMES = (
    "t", "t", "u", "nowhere", "", "1", "bad name", "__cluster_metadata", "__consumer_offsets", "x" * 250, ".", "..",
    "a/b", "../up", "n\0l", "\u00e4", "CONTROLLER", "PLAINTEXT",
)  # fmt: skip
NUMBERS = (0, 0, 1, 2, 3, -1, 1 << 20, -(1 << 31), (1 << 31) - 1)
CONFIGS = ("retention.ms", "cleanup.policy", "compression.type", "segment.bytes", "max.message.bytes", "nothing")
VALUES = ("1", "-1", "delete", "compact,delete", "", "9" * 5000, "true", "zstd", "gzip")
NODE_IDS = (-1, 0, 1, 2, 3, 4, 99, (1 << 31) - 1, -(1 << 31))
EPOCHS = (-1, 0, 1, 2, 3, 5, 10)
INTERESTING = (
    b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\xfe\xff",
    b"\0", b"\x01", b"\x7f", b"\x80", b"\xff", b"\0\0\0\0", b"\x00\x00\x00\x01", b"\x00\x01",
)  # fmt: skip
DESTRUCTIVE = (
    ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS,
)  # fmt: skip
"""Requests that legitimately remove or change things that others use."""
OPERATORS = (ApiKey.UNREGISTER_BROKER, ApiKey.REMOVE_RAFT_VOTER)
"""Requests that take a node out of its cluster, as an operator may. They get ids of nodes that do not exist."""
ABSENT_ID = 77


def odd_request(
    key: ApiKey, version: int, rng: Random, ids: Mapping[str, bytes], table: Mapping[ApiKey, ServedApi] = SERVED
) -> Message:
    """A request that the codec accepts."""
    request = samples.message(table[key].request, version, rng)
    _set_meaningful_values(request, version, rng, ids)
    return request


def _set_meaningful_values(message: Message, version: int, rng: Random, ids: Mapping[str, bytes]) -> None:
    """Gives some fields meaningful values, so that requests get past the first check of a handler."""
    for field in (*layout(type(message), version).fields, *layout(type(message), version).tagged):
        value = getattr(message, field.name)
        if isinstance(value, Message):
            _set_meaningful_values(value, version, rng, ids)
        elif isinstance(value, list) and value and isinstance(value[0], Message):
            for element in value:
                _set_meaningful_values(element, version, rng, ids)
        elif field.name == "cluster_id" and is_nullable(field, version) and rng.random() < 0.7:
            setattr(message, field.name, None)  # matches any cluster id
        elif rng.random() < 0.7:
            seasoned = _value(field.name, value, rng, ids)
            if seasoned is not None:
                setattr(message, field.name, seasoned)


def _value(name: str, value: object, rng: Random, ids: Mapping[str, bytes]) -> object:
    if name == "records":
        return bodies.any_body(rng)
    if name in HOST_FIELDS and isinstance(value, str):
        return rng.choice(HOSTS)
    if name == "port":
        return rng.choice(PORTS)
    if name in _NODES and isinstance(value, int):
        return rng.choice(NODE_IDS)
    if name in _EPOCH_FIELDS and isinstance(value, int):
        return rng.choice(EPOCHS)
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


_NODES = (
    "replica_id", "voter_id", "candidate_id", "leader_id", "broker_id", "node_id", "controller_id", "follower_id",
)  # fmt: skip
_EPOCH_FIELDS = ("leader_epoch", "replica_epoch", "current_leader_epoch", "last_epoch", "last_fetched_epoch")


def mutate(frame: bytes, rng: Random) -> bytes:
    """Changes, removes, adds or repeats a few bytes; mostly keeps the API and version."""
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


def random_frame(
    rng: Random, ids: Mapping[str, bytes], *, harmless: bool = False, table: Mapping[ApiKey, ServedApi] = SERVED
) -> bytes:
    """An odd request of any API and version, unchanged or mutated; a harmless one leaves topics and settings alone."""
    key = rng.choice([key for key in table if not harmless or key not in DESTRUCTIVE])
    version = rng.choice(list(table[key].versions))
    request = odd_request(key, version, rng, ids, table)
    if key in OPERATORS:
        for name in ("broker_id", "voter_id"):
            if hasattr(request, name):
                setattr(request, name, ABSENT_ID)
    frame = request_frame(request, version, rng.randrange(1 << 31), rng.choice((None, "c")))
    return frame if key in OPERATORS or rng.random() < 0.4 else mutate(frame, rng)


def with_length(frame: bytes, length: int | None = None) -> bytes:
    return pack(">i", len(frame) if length is None else length) + frame
