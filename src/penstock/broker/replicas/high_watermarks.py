"""Saves high watermarks over a restart (`replication-offset-checkpoint`).

They are saved periodically, so the file may be behind, but never ahead. Without it a broker learns what is committed
when its followers have fetched, or its leader has responded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from penstock.broker.layout import partition_directory
from penstock.broker.replicas.partition import Partition
from penstock.log import names
from penstock.log.checkpoints import CheckpointDamaged, encode_offsets, read_offsets
from penstock.runtime import Runtime


class HighWatermarks:
    def __init__(self, runtime: Runtime, partitions: Callable[[], Iterable[Partition]]) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._unclaimed: dict[str, int] = {}
        """Values from the checkpoint of logs that are not open yet."""
        self._written = b""

    @property
    def is_written(self) -> bool:
        return bool(self._written)

    def load(self) -> None:
        with suppress(CheckpointDamaged):
            # Without the file, high watermarks become known when the followers have fetched.
            self._unclaimed = read_offsets(self._runtime.disk, names.HIGH_WATERMARKS_NAME)

    def claim(self, name: str) -> int:
        """The saved high watermark of the log in this directory, which was just opened; 0 if unknown."""
        return self._unclaimed.pop(name, 0)

    def forget(self, name: str) -> None:
        self._unclaimed.pop(name, None)

    async def checkpoint(self) -> None:
        """Save the values of partitions with several replicas. With a single replica everything in the log is
        committed."""
        known = [
            (partition_directory(partition.topic, partition.index), partition.high_watermark)
            for partition in self._partitions()
            if partition.log is not None and partition.state is not None and len(partition.state.replicas) > 1
        ]
        known += self._unclaimed.items()
        data = encode_offsets(known)
        if data != self._written and (known or self._written):
            self._written = data
            await self._runtime.disk.replace_bytes(names.HIGH_WATERMARKS_NAME, data)
