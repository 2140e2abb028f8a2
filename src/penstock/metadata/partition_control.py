"""The controller's decisions about replicas: the effects of broker changes on partitions, new ISRs, elections."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.config import BrokerConfig
from penstock.metadata.elections import Election, Rules, change_record, elect, without
from penstock.metadata.features import ELR_VERSION
from penstock.metadata.image import (
    NO_LEADER,
    LeaderRecoveryState,
    MetadataImage,
    PartitionState,
    ResourceType,
    TopicImage,
)
from penstock.metadata.requests import (
    DONE,
    IsrProposal,
    IsrResult,
    Outcome,
    PartitionElection,
    PartitionElectionResult,
)
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import ConfigRecord, FeatureLevelRecord, MetadataRecord

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
UNKNOWN_EPOCH = -1


def concerned(records: Sequence[MetadataRecord]) -> list[str] | None:
    """The topics whose partitions these records affect; None for all topics."""
    topics: dict[str, None] = {}
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == ELR_VERSION:
            return None
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR:
            if record.resource_type == ResourceType.BROKER:
                return None
            topics[record.resource_name] = None
    return list(topics)


class PartitionControl:
    """Decides on one image."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config
        self._active = {broker.id: broker.active for broker in image.brokers.values()}
        self._elr = image.features.get(ELR_VERSION, 0) >= 1
        self._common: Rules | None = None
        """The rules of all topics without settings of their own, which are most of a hundred thousand topics."""

    # -- effects of broker changes -----------------------------------------------------------------------------------

    def broker_changes(
        self, broker_id: int, *, active: bool, lost: bool, emptied: bool = False
    ) -> list[MetadataRecord]:
        """The partition changes after a broker changed. `active`: it may lead from now on; `lost`: its logs may lack
        acknowledged records; `emptied`: it has no logs at all."""
        self._active[broker_id] = active
        changes: list[MetadataRecord] = []
        for topic in self._image.topics():
            rules: Rules | None = None
            for partition, before in enumerate(topic.partitions):
                if broker_id not in before.replicas:
                    continue
                rules = rules or self._rules(topic)
                if lost or not active:
                    after = without(before, broker_id, rules, lost=lost, emptied=emptied)
                else:
                    after = elect(before, before.isr, rules)
                record = change_record(topic.topic_id, partition, before, after)
                if record is not None:
                    changes.append(record)
        return changes

    def rules(self, topic: TopicImage) -> Rules:
        """The election rules for partitions of this topic."""
        return self._rules(topic)

    def _rules(self, topic: TopicImage) -> Rules:
        if self._image.config(ResourceType.TOPIC, topic.name):
            return self._new_rules(topic.name)
        if self._common is None:
            self._common = self._new_rules(topic.name)
        return self._common

    def _new_rules(self, topic: str) -> Rules:
        return Rules(
            lambda replica: self._active.get(replica, False),
            int(self._setting(topic, MIN_ISR, self._config.min_insync_replicas)),
            self._elr,
            self._setting(topic, UNCLEAN, self._config.unclean_leader_election_enable) == "true",
        )

    def _setting(self, topic: str, name: str, default: object) -> str:
        for resource, of in ((ResourceType.TOPIC, topic), (ResourceType.BROKER, "")):
            value = self._image.config(resource, of).get(name)
            if value is not None:
                return value
        return str(default).lower()

    def reconsider(self, topics: Sequence[str] | None) -> list[MetadataRecord]:
        """Recomputes the eligible replicas of these topics (None: all) after their rules changed."""
        names = self._image.topic_names() if topics is None else topics
        changes: list[MetadataRecord] = []
        for name in names:
            topic = self._image.topic(name)
            for partition, before in enumerate(() if topic is None else topic.partitions):
                if topic is not None and (before.elr or before.last_known_elr):
                    after = elect(before, before.isr, self._rules(topic))
                    record = change_record(topic.topic_id, partition, before, after)
                    if record is not None:
                        changes.append(record)
        return changes

    # -- AlterPartition ----------------------------------------------------------------------------------------------

    def alter_isrs(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[IsrProposal]
    ) -> tuple[list[MetadataRecord], list[IsrResult]]:
        """Handles a leader's ISR proposals; each is accepted or refused on its own."""
        broker = self._image.broker(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            known = "none" if broker is None else str(broker.epoch)
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {known}, but got broker epoch {broker_epoch}"
            )
        records: list[MetadataRecord] = []
        results = []
        for proposal in proposals:
            try:
                topic, before = self._partition(proposal.topic_id, proposal.partition)
                self._check_proposal(broker_id, proposal, before)
            except KafkaError as error:
                results.append(IsrResult(proposal.topic_id, proposal.partition, error.code))
                continue
            recovered = replace(before, leader_recovery_state=proposal.leader_recovery_state)
            # A leader that leaves itself out has found its own log damaged. It is not eligible until it has copied the
            # missing records.
            gone = () if broker_id in proposal.isr else (broker_id,)
            after = elect(recovered, self._ordered(before, proposal.isr), self._rules(topic), gone=gone)
            record = change_record(topic.topic_id, proposal.partition, before, after)
            if record is not None:
                records.append(record)
                after = replace(after, partition_epoch=before.partition_epoch + 1)
            if after.leader != broker_id:
                # Its log is damaged, or a reassignment completes with this ISR and it is no longer a replica.
                results.append(IsrResult(proposal.topic_id, proposal.partition, ErrorCode.NEW_LEADER_ELECTED))
                continue
            results.append(IsrResult(proposal.topic_id, proposal.partition, ErrorCode.NONE, after))
        return records, results

    @staticmethod
    def _ordered(before: PartitionState, isr: Sequence[int]) -> tuple[int, ...]:
        return tuple(replica for replica in before.replicas if replica in isr)

    def _check_proposal(self, broker_id: int, proposal: IsrProposal, state: PartitionState) -> None:
        if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
            # The broker knows more than this controller has decided: another controller is active.
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if proposal.leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if broker_id != state.leader:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if proposal.partition_epoch < state.partition_epoch:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
        isr = proposal.isr
        if not isr or len(dict.fromkeys(isr)) < len(isr):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        # A new leader must already be in sync: only the current leader can tell which replicas have caught up.
        allowed = state.replicas if broker_id in isr else state.isr
        if any(replica not in allowed for replica in isr):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if proposal.leader_recovery_state == LeaderRecoveryState.RECOVERING and (
            len(isr) > 1 or state.leader_recovery_state == LeaderRecoveryState.RECOVERED
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        for replica, epoch in zip(isr, proposal.broker_epochs or (UNKNOWN_EPOCH,) * len(isr), strict=True):
            broker = self._image.broker(replica)
            if broker is None or not broker.active:
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
            if epoch not in (UNKNOWN_EPOCH, broker.epoch):
                # Its fetches came from an earlier incarnation, whose unsynced records may be lost (KIP-903).
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)

    def _partition(self, topic_id: bytes, partition: int) -> tuple[TopicImage, PartitionState]:
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not 0 <= partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic, topic.partitions[partition]

    # -- ElectLeaders ------------------------------------------------------------------------------------------------

    def elect_leaders(
        self, election: Election, wanted: Sequence[PartitionElection] | None
    ) -> tuple[list[MetadataRecord], list[PartitionElectionResult]]:
        """Runs requested elections. `wanted` None: all partitions that need one; only those are in the result."""
        records: list[MetadataRecord] = []
        results = []
        tells_all = wanted is not None
        if wanted is None:
            wanted = [
                PartitionElection(topic.name, partition)
                for topic in self._image.topics()
                for partition in range(len(topic.partitions))
            ]
        for one in wanted:
            try:
                records += self._elect(election, one)
                outcome = DONE
            except KafkaError as error:
                if error.code == ErrorCode.ELECTION_NOT_NEEDED and not tells_all:
                    continue
                outcome = Outcome.of(error)
            results.append(PartitionElectionResult(one.topic, one.partition, outcome))
        return records, results

    def _elect(self, election: Election, wanted: PartitionElection) -> list[MetadataRecord]:
        topic = self._image.topic(wanted.topic)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {wanted.topic}")
        if not 0 <= wanted.partition < len(topic.partitions):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {wanted.topic}-{wanted.partition}"
            )
        before = topic.partitions[wanted.partition]
        preferred = before.replicas[0]
        if (election is Election.PREFERRED and before.leader == preferred) or (
            election is Election.UNCLEAN and before.leader != NO_LEADER
        ):
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        after = elect(before, before.isr, self._rules(topic), election=election)
        if election is Election.PREFERRED and after.leader != preferred:
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        if after.leader == NO_LEADER:
            raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        record = change_record(topic.topic_id, wanted.partition, before, after)
        return [] if record is None else [record]

    def unclean_elections(self) -> list[MetadataRecord]:
        """Elects leaders for leaderless partitions whose topics now allow unclean elections."""
        records: list[MetadataRecord] = []
        for topic in self._image.topics():
            for partition, before in enumerate(topic.partitions):
                if before.leader == NO_LEADER:
                    after = elect(before, before.isr, self._rules(topic))
                    record = change_record(topic.topic_id, partition, before, after)
                    if record is not None:
                        records.append(record)
        return records

    def balance(self) -> list[MetadataRecord]:
        """Returns leadership to preferred replicas that are in sync again."""
        records: list[MetadataRecord] = []
        for topic in self._image.topics():
            for partition, before in enumerate(topic.partitions):
                preferred = before.replicas[0]
                if before.leader in (preferred, NO_LEADER) or preferred not in before.isr:
                    continue
                after = elect(before, before.isr, self._rules(topic), election=Election.PREFERRED)
                record = change_record(topic.topic_id, partition, before, after)
                if record is not None:
                    records.append(record)
        return records
