"""A member of a group through aiokafka: processes, then commits; also before it gives a partition away."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from report import Orders

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
RECORDS_PER_POLL = 20


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, orders: Orders) -> None:
        self.orders, self.report = orders, orders.report
        self.done: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        settings = self.orders.settings
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=settings["bootstrap"],
            group_id=settings["group"],
            client_id=settings["member"],
            group_instance_id=settings.get("instance_id"),
            partition_assignment_strategy=[ASSIGNORS[settings["assignor"]]],
            session_timeout_ms=settings["session_timeout_ms"],
            heartbeat_interval_ms=settings["heartbeat_interval_ms"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            metadata_max_age_ms=1000,
        )
        self.consumer.subscribe([settings["topic"]], listener=self)
        await self.consumer.start()
        while not self.orders.stopping:
            found = await self.consumer.getmany(timeout_ms=50, max_records=RECORDS_PER_POLL)
            for partition, records in found.items():
                for record in records:
                    self.report.processed(record.partition, record.offset, record.value)
                    self.done[partition] = record.offset + 1
            await self.commit()
        self.report.leaving()
        await self.consumer.stop()

    async def commit(self) -> None:
        offsets = dict(self.done)
        if not offsets:
            return
        try:
            await self.consumer.commit(offsets)
        except KafkaError as problem:
            print("commit:", repr(problem), flush=True)
            return
        for partition, offset in offsets.items():
            self.report.committed(partition.partition, offset)
            if self.done.get(partition) == offset:
                del self.done[partition]

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.report.gained([partition.partition for partition in assigned])

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        await self.commit()
        for partition in revoked:
            self.done.pop(partition, None)
        self.report.lost([partition.partition for partition in revoked])


if __name__ == "__main__":
    asyncio.run(Member(Orders()).run())
