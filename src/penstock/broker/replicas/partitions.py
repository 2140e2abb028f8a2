"""The partitions of this broker: opens, configures, maintains and closes them according to the metadata.

`PartitionManager` is notified of every committed metadata change, keeps the table in which requests look up
partitions, and owns the logs and their periodic tasks. It applies a change with these parts:

    PartitionTable           lists the partition, whichever broker holds it
    PartitionDirectories     claims or removes the directory of a partition held here
    LogDirectory             opens the log
    HighWatermarks           provides the saved high watermark
    ReplicaRoles             leads the partition, or follows its leader

After a clean stop logs are opened from the checkpoint without touching their files. After a crash they are recovered in
the background, a few at a time; a partition is served as soon as its own log is ready.
"""

from __future__ import annotations

from typing import Protocol

from penstock.broker.chores import Chores
from penstock.broker.layout import partition_directory
from penstock.broker.net.peers import Peers
from penstock.broker.net.slices import Slices
from penstock.broker.produce.preparing import configure_compression
from penstock.broker.replicas.cleaning import Cleaner
from penstock.broker.replicas.high_watermarks import HighWatermarks
from penstock.broker.replicas.log_settings import LogSettings
from penstock.broker.replicas.partition import InternalPartition, Partition, PartitionListener, Wakes
from penstock.broker.replicas.partition_directories import PartitionDirectories
from penstock.broker.replicas.partition_table import PartitionTable
from penstock.broker.replicas.roles import ReplicaRoles
from penstock.broker.replicas.throttles import Throttles
from penstock.config import BrokerConfig, TopicConfig
from penstock.log import Log, LogDirectory, Strays
from penstock.metadata import (
    EMPTY_IMAGE,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    ResourceType,
    TopicImage,
    is_internal,
)
from penstock.runtime import Runtime, Task
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode

FIRST_RETENTION_MS = 30_000
"""Delay of the first periodic tasks: a broker that has just started has more urgent work."""
NOT_IN_SNAPSHOT = "its topic is missing in a metadata snapshot"
MOVED_BY_SNAPSHOT = "it was moved to other brokers, according to a metadata snapshot"
LAG_CHECKS = 8
"""How often followers are checked per `replica.lag.time.max.ms`, and contacts per broker session."""


class MetadataSource(Protocol):
    """What the manager needs from the quorum besides images."""

    @property
    def is_sound(self) -> bool:
        """Whether the image can be trusted, so that data may be removed because of it."""

    async def removed_topics(self) -> dict[str, str]:
        """The recently deleted topics: names by id."""


class PartitionManager:
    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        wakes: Wakes,
        directory: LogDirectory,
        peers: Peers,
        metadata: MetadataSource,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._events = events
        self._config = config
        self._wakes = wakes
        self._directory = directory
        self._image = EMPTY_IMAGE
        self._settings = LogSettings(config)
        self.strays = Strays(runtime)
        self._directories = PartitionDirectories(runtime, events, directory, self.strays, config.node_id)
        self._chores = Chores(runtime)
        self._to_recover: dict[str, tuple[Partition, TopicConfig]] = {}
        self._recovery: Task[None] | None = None
        self._listeners: dict[str, PartitionListener] = {}
        self.table = PartitionTable()
        self._high_watermarks = HighWatermarks(runtime, self.table.all)
        self.cleaner = Cleaner(runtime, events, config, directory, self.table.all)
        self.throttles = Throttles(runtime, config)
        self.roles = ReplicaRoles(runtime, events, config, peers, self.throttles.follower, lambda: self._image)
        self.cleaner.on_corrupt = self.roles.damage.suspect_all
        self.roles.on_repaired = self.cleaner.take_back
        self.recovering = 0
        """Partitions whose logs are not open yet."""
        self.cut_logs = 0
        """Number of log ends that were cut off since the start because of an invalid batch."""
        self.refused = 0
        """Number of partitions whose logs could not be opened and need an operator."""
        self.lost = 0
        """Number of partitions whose logs were missing at the start and are copied again. This broker must not count as
        having all records, so it must not claim a clean stop."""
        self.held = 0
        """Number of partitions with a replica here."""

    # ---- start

    def unknown_directories(self, image: MetadataImage) -> dict[str, str]:
        """Directories of partitions that are not in the image, with the ids of their topics."""
        return self._directories.unknown(image)

    async def open(self, image: MetadataImage) -> None:
        """Open the partitions that the image assigns to this broker. Returns when every log that needs no recovery is
        open.

        The image must be the cluster's current one, not this node's last: logs of topics that it lacks are set aside.
        """
        self._image = image
        refused = await self._directories.reconcile(image, self._metadata.removed_topics)
        present = dict.fromkeys(self._directory.names())
        self._high_watermarks.load()
        slices = Slices(self._runtime)
        for topic in image.topics():
            config = self._settings.of_topic(image, topic.name)
            self.throttles.configure_topic(topic.name, config)
            for partition in self._enter(topic):
                state = topic.partitions[partition.index]
                partition.follow_state(state)
                if not self._holds(state):
                    continue
                self.held += 1
                name = partition_directory(topic.name, partition.index)
                if name in refused:
                    self._refuse(partition, refused[name])
                elif name in present and self._directory.was_closed(name):
                    await self._open_partition(partition, config)
                elif (lost := self._directories.is_lost(partition)) and not self._others_have(partition):
                    self._refuse(partition, self._directories.tell_lost(partition))
                else:
                    await self._claim_found(partition, lost=lost)
                    if name in present:
                        self._to_recover[name] = partition, config
                    else:
                        await self._open_partition(partition, config)
                await slices.breathe()
        self.recovering = len(self._to_recover)
        if self.recovering:
            self._events.info("recovering", partitions=self.recovering, reason="they were not closed cleanly")
            self._recovery = self._runtime.spawn_essential(self._recover(), "recovery")
        self._begin_chores()

    async def _claim_found(self, partition: Partition, *, lost: bool) -> None:
        """Check a log without a clean stop before it is opened: its directory must exist and name its owner."""
        name = partition_directory(partition.topic, partition.index)
        if lost:
            self.lost += 1
            self._events.error(
                "log lost", partition=str(partition), what=f"{name} is missing", then="it is copied from other replicas"
            )
        if lost or not self._runtime.disk.exists(name):
            await self._directory.delete(name)  # the checkpoints' entries belong to an earlier log
        if not self._directories.owner(name).topic_id:
            self._directories.claim(partition)

    async def _recover(self) -> None:
        """Open the logs after a crash, some at a time; each is served as soon as it is open."""
        began_ms = self._runtime.now_ms()
        configs = {name: self._settings.of_log(config) for name, (_, config) in self._to_recover.items()}
        await self._directory.open_all(
            configs,
            self._recovered,
            replicated=[name for name, (partition, _) in self._to_recover.items() if self._others_have(partition)],
            concurrency=self._config.num_recovery_threads_per_data_dir,
            on_failure=self._not_recovered,
        )
        self.strays.look()
        self._events.info("recovered", partitions=len(configs), took_ms=round(self._runtime.now_ms() - began_ms))

    def _others_have(self, partition: Partition) -> bool:
        """Whether other replicas are in sync: after an unclean stop this broker leaves the ISR before it is unfenced,
        and then follows them."""
        state = partition.state
        return state is not None and any(one != self._config.node_id for one in (*state.isr, *state.elr))

    def _recovered(self, log: Log) -> None:
        partition, config = self._to_recover.pop(log.name)
        self.recovering -= 1
        log.config = self._settings.of_log(config)
        for damage in log.damage:
            self._events.error("damaged log", partition=str(partition), what=damage)
        for cut in log.cuts:
            self.cut_logs += 1
            self._events.error("log cut", partition=str(partition), **cut.fields())
        self._hold(partition, log, config)

    def _not_recovered(self, name: str, error: Exception) -> None:
        """Keep serving the other partitions; this one has no leader until an operator has acted."""
        if isinstance(error, OSError):
            # The disk fails, not the content. Other brokers can serve the data if this one stops.
            self._runtime.fatal(f"{self._runtime.disk.root}/{name} cannot be read: {error}", error)
        partition, _ = self._to_recover.pop(name)
        self.recovering -= 1
        self._refuse(partition, str(error))

    def _refuse(self, partition: Partition, reason: str) -> None:
        """Refuse a partition with a storage error and leave its files as they are."""
        partition.refusal = ErrorCode.KAFKA_STORAGE_ERROR
        self.refused += 1
        self._events.error("log not opened", partition=str(partition), error=reason)

    # ---- changes of the metadata

    async def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a committed metadata change; one that is already in force is skipped."""
        if image.offset <= self._image.offset:
            return
        if delta.topics_deleted and self._recovery is not None:
            await self._recovery  # a log must not be removed while it is being recovered
        self._image = image
        slices = Slices(self._runtime)
        removals: list[Task[None]] = []
        for topic in delta.topics_deleted:
            await self._delete_topic(topic, is_proven=delta.is_replayed)
        for topic in delta.topics_created:
            config = self._settings.of_topic(image, topic.name)
            for partition in self._enter(topic):
                await self._add(partition, topic.partitions[partition.index], config)
                await slices.breathe()
        for change in delta.topics_changed:
            config = self._settings.of_topic(image, change.after.name)
            partitions = self.table.by_id[change.after.topic_id]
            for index in change.partitions:
                state = change.after.partitions[index]
                if index < len(partitions):
                    await self._change(partitions[index], state, config, removals, is_proven=delta.is_replayed)
                else:
                    partitions.append(self._new_partition(change.after, index))
                    await self._add(partitions[index], state, config)
                await slices.breathe()
        # Run them concurrently, so that their renames share the syncs of the directory.
        for removal in removals:
            await removal
        if not delta.is_replayed:
            self.strays.look()
        for kind, name in delta.configs_changed:
            if kind == ResourceType.TOPIC:
                self._configure_topic(image, name)
        if delta.brokers_changed:
            await self.roles.consider_all(slices)

    def listen(self, topic: str, listener: PartitionListener) -> None:
        """Notify `listener` of the partitions of this internal topic: those already led, and all later changes."""
        self._listeners[topic] = listener
        for partition in self.table.by_name.get(topic.encode(), []):
            assert isinstance(partition, InternalPartition)
            partition.listener = listener
            if partition.leader is not None:
                listener.on_leader(partition)

    def _enter(self, topic: TopicImage) -> list[Partition]:
        partitions = [self._new_partition(topic, index) for index in range(len(topic.partitions))]
        self.table.by_name[topic.name.encode()] = partitions
        self.table.by_id[topic.topic_id] = partitions
        return partitions

    def _new_partition(self, topic: TopicImage, index: int) -> Partition:
        if is_internal(topic.name):
            listener = self._listeners.get(topic.name)
            return InternalPartition(topic.name, topic.topic_id, index, self._wakes, listener)
        return Partition(topic.name, topic.topic_id, index, self._wakes)

    async def _add(self, partition: Partition, state: PartitionState, config: TopicConfig) -> None:
        """Add a partition that is new, or was not held here before."""
        partition.follow_state(state)
        if self._holds(state):
            self.held += 1
            self._directories.claim(partition)
            await self._open_partition(partition, config)

    async def _open_partition(self, partition: Partition, config: TopicConfig) -> None:
        name = partition_directory(partition.topic, partition.index)
        self._hold(partition, await self._directory.open(name, self._settings.of_log(config)), config)

    def _hold(self, partition: Partition, log: Log, config: TopicConfig) -> None:
        partition.log = log
        partition.damaged_at = None
        partition.high_watermark = min(self._high_watermarks.claim(log.name), log.end_offset)
        partition.configure_min_isr(config.min_insync_replicas)
        configure_compression(partition, config)
        if partition.state is not None:
            self.roles.take_up(partition, partition.state)

    async def _change(
        self,
        partition: Partition,
        state: PartitionState,
        config: TopicConfig,
        removals: list[Task[None]],
        *,
        is_proven: bool,
    ) -> None:
        """Apply a change of a partition's leader, ISR or replicas."""
        held = partition.state is not None and self._holds(partition.state)
        if self._holds(state) and not held:
            await self._add(partition, state, config)
        elif held and not self._holds(state):
            partition.follow_state(state)
            await self._move_away(partition, state, removals, is_proven=is_proven)
        else:
            self.roles.take_up(partition, state)

    async def _delete_topic(self, topic: TopicImage, *, is_proven: bool) -> None:
        """`is_proven`: a committed record says that the topic was deleted. A snapshot only lacks it."""
        partitions = self.table.by_id.pop(topic.topic_id)
        if self.table.by_name.get(topic.name.encode()) is partitions:
            del self.table.by_name[topic.name.encode()]
        removals: list[Task[None]] = []
        for partition in partitions:
            partition.retired = True
            await self.roles.leave(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if partition.state is not None and self._holds(partition.state):
                self.held -= 1
                await self._remove_log(partition, removals, "" if is_proven else NOT_IN_SNAPSHOT)
        # Run them concurrently, so that their renames share the syncs of the directory.
        for removal in removals:
            await removal
        if self._high_watermarks.is_written and any(len(state.replicas) > 1 for state in topic.partitions):
            # A new topic may get the same name: this topic's high watermarks must not be applied to it.
            await self._high_watermarks.checkpoint()

    async def _move_away(
        self, partition: Partition, state: PartitionState, removals: list[Task[None]], *, is_proven: bool
    ) -> None:
        """This broker is no longer a replica: the partition was moved to others."""
        if self._recovery is not None:
            await self._recovery
        await self.roles.leave(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.held -= 1
        # The high watermark of this replica must not be applied to a later replica here.
        partition.high_watermark = 0
        self._high_watermarks.forget(partition_directory(partition.topic, partition.index))
        self._events.info("replica removed", partition=str(partition), replicas=str(state.replicas))
        await self._remove_log(partition, removals, "" if is_proven else MOVED_BY_SNAPSHOT)

    async def _remove_log(self, partition: Partition, removals: list[Task[None]], keep_because: str) -> None:
        """Remove the log of a partition, or set it aside if `keep_because` gives a reason."""
        name = partition_directory(partition.topic, partition.index)
        is_open, partition.log = partition.log is not None, None
        if not is_open:
            # Its log could not be opened.
            self.refused -= partition.refusal is ErrorCode.KAFKA_STORAGE_ERROR
            partition.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not self._runtime.disk.exists(name):
            await self._directory.delete(name)
        elif keep_because:
            aside = self._directories.set_aside(name, keep_because)
            removals.append(self._runtime.spawn(aside, f"set {partition} aside"))
        elif is_open:
            removals.append(self._runtime.spawn(self._directory.delete(name), f"delete {partition}"))
        else:
            await self._directories.remove(name)

    def _holds(self, state: PartitionState) -> bool:
        return self._config.node_id in state.replicas

    # ---- configuration

    def configure(self, config: BrokerConfig, image: MetadataImage) -> None:
        """The broker's settings changed, which are the defaults of its topics."""
        self._config = self.cleaner.config = config
        self.roles.configure(config)
        self.throttles.configure(config)
        self._settings = LogSettings(config)
        for name in image.topic_names():
            self._configure_topic(image, name)

    def _configure_topic(self, image: MetadataImage, name: str) -> None:
        config = self._settings.of_topic(image, name)
        self.throttles.configure_topic(name, config)
        log_config = self._settings.of_log(config)
        for partition in self.table.by_name.get(name.encode(), []):
            partition.configure_min_isr(config.min_insync_replicas)
            configure_compression(partition, config)
            directory = partition_directory(name, partition.index)
            if partition.log is not None:
                partition.log.config = log_config
            elif directory in self._to_recover:
                self._to_recover[directory] = partition, config

    # ---- periodic tasks

    def _begin_chores(self) -> None:
        add = self._chores.add
        add(
            "retention",
            self._retain,
            lambda: self._config.log_retention_check_interval_ms,
            first_ms=FIRST_RETENTION_MS,
        )
        add("strays", self._remove_strays, lambda: self._config.log_retention_check_interval_ms)
        add("cleaning", self.cleaner.clean, lambda: self._config.log_cleaner_backoff_ms)
        add("checkpoint", self._directory.checkpoint, self._checkpoint_interval_ms)
        add("isr", self.roles.watch_followers, lambda: self._config.replica_lag_time_max_ms / LAG_CHECKS)
        add("contact", self.roles.watch_contact, lambda: self._config.broker_session_timeout_ms / LAG_CHECKS)
        add(
            "high watermarks",
            self._high_watermarks.checkpoint,
            lambda: self._config.replica_high_watermark_checkpoint_interval_ms,
        )
        add("producers", self._expire_producers, lambda: self._config.producer_id_expiration_check_interval_ms)

    def _checkpoint_interval_ms(self) -> float:
        config = self._config
        return min(config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms)

    async def _retain(self) -> None:
        """Apply retention to all logs."""
        slices = Slices(self._runtime)
        removed = 0
        for partition in list(self.table.all()):
            log = partition.log
            # DeleteRecords may also remove segments of a compacted topic.
            if log is not None and partition.is_copied and (log.config.deletes or log.config.compacts):
                removed += await log.trimmer.retain(self._runtime.wall_ms(), partition.high_watermark)
            await slices.breathe()
        if removed:
            self._events.info("retention", segments_removed=removed)
            await self._directory.checkpoint()

    async def _remove_strays(self) -> None:
        """Remove strays that are old enough, but never while the metadata may be incomplete."""
        if self._metadata.is_sound:
            for directory in await self.strays.remove_expired(self._config.penstock_stray_retention_ms):
                self._events.info("stray removed", directory=directory, reason="penstock.stray.retention.ms has passed")

    async def _expire_producers(self) -> None:
        slices = Slices(self._runtime)
        for partition in list(self.table.all()):
            if partition.log is not None:
                partition.log.snapshots.expire(self._runtime.wall_ms())
            await slices.breathe()

    async def checkpoint_start_offsets(self) -> None:
        await self._directory.checkpoint()

    # ---- stop

    async def close(self) -> None:
        """Stop periodic tasks and resign from all partitions. The logs are closed by their directory."""
        self._chores.close()
        self.roles.close()
        self.throttles.close()
        await self.cleaner.close()
        for partition in list(self.table.all()):
            await self.roles.leave(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await self._high_watermarks.checkpoint()
