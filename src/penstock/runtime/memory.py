"""Memory that goes back to the operating system the moment it is let go."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

__all__ = ["PAGES_BYTES_MIN", "ByteBuffer", "byte_buffer"]

ByteBuffer = bytearray | memoryview

PAGES_BYTES_MIN = 64 * 1024
"""Below this the allocator's own memory serves better: a mapping costs two system calls and a fault for each page."""


def byte_buffer(size: int) -> ByteBuffer:
    """A buffer of `size` zero bytes.

    A large one is a mapping of its own. Only the pages that were written count as resident memory, and all of them are
    returned when the buffer is dropped. The allocator would write all of it at once, and would keep large blocks that
    were freed for as long as a small one stands behind them.
    """
    if size < PAGES_BYTES_MIN:
        return bytearray(size)
    return memoryview(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS))
