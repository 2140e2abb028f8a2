"""A checksum for Kafka's checkpoint files, which have none. A flipped digit in one could hide or delete records.

Kafka's readers treat every line as an entry and split it at white space. So the CRC-32C of the text is written as
spaces and tabs, one per bit, after the last entry, where Kafka ignores it. A file without entries has no checksum: its
count says that there are none. A file without these blanks was written by Kafka or an earlier release and is accepted
unchecked.
"""

from __future__ import annotations

from crc32c import crc32c

_BITS = 32
_BLANKS = " \t"
_HEAD_LINES = 2
"""The version and the number of entries."""


class SealBroken(Exception):
    """The text does not match its checksum."""


def seal(text: str) -> bytes:
    """Add the checksum to `text`, a complete file in which every line ends with a newline."""
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
        raise SealBroken("the file does not match its checksum")
    return text
