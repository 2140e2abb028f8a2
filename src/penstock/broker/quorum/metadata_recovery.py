"""Rebuilds the metadata from what is left on disk: `penstock metadata recover`.

It is for a single node whose metadata is damaged or older than its data. It uses three sources, the best first:

1. Intact records of the damaged log and snapshot, before and after the damage (`metadata.salvage`).
2. `partition.metadata` in each partition's directory: the topic's id.
3. The logs themselves: how many partitions there are, and which leader epochs and producer ids were used.

`plan` decides and changes nothing. `carry_out` writes the new metadata next to the old, renames both, and keeps the old
as a stray. It may be interrupted at any point: the next call finds either one and continues.

Kept: the cluster's id, the directory's id, topic ids, all records. New: the metadata's epoch and offset, each
partition's leader epoch and the next producer id are above all that were seen, so that the new history cannot be
mistaken for the old. Possibly lost, and then listed: configurations of topics whose records are gone.

Access control is never guessed. Intact records of ACLs, credentials and quotas are kept, but nobody knows whether
others were lost. So `recovered.json` next to the new metadata says that ACLs are unknown, and while it exists an
authoriser lets in only super users (`recovered_metadata`, which every start reads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from penstock.broker.layout import (
    META_PROPERTIES,
    METADATA_DIRECTORY,
    QUORUM_STATE_PATH,
    OwnerState,
    partition_metadata_text,
)
from penstock.broker.quorum.metadata_evidence import Evidence, collect, segments_in, snapshot_path, whole_batches
from penstock.broker.quorum.metadata_survey import PartitionFacts, survey
from penstock.broker.quorum.recovered_metadata import KEEP_EVERYTHING, MARKER_NAME, Marker
from penstock.log import CheckpointDamaged, LogDirectory, Strays, names
from penstock.log.checkpoints import read_offsets
from penstock.metadata import (
    CONSUMER_OFFSETS,
    EMPTY_IMAGE,
    NO_LEADER,
    PRODUCER_ID_BLOCK_SIZE,
    MetadataDelta,
    MetadataImage,
    MetaProperties,
    PartitionState,
    ResourceType,
    Salvage,
    TopicImage,
    bootstrap_records,
    parse_meta_properties,
    partition_record,
    salvage_records,
    snapshot_values,
)
from penstock.metadata.security_level import level_record
from penstock.metadata.snapshot import security_records
from penstock.raft import (
    Endpoint,
    HardState,
    OffsetAndEpoch,
    QuorumStateError,
    Voter,
    VoterSet,
    batch_values,
    format_quorum_state,
    parse_quorum_state,
    snapshot_batches,
    snapshot_name,
)
from penstock.runtime import Disk, Runtime
from penstock.wire.errors import WireError
from penstock.wire.messages import metadata_records as r
from penstock.wire.uuids import format_uuid, parse_uuid

PREPARED_DIRECTORY = "__cluster_metadata-0.recovered"
"""The directory of the new metadata until it replaces the old."""
OFFSETS_SETTINGS = {"cleanup.policy": "compact", "compression.type": "producer"}
"""Settings of `__consumer_offsets`; without them committed offsets would expire like records."""
MARGIN = 1_000
"""How far epochs and offsets are advanced beyond the last known ones. An election without records leaves no trace in
a log, and clients that heard of it reject lower epochs."""
PARTITIONS_MAX = 100_000
"""The limit for one topic. A directory name with a larger number was probably not created by a broker."""
UNKNOWN_ENDPOINT = Endpoint("CONTROLLER", "localhost", 9093)


class RecoveryRefused(Exception):
    """A recovery would do harm; the message says why and what to do instead."""


@dataclass(slots=True)
class TopicPlan:
    topic: TopicImage
    is_known: bool
    """Whether intact records describe the topic, so that its configuration is known."""
    facts: list[PartitionFacts]
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RecoveryPlan:
    identity: MetaProperties
    damage: list[str]
    """The problems of the existing metadata."""
    snapshot_id: OffsetAndEpoch
    voter_set: VoterSet
    topics: list[TopicPlan]
    image: MetadataImage
    owners: dict[str, str]
    """Directories whose `partition.metadata` is rewritten, with the topic ids."""
    aside: dict[str, str]
    """Directories that are set aside, with the reasons."""
    notes: list[str]
    kept_records: int
    lost_records: int

    @property
    def topics_without_configuration(self) -> list[str]:
        return [plan.topic.name for plan in self.topics if not plan.is_known]

    @property
    def is_needed(self) -> bool:
        return bool(self.damage or self.owners)


# ---- deciding


def plan(disk: Disk, new_uuid: Callable[[], bytes], undelete: Sequence[str] = ()) -> RecoveryPlan:
    """What a recovery would do; changes nothing. Raises RecoveryRefused, MetaPropertiesError, UnreadableMetadata.

    `undelete`: topics to restore although the metadata says that they were deleted.
    """
    if not disk.exists(META_PROPERTIES):
        raise RecoveryRefused(
            f"{disk.root} has no {META_PROPERTIES}, which names the cluster and the node. Restore it from a backup"
        )
    identity = parse_meta_properties(disk.read_bytes(META_PROPERTIES))
    damage: list[str] = []
    recovery_point = _recovery_point(disk)
    state = _state(disk, damage)
    evidence = collect(disk, recovery_point, state)
    damage += evidence.snapshot_damage + evidence.damage
    voters = evidence.voter_set
    _expect_alone(identity, voters)
    found = salvage_records(_values(disk, evidence))
    replicas = (one for topic in found.image.topics() for state in topic.partitions for one in state.replicas)
    others = sorted({*found.image.brokers, *replicas} - {identity.node_id})
    if others:
        raise RecoveryRefused(
            f"brokers {', '.join(map(str, others))} have partitions or were registered; metadata rebuilt here would "
            f"lack their topics, and they would remove their logs. Each broker keeps a copy of {METADATA_DIRECTORY}"
        )
    planner = _Planner(survey(disk), identity, evidence, found, new_uuid, undelete)
    return planner.plan(damage, recovery_point)


class _Planner:
    """Compares what the records say with the directories. Pure."""

    def __init__(
        self,
        facts: list[PartitionFacts],
        identity: MetaProperties,
        evidence: Evidence,
        found: Salvage,
        new_uuid: Callable[[], bytes],
        undelete: Sequence[str],
    ) -> None:
        self._facts = facts
        self._undelete = undelete
        self._identity = identity
        self._evidence = evidence
        self._found = found
        self._new_uuid = new_uuid
        self._aside: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self._notes: list[str] = []

    def plan(self, damage: list[str], recovery_point: int) -> RecoveryPlan:
        topics = [plan for plan in map(self._topic, self._names()) if plan is not None]
        missing = [plan.topic.name for plan in topics if self._is_missing(plan)]
        if missing and not damage:
            damage = [f"the metadata lacks partitions of {', '.join(missing)}"]
        self._note_topics_without_data([plan.topic.name for plan in topics])
        if self._found.acls:
            self._notes.append(
                f"ACLs from intact records are kept ({len(self._found.image.acls)}), others may be lost. An authoriser "
                f"lets in only super.users until you have checked them and removed {MARKER_NAME}"
            )
        voters = self._evidence.voter_set
        own = voters.get(self._identity.node_id) if voters is not None else None
        endpoints = own.endpoints if own is not None and own.endpoints else (UNKNOWN_ENDPOINT,)
        if voters is None:
            self._notes.append(
                "no intact record names the voters, so this node is assumed to be the only one. If there were other "
                "controllers, stop now and start them instead"
            )
        return RecoveryPlan(
            identity=self._identity,
            damage=damage,
            snapshot_id=self._snapshot_id(recovery_point),
            voter_set=VoterSet.of([Voter(self._identity.node_id, self._identity.directory_id, endpoints)]),
            topics=topics,
            image=self._image(topics),
            owners=self._owners,
            aside=self._aside,
            notes=self._notes,
            kept_records=self._found.records - self._found.left_out,
            lost_records=self._found.left_out,
        )

    def _names(self) -> list[str]:
        return list(dict.fromkeys(facts.topic for facts in self._facts))

    def _topic(self, name: str) -> TopicPlan | None:
        facts = [one for one in self._facts if one.topic == name]
        known = self._found.image.topic(name)
        topic_id = self._topic_id(facts, known)
        if topic_id in self._found.removed and name not in self._undelete:
            for one in facts:
                self._aside[one.directory] = "its topic was deleted"
            return None
        text = format_uuid(topic_id)
        own = [one for one in facts if one.owner.topic_id in ("", text) or self._is_doubtful(one)]
        for one in facts:
            if one not in own:
                self._aside[one.directory] = f"it belongs to another topic of that name ({one.owner.topic_id})"
            elif one.owner.topic_id != text:
                self._owners[one.directory] = text
        if known is not None and known.topic_id != topic_id:
            known = None
        plan = TopicPlan(TopicImage(name, topic_id, ()), known is not None, own)
        by_index = {one.index: one for one in own}
        count = max([*by_index, -1]) + 1
        if count > PARTITIONS_MAX:
            raise RecoveryRefused(
                f"{name}-{count - 1} would make a topic of {count} partitions. If it is not a partition, move it away"
            )
        if known is not None:
            count = max(count, len(known.partitions))
        states = [self._partition(plan, index, by_index.get(index), _state_of(known, index)) for index in range(count)]
        plan.topic = TopicImage(name, topic_id, tuple(states))
        if known is None and any(one.has_gaps for one in own):
            plan.notes.append("offsets are missing inside its logs: it was probably compacted (cleanup.policy=compact)")
        for one in own:
            plan.notes += one.problems
        return plan

    def _is_doubtful(self, facts: PartitionFacts) -> bool:
        """Whether the owner has no checksum and names an unknown topic: that is more likely bit rot than another
        topic."""
        if facts.owner.state is not OwnerState.UNCHECKED:
            return False
        named = parse_uuid(facts.owner.topic_id)
        return named not in self._found.removed and self._found.image.topic_by_id(named) is None

    def _topic_id(self, facts: list[PartitionFacts], known: TopicImage | None) -> bytes:
        """The id from the directories; otherwise from the records; otherwise a new one."""
        stated = [one.owner.topic_id for one in facts if one.owner.topic_id]
        if known is not None and (not stated or format_uuid(known.topic_id) in stated):
            return known.topic_id
        if stated:
            return parse_uuid(max(stated, key=stated.count))
        return self._new_uuid()

    def _partition(
        self, plan: TopicPlan, index: int, facts: PartitionFacts | None, known: PartitionState | None
    ) -> PartitionState:
        node_id = self._identity.node_id
        replicas = known.replicas if known is not None else (node_id,)
        if facts is None and node_id in replicas:
            plan.notes.append(
                f"partition {index} has no directory and starts empty. But if this node is known to have had it, it "
                "is refused until you restore the directory or run `penstock log accept-loss`"
            )
        isr = known.isr if known is not None else (node_id,)
        epochs = [known.leader_epoch if known is not None else -1, facts.last_epoch if facts is not None else -1]
        return PartitionState(
            replicas=replicas,
            isr=isr,
            # If the ISR is empty, a leader is elected among the eligible replicas when brokers register.
            leader=node_id if node_id in isr else known.leader if known is not None else NO_LEADER,
            leader_epoch=max(epochs) + MARGIN,
            partition_epoch=known.partition_epoch + 1 if known is not None else 0,
            directories=known.directories if known is not None else (self._identity.directory_id,),
            removing=known.removing if known is not None else (),
            adding=known.adding if known is not None else (),
            elr=known.elr if known is not None else (),
        )

    def _is_missing(self, plan: TopicPlan) -> bool:
        """Whether the metadata lacks this topic, or some of its partitions."""
        known = self._found.image.topic_by_id(plan.topic.topic_id)
        return known is None or len(known.partitions) < len(plan.topic.partitions)

    def _note_topics_without_data(self, names_found: list[str]) -> None:
        gone = [name for name in self._found.image.topic_names() if name not in names_found]
        if gone:
            self._notes.append(
                f"intact records name topics that have no directory here; they are left out: {', '.join(gone)}"
            )

    def _snapshot_id(self, recovery_point: int) -> OffsetAndEpoch:
        """An id above everything that any node can have seen of the old log."""
        evidence = self._evidence
        old = evidence.snapshot_id or OffsetAndEpoch(0, 0)
        # Batches after the damage may have wrong offsets and epochs, so only their number is used.
        behind = evidence.log.behind
        offset = max(evidence.log.end, evidence.noted.end, recovery_point, old.offset)
        epochs = [old.epoch, *(batch.epoch for batch in evidence.log.batches[-1:])]
        if evidence.state is not None:
            epochs.append(evidence.state.epoch)
        return OffsetAndEpoch(offset + sum(batch.count for batch in behind) + MARGIN, max(epochs) + MARGIN)

    def _image(self, topics: list[TopicPlan]) -> MetadataImage:
        """The new metadata, built by replaying records, so that it is exactly what a node will load."""
        found = self._found.image
        delta = MetadataDelta(EMPTY_IMAGE)
        features = [r.FeatureLevelRecord(name=name, feature_level=level) for name, level in found.features.items()]
        delta.replay_all(bootstrap_records()).replay_all(features)
        for plan in topics:
            delta.replay(r.TopicRecord(name=plan.topic.name, topic_id=plan.topic.topic_id))
            for index, state in enumerate(plan.topic.partitions):
                delta.replay(partition_record(plan.topic.topic_id, index, state))
        kept = [plan.topic.name for plan in topics]
        for kind, resource in found.config_resources():
            if kind != ResourceType.TOPIC or resource in kept:
                for name, value in found.config(kind, resource).items():
                    delta.replay(r.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value))
        for plan in topics:
            set_already = found.config(ResourceType.TOPIC, plan.topic.name)
            for name, value in _safe_settings(plan).items():
                if name not in set_already:
                    delta.replay(
                        r.ConfigRecord(
                            resource_type=ResourceType.TOPIC, resource_name=plan.topic.name, name=name, value=value
                        )
                    )
        delta.replay(r.ProducerIdsRecord(broker_id=-1, next_producer_id=self._next_producer_id()))
        kept_security = list(security_records(found))
        delta.replay_all([level_record(), *kept_security] if kept_security else [])
        return delta.apply(0, 0)

    def _next_producer_id(self) -> int:
        """Above all assigned ids, plus one block: some assigned ids may not have reached any log."""
        used = max([one.last_producer_id + 1 for one in self._facts], default=0)
        blocks = -(-max(used, self._found.image.next_producer_id) // PRODUCER_ID_BLOCK_SIZE)
        return (blocks + 1) * PRODUCER_ID_BLOCK_SIZE


def _safe_settings(plan: TopicPlan) -> Mapping[str, str]:
    """Settings for a topic whose own may be lost: neither retention nor compaction removes anything."""
    if plan.topic.name == CONSUMER_OFFSETS:
        return OFFSETS_SETTINGS
    return {} if plan.is_known else KEEP_EVERYTHING


def _state_of(topic: TopicImage | None, index: int) -> PartitionState | None:
    return topic.partitions[index] if topic is not None and index < len(topic.partitions) else None


def _expect_alone(identity: MetaProperties, voters: VoterSet | None) -> None:
    others = [voter.id for voter in voters.voters if voter.id != identity.node_id] if voters is not None else []
    if others:
        raise RecoveryRefused(
            f"nodes {', '.join(map(str, others))} are also voters and have the metadata. Start this node while a "
            "majority of them is up, and it fetches everything again. Metadata rebuilt here would contradict theirs"
        )


def _recovery_point(disk: Disk) -> int:
    try:
        return read_offsets(disk, names.RECOVERY_POINTS_NAME).get(METADATA_DIRECTORY, 0)
    except CheckpointDamaged:
        return 0


def _state(disk: Disk, damage: list[str]) -> HardState | None:
    if not disk.exists(QUORUM_STATE_PATH):
        return None
    try:
        return parse_quorum_state(disk.read_bytes(QUORUM_STATE_PATH))
    except QuorumStateError as error:
        damage.append(str(error).partition(":")[0])
        return None


def _values(disk: Disk, evidence: Evidence) -> Iterator[bytes]:
    """The values of all intact records: first those of the snapshot, then those of the log."""
    covered = -1
    if evidence.snapshot is not None and evidence.snapshot_id is not None:
        covered = evidence.snapshot_id.offset
        yield from evidence.snapshot.values
    elif evidence.snapshot_id is not None:
        yield from _values_in(disk.read_bytes(snapshot_path(evidence.snapshot_id)), -1)
    for _, _, data in segments_in(disk):
        yield from _values_in(data, covered)


def _values_in(data: bytes, covered: int) -> Iterator[bytes]:
    """The values in the valid batches that end after offset `covered`."""
    for batch in whole_batches(data, 0):
        if batch.end_offset > covered:
            with suppress(WireError):
                yield from list(batch_values(batch))


# ---- doing


async def carry_out(runtime: Runtime, recovery: RecoveryPlan) -> str:
    """Carry out the plan. Returns the directory of the old metadata. The caller holds the directory's lock."""
    disk, strays = runtime.disk, Strays(runtime)
    directory = LogDirectory(runtime)
    await directory.load()
    for name in recovery.aside:
        # While the checkpoints list a log, a start considers it lost.
        await directory.release(name)
    for name, reason in recovery.aside.items():
        await strays.set_aside(name, reason)
    for name, topic_id in recovery.owners.items():
        if disk.exists(f"{name}/{names.PARTITION_METADATA_NAME}"):
            await strays.set_files_aside(name, [names.PARTITION_METADATA_NAME], "it was damaged and has been rewritten")
        await disk.replace_bytes(f"{name}/{names.PARTITION_METADATA_NAME}", partition_metadata_text(topic_id))
    kept = ""
    if recovery.damage:
        await _prepare(runtime, recovery)
        if disk.exists(METADATA_DIRECTORY):
            kept = await strays.set_aside(METADATA_DIRECTORY, f"recovered: {'; '.join(recovery.damage)}")
        await finish(runtime)
        directory.forget_checkpoints(METADATA_DIRECTORY)
    if directory.is_clean:
        await directory.close()
    else:
        await directory.checkpoint()
    return kept


async def finish(runtime: Runtime) -> bool:
    """Put prepared metadata in place if a recovery was interrupted before that. Returns whether it was."""
    disk = runtime.disk
    if disk.exists(METADATA_DIRECTORY) or not disk.exists(PREPARED_DIRECTORY):
        return False
    disk.rename(PREPARED_DIRECTORY, METADATA_DIRECTORY)
    await disk.sync_dir("")
    return True


async def _prepare(runtime: Runtime, recovery: RecoveryPlan) -> None:
    disk, wall_ms = runtime.disk, runtime.wall_ms()
    if disk.exists(PREPARED_DIRECTORY):
        # A recovery was interrupted before the old metadata was set aside: plan again from the old metadata.
        await runtime.offload(disk.rmtree, PREPARED_DIRECTORY)
    disk.mkdir(PREPARED_DIRECTORY)
    values = snapshot_values(recovery.image)
    snapshot = b"".join(snapshot_batches(recovery.snapshot_id, recovery.voter_set, values, timestamp_ms=wall_ms))
    marker = Marker(wall_ms, topics_without_configuration=tuple(recovery.topics_without_configuration))
    state = HardState(recovery.snapshot_id.epoch)
    for name, data in {
        QUORUM_STATE_PATH.rpartition("/")[2]: format_quorum_state(state),
        MARKER_NAME: msgspec.json.encode(marker),
        snapshot_name(recovery.snapshot_id): snapshot,
    }.items():
        await disk.replace_bytes(f"{PREPARED_DIRECTORY}/{name}", data)
    await disk.sync_dir("")
