"""Detects damage in logs while the broker serves them.

Bit rot on disk is noticed only when the batch is read: by a follower, a consumer, compaction, or a coordinator that
loads. Followers and consumers do not report it. But they request the same offset again, and then the broker reads these
batches once and checks their checksums.

`penstock.broker.replicas.roles` decides what to do about damage.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.replicas.partition import Partition
from penstock.log.verifying import first_damage
from penstock.runtime import Runtime
from penstock.wire.errors import KafkaError

AGAIN_AFTER_MS = 5_000.0
"""After a check, a reader does not cause another one for this long: many readers may hit the same batch."""


class DamageWatch:
    def __init__(self, runtime: Runtime, on_damage: Callable[[Partition, int], None]) -> None:
        """`on_damage` is called with the partition and the offset of the damage."""
        self._runtime = runtime
        self._on_damage = on_damage
        self._quiet_until_ms: dict[Partition, float] = {}

    def suspect(self, partition: Partition, offset: int) -> None:
        """A reader could not use the batches from `offset` on."""
        self._look_soon(partition, offset, to_the_end=False)

    def suspect_all(self, partition: Partition) -> None:
        """Some batch in the log cannot be read."""
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
            return  # the log was deleted or truncated meanwhile
        if damaged_at is not None and partition.log is log:
            self._on_damage(partition, damaged_at)
