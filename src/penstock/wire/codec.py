"""Decodes and encodes messages with one specialised function per (class, version), compiled on first use.

    message, position = decode(MetadataRequest, 12, frame, header.body_position)
    encode(response, 12, out)

`decoder` and `encoder` return the functions themselves, for callers that keep a table of them. `decode_in_slices` and
`encode_in_slices` are generators that do the same but yield after every element, so that a caller can run other work
in between.
"""

from collections.abc import Generator
from typing import Final, TypeVar

import msgspec

from penstock.wire._decoding import Decoder, SlicedDecoder, compile_decoder, compile_sliced_decoder
from penstock.wire._encoding import Encoder, SlicedEncoder, compile_encoder, compile_sliced_encoder
from penstock.wire.compression import Buffer
from penstock.wire.errors import WireError
from penstock.wire.schema import Field, Message, Schema

__all__ = [
    "DEFAULT_LIMITS",
    "Decoder",
    "Encoded",
    "Encoder",
    "Field",
    "Limits",
    "Message",
    "Schema",
    "WireError",
    "decode",
    "decode_in_slices",
    "decode_whole",
    "decoder",
    "encode",
    "encode_in_slices",
    "encoder",
    "to_bytes",
]

M = TypeVar("M", bound=Message)


class Limits(msgspec.Struct, frozen=True):
    """The size limits of one message, counted over all its arrays and structs."""

    max_elements: int = 100_000
    max_tagged_fields: int = 1_000


DEFAULT_LIMITS: Final = Limits()


class Encoded(Message):
    """A message that is already encoded, in the version requested."""

    body: bytes


_decoders: dict[tuple[type[Message], int], Decoder[Message]] = {}
_encoders: dict[tuple[type[Message], int], Encoder[Message]] = {}
_sliced_decoders: dict[tuple[type[Message], int], SlicedDecoder[Message]] = {}
_sliced_encoders: dict[tuple[type[Message], int], SlicedEncoder[Message]] = {}


def decode(
    cls: type[M], version: int, buffer: Buffer, position: int = 0, *, limits: Limits = DEFAULT_LIMITS
) -> tuple[M, int]:
    """The message at `position`, and its end. Raises WireError if the bytes are invalid.

    The buffer must end where the frame ends. Record data is not copied: given a memoryview, `records` are views of it.
    """
    return decoder(cls, version)(buffer, position, limits.max_elements, limits.max_tagged_fields)


def decode_in_slices(
    cls: type[M], version: int, buffer: Buffer, position: int = 0, *, limits: Limits = DEFAULT_LIMITS
) -> Generator[None, None, tuple[M, int]]:
    """Like `decode`, but yields before every element of an array."""
    function = _sliced_decoders.get((cls, version))
    if function is None:
        function = _sliced_decoders[cls, version] = compile_sliced_decoder(cls, version)
    return function(buffer, position, limits.max_elements, limits.max_tagged_fields)  # type: ignore[return-value]


def decode_whole(
    cls: type[M], version: int, buffer: Buffer, position: int = 0, *, limits: Limits = DEFAULT_LIMITS
) -> M:
    """Decodes a message that must fill the buffer from `position` to its end."""
    message, end = decode(cls, version, buffer, position, limits=limits)
    if end != len(buffer):
        raise WireError(f"{len(buffer) - end} bytes after the end of {cls.__name__} v{version}")
    return message


def encode(message: Message, version: int, out: bytearray) -> None:
    """Appends the message. A value that the protocol cannot represent raises and leaves `out` unchanged."""
    start = len(out)
    try:
        encoder(type(message), version)(message, out)
    except BaseException:
        del out[start:]
        raise


def encode_in_slices(message: Message, version: int, out: bytearray) -> Generator[None, None, None]:
    """Like `encode`, but yields before every element of an array. After an error `out` is unusable."""
    cls = type(message)
    function = _sliced_encoders.get((cls, version))
    if function is None and cls is Encoded:
        return _append_body_in_slices(message, out)
    if function is None:
        function = _sliced_encoders[cls, version] = compile_sliced_encoder(cls, version)
    return function(message, out)


def to_bytes(message: Message, version: int) -> bytes:
    """The encoded message, without a header."""
    out = bytearray()
    encoder(type(message), version)(message, out)
    return bytes(out)


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """The function `(buffer, position, max_elements, max_tagged_fields) -> (message, position)`."""
    function = _decoders.get((cls, version))
    if function is None:
        function = _decoders[cls, version] = compile_decoder(cls, version)
    return function  # type: ignore[return-value]


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """The function `(message, out)`."""
    function = _encoders.get((cls, version))
    if function is None and cls is Encoded:
        return _append_body
    if function is None:
        function = _encoders[cls, version] = compile_encoder(cls, version)
    return function


def _append_body(message: Message, out: bytearray) -> None:
    assert isinstance(message, Encoded)
    out += message.body


def _append_body_in_slices(message: Message, out: bytearray) -> Generator[None, None, None]:
    yield
    _append_body(message, out)
