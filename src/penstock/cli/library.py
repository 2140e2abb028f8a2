"""The names of confluent-kafka that the commands use. Imported where they are used: it takes a tenth of a second.

One place, because the library's type hints do not declare what its `admin` package offers.
"""

from __future__ import annotations

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    MemberDescription,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
    TopicMetadata,
)

__all__ = [
    "AdminClient",
    "AlterConfigOpType",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "ConsumerGroupTopicPartitions",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "MemberDescription",
    "Message",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "Producer",
    "TopicCollection",
    "TopicDescription",
    "TopicMetadata",
    "TopicPartition",
]
