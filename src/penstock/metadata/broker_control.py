"""The controller's decisions about brokers: registration, fencing, shutdown, and the effects on partitions."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.metadata.features import SECURITY_VERSION, SUPPORTED_FEATURES, finalized_features
from penstock.metadata.image import BrokerRegistration, MetadataImage, VersionRange
from penstock.metadata.partition_control import PartitionControl
from penstock.metadata.records import broker_record
from penstock.metadata.requests import (
    PRODUCER_ID_BLOCK_SIZE,
    FeatureUpdate,
    ProducerIdBlock,
    Registration,
    RegistrationReply,
)
from penstock.metadata.snapshot import security_records
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    UnregisterBrokerRecord,
)
from penstock.wire.uuids import format_uuid, is_reserved

INT64_MAX = 2**63 - 1
UPGRADE = 1
DOWNGRADES = (2, 3)


class BrokerControl:
    """Decides on one image."""

    def __init__(self, image: MetadataImage, cluster_id: str, partitions: PartitionControl) -> None:
        self._image = image
        self._cluster_id = cluster_id
        self._partitions = partitions

    # -- registration ------------------------------------------------------------------------------------------------

    def register(
        self, request: Registration, next_offset: int, *, session_alive: bool, fenced: bool
    ) -> tuple[list[MetadataRecord], RegistrationReply]:
        """Admits a broker, and handles in the same batch what its previous incarnation may have lost.

        A broker that stopped cleanly proves it with the epoch under which it did, and keeps its ISR and ELR
        memberships. Without that proof it may have lost acknowledged records: it leaves every ISR and ELR that has
        another member. Where it is the last member it leads again, but in a new leader epoch, so that readers notice
        the loss. A broker that returns with another directory has no data, and leads only where no other replica could
        have more.
        """
        if request.cluster_id != self._cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self._cluster_id}, but got cluster ID {request.cluster_id}",
            )
        existing = self._image.broker(request.broker_id)
        same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
        if existing is not None and session_alive and not same_incarnation:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with that broker id."
            )
        self._check_directories(request)
        self._check_features(request)
        broker = BrokerRegistration(
            request.broker_id,
            next_offset,
            request.incarnation_id,
            request.listeners,
            request.features,
            request.rack,
            fenced,
            False,
            request.directories,
        )
        if existing is not None and same_incarnation:
            broker = replace(
                broker,
                epoch=existing.epoch,
                fenced=existing.fenced,
                in_controlled_shutdown=existing.in_controlled_shutdown,
            )
            return [broker_record(broker)], RegistrationReply(broker.epoch)
        clean = existing is not None and request.previous_broker_epoch == existing.epoch
        changes: list[MetadataRecord] = []
        if existing is not None:
            kept = [one for one in existing.directories if one in request.directories]
            emptied = not clean and bool(existing.directories) and not kept
            changes = self._partitions.broker_changes(
                request.broker_id, active=not fenced, lost=not clean, emptied=emptied
            )
        return [broker_record(broker), *changes], RegistrationReply(broker.epoch)

    def _check_directories(self, request: Registration) -> None:
        directories = request.directories
        if not directories:
            raise _invalid_registration("No directories specified in request")
        if any(is_reserved(directory) for directory in directories):
            raise _invalid_registration("Reserved directory ID in request")
        if len(dict.fromkeys(directories)) < len(directories):
            raise _invalid_registration("Duplicate directory ID in request")
        for broker in self._image.brokers.values():
            for directory in broker.directories:
                if broker.id != request.broker_id and directory in directories:
                    raise _invalid_registration(
                        f"Broker {broker.id} is already registered with directory {format_uuid(directory)}"
                    )

    def _check_features(self, request: Registration) -> None:
        for name, level in self._image.features.items():
            supported = request.features.get(name, VersionRange(0, 0))
            if not supported.min <= level <= supported.max:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Unable to register because the broker does not support finalized version {level} of {name}. "
                    f"The broker wants a version between {supported.min} and {supported.max}, inclusive.",
                )

    def unregister(self, broker_id: int) -> list[MetadataRecord]:
        broker = self._image.broker(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
        changes = self._partitions.broker_changes(broker_id, active=False, lost=False)
        return [*changes, UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)]

    # -- fencing -----------------------------------------------------------------------------------------------------

    def fence(self, broker_id: int, broker_epoch: int) -> list[MetadataRecord]:
        """Fences the broker: it may no longer lead, and others take over where they can."""
        if self._broker(broker_id, broker_epoch).fenced:
            return []
        record = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=1)
        return [record, *self._partitions.broker_changes(broker_id, active=False, lost=False)]

    def unfence(self, broker_id: int, broker_epoch: int) -> list[MetadataRecord]:
        """Unfences the broker: it may lead, and partitions that waited for it get their leader back."""
        broker = self._broker(broker_id, broker_epoch)
        if not broker.fenced:
            return []
        record = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=-1)
        active = not broker.in_controlled_shutdown
        return [record, *self._partitions.broker_changes(broker_id, active=active, lost=False)]

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[MetadataRecord]:
        """Moves leadership away from a broker that is about to stop, while it still serves."""
        if self._broker(broker_id, broker_epoch).in_controlled_shutdown:
            return []
        record = BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, in_controlled_shutdown=1
        )
        return [record, *self._partitions.broker_changes(broker_id, active=False, lost=False)]

    def _broker(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        broker = self._image.broker(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
            )
        return broker

    # -- producer ids and features -----------------------------------------------------------------------------------

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[list[MetadataRecord], ProducerIdBlock]:
        self._broker(broker_id, broker_epoch)
        first = self._image.next_producer_id
        if first > INT64_MAX - PRODUCER_ID_BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used up.")
        record = ProducerIdsRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE
        )
        return [record], ProducerIdBlock(first)

    def update_features(self, updates: Sequence[FeatureUpdate]) -> list[MetadataRecord]:
        """Updates all features or none. A level that is already in force needs no record."""
        finalized = finalized_features(self._image.features)
        records: list[MetadataRecord] = []
        for update in updates:
            current = finalized.get(update.name, 0)
            problem = self._feature_problem(update, current)
            if problem is not None:
                raise KafkaError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"Invalid update version {update.level} for feature {update.name}. {problem}",
                )
            if update.level != current:
                records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
        return records

    def _feature_problem(self, update: FeatureUpdate, current: int) -> str | None:
        if update.upgrade_type not in (UPGRADE, *DOWNGRADES):
            return "The controller does not support the given upgrade type."
        if update.level < 0:
            return "A feature version cannot be less than 0."
        supporters = {"Local controller": SUPPORTED_FEATURES.get(update.name)}
        for broker in self._image.brokers.values():
            supporters[f"Broker {broker.id}"] = broker.features.get(update.name)
        for who, levels in supporters.items():
            if levels is None:
                return f"{who} does not support this feature."
            if not levels.min <= update.level <= levels.max:
                return f"{who} only supports versions {levels.min}-{levels.max}"
        if update.name == SECURITY_VERSION and update.level < current:
            used = next(security_records(self._image), None)
            if used is not None:
                return "Delete all ACLs, SCRAM credentials, quotas and tokens first: an older release cannot read them."
        if update.level < current and update.upgrade_type == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                "unsafe downgrade."
            )
        if update.level > current and update.upgrade_type != UPGRADE:
            return "Can't downgrade to a newer version."
        return None


def _invalid_registration(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, message)
