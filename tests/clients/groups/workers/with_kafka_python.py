"""A member of a group through kafka-python: processes, then commits; also before it gives a partition away."""

from __future__ import annotations

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from report import Orders

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
RECORDS_PER_POLL = 20
# kafka-python 3.0 begins joining a group anew with every poll: one that is too short never gets there, with any broker.
POLL_TIMEOUT_MS = 1_000


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, orders: Orders) -> None:
        self.orders, self.report = orders, orders.report
        self.done: dict[TopicPartition, int] = {}
        settings = orders.settings
        self.consumer = KafkaConsumer(
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
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            metadata_max_age_ms=1000,
        )

    def run(self) -> None:
        self.consumer.subscribe([self.orders.settings["topic"]], listener=self)
        while not self.orders.stopping:
            try:
                found = self.consumer.poll(timeout_ms=POLL_TIMEOUT_MS, max_records=RECORDS_PER_POLL)
            except KafkaError as problem:
                # A broker that is away is an error of poll for kafka-python; the next one tries again.
                print("poll:", repr(problem), flush=True)
                continue
            for partition, records in found.items():
                for record in records:
                    self.report.processed(record.partition, record.offset, record.value)
                    self.done[partition] = record.offset + 1
            self.commit()
        self.consumer.close()

    def commit(self) -> None:
        if not self.done:
            return
        offsets = {partition: OffsetAndMetadata(offset, "", -1) for partition, offset in self.done.items()}
        try:
            self.consumer.commit(offsets)
        except KafkaError as problem:
            print("commit:", repr(problem), flush=True)
            return
        for partition, offset in self.done.items():
            self.report.committed(partition.partition, offset)
        self.done.clear()

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.report.gained([partition.partition for partition in assigned])

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.commit()
        self.on_partitions_lost(revoked)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        for partition in lost:
            self.done.pop(partition, None)
        self.report.lost([partition.partition for partition in lost])


if __name__ == "__main__":
    Member(Orders()).run()
