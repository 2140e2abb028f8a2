"""A partition and its log, as the host of a shard sees them."""

from __future__ import annotations

from penstock.broker.replicas.partition import InternalPartition
from penstock.coordinators.shard import EndMarker, Writer
from penstock.log import Log
from penstock.replication import Leader
from penstock.runtime import Runtime
from penstock.wire.errors import ErrorCode, KafkaError

READ_BYTES = 1 << 20


class PartitionJournal:
    """A partition under one leader epoch, as the host of its shard sees it (`penstock.coordinators.host.Journal`)."""

    __slots__ = ("_leader", "_leader_epoch", "_log", "_partition", "_wall_ms")

    def __init__(self, runtime: Runtime, partition: InternalPartition, log: Log, leader: Leader) -> None:
        self._wall_ms = runtime.wall_ms
        self._partition = partition
        self._log = log
        self._leader = leader
        self._leader_epoch = partition.leader_epoch

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        return self._leader.high_watermark

    @property
    def is_writable(self) -> bool:
        return not self._leader.under_min_isr

    @property
    def batch_bytes_max(self) -> int:
        return batch_bytes_max(self._log)

    def check(self, writer: Writer) -> None:
        producer = writer.producer if isinstance(writer, EndMarker) else writer
        known = self._log.producers.get(producer.id)
        if known is None:
            return
        if isinstance(writer, EndMarker):
            known.check_marker(producer.id, producer.epoch, writer.coordinator_epoch, writer.transaction_version)
        else:
            known.check_epoch(producer.id, producer.epoch)

    def append(self, batch: bytearray) -> int:
        if self._partition.leader is not self._leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._partition.append_own(memoryview(batch), self._wall_ms()).last_offset + 1


class LogSource:
    """A log, as it is read to load a shard (`penstock.coordinators.loading.Source`)."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    async def read(self, offset: int, end_offset: int) -> bytes:
        while True:
            version = self._log.version
            found = await self._log.reader.read(offset, READ_BYTES, end_offset)
            found.file.retain()
            try:
                return await found.file.pread(found.size, found.position)
            except FileNotFoundError:
                # Compaction or retention has replaced the segment.
                if self._log.version == version:
                    raise
            finally:
                found.file.release()


def batch_bytes_max(log: Log) -> int:
    return min(log.config.max_message_bytes, log.config.segment_bytes)
