"""High watermarks over a restart: what a broker knew to be committed, it knows again (`replication-offset-checkpoint`).

Written down now and then, so it may say less than was known, never more. Without it a broker learns what is committed
when its followers have asked, or its leader has answered.
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
        """From the checkpoint, of logs that are not open yet."""
        self._written = b""

    @property
    def is_written(self) -> bool:
        return bool(self._written)

    def load(self) -> None:
        with suppress(CheckpointDamaged):
            # Without it what is committed becomes known when the followers have asked.
            self._unclaimed = read_offsets(self._runtime.disk, names.HIGH_WATERMARKS_NAME)

    def claim(self, name: str) -> int:
        """What is known of the log in this directory, which was opened; 0 if nothing is."""
        return self._unclaimed.pop(name, 0)

    def forget(self, name: str) -> None:
        self._unclaimed.pop(name, None)

    async def checkpoint(self) -> None:
        """Of partitions with several replicas: one that is alone has all committed that it has."""
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
