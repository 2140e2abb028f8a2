"""The list of all cases, in the order in which they run, with what is aimed for."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from bench.footprint import Connections, Idle, Partitions, Startup
from bench.load import Consume, Latency, Produce
from bench.model import Better, Case, Side, Target
from bench.raw_produce import RawProduce
from bench.validation import Validation
from penstock.wire.compression import Codec

_MILLION = 1_000_000
_AS_KAFKA = Target("mb_per_s", 1.0, Better.HIGHER)
_NEAR_MOCK = Target("mb_per_s", 0.6, Better.HIGHER, Side.MOCK)


def all_cases() -> list[Case]:
    return [
        _produce("default", "none", 2 * _MILLION),
        _produce("default", "lz4", 2 * _MILLION),
        _produce("default", "zstd", _MILLION),
        _produce("16k", "none", _MILLION),
        _produce("16k", "lz4", _MILLION),
        _produce("16k", "zstd", _MILLION),
        Produce(
            name="produce-single",
            title="produce 1 KB, one message per request",
            messages=200_000,
            properties={"linger.ms": "0", "batch.num.messages": "1", "socket.nagle.disable": "true"},
            targets=(),
            one_per_request=True,
        ),
        RawProduce(),
        *(Validation(codec) for codec in Codec),
        Consume(),
        Latency(),
        Startup(),
        Idle(),
        Connections(2_000),
        Partitions(1_000),
        Partitions(
            10_000,
            targets=(
                Target("restart_s", 3, Better.LOWER, against=None),
                Target("open_files", 200, Better.LOWER, against=None),
            ),
        ),
    ]


def matching(patterns: list[str]) -> list[Case]:
    """Those whose names match one of the patterns, as a shell's; a pattern that matches none is an error."""
    cases = all_cases()
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in cases):
            raise LookupError(f"no case matches {pattern!r}; there are: {', '.join(case.name for case in cases)}")
    return [case for case in cases if any(fnmatchcase(case.name, pattern) for pattern in patterns)]


def _produce(batches: str, codec: str, messages: int) -> Produce:
    properties: Mapping[str, str] = {"compression.codec": codec}
    if batches == "16k":
        return Produce(
            name=f"produce-16k-{codec}",
            title=f"produce 1 KB, batches of 16 KB, {codec}",
            messages=messages,
            properties={**properties, "batch.size": "16384"},
            targets=(_AS_KAFKA,),
        )
    return Produce(
        name=f"produce-default-{codec}",
        title=f"produce 1 KB, default batches, {codec}",
        messages=messages,
        properties=properties,
        targets=(_AS_KAFKA, _NEAR_MOCK),
    )
