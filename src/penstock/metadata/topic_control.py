"""The controller's decisions about topics and partitions: checks, codes and messages as in Kafka's controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.config import BrokerConfig, validate_topic_configs
from penstock.metadata.image import (
    MetadataImage,
    ResourceType,
    TopicImage,
    has_collision_chars,
    unify_collision_chars,
)
from penstock.metadata.placement import place_replicas
from penstock.metadata.requests import (
    DONE,
    PARTITIONS_PER_REQUEST_MAX,
    RECORDS_PER_BATCH_MAX,
    NewPartitions,
    NewTopic,
    Outcome,
    PartitionsCreation,
    TopicCreation,
    TopicDeletion,
    TopicToDelete,
)
from penstock.metadata.topic_names import CLUSTER_METADATA, validate_topic_name
from penstock.raft.types import Randomness
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from penstock.wire.uuids import ZERO_UUID

Charge = Callable[[int], None]
"""Counts partitions that are created or deleted. Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) to refuse (KIP-599)."""


def free(partitions: int) -> None:
    """Charges nothing."""


class TopicControl:
    """Decides on one image; the records it returns are not applied to it."""

    def __init__(
        self, image: MetadataImage, config: BrokerConfig, rng: Randomness, new_uuid: Callable[[], bytes]
    ) -> None:
        self._image = image
        self._config = config
        self._rng = rng
        self._new_uuid = new_uuid
        # Topics of this request, which the image does not contain yet: unified name → name.
        self._unified: dict[str, str] = {}

    # -- creating topics ---------------------------------------------------------------------------------------------

    def create_topics(
        self, topics: Sequence[NewTopic], charge: Charge = free
    ) -> tuple[list[MetadataRecord], list[TopicCreation]]:
        """Each topic succeeds or fails on its own; a request that is too large fails as a whole."""
        check_partition_total(self._partitions_asked(topic) for topic in topics)
        records: list[MetadataRecord] = []
        results: dict[str, TopicCreation] = {}
        asked: dict[str, int] = {}
        for topic in topics:
            asked[topic.name] = asked.get(topic.name, 0) + 1
        for topic in topics:
            try:
                if asked[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                created, result = self._create_topic(topic, charge)
            except KafkaError as error:
                results[topic.name] = TopicCreation(topic.name, Outcome.of(error))
            else:
                records += created
                results[topic.name] = result
        check_record_total(records)
        return records, list(results.values())

    def _partitions_asked(self, topic: NewTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return self._config.num_partitions if topic.num_partitions == -1 else max(0, topic.num_partitions)

    def _create_topic(self, topic: NewTopic, charge: Charge) -> tuple[list[MetadataRecord], TopicCreation]:
        self._check_new_name(topic.name)
        configs = _check_new_configs(topic.configs)
        assignments = self._chosen_replicas(topic) if topic.assignments else self._placed_replicas(topic)
        charge(len(assignments))
        topic_id = self._new_uuid()
        records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
        # Settings come between the topic and its partitions, so that no partition is ever seen without them.
        records += [
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
            for name, value in configs.items()
        ]
        records += [
            self._partition_record(topic_id, partition, replicas) for partition, replicas in enumerate(assignments)
        ]
        if has_collision_chars(topic.name):
            self._unified[unify_collision_chars(topic.name)] = topic.name
        return records, TopicCreation(topic.name, DONE, topic_id, len(assignments), len(assignments[0]), configs)

    def _check_new_name(self, name: str) -> None:
        validate_topic_name(name)
        if name == CLUSTER_METADATA:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        if self._image.topic(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if has_collision_chars(name):
            unified = unify_collision_chars(name)
            existing = self._image.collisions.get(unified.encode())
            other = existing[0] if existing else self._unified.get(unified)
            if other is not None:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    def _chosen_replicas(self, topic: NewTopic) -> list[tuple[int, ...]]:
        if topic.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        chosen: dict[int, tuple[int, ...]] = {}
        replication_factor: int | None = None
        for partition, replicas in topic.assignments:
            if partition in chosen:
                raise _bad_assignment(f"Found multiple manual partition assignments for partition {partition}")
            self._check_chosen(partition, replicas, replication_factor)
            replication_factor = len(replicas)
            chosen[partition] = replicas
        if any(partition not in chosen for partition in range(len(chosen))):
            raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
        return [chosen[partition] for partition in range(len(chosen))]

    def _check_chosen(self, partition: int, replicas: tuple[int, ...], replication_factor: int | None) -> None:
        if not replicas:
            raise _bad_assignment("The manual partition assignment includes an empty replica list.")
        previous: int | None = None
        for broker_id in sorted(replicas):
            if self._image.broker(broker_id) is None:
                raise _bad_assignment(
                    f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
                )
            if broker_id == previous:
                raise _bad_assignment(
                    f"The manual partition assignment includes the broker {broker_id} more than once."
                )
            previous = broker_id
        if replication_factor is not None and len(replicas) != replication_factor:
            raise _bad_assignment(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {replication_factor} replica(s)."
            )
        if not self._active(replicas):
            raise _bad_assignment(
                f"All brokers specified in the manual partition assignment for partition {partition} are fenced or "
                f"in controlled shutdown."
            )

    def _placed_replicas(self, topic: NewTopic) -> list[tuple[int, ...]]:
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        count = self._config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = self._config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        return self._place(count, factor)

    def _place(self, count: int, replication_factor: int) -> list[tuple[int, ...]]:
        prefix = f"Unable to replicate the partition {replication_factor} time(s): "
        try:
            placed = place_replicas(self._image.brokers.values(), count, replication_factor, self._rng)
        except KafkaError as error:
            raise KafkaError(error.code, prefix + error.message) from None
        if any(not self._active(replicas) for replicas in placed):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                prefix + "All brokers are currently fenced or in controlled shutdown.",
            )
        return placed

    def _partition_record(self, topic_id: bytes, partition: int, replicas: tuple[int, ...]) -> PartitionRecord:
        isr = self._active(replicas)
        return PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[self._image.brokers[broker_id].default_directory for broker_id in replicas],
        )

    def _active(self, replicas: Iterable[int]) -> list[int]:
        brokers = self._image.brokers
        return [broker_id for broker_id in replicas if broker_id in brokers and brokers[broker_id].active]

    # -- deleting topics ---------------------------------------------------------------------------------------------

    def delete_topics(
        self, topics: Sequence[TopicToDelete], charge: Charge = free
    ) -> tuple[list[MetadataRecord], list[TopicDeletion]]:
        if not self._config.delete_topic_enable:
            raise KafkaError(
                ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled: set delete.topic.enable to true."
            )
        counts: dict[TopicToDelete, int] = {}
        for topic in topics:
            counts[topic] = counts.get(topic, 0) + 1
        results: list[TopicDeletion] = []
        found: dict[bytes, list[TopicImage]] = {}
        for topic, count in counts.items():
            try:
                image = self._topic_to_delete(topic, count)
                found.setdefault(image.topic_id, []).append(image)
            except KafkaError as error:
                results.append(TopicDeletion(topic.name, topic.topic_id, Outcome.of(error)))
        records: list[MetadataRecord] = []
        for topic_id, images in found.items():
            outcome = DONE
            if len(images) > 1:
                reason = "The provided topic name maps to an ID that was already supplied."
                outcome = Outcome(ErrorCode.INVALID_REQUEST, reason)
            else:
                try:
                    charge(len(images[0].partitions))
                    records.append(RemoveTopicRecord(topic_id=topic_id))
                except KafkaError as error:
                    outcome = Outcome.of(error)
            results.append(TopicDeletion(images[0].name, topic_id, outcome))
        check_record_total(records)
        return records, results

    def _topic_to_delete(self, topic: TopicToDelete, count: int) -> TopicImage:
        by_id = topic.name is None
        if by_id and topic.topic_id == ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if not by_id and topic.topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if count > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if by_id else 'name'}.")
        image = self._image.topic_by_id(topic.topic_id) if topic.name is None else self._image.topic(topic.name)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return image

    # -- adding partitions -------------------------------------------------------------------------------------------

    def create_partitions(
        self, topics: Sequence[NewPartitions], charge: Charge = free
    ) -> tuple[list[MetadataRecord], list[PartitionsCreation]]:
        check_partition_total(self._partitions_added(topic) for topic in topics)
        records: list[MetadataRecord] = []
        results: dict[str, PartitionsCreation] = {}
        asked: dict[str, int] = {}
        for topic in topics:
            asked[topic.name] = asked.get(topic.name, 0) + 1
        for topic in topics:
            try:
                if asked[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                created = self._create_partitions(topic)
                charge(len(created))
            except KafkaError as error:
                results[topic.name] = PartitionsCreation(topic.name, Outcome.of(error))
            else:
                records += created
                results[topic.name] = PartitionsCreation(topic.name, DONE)
        check_record_total(records)
        return records, list(results.values())

    def _partitions_added(self, topic: NewPartitions) -> int:
        image = self._image.topic(topic.name)
        return max(0, topic.count - len(image.partitions)) if image else 0

    def _create_partitions(self, topic: NewPartitions) -> list[PartitionRecord]:
        image = self._image.topic(topic.name)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        existing = len(image.partitions)
        if topic.count == existing:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
        if topic.count < existing:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {existing} partition(s); {topic.count} would not be an "
                f"increase. Partitions cannot be removed: create a new topic and copy the data.",
            )
        additional = topic.count - existing
        if topic.assignments is None:
            assignments = self._place(additional, image.replication_factor)
        else:
            assignments = list(topic.assignments)
            if len(assignments) != additional:
                raise _bad_assignment(
                    f"Attempted to add {additional} additional partition(s), but only {len(assignments)} "
                    f"assignment(s) were specified."
                )
            for index, replicas in enumerate(assignments):
                self._check_chosen(existing + index, replicas, image.replication_factor)
        return [
            self._partition_record(image.topic_id, existing + index, replicas)
            for index, replicas in enumerate(assignments)
        ]


def check_partition_total(counts: Iterable[int]) -> None:
    if sum(counts) > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: at most {PARTITIONS_PER_REQUEST_MAX} are allowed. "
            f"Split it into several requests.",
        )


def check_record_total(records: Sequence[MetadataRecord]) -> None:
    if len(records) > RECORDS_PER_BATCH_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Unable to perform excessively large batch operation: it needs {len(records)} records, at most "
            f"{RECORDS_PER_BATCH_MAX} are allowed. Split it into several requests.",
        )


def _check_new_configs(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    nulls = [name for name, value in configs if value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    checked = {name: value for name, value in configs if value is not None}
    validate_topic_configs(checked)
    return checked


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
