"""Buffers whose memory returns to the operating system as soon as they are freed."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

__all__ = ["PAGES_BYTES_MIN", "ByteBuffer", "byte_buffer"]

ByteBuffer = bytearray | memoryview

PAGES_BYTES_MIN = 64 * 1024
"""Smaller buffers come from the allocator: a mapping costs two system calls and a fault per page."""


def byte_buffer(size: int) -> ByteBuffer:
    """A buffer of `size` zero bytes.

    A large one is a mapping of its own: only written pages count as resident memory, and all of them are returned when
    the buffer is dropped. The allocator would write all of it at once, and would keep a large freed block as long as a
    small one follows it.
    """
    if size < PAGES_BYTES_MIN:
        return bytearray(size)
    return memoryview(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS))
