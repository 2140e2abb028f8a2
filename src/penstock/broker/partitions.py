"""The partitions that this broker holds: opened, led, cleaned up and closed as the metadata says.

`PartitionTable` is what requests look partitions up in. `PartitionManager` keeps it: it is told of every committed
change of the metadata, and owns the logs and their chores (retention, checkpoints, removal of deleted partitions).

A partition that is led elsewhere is copied from its leader (`penstock.broker.fetchers`); one that is led here has its
ISR watched (`penstock.broker.isr_changes`). High watermarks are written down now and then
(`replication-offset-checkpoint`): a broker that starts again knows at least that much to be committed.

After a clean stop logs are opened as the checkpoint describes them, without touching their files. After a crash they
are recovered in the background, a few at a time; a partition is led, and served, as soon as its own log is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.broker.cleaning import Cleaner
from penstock.broker.fetchers import Fetchers
from penstock.broker.isr_changes import IsrChanges
from penstock.broker.layout import (
    METADATA_DIRECTORY,
    STRAY_SUFFIX,
    parse_partition_directory,
    parse_partition_metadata,
    partition_directory,
    partition_metadata_text,
)
from penstock.broker.partition import NO_LEADER, InternalPartition, Partition, PartitionListener, Wakes
from penstock.broker.recompressing import configure_compression
from penstock.broker.throttles import Throttles
from penstock.config import BrokerConfig, TopicConfig
from penstock.log import Log, LogConfig, LogDirectory, names
from penstock.log.checkpoints import CheckpointDamaged, encode_offsets, read_offsets
from penstock.metadata import (
    EMPTY_IMAGE,
    MetadataDelta,
    MetadataImage,
    PartitionState,
    ResourceType,
    TopicImage,
    is_internal,
)
from penstock.replication import Follower, IsrProposal, Leader
from penstock.runtime import Runtime, Task, Timer
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.uuids import format_uuid

if TYPE_CHECKING:
    from penstock.broker.peers import Peers

SLICE_MS = 5.0
"""Work over many partitions gives the loop back after this long."""

FIRST_CHORE_MS = 30_000
LAG_CHECKS = 8
"""How often followers are looked at within `replica.lag.time.max.ms`."""


class PartitionTable:
    """Topics by the bytes that requests name them with. Both maps share their lists."""

    __slots__ = ("by_id", "by_name")

    def __init__(self) -> None:
        self.by_name: dict[bytes, list[Partition]] = {}
        self.by_id: dict[bytes, list[Partition]] = {}

    def find(self, topic: bytes, index: int, *, by_id: bool = False) -> Partition | None:
        partitions = (self.by_id if by_id else self.by_name).get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        return partitions[index]

    def all(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions


class PartitionManager:
    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        wakes: Wakes,
        directory: LogDirectory,
        peers: Peers | None = None,
    ) -> None:
        """Without `peers` nothing is copied from others, and no ISR changes but by the controller's own decision."""
        self._runtime = runtime
        self._events = events
        self._config = config
        self._wakes = wakes
        self._directory = directory
        self._image = EMPTY_IMAGE
        self._replicated: dict[Partition, None] = {}
        """Led here, and followed by others."""
        self._high_watermarks: dict[str, int] = {}
        """From the checkpoint, of logs that are not open yet."""
        self._checkpointed = b""
        self.throttles = Throttles(runtime, config)
        self.fetchers: Fetchers | None = None
        self.isr_changes: IsrChanges | None = None
        if peers is not None:
            self.fetchers = Fetchers(runtime, events, config, peers, self._settle, self.throttles.follower)
            self.isr_changes = IsrChanges(runtime, events, peers, config.node_id, self._consider)
        self._to_recover: dict[str, tuple[Partition, TopicConfig]] = {}
        self._recovery: Task[None] | None = None
        self._timers: dict[str, Timer] = {}
        self._closing = False
        self._latest: tuple[TopicConfig | None, LogConfig] = None, LogConfig()
        self._slice_began_ms = 0.0
        self._listeners: dict[str, PartitionListener] = {}
        self.table = PartitionTable()
        self.cleaner = Cleaner(runtime, events, config, directory, self.table.all)
        self.recovering = 0
        """Partitions whose logs are not open yet."""
        self.held = 0
        """Partitions that have a replica here."""

    def now_ms(self) -> float:
        return self._runtime.now_ms()

    # ---- start

    async def open(self, image: MetadataImage) -> None:
        """Take up what the image gives this broker. Returns once every log that needs no recovery is open.

        The image must be the cluster's, not what this node last knew of it: logs of topics that it does not have go.
        """
        self._image = image
        await self._remove_strays(image)
        disk = self._runtime.disk
        present = dict.fromkeys(self._directory.names())
        with suppress(CheckpointDamaged):
            # Without it what is committed becomes known when the followers have asked.
            self._high_watermarks = read_offsets(disk, names.HIGH_WATERMARKS_NAME)
        self._slice_began_ms = self._runtime.now_ms()
        for topic in image.topics():
            config = self._topic_config(image, topic.name)
            self.throttles.configure_topic(topic.name, config)
            for partition in self._enter(topic):
                partition.follow_state(topic.partitions[partition.index])
                if not self._holds(topic.partitions[partition.index]):
                    continue
                self.held += 1
                if self._directory.is_clean:
                    if partition_directory(topic.name, partition.index) not in present:
                        self._claim(partition)  # it was given to this broker while that was down
                    await self._open_partition(partition, topic.partitions[partition.index], config)
                else:
                    name = partition_directory(topic.name, partition.index)
                    if not disk.exists(name):
                        await self._directory.delete(name)  # what the checkpoints say is of an earlier one
                    if self._owner(name) is None:
                        self._claim(partition)
                    self._to_recover[name] = partition, config
                await self._breathe()
        self.recovering = len(self._to_recover)
        if self.recovering:
            self._events.info("recovering", partitions=self.recovering, reason="the last stop was not a clean one")
            self._recovery = self._runtime.spawn(self._recover(), "recovery")
        self._chore("retention", self._retain, FIRST_CHORE_MS)
        self._chore("cleaning", self.cleaner.clean, self._config.log_cleaner_backoff_ms)
        self._chore("checkpoint", self._directory.checkpoint, self._config.log_flush_offset_checkpoint_interval_ms)
        self._chore("isr", self._watch_followers, self._interval_ms("isr"))
        self._chore("high watermarks", self._checkpoint_high_watermarks, self._interval_ms("high watermarks"))
        self._chore("producers", self._expire_producers, self._config.producer_id_expiration_check_interval_ms)

    async def _remove_strays(self, image: MetadataImage) -> None:
        """Remove directories whose topic is gone."""
        for name in self._directory.names():
            parsed = parse_partition_directory(name)
            if parsed is None or name == METADATA_DIRECTORY:
                continue
            topic = image.topic(parsed[0])
            known = topic is not None and parsed[1] < len(topic.partitions)
            # After a clean stop no directory can be that of an earlier topic of the same name, unless the others in a
            # cluster have deleted and created it meanwhile.
            if known and self._directory.is_clean and len(image.brokers) <= 1:
                continue
            if known and topic is not None and not self._holds(topic.partitions[parsed[1]]):
                self._events.warning("stray log removed", directory=name, reason="it was moved to other brokers")
                await self._set_aside(name, names.DELETED_DIRECTORY_SUFFIX)
                continue
            if not known or topic is None:
                self._events.warning("stray log removed", directory=name, reason="its topic no longer exists")
                await self._set_aside(name, names.DELETED_DIRECTORY_SUFFIX)
                continue
            owner = self._owner(name)
            if owner == format_uuid(topic.topic_id) or (owner is None and not self._has_records(name)):
                continue
            if owner is not None:
                self._events.warning("stray log removed", directory=name, reason="it is of an earlier topic")
                await self._set_aside(name, names.DELETED_DIRECTORY_SUFFIX)
                continue
            # Records that were synced have an owner that was synced too: nothing that was promised is in there.
            kept = await self._set_aside(name, STRAY_SUFFIX)
            self._events.error(
                "stray log set aside",
                directory=name,
                kept=kept,
                reason="the machine stopped before it was written down whose records these are",
            )

    async def _set_aside(self, name: str, suffix: str) -> str:
        """Durably take away a directory that no log is open on. What is deleted goes now, or with the next start."""
        disk = self._runtime.disk
        aside = names.aside(name, self._runtime.uuid().hex(), suffix)
        disk.rename(name, aside)
        await disk.sync_dir("")
        await self._directory.delete(name)
        if suffix == names.DELETED_DIRECTORY_SUFFIX:
            self._runtime.spawn(self._remove_tree(aside), f"remove {aside}")
        return aside

    async def _remove_tree(self, name: str) -> None:
        await self._runtime.offload(self._runtime.disk.rmtree, name)

    def _owner(self, name: str) -> str | None:
        """The id of the topic that a directory belongs to; None if that was lost in a crash, or not written yet."""
        path = f"{name}/{names.PARTITION_METADATA_NAME}"
        disk = self._runtime.disk
        return parse_partition_metadata(disk.read_bytes(path)) if disk.exists(path) else None

    def _claim(self, partition: Partition) -> None:
        """Write down whose log this directory holds. It is synced with the first records."""
        disk = self._runtime.disk
        name = partition_directory(partition.topic, partition.index)
        disk.mkdir(name)
        file = disk.open(f"{name}/{names.PARTITION_METADATA_NAME}", create=True)
        file.pwrite(partition_metadata_text(format_uuid(partition.topic_id)), 0)

    def _has_records(self, name: str) -> bool:
        disk = self._runtime.disk
        logs = [file for file in disk.list(name) if file.endswith(names.LOG_SUFFIX)]
        return any(disk.size(f"{name}/{file}") for file in logs)

    async def _recover(self) -> None:
        """Open the logs after a crash, some at a time; each is served as soon as it is open."""
        began_ms = self._runtime.now_ms()
        configs = {name: self._log_config(config) for name, (_, config) in self._to_recover.items()}
        await self._directory.open_all(
            configs,
            self._recovered,
            concurrency=self._config.num_recovery_threads_per_data_dir,
            on_failure=self._not_recovered,
        )
        self._events.info("recovered", partitions=len(configs), took_ms=round(self._runtime.now_ms() - began_ms))

    def _recovered(self, log: Log) -> None:
        partition, config = self._to_recover.pop(log.name)
        self.recovering -= 1
        log.config = self._log_config(config)
        for damage in log.damage:
            self._events.error("damaged log", partition=str(partition), what=damage)
        self._hold(partition, log, config)

    def _not_recovered(self, name: str, error: Exception) -> None:
        """Others are served; this one has no leader until someone has looked at it."""
        if isinstance(error, OSError):
            # The disk, not what is on it. Other brokers can serve what this one cannot read, if it makes way.
            self._runtime.fatal(f"{self._runtime.disk.root}/{name} cannot be read: {error}", error)
        del self._to_recover[name]
        self.recovering -= 1
        self._events.error("log not opened", partition=name, error=str(error))

    # ---- changes of the metadata

    async def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Bring the partitions in line with a committed change; one that is in force already is passed over."""
        if image.offset <= self._image.offset:
            return
        if delta.topics_deleted and self._recovery is not None:
            await self._recovery  # a log that is being read cannot be removed under the reader
        self._image = image
        self._slice_began_ms = self._runtime.now_ms()
        for topic in delta.topics_deleted:
            await self._delete_topic(topic)
        removals: list[Task[None]] = []
        for topic in delta.topics_created:
            config = self._topic_config(image, topic.name)
            for partition in self._enter(topic):
                await self._add(partition, topic.partitions[partition.index], config)
        for change in delta.topics_changed:
            config = self._topic_config(image, change.after.name)
            partitions = self.table.by_id[change.after.topic_id]
            for index in change.partitions:
                state = change.after.partitions[index]
                if index < len(partitions):
                    await self._change(partitions[index], state, config, removals)
                else:
                    partitions.append(self._new_partition(change.after, index))
                    await self._add(partitions[index], state, config)
                await self._breathe()
        # Together, so that their renames share the syncs of the directory.
        for removal in removals:
            await removal
        for kind, name in delta.configs_changed:
            if kind == ResourceType.TOPIC:
                self._configure_topic(image, name)
        if delta.brokers_changed:
            # Who was fenced when it asked last may have nothing to ask since.
            for partition in list(self._replicated):
                self._consider(partition)
                await self._breathe()

    def configure(self, config: BrokerConfig, image: MetadataImage) -> None:
        """Settings of the broker changed: they are the defaults of its topics."""
        self._config = self.cleaner.config = config
        if self.fetchers is not None:
            self.fetchers.config = config
        self.throttles.configure(config)
        for partition in self._replicated:
            if partition.leader is not None:
                partition.leader.lag_time_max_ms = config.replica_lag_time_max_ms
        self._latest = None, LogConfig()
        for name in image.topic_names():
            self._configure_topic(image, name)

    def _configure_topic(self, image: MetadataImage, name: str) -> None:
        config = self._topic_config(image, name)
        self.throttles.configure_topic(name, config)
        log_config = self._log_config(config)
        for partition in self.table.by_name.get(name.encode(), []):
            partition.configure_min_isr(config.min_insync_replicas)
            configure_compression(self._runtime, partition, config)
            directory = partition_directory(name, partition.index)
            if partition.log is not None:
                partition.log.config = log_config
            elif directory in self._to_recover:
                self._to_recover[directory] = partition, config

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

    def listen(self, topic: str, listener: PartitionListener) -> None:
        """Tell `listener` of the partitions of this internal topic: those led already, and all that follows."""
        self._listeners[topic] = listener
        for partition in self.table.by_name.get(topic.encode(), []):
            assert isinstance(partition, InternalPartition)
            partition.listener = listener
            if partition.leader is not None:
                listener.on_leader(partition)

    async def _add(self, partition: Partition, state: PartitionState, config: TopicConfig) -> None:
        """A partition that did not exist before."""
        partition.follow_state(state)
        if self._holds(state):
            self.held += 1
            self._claim(partition)
            await self._open_partition(partition, state, config)
        await self._breathe()

    async def _open_partition(self, partition: Partition, state: PartitionState, config: TopicConfig) -> None:
        partition.follow_state(state)
        name = partition_directory(partition.topic, partition.index)
        self._hold(partition, await self._directory.open(name, self._log_config(config)), config)

    def _hold(self, partition: Partition, log: Log, config: TopicConfig) -> None:
        partition.log = log
        partition.high_watermark = min(self._high_watermarks.pop(log.name, 0), log.end_offset)
        partition.configure_min_isr(config.min_insync_replicas)
        configure_compression(self._runtime, partition, config)
        if partition.state is not None:
            self._lead_or_follow(partition, partition.state)

    async def _change(
        self, partition: Partition, state: PartitionState, config: TopicConfig, removals: list[Task[None]]
    ) -> None:
        """The controller gave a partition another leader, ISR or set of replicas."""
        held = partition.state is not None and self._holds(partition.state)
        if self._holds(state) and not held:
            await self._add(partition, state, config)
        elif held and not self._holds(state):
            partition.follow_state(state)
            await self._remove_log(partition, removals)
        else:
            self._lead_or_follow(partition, state)

    def _lead_or_follow(self, partition: Partition, state: PartitionState) -> None:
        partition.follow_state(state)
        log = partition.log
        if log is None:
            return
        if state.leader != self._config.node_id:
            if partition.leader is not None:
                partition.resign(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._replicated.pop(partition, None)
            self._follow(partition, state, log)
            return
        self._unfollow(partition)
        # Nobody leads with a log that is being cut; it will be looked at again (`_settle`).
        if partition.cutting is None:
            self._lead(partition, state, log)

    def _lead(self, partition: Partition, state: PartitionState, log: Log) -> None:
        now_ms = self._runtime.now_ms()
        leader = partition.leader
        if len(state.replicas) > 1:
            self._replicated[partition] = None
        else:
            self._replicated.pop(partition, None)
        if leader is not None and leader.leader_epoch == state.leader_epoch:
            if self.isr_changes is None:
                partition.isr_recorded(state, now_ms)
            else:
                self.isr_changes.record(partition, state)
                self._consider(partition)
            return
        try:
            log.assign_epoch(state.leader_epoch)
        except KafkaError as error:
            # The log knows of a later leadership than the metadata: those that this node has are old.
            self._events.warning("not led", partition=str(partition), reason=str(error))
            return
        known = max(partition.high_watermark, log.start_offset)
        partition.lead(
            Leader(
                self._config.node_id,
                state.replicas,
                state.isr,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                end=log.end_offset,
                stable_end=log.stable_end,
                high_watermark=min(known, log.stable_end),
                min_isr=partition.min_insync_replicas,
                lag_time_max_ms=self._config.replica_lag_time_max_ms,
                now_ms=now_ms,
            )
        )

    def _follow(self, partition: Partition, state: PartitionState, log: Log) -> None:
        follower = partition.follower
        if follower is not None and (follower.leader_id, follower.leader_epoch) == (state.leader, state.leader_epoch):
            return
        self._unfollow(partition)
        if state.leader == NO_LEADER or self.fetchers is None or partition.cutting is not None:
            return
        log.forget_empty_epochs()
        partition.follow(Follower(state.leader, state.leader_epoch, min(partition.high_watermark, log.end_offset)))
        self.fetchers.follow(partition)

    def _unfollow(self, partition: Partition) -> None:
        if self.fetchers is not None:
            self.fetchers.unfollow(partition)

    def _settle(self, partition: Partition) -> None:
        """Its log was cut, and it was to change its part meanwhile."""
        if partition.state is not None and not partition.retired:
            self._lead_or_follow(partition, partition.state)

    # ---- in-sync replicas

    def registered(self, broker_epoch: int) -> None:
        """This broker has joined the cluster (again) under this epoch: it may follow, and propose ISRs."""
        if self.isr_changes is not None:
            self.isr_changes.broker_epoch = broker_epoch
        if self.fetchers is not None:
            self.fetchers.registered(broker_epoch)

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        if self.isr_changes is not None:
            self.isr_changes.propose(partition, proposal)

    async def _watch_followers(self) -> None:
        """Propose to drop the followers that lag, and to take in those that may join and have not been."""
        self._slice_began_ms = self._runtime.now_ms()
        for partition in list(self._replicated):
            leader = partition.leader
            if leader is not None and self.isr_changes is not None:
                proposal = leader.tick(self._runtime.now_ms())
                if proposal is not None:
                    self.propose(partition, proposal)
                else:
                    self._consider(partition)
            await self._breathe()

    def _consider(self, partition: Partition) -> None:
        """Propose who may join."""
        leader = partition.leader
        if leader is not None and self.isr_changes is not None and len(leader.isr) < len(leader.replicas):
            proposal = leader.expand(self._runtime.now_ms(), self._may_join)
            if proposal is not None:
                self.propose(partition, proposal)

    def _may_join(self, replica: int, broker_epoch: int) -> bool:
        broker = self._image.broker(replica)
        return broker is not None and broker.active and broker.epoch == broker_epoch

    async def _checkpoint_high_watermarks(self) -> None:
        """Of partitions with several replicas: one that is alone has all committed that it has."""
        known = [
            (partition_directory(partition.topic, partition.index), partition.high_watermark)
            for partition in self.table.all()
            if partition.log is not None and partition.state is not None and len(partition.state.replicas) > 1
        ]
        known += self._high_watermarks.items()
        data = encode_offsets(known)
        if data != self._checkpointed and (known or self._checkpointed):
            self._checkpointed = data
            await self._runtime.disk.replace_bytes(names.HIGH_WATERMARKS_NAME, data)

    async def _delete_topic(self, topic: TopicImage) -> None:
        partitions = self.table.by_id.pop(topic.topic_id)
        if self.table.by_name.get(topic.name.encode()) is partitions:
            del self.table.by_name[topic.name.encode()]
        removals = []
        for partition in partitions:
            partition.retired = True
            self._replicated.pop(partition, None)
            self._unfollow(partition)
            if partition.cutting is not None:
                await partition.cutting
            partition.resign(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            name = partition_directory(partition.topic, partition.index)
            if partition.log is not None:
                self.held -= 1
                partition.log = None
                removals.append(self._runtime.spawn(self._directory.delete(name), f"delete {partition}"))
            elif self._runtime.disk.exists(name):
                # Its log could not be opened.
                self.held -= 1
                await self._set_aside(name, names.DELETED_DIRECTORY_SUFFIX)
        # Together, so that their renames share the syncs of the directory.
        for removal in removals:
            await removal
        if self._checkpointed and any(len(state.replicas) > 1 for state in topic.partitions):
            # A topic of that name may come again: what this one had committed says nothing about it.
            await self._checkpoint_high_watermarks()

    async def _remove_log(self, partition: Partition, removals: list[Task[None]]) -> None:
        """This broker is no longer a replica: the partition was moved to others."""
        if self._recovery is not None:
            await self._recovery
        self._replicated.pop(partition, None)
        self._unfollow(partition)
        if partition.cutting is not None:
            await partition.cutting
        partition.resign(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.held -= 1
        name = partition_directory(partition.topic, partition.index)
        # What was committed here says nothing about a replica that may come back.
        partition.high_watermark = 0
        self._high_watermarks.pop(name, None)
        self._events.info("replica removed", partition=str(partition), replicas=str(state_of(partition).replicas))
        if partition.log is not None:
            partition.log = None
            removals.append(self._runtime.spawn(self._directory.delete(name), f"delete {partition}"))
        elif self._runtime.disk.exists(name):
            await self._set_aside(name, names.DELETED_DIRECTORY_SUFFIX)

    def _holds(self, state: PartitionState) -> bool:
        return self._config.node_id in state.replicas

    async def _breathe(self) -> None:
        """Give the loop back if this work has held it for a slice."""
        if self._runtime.now_ms() - self._slice_began_ms > SLICE_MS:
            await self._runtime.sleep(0)
            self._slice_began_ms = self._runtime.now_ms()

    # ---- configuration

    def _topic_config(self, image: MetadataImage, name: str) -> TopicConfig:
        overrides = image.config(ResourceType.TOPIC, name)
        return TopicConfig.resolve(overrides, self._config) if overrides else self._config.topic_defaults

    def _log_config(self, topic: TopicConfig) -> LogConfig:
        """Partitions of one topic, and all topics that set nothing themselves, share theirs."""
        if topic is not self._latest[0]:
            self._latest = topic, self._new_log_config(topic)
        return self._latest[1]

    def _new_log_config(self, topic: TopicConfig) -> LogConfig:
        return LogConfig(
            segment_bytes=topic.segment_bytes,
            segment_ms=topic.segment_ms,
            segment_jitter_ms=topic.segment_jitter_ms,
            segment_index_bytes=topic.segment_index_bytes,
            index_interval_bytes=topic.index_interval_bytes,
            retention_ms=topic.retention_ms,
            retention_bytes=topic.retention_bytes,
            flush_messages=topic.flush_messages,
            flush_ms=topic.flush_ms,
            max_message_bytes=topic.max_message_bytes,
            timestamp_type=topic.message_timestamp_type,
            timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
            timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
            cleanup_policy=",".join(topic.cleanup_policy),
            delete_retention_ms=topic.delete_retention_ms,
            min_compaction_lag_ms=topic.min_compaction_lag_ms,
            max_compaction_lag_ms=topic.max_compaction_lag_ms,
            min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
            file_delete_delay_ms=topic.file_delete_delay_ms,
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
        )

    # ---- chores

    def _chore(self, name: str, work: Callable[[], Coroutine[Any, Any, None]], delay_ms: float) -> None:
        """Do `work` after the delay, and again and again."""
        self._timers[name] = self._runtime.call_later(delay_ms, self._start_chore, name, work)

    def _start_chore(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._runtime.spawn(self._do_chore(name, work), name)

    async def _do_chore(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await work()
        if not self._closing:
            self._chore(name, work, self._interval_ms(name))

    def _interval_ms(self, name: str) -> float:
        config = self._config
        return {
            "retention": config.log_retention_check_interval_ms,
            "checkpoint": min(
                config.log_flush_offset_checkpoint_interval_ms, config.log_flush_start_offset_checkpoint_interval_ms
            ),
            "producers": config.producer_id_expiration_check_interval_ms,
            "cleaning": config.log_cleaner_backoff_ms,
            "isr": config.replica_lag_time_max_ms / LAG_CHECKS,
            "high watermarks": config.replica_high_watermark_checkpoint_interval_ms,
        }[name]

    async def _retain(self) -> None:
        """Delete what is older or more than the topics keep."""
        self._slice_began_ms = self._runtime.now_ms()
        removed = 0
        for partition in list(self.table.all()):
            log = partition.log
            # DeleteRecords takes old segments of a compacted topic, too.
            if log is not None and partition.is_copied and (log.config.deletes or log.config.compacts):
                removed += await log.retain(self._runtime.wall_ms(), partition.high_watermark)
            await self._breathe()
        if removed:
            self._events.info("retention", segments_removed=removed)
            await self._directory.checkpoint()

    async def _expire_producers(self) -> None:
        self._slice_began_ms = self._runtime.now_ms()
        for partition in list(self.table.all()):
            if partition.log is not None:
                partition.log.expire_producers(self._runtime.wall_ms())
            await self._breathe()

    async def checkpoint_start_offsets(self) -> None:
        await self._directory.checkpoint()

    # ---- stop

    async def close(self) -> None:
        """No more chores, nobody is led; the logs are closed by their directory."""
        self._closing = True
        for timer in self._timers.values():
            timer.cancel()
        if self.isr_changes is not None:
            self.isr_changes.close()
        self.throttles.close()
        if self.fetchers is not None:
            self.fetchers.close()
        await self.cleaner.close()
        for partition in list(self.table.all()):
            self._unfollow(partition)
            if partition.cutting is not None:
                await partition.cutting
            partition.resign(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await self._checkpoint_high_watermarks()


def state_of(partition: Partition) -> PartitionState:
    assert partition.state is not None
    return partition.state
