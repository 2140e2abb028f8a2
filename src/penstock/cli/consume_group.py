"""`penstock consume --group`: reads as a member of a consumer group, and commits the records it has printed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.cli.connection import Cluster
from penstock.cli.formats import ReceivedRecord
from penstock.cli.output import note

if TYPE_CHECKING:
    from penstock.cli.library import Consumer, Message, TopicPartition

FETCH_RECORDS = 500
FETCH_TIMEOUT_S = 0.1
COMMIT_INTERVAL_S = 1.0


class GroupReading:
    """The partitions that the group gives us, and how far each was written to the output.

    Only records that have left this process are committed: after a crash some are shown again, and none is skipped.
    """

    def __init__(self, cluster: Cluster, consumer: Consumer, topic: str, group: str) -> None:
        self.count = 0
        self._cluster = cluster
        self._consumer = consumer
        self._topic = topic
        self._group = group
        self._until_end = False
        self._assigned: set[int] = set()
        self._at_end: set[int] = set()
        self._was_assigned = False
        self._read: dict[int, int] = {}
        """By partition, the offset after the last record that was written to the output."""
        self._flushed: dict[int, int] = {}
        """The same for records that have left this process and are not committed yet."""
        self._committed_s = time.monotonic()

    def begin(self, *, until_end: bool) -> None:
        """Joins the group."""
        self._until_end = until_end
        self._consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def records(self, limit: int | None) -> Iterator[ReceivedRecord | None]:
        """Records until the end or the limit; None whenever no more records are available yet."""
        while (limit is None or self.count < limit) and not self._is_done():
            wanted = FETCH_RECORDS if limit is None else min(FETCH_RECORDS, limit - self.count)
            messages = self._consumer.consume(wanted, FETCH_TIMEOUT_S)
            for message in messages:
                record = self._received(message)
                if record is not None:
                    self.count += 1
                    yield record
                    self._read[record.partition] = record.offset + 1
            yield None
            # The caller flushes the output when it gets None.
            self.flushed()
            if time.monotonic() - self._committed_s > COMMIT_INTERVAL_S:
                self.commit()
            if not messages:
                self._cluster.fail_fast()

    def flushed(self) -> None:
        """The output was flushed: all that was read may be committed."""
        self._flushed.update(self._read)
        self._read.clear()

    def commit(self) -> None:
        """Commits all that was flushed."""
        from penstock.cli.library import KafkaException

        self._committed_s = time.monotonic()
        if not self._flushed:
            return
        offsets = [self._place(number, offset) for number, offset in self._flushed.items()]
        self._flushed.clear()
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # Another member has the partition by now, and will read these records again.
            if error.args[0].name() not in ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"):
                raise self._cluster.failure(error.args[0], f"commit the offsets of {self._group}") from None

    def _is_done(self) -> bool:
        if not self._until_end or not self._was_assigned:
            return False
        if not self._assigned:
            note(f"the other members of {self._group} have all partitions of {self._topic}")
        return self._assigned <= self._at_end

    def _received(self, message: Message) -> ReceivedRecord | None:
        number, offset = message.partition(), message.offset()
        error = message.error()
        if error is not None:
            if error.name() != "_PARTITION_EOF":
                raise self._cluster.failure(error, f"read {self._topic} as {self._group}")
            assert number is not None
            self._at_end.add(number)
            return None
        assert number is not None
        assert offset is not None
        return ReceivedRecord(
            topic=message.topic() or self._topic,
            partition=number,
            offset=offset,
            timestamp_ms=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
            headers=message.headers() or [],  # type: ignore[arg-type]
        )

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._was_assigned = True
        self._assigned |= {place.partition for place in partitions}
        self._at_end -= {place.partition for place in partitions}

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.commit()
        self._assigned -= {place.partition for place in partitions}

    def _place(self, number: int, offset: int) -> TopicPartition:
        from penstock.cli.library import TopicPartition

        return TopicPartition(self._topic, number, offset)
