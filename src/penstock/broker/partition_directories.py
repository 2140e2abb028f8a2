"""Whose log a directory holds, and what becomes of directories that nobody needs.

A directory is named after topic and partition, but a topic can be deleted and created again under its name while a
broker is down. So `partition.metadata` in it says the topic's id. It is written when the directory is made and synced
with the first records: a directory that has records which were promised to someone has an owner.

At a start the directories are compared with the metadata. What belongs to a topic that is gone, to an earlier one of
the same name, or to a partition that was moved away is deleted. What has records and no owner is kept, under another
name, for people to look at.
"""

from __future__ import annotations

from penstock.broker.layout import (
    METADATA_DIRECTORY,
    STRAY_SUFFIX,
    parse_partition_directory,
    parse_partition_metadata,
    partition_directory,
    partition_metadata_text,
)
from penstock.broker.partition import Partition
from penstock.log import LogDirectory, names
from penstock.metadata import MetadataImage
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.uuids import format_uuid


class PartitionDirectories:
    def __init__(self, runtime: Runtime, events: EventLog, directory: LogDirectory, node_id: int) -> None:
        self._runtime = runtime
        self._events = events
        self._directory = directory
        self._node_id = node_id

    def owner(self, name: str) -> str | None:
        """The id of the topic that a directory belongs to; None if that was lost in a crash, or not written yet."""
        path = f"{name}/{names.PARTITION_METADATA_NAME}"
        disk = self._runtime.disk
        return parse_partition_metadata(disk.read_bytes(path)) if disk.exists(path) else None

    def claim(self, partition: Partition) -> None:
        """Write down whose log this directory holds. It is synced with the first records."""
        disk = self._runtime.disk
        name = partition_directory(partition.topic, partition.index)
        disk.mkdir(name)
        file = disk.open(f"{name}/{names.PARTITION_METADATA_NAME}", create=True)
        file.pwrite(partition_metadata_text(format_uuid(partition.topic_id)), 0)

    async def remove_strays(self, image: MetadataImage) -> None:
        """Take away what is of no partition that this broker holds."""
        for name in self._directory.names():
            parsed = parse_partition_directory(name)
            if parsed is None or name == METADATA_DIRECTORY:
                continue
            topic = image.topic(parsed[0])
            if topic is None or parsed[1] >= len(topic.partitions):
                await self._remove_stray(name, "its topic no longer exists")
                continue
            # After a clean stop no directory can be that of an earlier topic of the same name, unless the others in a
            # cluster have deleted and created it meanwhile.
            if self._directory.is_clean and len(image.brokers) <= 1:
                continue
            if self._node_id not in topic.partitions[parsed[1]].replicas:
                await self._remove_stray(name, "it was moved to other brokers")
                continue
            owner = self.owner(name)
            if owner == format_uuid(topic.topic_id) or (owner is None and not self._has_records(name)):
                continue
            if owner is not None:
                await self._remove_stray(name, "it is of an earlier topic")
                continue
            # Records that were synced have an owner that was synced too: nothing that was promised is in there.
            kept = await self._set_aside(name, STRAY_SUFFIX)
            self._events.error(
                "stray log set aside",
                directory=name,
                kept=kept,
                reason="the machine stopped before it was written down whose records these are",
            )

    async def remove(self, name: str) -> None:
        """Durably take away a directory that no log is open on. Its files go now, or with the next start."""
        aside = await self._set_aside(name, names.DELETED_DIRECTORY_SUFFIX)
        self._runtime.spawn(self._remove_tree(aside), f"remove {aside}")

    async def _remove_stray(self, name: str, reason: str) -> None:
        self._events.warning("stray log removed", directory=name, reason=reason)
        await self.remove(name)

    async def _set_aside(self, name: str, suffix: str) -> str:
        disk = self._runtime.disk
        aside = names.aside(name, self._runtime.uuid().hex(), suffix)
        disk.rename(name, aside)
        await disk.sync_dir("")
        await self._directory.delete(name)
        return aside

    async def _remove_tree(self, name: str) -> None:
        await self._runtime.offload(self._runtime.disk.rmtree, name)

    def _has_records(self, name: str) -> bool:
        disk = self._runtime.disk
        logs = [file for file in disk.list(name) if file.endswith(names.LOG_SUFFIX)]
        return any(disk.size(f"{name}/{file}") for file in logs)
