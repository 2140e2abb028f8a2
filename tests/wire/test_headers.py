"""What stands before requests and responses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.errors import WireError
from penstock.wire.headers import (
    read_request_header,
    read_response_header,
    write_request_header,
    write_response_header,
)


def test_a_request_header_byte_by_byte() -> None:
    plain = bytes.fromhex("0003 0001 00000007 0002 6162")
    assert read_request_header(plain) == (ApiKey.METADATA, 1, 7, "ab", 12)
    flexible = bytes.fromhex("0003 000c 00000007 ffff 00")
    assert read_request_header(flexible) == (ApiKey.METADATA, 12, 7, None, 11)
    with_tags = bytes.fromhex("0003 000c 00000007 ffff 01 05 02 aabb ff")
    assert read_request_header(with_tags).body_position == len(with_tags) - 1


@settings(database=None, deadline=None)
@given(
    key=st.sampled_from(ApiKey),
    version=st.integers(0, 20),
    correlation_id=st.integers(-(1 << 31), (1 << 31) - 1),
    client_id=st.none() | st.text(max_size=20),
    before=st.binary(max_size=5),
)
def test_request_headers_round_trip(
    key: ApiKey, version: int, correlation_id: int, client_id: str | None, before: bytes
) -> None:
    out = bytearray(before)
    write_request_header(out, key, version, correlation_id, client_id)
    assert read_request_header(out, len(before)) == (key, version, correlation_id, client_id, len(out))


def test_response_headers_have_tagged_fields_where_the_version_is_flexible() -> None:
    for api in SERVED.values():
        for version in api.versions:
            out = bytearray()
            write_response_header(out, api.key, version, 9)
            flexible = version >= api.flexible_from and api.key != ApiKey.API_VERSIONS
            assert out.hex() == ("0000000900" if flexible else "00000009")
            assert read_response_header(out, api.key, version) == (9, len(out))


def test_the_answer_to_api_versions_never_has_tagged_fields() -> None:
    out = bytearray()
    write_response_header(out, ApiKey.API_VERSIONS, 4, 1)
    assert len(out) == 4


def test_an_unknown_api_still_shows_its_key_version_and_correlation_id() -> None:
    assert read_request_header(bytes.fromhex("03e7 0005 00000001 ffff"))[:3] == (999, 5, 1)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "0003 000c 000000",
        "0003 000c 00000007 0005 6162",
        "0003 000c 00000007 8000",
        "0003 000c 00000007 0002 c328 00",
        "0003 000c 00000007 ffff",
        "0003 000c 00000007 ffff 80dac409",
        "0003 000c 00000007 ffff 01 05 7f",
        "0003 000c 00000007 ffff ffffffffff",
    ],
)
def test_hostile_headers_are_refused(data: str) -> None:
    with pytest.raises(WireError):
        read_request_header(bytes.fromhex(data))
