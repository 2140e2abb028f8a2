"""Damage in logs that this broker serves, noticed while it serves them.

Nobody reads a log that lies on disk, so a bit that rots there is found by whoever reads the batch: a follower that
copies it, a consumer, compaction, a coordinator that loads. Followers and consumers do not say so. But they ask again
for what they were just sent, and that is suspicious enough to read these batches once and compare their checksums.

What is done about damage is for `penstock.broker.replicas.roles` to decide.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.replicas.partition import Partition
from penstock.log.verifying import first_damage
from penstock.runtime import Runtime
from penstock.wire.errors import KafkaError

AGAIN_AFTER_MS = 5_000.0
"""So long a partition is not looked at again because of a reader: many may meet the same batch."""


class DamageWatch:
    def __init__(self, runtime: Runtime, on_damage: Callable[[Partition, int], None]) -> None:
        """`on_damage` is told the partition, and where its log is damaged."""
        self._runtime = runtime
        self._on_damage = on_damage
        self._quiet_until_ms: dict[Partition, float] = {}

    def suspect(self, partition: Partition, offset: int) -> None:
        """Somebody could not use what it was sent from `offset` on."""
        self._look_soon(partition, offset, to_the_end=False)

    def suspect_all(self, partition: Partition) -> None:
        """Somewhere in its log is a batch that cannot be read."""
        self._look_soon(partition, 0, to_the_end=True)

    def _look_soon(self, partition: Partition, offset: int, *, to_the_end: bool) -> None:
        now_ms = self._runtime.now_ms()
        if self._quiet_until_ms.get(partition, 0.0) > now_ms and not to_the_end:
            return
        for known in [one for one, until_ms in self._quiet_until_ms.items() if until_ms <= now_ms]:
            del self._quiet_until_ms[known]
        self._quiet_until_ms[partition] = now_ms + AGAIN_AFTER_MS
        self._runtime.spawn(self._look(partition, offset, to_the_end), f"verify {partition}")

    async def _look(self, partition: Partition, offset: int, to_the_end: bool) -> None:
        log = partition.log
        if log is None:
            return
        try:
            damaged_at = await first_damage(log, offset, to_the_end=to_the_end)
        except KafkaError:
            return  # it was deleted, or cut, meanwhile
        if damaged_at is not None and partition.log is log:
            self._on_damage(partition, damaged_at)
