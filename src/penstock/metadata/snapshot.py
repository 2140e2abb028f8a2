"""Converts an image to the records of a snapshot, and back.

The order is Kafka's: features first, because the formats of all other records depend on them, then brokers, topics,
configurations, producer ids, access control and client quotas. A snapshot is read by replaying it, so one piece of
code interprets records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.metadata.credentials import credential_records
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.metadata.quotas import entity_key
from penstock.metadata.records import acl_record, broker_record, controller_record, partition_record, quota_record
from penstock.raft.types import OffsetAndEpoch
from penstock.wire.messages import metadata_records as r

NO_BROKER = -1


def image_records(image: MetadataImage) -> Iterator[r.MetadataRecord]:
    """Records that build this image from an empty one."""
    for name, level in image.features.items():
        yield r.FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for controller in image.controllers.values():
        yield controller_record(controller)
    for topic in image.topics():
        yield r.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition, state in enumerate(topic.partitions):
            yield partition_record(topic.topic_id, partition, state)
    for resource_type, resource_name in image.config_resources():
        for name, value in image.config(resource_type, resource_name).items():
            yield r.ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    if image.next_producer_id > 0:
        yield r.ProducerIdsRecord(broker_id=NO_BROKER, next_producer_id=image.next_producer_id)
    yield from security_records(image)


def security_records(image: MetadataImage) -> Iterator[r.MetadataRecord]:
    """The records that need `penstock.security.version` (`features.SECURITY_RECORDS`)."""
    for found_id, acl in image.acls.items():
        yield acl_record(found_id, acl)
    yield from credential_records(image.scram)
    for quota in sorted(image.quotas.values(), key=lambda quota: entity_key(quota.entity)):
        for key, limit in quota.values.items():
            yield quota_record(quota.entity, key, limit)


def snapshot_values(image: MetadataImage) -> Iterator[bytes]:
    """The same records, encoded for `raft.snapshot_batches`."""
    for record in image_records(image):
        yield r.encode_metadata_record(record)


def snapshot_delta(values: Iterable[bytes]) -> MetadataDelta:
    """A snapshot's values replayed on an empty image; `apply` builds the image."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for value in values:
        delta.replay(r.decode_metadata_record(value))
    return delta


def image_from_snapshot(snapshot: OffsetAndEpoch, values: Iterable[bytes]) -> MetadataImage:
    return snapshot_delta(values).apply(snapshot.offset - 1, snapshot.epoch)
