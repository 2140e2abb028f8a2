"""Consumer groups: which read the old topic, and giving them positions in the new one.

A group takes positions from outside only while it has no members. So a group that is being used is left alone until its
consumers have stopped; the caller asks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.client import librdkafka_properties
from penstock.pipeline.repartition.plan import Offsets, RepartitionError

ADMIN_TIMEOUT_S: Final = 30.0
GROUPS_MAX: Final = 10_000
HAS_MEMBERS: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)


class Groups:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self._admin = AdminClient({**librdkafka_properties(properties), "log_level": "0"})

    def reading(self, topic: str) -> dict[str, dict[int, int]]:
        """Each group that has positions in the topic, and these by partition."""
        listed = self._wait(self._admin.list_consumer_groups(), "list the groups")
        if listed.errors and not listed.valid:
            raise RepartitionError(f"could not list the groups: {listed.errors[0]}")
        names = sorted(group.group_id for group in listed.valid)
        if len(names) > GROUPS_MAX:
            raise RepartitionError(f"there are {len(names):,} groups, and this looks at {GROUPS_MAX:,} at most")
        found = {name: self.positions(name, topic) for name in names}
        return {name: positions for name, positions in found.items() if positions}

    def positions(self, group: str, topic: str) -> dict[int, int]:
        futures = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        answer = self._wait(futures[group], f"read the positions of {group}")
        return {
            one.partition: one.offset
            for one in answer.topic_partitions or []
            if one.topic == topic and one.offset >= 0 and one.error is None
        }

    def has_members(self, group: str) -> bool:
        """Whether consumers are in the group, as far as the coordinator tells this client."""
        try:
            state = self._admin.describe_consumer_groups([group])[group].result(ADMIN_TIMEOUT_S).state
        except KafkaException:
            return False  # then `place` finds out
        return state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD, ConsumerGroupState.UNKNOWN)

    def place(self, group: str, topic: str, positions: Offsets) -> bool:
        """Commits positions for a group; False if it has members, which is for the caller to wait for."""
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(positions)]
        future = self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group]
        try:
            answer = future.result(ADMIN_TIMEOUT_S)
            errors = [one.error for one in answer.topic_partitions or [] if one.error is not None]
        except KafkaException as error:
            errors = [error.args[0]]
        if not errors:
            return True
        if errors[0].code() in HAS_MEMBERS:
            return False
        raise RepartitionError(f"could not give {group} its positions in {topic}: {errors[0].str()}")

    def _wait(self, future: Any, doing: str) -> Any:
        try:
            return future.result(ADMIN_TIMEOUT_S)
        except KafkaException as error:
            raise RepartitionError(f"could not {doing}: {error.args[0].str()}") from None
