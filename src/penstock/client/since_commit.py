"""Where a consumer continues after an aborted transaction. Pure.

Offsets that were sent to a transaction take effect when it commits. If it aborts, every record delivered since the last
commit must be delivered again. So the first of them is noted per partition. A partition that moved to another member
in between has taken its records along: the transaction that holds results of these records must not commit, because
the next owner will produce the same results.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.client.handed_out import Located, Where


class SinceCommit:
    def __init__(self) -> None:
        self._first: dict[Where, int] = {}
        self._moved: set[Where] = set()

    def deliver(self, records: Iterable[Located]) -> None:
        for record in records:
            topic, partition, offset = record.topic(), record.partition(), record.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            self._first.setdefault((topic, partition), offset)

    def move(self, partitions: Iterable[Where]) -> None:
        """These partitions belong to another member now."""
        for where in partitions:
            if self._first.pop(where, None) is not None:
                self._moved.add(where)

    @property
    def moved(self) -> list[Where]:
        """Partitions that moved away with records that were delivered here and not committed."""
        return sorted(self._moved)

    def commit(self) -> None:
        """Everything delivered so far is committed."""
        self._first.clear()
        self._moved.clear()

    def abort(self) -> dict[Where, int]:
        """Nothing of it is committed; returns the offset per partition to continue at."""
        first = dict(self._first)
        self.commit()
        return first
