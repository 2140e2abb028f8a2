"""Offsets and results in Redis: commands and offsets run in one MULTI … EXEC.

Redis runs the commands of a transaction together, but does not roll back if one of them fails (such as a list command
on a hash): the transaction raises, but its successful commands stay applied, the offset included. Redis also answers
before it has written to disk, unless `appendonly yes` and `appendfsync always` are set; a crash then loses results and
offsets together, so they still agree. In a Redis Cluster all keys of a transaction must be in one slot: use a prefix
with a hash tag, such as `{orders}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from penstock import install_command
from penstock.client.cluster import TopicPartition
from penstock.client.errors import OffsetConflict, SettingsError
from penstock.client.handed_out import Located
from penstock.client.stores.saving import Saving

try:
    import redis
except ImportError as missing:
    raise SettingsError("offset_store", f"Redis needs its driver: {install_command('redis')}") from missing

if TYPE_CHECKING:
    from redis.client import Pipeline

IDS_KEPT_S: Final = 7 * 24 * 3600
"""Redis expires ids by age, not by number."""


class RedisOffsets:
    """`url` is what redis-py takes (`redis://localhost:6379/0`).

    Offsets are kept under `<prefix>:<group>:<topic>:<partition>`.
    """

    def __init__(self, url: str, group: str, *, prefix: str = "penstock:offsets") -> None:
        self.group = group
        self.client: Any = redis.Redis.from_url(url)
        self._prefix = prefix
        self._saving = Saving()

    def load(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The saved offsets of these partitions, from which a `Consumer` resumes."""
        found: dict[TopicPartition, int] = {}
        for one in partitions:
            saved = self.client.get(self._key(one))
            if saved is not None:
                found[one] = int(saved)
        self._saving.loaded(partitions, found)
        return found

    @contextmanager
    def transaction(self, messages: Iterable[Located]) -> Iterator[Pipeline]:
        """Collects commands, which run together with the offsets at the end; none of them if the block raises."""
        advances = self._saving.advances(messages)
        with self.client.pipeline(transaction=True) as commands:
            # EXEC fails if one of these keys has changed since: another consumer saved offsets.
            if advances:
                commands.watch(*(self._key(advance.partition) for advance in advances))
            for advance in advances:
                found = _number(commands.get(self._key(advance.partition)))
                if found != advance.expected:
                    raise OffsetConflict(*advance.partition, advance.expected, found)
            commands.multi()
            yield commands
            for advance in advances:
                commands.set(self._key(advance.partition), advance.next_offset)
            try:
                commands.execute()
            except redis.WatchError as changed:
                where = advances[0].partition
                found = _number(self.client.get(self._key(where)))
                raise OffsetConflict(*where, advances[0].expected, found) from changed
        self._saving.saved(advances)

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _key(self, where: TopicPartition) -> str:
        return f"{self._prefix}:{self.group}:{where.topic}:{where.partition}"


class RedisIds:
    """Ids of processed records for `Idempotent`, shared by all users of the same Redis, with an expiry."""

    def __init__(self, url: str, group: str, *, kept_s: int = IDS_KEPT_S, prefix: str = "penstock:processed") -> None:
        self.client: Any = redis.Redis.from_url(url)
        self._kept_s = kept_s
        self._start = f"{prefix}:{group}:"

    def seen(self, record_id: str) -> bool:
        return bool(self.client.exists(self._start + record_id))

    def remember(self, record_id: str) -> None:
        self.client.set(self._start + record_id, b"", ex=self._kept_s)

    def close(self) -> None:
        self.client.close()


def _number(found: bytes | None) -> int | None:
    return None if found is None else int(found)
