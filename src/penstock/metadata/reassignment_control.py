"""The controller's decisions about reassignments: checks, codes and messages as in Kafka's controller."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.metadata.elections import Election, change_record, elect
from penstock.metadata.image import MetadataImage, PartitionState, TopicImage
from penstock.metadata.partition_control import PartitionControl
from penstock.metadata.reassignments import begun, is_reassigning, reverted, target_of
from penstock.metadata.requests import (
    DONE,
    OngoingReassignment,
    Outcome,
    PartitionReassignment,
    PartitionReassignmentResult,
)
from penstock.metadata.topic_control import check_record_total
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import MetadataRecord, PartitionChangeRecord


class ReassignmentControl:
    """Decides on one image."""

    def __init__(self, image: MetadataImage, partitions: PartitionControl) -> None:
        self._image = image
        self._partitions = partitions

    def alter(
        self, wanted: Sequence[PartitionReassignment], *, allow_replication_factor_change: bool
    ) -> tuple[list[MetadataRecord], list[PartitionReassignmentResult]]:
        """Accepts or refuses each partition on its own; a request that is too large fails as a whole."""
        records: list[MetadataRecord] = []
        results = []
        asked: dict[tuple[str, int], int] = {}
        for one in wanted:
            key = (one.topic, one.partition)
            asked[key] = asked.get(key, 0) + 1
        for one in wanted:
            try:
                if asked[one.topic, one.partition] > 1:
                    # Kafka writes a record for each; the second would be based on the state before the first.
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate partition.")
                record = self._alter(one, allow_replication_factor_change)
            except KafkaError as error:
                outcome = Outcome.of(error)
            else:
                outcome = DONE
                if record is not None:
                    records.append(record)
            results.append(PartitionReassignmentResult(one.topic, one.partition, outcome))
        check_record_total(records)
        return records, results

    def _alter(self, wanted: PartitionReassignment, allow_change: bool) -> PartitionChangeRecord | None:
        topic = self._image.topic(wanted.topic)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {wanted.topic}.")
        if not 0 <= wanted.partition < len(topic.partitions):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {wanted.topic}:{wanted.partition}."
            )
        before = topic.partitions[wanted.partition]
        if wanted.replicas is None:
            after = self._cancelled(topic, wanted.partition, before)
        else:
            self._check(before, wanted.replicas, allow_change)
            towards = begun(before, wanted.replicas, lambda replica: self._image.brokers[replica].default_directory)
            after = elect(towards, towards.isr, self._partitions.rules(topic))
        return change_record(topic.topic_id, wanted.partition, before, after)

    def _cancelled(self, topic: TopicImage, partition: int, before: PartitionState) -> PartitionState:
        if not is_reassigning(before):
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        back, unclean = reverted(before)
        rules = self._partitions.rules(topic)
        if unclean and not rules.unclean:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{partition} because it would require an "
                f"unclean leader election.",
            )
        election = Election.UNCLEAN if unclean else Election.ANY
        return elect(back, back.isr, rules, election=election, shrunk=len(back.replicas) < len(before.replicas))

    def _check(self, before: PartitionState, replicas: tuple[int, ...], allow_change: bool) -> None:
        if not replicas:
            raise _refused("The manual partition assignment includes an empty replica list.")
        previous: int | None = None
        for broker_id in sorted(replicas):
            if self._image.broker(broker_id) is None:
                raise _refused(
                    f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
                )
            if broker_id == previous:
                raise _refused(f"The manual partition assignment includes the broker {broker_id} more than once.")
            previous = broker_id
        factor = len(target_of(before))
        if not allow_change and len(replicas) != factor:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {factor} to {len(replicas)}",
            )

    def ongoing(self, wanted: Sequence[tuple[str, Sequence[int]]] | None) -> list[OngoingReassignment]:
        """The reassignments in progress, of these partitions or of all. Like Kafka, leaves out unknown partitions."""
        found: list[OngoingReassignment] = []
        if wanted is None:
            for topic_id in self._image.reassigning:
                topic = self._image.topic_by_id(topic_id)
                assert topic is not None
                found += _ongoing(topic, range(len(topic.partitions)))
            return found
        partitions: dict[str, dict[int, None]] = {}
        for name, indexes in wanted:
            partitions.setdefault(name, {}).update(dict.fromkeys(indexes))
        for name, once in partitions.items():
            topic = self._image.topic(name)
            if topic is not None and topic.topic_id in self._image.reassigning:
                found += _ongoing(topic, list(once))
        return found


def _ongoing(topic: TopicImage, partitions: Sequence[int]) -> list[OngoingReassignment]:
    return [
        OngoingReassignment(topic.name, partition, topic.partitions[partition])
        for partition in partitions
        if 0 <= partition < len(topic.partitions) and is_reassigning(topic.partitions[partition])
    ]


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
