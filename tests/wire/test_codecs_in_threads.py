"""Recompression runs in a thread beside the event loop: that is of use only if the codecs let go of the interpreter."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import pytest

from penstock.wire.compression import Codec, compress, decompress

SIZE_BYTES = 24 << 20
TURNS_MIN = 3
TRIES = 20


def gives_turns(work: Callable[[], object]) -> bool:
    """On a busy machine one try tells little; a codec that holds on to the interpreter gives no turns in any."""
    return any(turns_beside(threading.Thread(target=work)) > TURNS_MIN for _ in range(TRIES))


def turns_beside(work: threading.Thread) -> int:
    """How often another thread gets its turn while `work` runs."""
    turns = 0
    work.start()
    while work.is_alive():
        work.join(0.001)
        turns += 1
    return turns


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_other_threads_run_while_a_codec_works(codec: Codec) -> None:
    data = b"".join(Random(1).randbytes(4_000) + bytes(4_000) for _ in range(SIZE_BYTES // 8_000))
    packed: list[bytes] = []
    assert gives_turns(lambda: packed.append(compress(codec, data)))
    unpacked: list[int] = []

    def unpack() -> None:
        unpacked.append(len(decompress(codec, packed[0], 2 * SIZE_BYTES)))

    assert gives_turns(unpack)
    assert set(unpacked) == {len(data)}
