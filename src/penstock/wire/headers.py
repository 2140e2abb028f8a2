"""Request and response headers.

A request header has the API's key and version, a correlation id that the response repeats, and the client id. Flexible
versions of an API (KIP-482) add tagged fields to the headers of requests and responses. One exception: the header of
an ApiVersions response never has them (KIP-511), because the client does not know yet what the broker supports.
"""

from struct import Struct, error
from typing import Final, NamedTuple

from penstock.wire._decoding import skip_tagged
from penstock.wire.compression import Buffer
from penstock.wire.errors import WireError
from penstock.wire.messages.index import MESSAGES

API_VERSIONS_KEY: Final = 18
HEADER_TAGGED_FIELDS_MAX: Final = 100

_REQUEST: Final = Struct(">hhih")  # key, version, correlation id, length of the client id
_CORRELATION: Final = Struct(">i")
FLEXIBLE_FROM: Final[dict[int, int]] = {key: messages.flexible_from for key, messages in MESSAGES.items()}
_NEVER: Final = 1 << 15


class RequestHeader(NamedTuple):
    """A request's header; `body_position` is where the request body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(buffer: Buffer, position: int = 0) -> RequestHeader:
    """The header of the request at `position`, in the form (v1 or v2) of its API and version.

    The header of an unknown API is read as v1: key, version and correlation id are correct in any case.
    """
    try:
        api_key, api_version, correlation_id, size = _REQUEST.unpack_from(buffer, position)
        position += 10
        client_id = None
        if size >= 0:
            stop = position + size
            if stop > len(buffer):
                raise WireError(f"a client id of {size} bytes exceeds the {len(buffer) - position} bytes left")
            client_id = str(buffer[position:stop], "utf-8")
            position = stop
        elif size != -1:
            raise WireError(f"a client id has the invalid length {size}")
        if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER):
            count = buffer[position]
            position += 1
            if count:
                position, _ = skip_tagged(buffer, position, len(buffer), count, HEADER_TAGGED_FIELDS_MAX)
    except (error, IndexError):
        raise WireError("the request header is truncated") from None
    except UnicodeDecodeError:
        raise WireError("the client id is not UTF-8") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def write_request_header(
    out: bytearray, api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> None:
    """Appends the header for this API and version."""
    name = b"" if client_id is None else client_id.encode()
    out += _REQUEST.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(name))
    out += name
    if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER):
        out.append(0)


def has_tagged_response_header(api_key: int, api_version: int) -> bool:
    """Whether the response's header is v1, the one with tagged fields."""
    return api_key != API_VERSIONS_KEY and api_version >= FLEXIBLE_FROM.get(api_key, _NEVER)


def write_response_header(out: bytearray, api_key: int, api_version: int, correlation_id: int) -> None:
    """Appends a response header: the correlation id, and an empty set of tagged fields if the version has them."""
    out += _CORRELATION.pack(correlation_id)
    if has_tagged_response_header(api_key, api_version):
        out.append(0)


def read_response_header(buffer: Buffer, api_key: int, api_version: int, position: int = 0) -> tuple[int, int]:
    """(correlation id, position of the response body)."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(buffer, position)
        position += 4
        if has_tagged_response_header(api_key, api_version):
            count = buffer[position]
            position += 1
            if count:
                position, _ = skip_tagged(buffer, position, len(buffer), count, HEADER_TAGGED_FIELDS_MAX)
    except (error, IndexError):
        raise WireError("the response header is truncated") from None
    return correlation_id, position
