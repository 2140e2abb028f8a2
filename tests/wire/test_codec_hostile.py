"""Bytes from people who mean no good: always a WireError, never much time or memory."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sim.fuzz import samples as sample
from penstock.wire.apis import SERVED
from penstock.wire.codec import Limits, Message, decode, decode_whole, encode, to_bytes
from penstock.wire.errors import WireError
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.produce import ProduceRequest
from penstock.wire.schema import versions_of

PAIRS = [(cls, version) for _, _, cls in sample.entities() for version in versions_of(cls)]
SERVED_REQUESTS = [(api.request, version) for api in SERVED.values() for version in api.versions]
HUGE = (b"\x7f\xff\xff\xff", b"\xff" * 4, b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\xfe\xff")


def unspaced(*parts: str) -> bytes:
    return bytes.fromhex(" ".join(parts))


def survives(cls: type[Message], version: int, data: bytes) -> None:
    with suppress(WireError):
        decode(cls, version, data)


@pytest.mark.parametrize("seed", range(2))
def test_a_message_cut_off_anywhere_is_refused(seed: int) -> None:
    rng = random.Random(seed)
    for cls, version in PAIRS:
        data = to_bytes(sample.message(cls, version, rng), version)
        # Every byte of the ends, where the shape is richest, and a sample of the long middle.
        cuts = {*range(min(len(data), 100)), *range(max(0, len(data) - 20), len(data))}
        for cut in sorted(cuts):
            with pytest.raises(WireError):
                decode(cls, version, data[:cut])


def test_mutated_messages_never_raise_anything_else() -> None:
    @settings(max_examples=300, deadline=None, database=None)
    @given(pair=st.sampled_from(PAIRS), seed=st.integers(0, 1 << 64))
    def attack(pair: tuple[type[Message], int], seed: int) -> None:
        cls, version = pair
        rng = random.Random(seed)
        data = to_bytes(sample.message(cls, version, rng), version)
        for _ in range(20):
            mutant = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                place = rng.randrange(len(mutant) + 1)
                mutant[place : place + rng.randrange(4)] = rng.choice((*HUGE, rng.randbytes(1), b"", b"\0\0"))
            survives(cls, version, bytes(mutant))

    attack()


@settings(max_examples=300, deadline=None, database=None)
@given(pair=st.sampled_from(PAIRS), data=st.binary(max_size=200))
def test_random_bytes_never_raise_anything_else(pair: tuple[type[Message], int], data: bytes) -> None:
    survives(*pair, data)


@pytest.mark.parametrize("filler", [b"\0", b"\x01", b"\x02", b"\x7f", b"\xff", b"\0\0\0\x02", b"\0\x01"])
def test_a_megabyte_of_anything_costs_bounded_memory(filler: bytes) -> None:
    data = filler * (1_000_000 // len(filler))
    tracemalloc.start()
    try:
        for cls, version in SERVED_REQUESTS:
            if version in (versions_of(cls)[0], versions_of(cls)[-1]):
                tracemalloc.reset_peak()
                survives(cls, version, data)
                assert tracemalloc.get_traced_memory()[1] < 48_000_000, (cls, version)
    finally:
        tracemalloc.stop()


def test_twenty_million_tagged_fields_are_refused_by_their_count() -> None:
    count = unspaced("80dac409")  # 20,000,000
    with pytest.raises(WireError, match="20000000 more tagged fields"):
        decode(ApiVersionsRequest, 3, unspaced("02 61 02 62") + count + bytes(100_000))
    with pytest.raises(WireError, match="20000000 more tagged fields"):
        decode(FetchRequest, 17, to_bytes(FetchRequest(), 17)[:-1] + count + bytes(100_000))


def test_tagged_fields_are_counted_over_the_whole_message() -> None:
    topic = unspaced("02 61", "02", "05 00", "06 00")
    data = unspaced("04") + topic * 3 + unspaced("00 00 00 00")
    assert len(decode(MetadataRequest, 9, data)[0].topics or ()) == 3
    with pytest.raises(WireError, match="tagged"):
        decode(MetadataRequest, 9, data, limits=Limits(max_tagged_fields=5))


def test_tagged_fields_are_counted_where_some_are_known_too() -> None:
    data = to_bytes(FetchRequest(), 17)[:-1] + unspaced("06", "63 00" * 6)
    assert decode(FetchRequest, 17, data) == (FetchRequest(), len(data))
    with pytest.raises(WireError, match="tagged"):
        decode(FetchRequest, 17, data, limits=Limits(max_tagged_fields=5))


def test_a_count_that_cannot_fit_is_refused_before_anything_is_allocated() -> None:
    for count in ("7fffffff", "00100000"):
        with pytest.raises(WireError, match="cannot fit"):
            decode(MetadataRequest, 1, unspaced(count) + bytes(1000))
    with pytest.raises(WireError, match="cannot fit"):
        decode(MetadataRequest, 9, unspaced("ffffffff0f") + bytes(1000))


def test_elements_are_counted_over_the_whole_message() -> None:
    request = FetchRequest(topics=[FetchTopic(partitions=[FetchPartition() for _ in range(10)]) for _ in range(10)])
    data = to_bytes(request, 13)
    assert decode(FetchRequest, 13, data, limits=Limits(max_elements=110))[0] == request
    with pytest.raises(WireError, match="exceed the limit of the message"):
        decode(FetchRequest, 13, data, limits=Limits(max_elements=109))


@pytest.mark.parametrize(
    ("data", "version", "reason"),
    [
        ("fffffffe", 1, "cannot fit"),
        ("ffffffff", 0, "may not be null"),
        ("00000001 ffff", 0, "may not be null"),
        ("00000001 8000", 0, "a length of -32768"),
        ("00000001 0005 6162", 0, "a length of 5 exceeds the 2 bytes left"),
        ("00000001 0002 c328", 0, "not UTF-8"),
        ("00", 1, "cut off"),
        ("ffffffffff", 9, "exceeds 32 bits"),
        ("ffffffff7f", 9, "exceeds 32 bits"),
        ("02 ffffffffff7f", 9, "exceeds 32 bits"),
    ],
)
def test_what_breaks_the_rules_is_named(data: str, version: int, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(MetadataRequest, version, unspaced(data))


def test_a_tagged_field_must_fill_its_size() -> None:
    tagged = unspaced("01", "01 0e 00000005 0000000000000006 00 00")
    with pytest.raises(WireError, match="does not fill"):
        decode(FetchRequest, 15, to_bytes(FetchRequest(), 15)[:-1] + tagged)


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(WireError, match="MetadataRequest has no version 99"):
        decode(MetadataRequest, 99, b"")
    with pytest.raises(WireError, match="no version"):
        to_bytes(MetadataRequest(), -1)
    with pytest.raises(WireError, match="no version"):
        decode(ProduceRequest, 2, b"")


def test_a_value_that_does_not_fit_leaves_the_output_as_it_was() -> None:
    out = bytearray(b"before")
    with pytest.raises(Exception, match="format requires"):
        encode(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 40_000)]), 1, out)
    assert out == b"before"
    with pytest.raises(AttributeError):
        encode(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 1, out)
    assert out == b"before"


def test_a_flexible_string_is_no_longer_than_others_can_be() -> None:
    def request(size: int) -> bytes:
        return to_bytes(FindCoordinatorRequest(key_type=0, coordinator_keys=["k" * size]), 4)

    decode_whole(FindCoordinatorRequest, 4, request(32_767))
    with pytest.raises(WireError, match="32767"):
        decode_whole(FindCoordinatorRequest, 4, request(32_768))
