"""Turns committed records into the next image, and lists the differences.

`MetadataDelta(image)` replays records; `apply` builds the new image at a cost proportional to the records, not the
cluster. Publishers get both: the image for lookups, the delta to know what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from penstock.acls.rules import Acl
from penstock.metadata.credentials import CredentialsDelta
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.metadata.image import (
    BrokerRegistration,
    ControllerRegistration,
    Listener,
    MetadataImage,
    PartitionState,
    ResourceType,
    TopicImage,
    VersionRange,
    config_key,
    has_collision_chars,
    unify_collision_chars,
)
from penstock.metadata.quotas import ClientQuota, Entity, entity_key, entity_of
from penstock.metadata.reassignments import is_reassigning
from penstock.metadata.sharded import ShardedMap
from penstock.wire.messages import metadata_records as r


class MetadataError(Exception):
    """A record that contradicts the image: applying or skipping it would leave nodes disagreeing."""


class TopicChange(NamedTuple):
    """A topic that existed before and still does."""

    before: TopicImage
    after: TopicImage
    partitions: tuple[int, ...]
    """The numbers of the partitions that are new or changed."""


class _TopicEdit:
    """A topic being changed."""

    __slots__ = ("base", "changed", "name", "partitions", "removed", "topic_id")

    def __init__(self, name: str, topic_id: bytes, base: TopicImage | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.base = base
        self.partitions: list[PartitionState] = list(base.partitions) if base else []
        self.changed: dict[int, None] = {}
        self.removed = False


class MetadataDelta:
    """Collects the records of one step. Read its lists after `apply`."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.is_replayed = True
        """Whether the delta was built from committed records. False for the `difference` of two images: a topic missing
        from the second was not necessarily deleted, so no data may be deleted because of it."""
        self.topics_created: list[TopicImage] = []
        self.topics_deleted: list[TopicImage] = []
        self.topics_changed: list[TopicChange] = []
        self._edits: dict[bytes, _TopicEdit] = {}
        self._configs: dict[bytes, tuple[int, str, dict[str, str]]] = {}
        self._brokers: dict[int, BrokerRegistration | None] = {}
        self._controllers: dict[int, ControllerRegistration] = {}
        self._features: dict[str, int] = {}
        self._quotas: dict[Entity, dict[str, float]] = {}
        self._acls: dict[bytes, Acl | None] = {}
        self._next_producer_id = image.next_producer_id
        self.credentials = CredentialsDelta()
        # Equal tuples are interned: most partitions share their replicas with others.
        self._interned: dict[tuple[int, ...] | tuple[bytes, ...], tuple[int, ...] | tuple[bytes, ...]] = {}

    # -- what changed ------------------------------------------------------------------------------------------------

    @property
    def brokers_changed(self) -> list[int]:
        return sorted(self._brokers)

    @property
    def configs_changed(self) -> list[tuple[int, str]]:
        """(resource type, name), in the order of the records."""
        return [(resource_type, name) for resource_type, name, _ in self._configs.values()]

    @property
    def features_changed(self) -> list[str]:
        return sorted(self._features)

    @property
    def quotas_changed(self) -> list[Entity]:
        return list(self._quotas)

    def note_quota(self, entity: Entity, values: Mapping[str, float]) -> None:
        """Adds a changed client quota; used by `difference`."""
        self._quotas[entity] = dict(values)

    @property
    def acls_removed(self) -> list[tuple[bytes, Acl]]:
        """The ACLs of the previous image that are no longer there, by id."""
        before = ((found_id, self.image.acls.get(found_id), acl) for found_id, acl in self._acls.items())
        return [(found_id, old) for found_id, old, new in before if old is not None and old != new]

    @property
    def acls_added(self) -> list[tuple[bytes, Acl]]:
        return [
            (found_id, acl)
            for found_id, acl in self._acls.items()
            if acl is not None and acl != self.image.acls.get(found_id)
        ]

    def note_config(self, resource_type: int, name: str, values: Mapping[str, str]) -> None:
        """Adds a changed configuration; used by `difference`."""
        self._configs[config_key(resource_type, name)] = (resource_type, name, dict(values))

    def note_broker(self, node_id: int, broker: BrokerRegistration | None) -> None:
        self._brokers[node_id] = broker

    def note_feature(self, name: str, level: int) -> None:
        self._features[name] = level

    def note_acl(self, found_id: bytes, acl: Acl | None) -> None:
        self._acls[found_id] = acl

    # -- replay ------------------------------------------------------------------------------------------------------

    def replay(self, record: r.MetadataRecord) -> None:
        """Applies one committed record."""
        match record:
            case r.PartitionRecord():
                self._partition(record)
            case r.PartitionChangeRecord():
                self._partition_change(record)
            case r.TopicRecord():
                self._topic(record)
            case r.RemoveTopicRecord():
                self._remove_topic(record)
            case r.ConfigRecord():
                self._config(record)
            case r.RegisterBrokerRecord():
                self._register_broker(record)
            case r.UnregisterBrokerRecord():
                self._broker(record.broker_id, record.broker_epoch)
                self._brokers[record.broker_id] = None
            case r.BrokerRegistrationChangeRecord():
                self._broker_change(record)
            case r.FenceBrokerRecord() | r.UnfenceBrokerRecord():
                fenced = isinstance(record, r.FenceBrokerRecord)
                self._brokers[record.id] = replace(self._broker(record.id, record.epoch), fenced=fenced)
            case r.RegisterControllerRecord():
                self._controllers[record.controller_id] = ControllerRegistration(
                    record.controller_id, record.incarnation_id, _listeners(record.end_points), _ranges(record.features)
                )
            case r.ProducerIdsRecord():
                self._producer_ids(record)
            case r.FeatureLevelRecord():
                self._feature_level(record)
            case r.ClientQuotaRecord():
                self._quota(record)
            case r.AccessControlEntryRecord():
                self._acls[record.id] = acl_of(record)
            case r.RemoveAccessControlEntryRecord():
                if self._acls.get(record.id, self.image.acls.get(record.id)) is None:
                    raise MetadataError(f"the removal of an ACL that does not exist, {record.id.hex()}")
                self._acls[record.id] = None
            case r.UserScramCredentialRecord():
                self.credentials.set(record)
            case r.RemoveUserScramCredentialRecord():
                self.credentials.remove(record)
            case r.NoOpRecord():
                pass
            case _:
                raise MetadataError(f"{type(record).__name__} is not supported by this release: start a newer one")

    def replay_all(self, records: Iterable[r.MetadataRecord]) -> MetadataDelta:
        for record in records:
            self.replay(record)
        return self

    def _topic(self, record: r.TopicRecord) -> None:
        if record.topic_id in self._edits or record.topic_id in self.image.ids:
            raise MetadataError(f"topic {record.name} is created with an id that is already in use")
        self._edits[record.topic_id] = _TopicEdit(record.name, record.topic_id, None)

    def _remove_topic(self, record: r.RemoveTopicRecord) -> None:
        edit = self._edit(record.topic_id)
        edit.removed = True
        # Its configuration is removed too; a new topic of the same name starts without it.
        key = config_key(ResourceType.TOPIC, edit.name)
        if key in self._configs or key in self.image.configs:
            self._configs[key] = (ResourceType.TOPIC, edit.name, {})

    def _partition(self, record: r.PartitionRecord) -> None:
        edit = self._edit(record.topic_id)
        replicas = self._ids(record.replicas)
        isr = self._ids(record.isr)
        state = PartitionState(
            replicas,
            isr,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            self._uuids(record.directories),
            self._ids(record.removing_replicas),
            self._ids(record.adding_replicas),
            self._ids(record.eligible_leader_replicas or []),
            self._ids(record.last_known_elr or []),
            record.leader_recovery_state,
        )
        partition = record.partition_id
        if partition == len(edit.partitions):
            edit.partitions.append(state)
        elif 0 <= partition < len(edit.partitions):
            edit.partitions[partition] = state
        else:
            raise MetadataError(f"new partition {partition} of {edit.name}, which has {len(edit.partitions)} so far")
        edit.changed[partition] = None

    def _partition_change(self, record: r.PartitionChangeRecord) -> None:
        edit = self._edit(record.topic_id)
        partition = record.partition_id
        if not 0 <= partition < len(edit.partitions):
            raise MetadataError(f"a change of partition {partition} of {edit.name}, which has {len(edit.partitions)}")
        old = edit.partitions[partition]
        led = record.leader != r.NO_LEADER_CHANGE
        elr = record.eligible_leader_replicas
        last_known = record.last_known_elr
        edit.partitions[partition] = PartitionState(
            old.replicas if record.replicas is None else self._ids(record.replicas),
            old.isr if record.isr is None else self._ids(record.isr),
            record.leader if led else old.leader,
            # Every election is a new leader epoch, even if the same broker wins.
            old.leader_epoch + 1 if led else old.leader_epoch,
            old.partition_epoch + 1,
            old.directories if record.directories is None else self._uuids(record.directories),
            old.removing if record.removing_replicas is None else self._ids(record.removing_replicas),
            old.adding if record.adding_replicas is None else self._ids(record.adding_replicas),
            old.elr if elr is None else self._ids(elr),
            old.last_known_elr if last_known is None else self._ids(last_known),
            old.leader_recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state,
        )
        edit.changed[partition] = None

    def _config(self, record: r.ConfigRecord) -> None:
        key = config_key(record.resource_type, record.resource_name)
        edit = self._configs.get(key)
        if edit is None:
            configs = dict(self.image.configs.get(key) or {})
            edit = self._configs[key] = (record.resource_type, record.resource_name, configs)
        if record.value is None:
            edit[2].pop(record.name, None)
        else:
            edit[2][record.name] = record.value

    def _quota(self, record: r.ClientQuotaRecord) -> None:
        entity = entity_of((part.entity_type, part.entity_name) for part in record.entity)
        values = self._quotas.get(entity)
        if values is None:
            before = self.image.quotas.get(entity_key(entity))
            values = self._quotas[entity] = dict(before.values) if before is not None else {}
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value

    def _register_broker(self, record: r.RegisterBrokerRecord) -> None:
        self._brokers[record.broker_id] = BrokerRegistration(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            _listeners(record.end_points),
            _ranges(record.features),
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            tuple(record.log_dirs),
        )

    def _broker_change(self, record: r.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
            raise MetadataError(f"an invalid change of broker {broker.id}: {record}")
        self._brokers[broker.id] = replace(
            broker,
            fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,
            in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown == 1,
            directories=tuple(record.log_dirs) or broker.directories,
        )

    def _producer_ids(self, record: r.ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._next_producer_id:
            raise MetadataError(
                f"producer ids go back from {self._next_producer_id} to {record.next_producer_id}: some would be reused"
            )
        self._next_producer_id = record.next_producer_id

    def _feature_level(self, record: r.FeatureLevelRecord) -> None:
        supported = SUPPORTED_FEATURES.get(record.name, VersionRange(0, 0))
        if record.feature_level != 0 and not supported.min <= record.feature_level <= supported.max:
            raise MetadataError(
                f"the cluster uses {record.name} level {record.feature_level}, this release supports "
                f"{supported.min} to {supported.max}: start the release that the cluster was upgraded to"
            )
        self._features[record.name] = record.feature_level

    # -- the new image -----------------------------------------------------------------------------------------------

    def apply(self, offset: int, epoch: int) -> MetadataImage:
        """The image after all replayed records, the last of them at `offset`."""
        base = self.image
        names = base.topics_by_name.edit()
        ids = base.ids.edit()
        collisions = base.collisions.edit()
        partition_count = base.partition_count
        # Removals first: a topic of the same name may have been created afterwards.
        for edit in self._edits.values():
            if edit.removed and edit.base is not None:
                self.topics_deleted.append(edit.base)
                names.remove(edit.name.encode())
                ids.remove(edit.topic_id)
                partition_count -= len(edit.base.partitions)
                if has_collision_chars(edit.name):
                    unified = unify_collision_chars(edit.name).encode()
                    left = tuple(name for name in collisions.get(unified) or () if name != edit.name)
                    if left:
                        collisions.put(unified, left)
                    else:
                        collisions.remove(unified)
        for edit in self._edits.values():
            if edit.removed or (edit.base is not None and not edit.changed):
                continue
            topic = TopicImage(edit.name, edit.topic_id, tuple(edit.partitions))
            names.put(edit.name.encode(), topic)
            ids.put(edit.topic_id, topic)
            if edit.base is None:
                self.topics_created.append(topic)
                partition_count += len(topic.partitions)
                if has_collision_chars(edit.name):
                    unified = unify_collision_chars(edit.name).encode()
                    collisions.put(unified, (*(collisions.get(unified) or ()), edit.name))
            else:
                self.topics_changed.append(TopicChange(edit.base, topic, tuple(edit.changed)))
                partition_count += len(topic.partitions) - len(edit.base.partitions)
        configs = base.configs.edit()
        for key, (_, _, values) in self._configs.items():
            if values:
                configs.put(key, values)
            else:
                configs.remove(key)
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            topics_by_name=names.finish(),
            ids=ids.finish(),
            collisions=collisions.finish(),
            configs=configs.finish(),
            acls=self._next_acls(),
            brokers=self._next_brokers(),
            controllers={**base.controllers, **self._controllers} if self._controllers else base.controllers,
            features=self._next_features(),
            next_producer_id=self._next_producer_id,
            partition_count=partition_count,
            reassigning=self._next_reassigning(),
            scram=self.credentials.apply(base.scram),
            quotas=self._next_quotas(),
        )

    def _next_quotas(self) -> ShardedMap[ClientQuota]:
        if not self._quotas:
            return self.image.quotas
        quotas = self.image.quotas.edit()
        for entity, values in self._quotas.items():
            if values:
                quotas.put(entity_key(entity), ClientQuota(entity, values))
            else:
                quotas.remove(entity_key(entity))
        return quotas.finish()

    def _next_reassigning(self) -> Mapping[bytes, int]:
        """Updated only for changed topics, since few topics are being reassigned at a time."""
        before = self.image.reassigning
        changed: dict[bytes, int] = {}
        for topic_id, edit in self._edits.items():
            known = count = before.get(topic_id, 0)
            if edit.removed:
                count = 0
            for number in () if edit.removed else edit.changed:
                count += is_reassigning(edit.partitions[number])
                if edit.base is not None and number < len(edit.base.partitions):
                    count -= is_reassigning(edit.base.partitions[number])
            if count != known:
                changed[topic_id] = count
        if not changed:
            return before
        return {topic_id: count for topic_id, count in {**before, **changed}.items() if count}

    def _next_acls(self) -> ShardedMap[Acl]:
        acls = self.image.acls.edit()
        for found_id, acl in self._acls.items():
            if acl is None:
                acls.remove(found_id)
            else:
                acls.put(found_id, acl)
        return acls.finish()

    def _next_brokers(self) -> Mapping[int, BrokerRegistration]:
        if not self._brokers:
            return self.image.brokers
        brokers: dict[int, BrokerRegistration | None] = {**self.image.brokers, **self._brokers}
        return {node_id: broker for node_id, broker in sorted(brokers.items()) if broker is not None}

    def _next_features(self) -> Mapping[str, int]:
        if not self._features:
            return self.image.features
        features = {**self.image.features, **self._features}
        return {name: level for name, level in sorted(features.items()) if level != 0}

    # -- look-ups ----------------------------------------------------------------------------------------------------

    def _edit(self, topic_id: bytes) -> _TopicEdit:
        edit = self._edits.get(topic_id)
        if edit is None:
            base = self.image.ids.get(topic_id)
            if base is None:
                raise MetadataError(f"a record for the unknown topic id {topic_id.hex()}")
            edit = self._edits[topic_id] = _TopicEdit(base.name, topic_id, base)
        if edit.removed:
            raise MetadataError(f"a record for topic {edit.name}, which was deleted before")
        return edit

    def _broker(self, node_id: int, epoch: int) -> BrokerRegistration:
        broker = self._brokers.get(node_id, self.image.brokers.get(node_id))
        if broker is None:
            raise MetadataError(f"a change of broker {node_id}, which is not registered")
        if broker.epoch != epoch:
            raise MetadataError(f"a change of broker {node_id} in epoch {epoch}, which is registered in {broker.epoch}")
        return broker

    def _ids(self, values: list[int]) -> tuple[int, ...]:
        if not values:
            return ()
        key = tuple(values)
        return self._interned.setdefault(key, key)  # type: ignore[return-value]

    def _uuids(self, values: list[bytes]) -> tuple[bytes, ...]:
        key = tuple(values)
        return self._interned.setdefault(key, key)  # type: ignore[return-value]


def difference(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """The changes to tell publishers when `after` replaces `before` at once, as a snapshot does.

    The delta only lists differences; do not replay into it or apply it. Computing it visits every topic.
    """
    delta = MetadataDelta(before)
    delta.is_replayed = False
    for topic in before.topics():
        successor = after.topic_by_id(topic.topic_id)
        if successor is None:
            delta.topics_deleted.append(topic)
        elif successor.partitions != topic.partitions:
            old = topic.partitions
            changed = tuple(
                index for index, state in enumerate(successor.partitions) if index >= len(old) or old[index] != state
            )
            delta.topics_changed.append(TopicChange(topic, successor, changed))
    delta.topics_created += [topic for topic in after.topics() if before.topic_by_id(topic.topic_id) is None]
    resources = dict.fromkeys((*before.config_resources(), *after.config_resources()))
    for resource_type, name in resources:
        values = after.config(resource_type, name)
        if values != before.config(resource_type, name):
            delta.note_config(resource_type, name, values)
    for node_id in sorted(dict.fromkeys((*before.brokers, *after.brokers))):
        if before.broker(node_id) != after.broker(node_id):
            delta.note_broker(node_id, after.broker(node_id))
    for feature in sorted(dict.fromkeys((*before.features, *after.features))):
        if before.features.get(feature) != after.features.get(feature):
            delta.note_feature(feature, after.features.get(feature, 0))
    for key in dict.fromkeys((*before.quotas.keys(), *after.quotas.keys())):
        old_quota, new_quota = before.quotas.get(key), after.quotas.get(key)
        if old_quota != new_quota:
            either = new_quota or old_quota
            assert either is not None
            delta.note_quota(either.entity, new_quota.values if new_quota is not None else {})
    for found_id in dict.fromkeys((*before.acls.keys(), *after.acls.keys())):
        if before.acls.get(found_id) != after.acls.get(found_id):
            delta.note_acl(found_id, after.acls.get(found_id))
    return delta


def acl_of(record: r.AccessControlEntryRecord) -> Acl:
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def _listeners(endpoints: list[r.BrokerEndpoint] | list[r.ControllerEndpoint]) -> tuple[Listener, ...]:
    return tuple(Listener(e.name, e.host, e.port, e.security_protocol) for e in endpoints)


def _ranges(features: list[r.BrokerFeature] | list[r.ControllerFeature]) -> dict[str, VersionRange]:
    return {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in features}
