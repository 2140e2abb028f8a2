"""What stands before every request and every response.

A request header is the API's key and version, a correlation id that the answer repeats, and the client's id. Flexible
versions of an API (KIP-482) add tagged fields, to requests and responses alike. One exception: the answer
to ApiVersions never has them (KIP-511), because a client that asks does not know yet what the broker speaks.
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
    """A request's header; `body_position` is where the request itself begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(buffer: Buffer, position: int = 0) -> RequestHeader:
    """The header of the request at `position`, in the form (v1 or v2) that its API and version have.

    For an API we do not know the header is read as v1: key, version and correlation id are right in any case.
    """
    try:
        api_key, api_version, correlation_id, size = _REQUEST.unpack_from(buffer, position)
        position += 10
        client_id = None
        if size >= 0:
            stop = position + size
            if stop > len(buffer):
                raise WireError(f"a client id of {size} bytes where {len(buffer) - position} are left")
            client_id = str(buffer[position:stop], "utf-8")
            position = stop
        elif size != -1:
            raise WireError(f"a client id of {size} bytes")
        if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER):
            count = buffer[position]
            position += 1
            if count:
                position, _ = skip_tagged(buffer, position, len(buffer), count, HEADER_TAGGED_FIELDS_MAX)
    except (error, IndexError):
        raise WireError("a request header that is cut off") from None
    except UnicodeDecodeError:
        raise WireError("a client id that is not UTF-8") from None
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
    """Whether the answer's header is v1, the one with tagged fields."""
    return api_key != API_VERSIONS_KEY and api_version >= FLEXIBLE_FROM.get(api_key, _NEVER)


def write_response_header(out: bytearray, api_key: int, api_version: int, correlation_id: int) -> None:
    """Appends the header of an answer: the correlation id, and no tagged fields where there could be some."""
    out += _CORRELATION.pack(correlation_id)
    if has_tagged_response_header(api_key, api_version):
        out.append(0)


def read_response_header(buffer: Buffer, api_key: int, api_version: int, position: int = 0) -> tuple[int, int]:
    """(correlation id, position of the response itself)."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(buffer, position)
        position += 4
        if has_tagged_response_header(api_key, api_version):
            count = buffer[position]
            position += 1
            if count:
                position, _ = skip_tagged(buffer, position, len(buffer), count, HEADER_TAGGED_FIELDS_MAX)
    except (error, IndexError):
        raise WireError("a response header that is cut off") from None
    return correlation_id, position
