"""Creating the new topic like the old one, and deleting it when the repartitioning is aborted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.client import Cluster, TopicMetadata, librdkafka_properties
from penstock.pipeline.repartition.fence import FENCES, FROM_TOPIC
from penstock.pipeline.repartition.plan import RepartitionError

ADMIN_TIMEOUT_S: Final = 30.0
CREATED_WITHIN_S: Final = 30.0
PAUSE_S: Final = 0.1
NOT_COPIED: Final = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas", FENCES[0][0]}
)
WHILE_COPYING: Final[Mapping[str, str]] = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
"""A copied record keeps its timestamp, however old it is."""


class Topics:
    def __init__(self, properties: Mapping[str, str], cluster: Cluster) -> None:
        self._admin = AdminClient({**librdkafka_properties(properties), "log_level": "0"})
        self._cluster = cluster

    def find(self, name: str) -> TopicMetadata | None:
        return self._cluster.existing_topics([name]).get(name)

    def settings_for_copy(self, source: str) -> tuple[dict[str, str], dict[str, str | None]]:
        """The settings with which the new topic is created, and those that it gets when all is copied."""
        resource = ConfigResource(ResourceType.TOPIC, source)
        try:
            found: Any = self._admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_S)
        except KafkaException as error:
            raise RepartitionError(f"cannot read the settings of {source}: {error.args[0].str()}") from None
        own = {
            name: entry.value
            for name, entry in found.items()
            if entry.source == FROM_TOPIC and entry.value is not None and name not in NOT_COPIED
        }
        later: dict[str, str | None] = {}
        for name, value in WHILE_COPYING.items():
            if name in found and found[name].value != value:
                later[name] = own.get(name)
                own[name] = value
        return own, later

    def create(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Creates a topic, and waits until every partition has a leader. One that is there must be an empty like it."""
        topic = NewTopic(name, partitions, replicas, config=dict(settings))
        try:
            self._admin.create_topics([topic])[name].result(ADMIN_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise RepartitionError(f"cannot create {name}: {error.args[0].str()}") from None
        deadline_s = time.monotonic() + CREATED_WITHIN_S
        while True:
            found = self.find(name)
            if found is not None and all(one.leader_id >= 0 for one in found.partitions):
                if len(found.partitions) == partitions:
                    return
                raise RepartitionError(
                    f"{name} was created by somebody else with {len(found.partitions)} partitions: choose another "
                    "name with --to, after --abort"
                )
            if time.monotonic() > deadline_s:
                raise RepartitionError(f"{name} has no leaders {CREATED_WITHIN_S:.0f} s after it was created")
            time.sleep(PAUSE_S)

    def delete(self, name: str) -> None:
        """Deletes a topic; one that is not there is fine."""
        try:
            self._admin.delete_topics([name])[name].result(ADMIN_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise RepartitionError(f"cannot delete {name}: {error.args[0].str()}") from None
