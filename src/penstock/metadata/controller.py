"""The active controller: turns administrative requests into records and replies.

It decides on what it has *decided* so far, not only on what is committed: two requests in flight cannot both create the
same topic. Each decision's records form one atomic unit of the log. A reply may be sent when everything appended up to
then is committed, even if the decision itself has no records: "already exists" may refer to a topic that is not
committed yet. When leadership is lost, or an append fails, the controller is reset to the committed image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.acls.filters import AclFilter
from penstock.acls.rules import Acl
from penstock.config import BrokerConfig
from penstock.metadata.acl_control import AclControl
from penstock.metadata.broker_control import BrokerControl
from penstock.metadata.config_control import ConfigControl
from penstock.metadata.credentials import (
    CredentialDeletion,
    CredentialResult,
    CredentialUpsertion,
    alter_credentials,
)
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.elections import Election
from penstock.metadata.features import bootstrap_records
from penstock.metadata.image import MetadataImage
from penstock.metadata.partition_control import PartitionControl, concerned
from penstock.metadata.quota_control import QuotaControl
from penstock.metadata.reassignment_control import ReassignmentControl
from penstock.metadata.requests import (
    AclDeletion,
    ConfigAlteration,
    ConfigReplacement,
    ConfigResult,
    Decision,
    FeatureUpdate,
    IsrProposal,
    IsrResult,
    NewPartitions,
    NewTopic,
    OngoingReassignment,
    Outcome,
    PartitionElection,
    PartitionElectionResult,
    PartitionReassignment,
    PartitionReassignmentResult,
    PartitionsCreation,
    ProducerIdBlock,
    QuotaAlteration,
    QuotaResult,
    R,
    Registration,
    RegistrationReply,
    TopicCreation,
    TopicDeletion,
    TopicToDelete,
)
from penstock.metadata.security_level import with_security_level
from penstock.metadata.snapshot import security_records
from penstock.metadata.topic_control import Charge, TopicControl, free
from penstock.raft.types import Randomness
from penstock.wire.messages.metadata_records import FeatureLevelRecord, MetadataRecord


class Controller:
    """Takes decisions. A request that fails as a whole raises KafkaError and decides nothing."""

    def __init__(
        self,
        image: MetadataImage,
        *,
        cluster_id: str,
        config: BrokerConfig,
        rng: Randomness,
        new_uuid: Callable[[], bytes],
        voter_ids: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        self.image = image
        self.config = config
        self._cluster_id = cluster_id
        self._rng = rng
        self._new_uuid = new_uuid
        self._voter_ids = voter_ids

    def reset(self, image: MetadataImage) -> None:
        """Drops all uncommitted decisions."""
        self.image = image

    def decide_activation(self) -> Decision[None]:
        """The first records of a new leader: in a new cluster, the feature levels that all other records depend on."""
        return self._decided([] if self.image.brokers else list(bootstrap_records()), None)

    def decide_state_features(self) -> Decision[None]:
        """Writes the founder's bootstrap records to the log, because nodes that join have only the log: feature levels,
        and the credentials and ACLs that the directory was formatted with."""
        levels = [FeatureLevelRecord(name=name, feature_level=level) for name, level in self.image.features.items()]
        return self._decided([*levels, *security_records(self.image)], None)

    # -- topics ------------------------------------------------------------------------------------------------------

    def decide_create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, charge: Charge = free
    ) -> Decision[list[TopicCreation]]:
        return self._decided(*self._topics.create_topics(topics, charge), validate_only=validate_only)

    def decide_delete_topics(
        self, topics: Sequence[TopicToDelete], *, charge: Charge = free
    ) -> Decision[list[TopicDeletion]]:
        return self._decided(*self._topics.delete_topics(topics, charge))

    def decide_create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False, charge: Charge = free
    ) -> Decision[list[PartitionsCreation]]:
        return self._decided(*self._topics.create_partitions(topics, charge), validate_only=validate_only)

    # -- configurations ----------------------------------------------------------------------------------------------

    def decide_incremental_alter_configs(
        self, resources: Sequence[ConfigAlteration], *, validate_only: bool = False
    ) -> Decision[list[ConfigResult]]:
        records, results = self._configs.alter(resources)
        return self._decided(self._with_consequences(records), results, validate_only=validate_only)

    def decide_alter_configs(
        self, resources: Sequence[ConfigReplacement], *, validate_only: bool = False
    ) -> Decision[list[ConfigResult]]:
        records, results = self._configs.replace(resources)
        return self._decided(self._with_consequences(records), results, validate_only=validate_only)

    # -- brokers -----------------------------------------------------------------------------------------------------

    def decide_register_broker(
        self, request: Registration, next_offset: int, *, session_alive: bool = False, fenced: bool = True
    ) -> Decision[RegistrationReply]:
        """`next_offset` of the log becomes the broker's epoch. `fenced=False` admits and unfences in one step."""
        records, reply = self._brokers.register(request, next_offset, session_alive=session_alive, fenced=fenced)
        return self._decided(records, reply)

    def decide_unregister_broker(self, broker_id: int) -> Decision[None]:
        return self._decided(self._brokers.unregister(broker_id), None)

    def decide_fence_broker(self, broker_id: int, broker_epoch: int) -> Decision[None]:
        return self._decided(self._brokers.fence(broker_id, broker_epoch), None)

    def decide_unfence_broker(self, broker_id: int, broker_epoch: int) -> Decision[None]:
        return self._decided(self._brokers.unfence(broker_id, broker_epoch), None)

    def decide_controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Decision[None]:
        return self._decided(self._brokers.controlled_shutdown(broker_id, broker_epoch), None)

    # -- partitions --------------------------------------------------------------------------------------------------

    def decide_alter_isrs(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[IsrProposal]
    ) -> Decision[list[IsrResult]]:
        return self._decided(*self._partitions.alter_isrs(broker_id, broker_epoch, proposals))

    def decide_elect_leaders(
        self, election: Election, wanted: Sequence[PartitionElection] | None
    ) -> Decision[list[PartitionElectionResult]]:
        return self._decided(*self._partitions.elect_leaders(election, wanted))

    def decide_alter_reassignments(
        self, wanted: Sequence[PartitionReassignment], *, allow_replication_factor_change: bool = True
    ) -> Decision[list[PartitionReassignmentResult]]:
        control = ReassignmentControl(self.image, self._partitions)
        decided = control.alter(wanted, allow_replication_factor_change=allow_replication_factor_change)
        return self._decided(*decided)

    def decide_list_reassignments(
        self, wanted: Sequence[tuple[str, Sequence[int]]] | None
    ) -> Decision[list[OngoingReassignment]]:
        """The reassignments of these partitions, or of all, including uncommitted ones. Decides nothing."""
        return self._decided([], ReassignmentControl(self.image, self._partitions).ongoing(wanted))

    def decide_unclean_elections(self) -> Decision[None]:
        return self._decided(self._partitions.unclean_elections(), None)

    def decide_balance(self) -> Decision[int]:
        """Returns leadership to preferred replicas; the reply is how many."""
        records = self._partitions.balance()
        return self._decided(records, len(records))

    # -- quotas ------------------------------------------------------------------------------------------------------

    def decide_alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> Decision[list[QuotaResult]]:
        return self._decided(*QuotaControl(self.image).alter(alterations), validate_only=validate_only)

    # -- access control ----------------------------------------------------------------------------------------------

    def decide_create_acls(self, acls: Sequence[Acl]) -> Decision[list[Outcome]]:
        return self._decided(*AclControl(self.image).create(acls))

    def decide_delete_acls(self, filters: Sequence[AclFilter]) -> Decision[list[AclDeletion]]:
        return self._decided(*AclControl(self.image).delete(filters))

    # -- producer ids and features -----------------------------------------------------------------------------------

    def decide_allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Decision[ProducerIdBlock]:
        return self._decided(*self._brokers.allocate_producer_ids(broker_id, broker_epoch))

    def decide_update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> Decision[None]:
        records = self._with_consequences(self._brokers.update_features(updates))
        return self._decided(records, None, validate_only=validate_only)

    # -- credentials -------------------------------------------------------------------------------------------------

    def decide_alter_credentials(
        self, deletions: Sequence[CredentialDeletion], upsertions: Sequence[CredentialUpsertion]
    ) -> Decision[list[CredentialResult]]:
        return self._decided(*alter_credentials(self.image.scram, deletions, upsertions))

    def _with_consequences(self, records: list[MetadataRecord]) -> list[MetadataRecord]:
        """Adds, in the same batch, the partition changes that new settings or levels cause.

        Once fewer replicas suffice, the high watermark advances without the eligible replicas that are not in sync.
        From that very moment they must no longer be electable.
        """
        topics = concerned(records)
        if topics == []:
            return records
        image = MetadataDelta(self.image).replay_all(records).apply(self.image.offset, self.image.epoch)
        return [*records, *PartitionControl(image, self.config).reconsider(topics)]

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _topics(self) -> TopicControl:
        return TopicControl(self.image, self.config, self._rng, self._new_uuid)

    @property
    def _configs(self) -> ConfigControl:
        return ConfigControl(self.image, self.config)

    @property
    def _brokers(self) -> BrokerControl:
        return BrokerControl(self.image, self._cluster_id, self._partitions)

    @property
    def _partitions(self) -> PartitionControl:
        return PartitionControl(self.image, self.config)

    def _decided(self, records: list[MetadataRecord], reply: R, *, validate_only: bool = False) -> Decision[R]:
        records = with_security_level(self.image, records, self._voter_ids())
        if validate_only:
            return Decision([], reply)
        if records:
            delta = MetadataDelta(self.image).replay_all(records)
            self.image = delta.apply(self.image.offset + len(records), self.image.epoch)
        return Decision(records, reply)
