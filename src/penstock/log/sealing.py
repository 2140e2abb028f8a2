"""A checksum for Kafka's checkpoint files, which have none: a flipped digit in one could hide or delete records.

Kafka's readers take every line for an entry and split it at white space. So the CRC-32C of the text stands in spaces
and tabs behind the last entry, one bit each, where Kafka passes over it. A file without entries is not sealed: its
count says that there are none. A file that ends with a plain line is Kafka's, or that of an earlier release, and is
taken as it is.
"""

from __future__ import annotations

from crc32c import crc32c

_BITS = 32
_BLANKS = " \t"
_HEAD_LINES = 2
"""The version and the number of entries."""


class SealBroken(Exception):
    """The text is not the one that was sealed."""


def seal(text: str) -> bytes:
    """`text` is a whole file: every line of it ends with a newline."""
    assert text.endswith("\n")
    data = text.encode()
    if text.count("\n") <= _HEAD_LINES:
        return data
    crc = crc32c(data)
    return data[:-1] + "".join(_BLANKS[crc >> bit & 1] for bit in range(_BITS)).encode() + b"\n"


def unseal(data: bytes) -> bytes:
    """The text without its checksum. Raises SealBroken."""
    body = data.rstrip()
    blanks = data[len(body) :]
    text = body + b"\n"
    if blanks == b"\n":
        return data
    if blanks[-1:] != b"\n" or seal(text.decode(errors="replace")) != data:
        raise SealBroken("its checksum does not match")
    return text
