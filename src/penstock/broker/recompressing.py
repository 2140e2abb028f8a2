"""Appends to topics that choose their own codec (`compression.type` other than `producer`).

Batches that arrive under another codec are compressed again in a thread (the codecs are native and let the loop go on)
and appended in the order they came: while one is under way, those behind it wait, whatever their codec.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from penstock.broker.partition import Partition
from penstock.config import TopicConfig
from penstock.log import Appended
from penstock.runtime import Runtime
from penstock.wire.compression import Codec
from penstock.wire.errors import KafkaError, WireError
from penstock.wire.recompression import codecs_of, recompress

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""What one batch may decompress to before it is refused."""

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

Done = Callable[[Appended | KafkaError], None]


class Waiting(NamedTuple):
    records: bytes
    acks: int
    done: Done


class Recompressor:
    """Stands before one partition's log."""

    __slots__ = ("_codec", "_level", "_partition", "_queue", "_runtime", "_working")

    def __init__(self, runtime: Runtime, partition: Partition) -> None:
        self._runtime = runtime
        self._partition = partition
        self._codec: Codec | None = None
        self._level: int | None = None
        self._queue: deque[Waiting] = deque()
        self._working = False

    def configure(self, codec: Codec | None, level: int | None) -> None:
        """None keeps what the producer chose."""
        self._codec = codec
        self._level = level

    def wants(self, records: memoryview) -> bool:
        """Whether these batches have to pass through here."""
        if self._working:
            return True
        if self._codec is None:
            return False
        try:
            return any(codec != self._codec for codec in codecs_of(records))
        except (WireError, ValueError):
            return False  # the log refuses them, with the right error

    def submit(self, records: bytes, acks: int, done: Done) -> None:
        self._queue.append(Waiting(records, acks, done))
        if not self._working:
            self._working = True
            self._runtime.spawn(self._work(), f"recompress {self._partition}")

    async def _work(self) -> None:
        while self._queue:
            records, acks, done = self._queue.popleft()
            try:
                again = bytearray(records)
                if self._codec is not None:
                    again = await self._runtime.offload(
                        recompress, records, self._codec, self._level, DECOMPRESSED_BYTES_MAX
                    )
                done(self._partition.append(memoryview(again), acks, self._runtime.wall_ms()))
                self._partition.wake_soon()
            except KafkaError as error:
                done(error)
        self._working = False


def configure_compression(runtime: Runtime, partition: Partition, config: TopicConfig) -> None:
    """Give the partition the recompressor that this configuration asks for, or none."""
    codec = CODECS.get(config.compression_type)
    if partition.recompressor is None and codec is None:
        return
    level = {
        Codec.GZIP: config.compression_gzip_level if config.compression_gzip_level > 0 else None,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }.get(codec or Codec.NONE)
    if partition.recompressor is None:
        partition.recompressor = Recompressor(runtime, partition)
    # One that is there stays even for `producer`: what it has under way must not be overtaken.
    partition.recompressor.configure(codec, level)
