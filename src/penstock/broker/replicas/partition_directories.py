"""Which topic a partition directory belongs to, and what happens to directories that are not needed.

A directory is named after topic and partition. But a topic can be deleted and recreated under the same name while a
broker is down. So the file `partition.metadata` in the directory contains the topic's id. It is written when the
directory is created and synced with the first records: a directory with acknowledged records has an owner.

At a start the directories are compared with the metadata. Nothing is deleted then:

- A directory of a deleted topic, of an earlier topic of the same name, or of a partition that was moved away is set
  aside (`strays`). So is one whose owner cannot be read, if other replicas have the records: they are copied again.
- If the owner cannot be read and no other replica has the records, the partition is refused and the directory left as
  it is. Serving an empty log instead would hide the loss.
- A directory that the checkpoints list but that does not exist was lost: an intentional removal first updates the
  checkpoints. Its records are copied from other replicas, or the partition is refused (`is_lost`).
- A crash during the creation of a directory leaves no owner, or a partial one. Without records nothing is lost. With
  records, they belong to this topic, unless an earlier topic of the same name was deleted recently: then they are set
  aside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum

from penstock.broker.layout import (
    METADATA_DIRECTORY,
    Owner,
    OwnerState,
    parse_partition_directory,
    parse_partition_metadata,
    partition_directory,
    partition_metadata_text,
)
from penstock.broker.replicas.partition import Partition
from penstock.broker.replicas.remains import has_segments, holds_partition, log_bytes
from penstock.log import LogDirectory, Strays, names
from penstock.metadata import MetadataImage, TopicImage
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.uuids import format_uuid

RemovedTopics = Callable[[], Awaitable[Mapping[str, str]]]
"""Returns the recently deleted topics from the metadata log, names by id. It reads the log, so call it only if
needed."""


class Fate(Enum):
    KEEP = "keep"
    ADOPT = "adopt"
    """Keep it, and rewrite its owner."""
    SET_ASIDE = "set aside"
    REFUSE = "refuse"


class PartitionDirectories:
    def __init__(
        self, runtime: Runtime, events: EventLog, directory: LogDirectory, strays: Strays, node_id: int
    ) -> None:
        self._runtime = runtime
        self._events = events
        self._directory = directory
        self._strays = strays
        self._node_id = node_id

    def owner(self, name: str) -> Owner:
        """The topic that a directory belongs to, as far as it can be read."""
        path = f"{name}/{names.PARTITION_METADATA_NAME}"
        disk = self._runtime.disk
        return parse_partition_metadata(disk.read_bytes(path) if disk.exists(path) else b"")

    def claim(self, partition: Partition) -> None:
        """Write the owner of this directory. It is synced with the first records."""
        name = partition_directory(partition.topic, partition.index)
        self._runtime.disk.mkdir(name)
        self._write_owner(name, partition.topic_id)

    def _write_owner(self, name: str, topic_id: bytes) -> None:
        file = self._runtime.disk.open(f"{name}/{names.PARTITION_METADATA_NAME}", create=True)
        text = partition_metadata_text(format_uuid(topic_id))
        if file.size() > len(text):
            file.truncate(0)
        file.pwrite(text, 0)

    def is_lost(self, partition: Partition) -> bool:
        """Whether this broker had the log of this partition and nothing of it is left.

        A crash after the creation of a directory may leave it empty. So an empty directory counts as lost only if
        records in it had been synced, because the owner was synced with them.
        """
        name = partition_directory(partition.topic, partition.index)
        disk = self._runtime.disk
        if not self._directory.had(name) or has_segments(disk, name):
            return False
        if self.owner(name).topic_id == format_uuid(partition.topic_id):
            return False
        return not disk.exists(name) or self._directory.recovery_point(name) > 0

    def tell_lost(self, partition: Partition) -> str:
        """The reason why a lost partition is refused, and what the operator can do."""
        name = partition_directory(partition.topic, partition.index)
        root = self._runtime.disk.root
        return (
            f"{root}/{name} held this partition and is missing, and no other replica is known to have all its "
            "records. An empty log in its place would hide the loss, so the partition is not served. Restore the "
            f"directory from a backup, or from the strays listed by `penstock log strays {root}`. To accept the loss, "
            f"stop the broker and run: penstock log accept-loss {root} {name}"
        )

    def unknown(self, image: MetadataImage) -> dict[str, str]:
        """Directories of partitions that are not in the metadata, with the ids of their topics."""
        found = {}
        for name in self._directory.names():
            parsed = parse_partition_directory(name)
            if parsed is None or name == METADATA_DIRECTORY or image.partition(*parsed) is not None:
                continue
            owner = self.owner(name)
            if owner.topic_id:
                found[name] = owner.topic_id
        return found

    async def reconcile(self, image: MetadataImage, removed: RemovedTopics) -> dict[str, str]:
        """Set aside directories of partitions that this broker does not hold. Returns the directories whose partitions
        must be refused, with the reasons."""
        refused = {}
        for name in self._directory.names():
            parsed = parse_partition_directory(name)
            if parsed is None or name == METADATA_DIRECTORY:
                continue
            fate, reason = await self._judge(name, image, *parsed, removed)
            if fate is Fate.SET_ASIDE:
                await self.set_aside(name, reason)
            elif fate is Fate.REFUSE:
                refused[name] = reason
            elif fate is Fate.ADOPT:
                topic = image.topic(parsed[0])
                assert topic is not None
                self._write_owner(name, topic.topic_id)
                self._events.warning("log adopted", directory=name, reason=reason)
        self._strays.look()
        return refused

    async def remove(self, name: str) -> None:
        """Durably remove a directory without an open log, because its topic was deleted or it was moved away. Its files
        are deleted now, or at the next start."""
        disk = self._runtime.disk
        await self._directory.delete(name)
        aside = names.aside(name, self._runtime.uuid().hex(), names.DELETED_DIRECTORY_SUFFIX)
        disk.rename(name, aside)
        await disk.sync_dir("")
        self._runtime.spawn(self._remove_tree(aside), f"remove {aside}")

    async def _judge(
        self, name: str, image: MetadataImage, topic_name: str, index: int, removed: RemovedTopics
    ) -> tuple[Fate, str]:
        topic = image.topic(topic_name)
        if topic is None or index >= len(topic.partitions):
            is_ours = holds_partition(self._runtime.disk, name)
            return (Fate.SET_ASIDE, "the partition is not in the metadata") if is_ours else (Fate.KEEP, "")
        is_alone = len(image.brokers) <= 1
        # A log that was closed by a clean stop cannot belong to an earlier topic of the same name, unless other nodes
        # deleted and recreated the topic meanwhile. (A refused log was not closed, so it is judged again.)
        if self._directory.was_closed(name) and is_alone:
            return Fate.KEEP, ""
        if self._node_id not in topic.partitions[index].replicas:
            return Fate.SET_ASIDE, "it was moved to other brokers"
        owner = self.owner(name)
        if owner.topic_id == format_uuid(topic.topic_id):
            return Fate.KEEP, ""
        if not owner.topic_id and not log_bytes(self._runtime.disk, name):
            return Fate.KEEP, ""  # nothing is lost; its owner is written again
        if owner.state is OwnerState.CHECKED:
            return Fate.SET_ASIDE, "it belongs to an earlier topic of the same name"
        state = topic.partitions[index]
        if not is_alone and self._node_id in (*state.isr, *state.elr) and topic_name not in (await removed()).values():
            # This broker is in the ISR, so these are this topic's records, and it may turn out to have the only copy.
            return Fate.ADOPT, "its partition.metadata cannot be read, but this broker was in sync"
        if self._others_have(topic, index):
            return Fate.SET_ASIDE, "its owner cannot be read; the log is copied again from other replicas"
        if owner.topic_id and (not is_alone or owner.topic_id in await removed()):
            return Fate.SET_ASIDE, "it belongs to an earlier topic of the same name"
        if owner.state is OwnerState.TORN and is_alone:
            if topic_name in (await removed()).values():
                return Fate.SET_ASIDE, "the machine stopped before the owner of these records was written"
            return Fate.ADOPT, "the machine stopped while its partition.metadata was written"
        return Fate.REFUSE, _unreadable(self._runtime.disk.root, name, owner, topic)

    def _others_have(self, topic: TopicImage, index: int) -> bool:
        state = topic.partitions[index]
        return any(one != self._node_id for one in (*state.isr, *state.elr))

    async def set_aside(self, name: str, reason: str) -> None:
        """Close the log of a directory, if it is open, and keep the directory as a stray."""
        await self._directory.release(name)
        kept = await self._strays.set_aside(name, reason)
        self._events.warning("stray log set aside", directory=name, kept=kept, reason=reason)

    async def _remove_tree(self, name: str) -> None:
        try:
            await self._runtime.offload(self._runtime.disk.rmtree, name)
        except OSError as error:
            self._runtime.fatal(f"{self._runtime.disk.root}/{name} cannot be removed: {error}", error)


def _unreadable(root: str, name: str, owner: Owner, topic: TopicImage) -> str:
    found = f"names topic {owner.topic_id}" if owner.topic_id else "is damaged or missing"
    return (
        f"{name}/{names.PARTITION_METADATA_NAME} {found}, so it is unknown whether these are the records of "
        f"{topic.name} ({format_uuid(topic.topic_id)}). They are left as they are, and the partition is not served. "
        f"If they are, stop the broker and run: penstock metadata recover --data {root}"
    )
