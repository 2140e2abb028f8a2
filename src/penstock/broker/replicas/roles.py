"""The role of this broker in each partition that it holds: leader, follower, or waiting for a leader.

The metadata decides it. A follower copies from the leader (`fetchers`). A leader watches its followers and proposes
in-sync sets to the controller (`isr_changes`). While a log is being truncated to match its leader's, it is left alone;
metadata that arrives meanwhile is applied afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.net.peers import Peers
from penstock.broker.net.slices import Slices
from penstock.broker.replicas.contact import FOLLOWER_SILENT_MS, Contact
from penstock.broker.replicas.damage import DamageWatch
from penstock.broker.replicas.fetchers import Fetchers
from penstock.broker.replicas.isr_changes import IsrChanges
from penstock.broker.replicas.partition import NO_LEADER, Partition
from penstock.broker.replicas.throttles import Throttle
from penstock.config import BrokerConfig
from penstock.log import Log
from penstock.metadata import MetadataImage, PartitionState
from penstock.replication import Follower, Leader
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError

REPAIR_AGAIN_MS = 5_000.0


class ReplicaRoles:
    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        peers: Peers,
        throttle: Throttle,
        image: Callable[[], MetadataImage],
    ) -> None:
        """`throttle` limits what this broker copies."""
        self._runtime = runtime
        self._events = events
        self._config = config
        self._image = image
        self._replicated: dict[Partition, None] = {}
        """Partitions that this broker leads and others follow."""
        self._has_stranded = False
        self.contact = Contact(runtime, config.broker_session_timeout_ms)
        self.fetchers = Fetchers(runtime, events, config, peers, self._settle, throttle)
        self.damage = DamageWatch(runtime, self._damaged)
        self.on_repaired: Callable[[Partition], None] = lambda partition: None
        """Called when a damaged log was truncated and is copied again from there. Set by the partition manager."""
        self.isr_changes = IsrChanges(runtime, events, peers, config.node_id, self._consider)

    def configure(self, config: BrokerConfig) -> None:
        self._config = self.fetchers.config = config
        self.contact.session_timeout_ms = config.broker_session_timeout_ms
        for partition in self._replicated:
            if partition.leader is not None:
                partition.leader.lag_time_max_ms = config.replica_lag_time_max_ms

    def registered(self, broker_epoch: int) -> None:
        """This broker registered with the cluster under this epoch: it may now follow and propose ISRs."""
        self.contact.start()
        self.isr_changes.broker_epoch = broker_epoch
        self.fetchers.registered(broker_epoch)

    def close(self) -> None:
        """Stop proposing and copying. The partitions must still be left one by one."""
        self.contact.close()
        self.isr_changes.close()
        self.fetchers.close()

    # ---- leading and following

    def take_up(self, partition: Partition, state: PartitionState) -> None:
        """Take the role that the metadata gives this broker, as soon as the log is open."""
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
        self.fetchers.unfollow(partition)
        # A log that is being truncated cannot be led; `_settle` tries again afterwards.
        if partition.cutting is None:
            self._lead(partition, state, log)

    async def leave(self, partition: Partition, error: ErrorCode) -> None:
        """Stop leading or following; waiting requests get `error`."""
        self._replicated.pop(partition, None)
        self.fetchers.unfollow(partition)
        if partition.cutting is not None:
            await partition.cutting
        partition.resign(error)

    def _lead(self, partition: Partition, state: PartitionState, log: Log) -> None:
        leader = partition.leader
        if len(state.replicas) > 1:
            self._replicated[partition] = None
        else:
            self._replicated.pop(partition, None)
        if leader is not None and leader.leader_epoch == state.leader_epoch:
            self.isr_changes.record(partition, state)
            self._consider(partition)
            return
        try:
            log.assign_epoch(state.leader_epoch)
        except KafkaError as error:
            # The log has a later leader epoch than the metadata, so this node's metadata is outdated.
            self._events.warning("not led", partition=str(partition), reason=str(error))
            return
        known = max(partition.high_watermark, log.start_offset)
        leader = Leader(
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
            now_ms=self._runtime.now_ms(),
        )
        self.contact.expect_followers(leader.followers)
        partition.lead(leader)
        self._give_up(partition)

    def _follow(self, partition: Partition, state: PartitionState, log: Log) -> None:
        follower = partition.follower
        if follower is not None and (follower.leader_id, follower.leader_epoch) == (state.leader, state.leader_epoch):
            return
        self.fetchers.unfollow(partition)
        if state.leader == NO_LEADER or partition.cutting is not None:
            return
        if partition.damaged_at is not None and self._config.node_id not in (*state.isr, *state.elr):
            partition.cutting = self._runtime.future()
            self._runtime.spawn(self._cut_damaged(partition, log, partition.damaged_at), f"repair {partition}")
            return
        log.forget_empty_epochs()
        partition.follow(Follower(state.leader, state.leader_epoch, min(partition.high_watermark, log.end_offset)))
        self.fetchers.follow(partition)

    def _settle(self, partition: Partition) -> None:
        """A truncation ended during which the role of the partition changed, or it was moved away."""
        state = partition.state
        if state is not None and not partition.retired and self._config.node_id in state.replicas:
            self.take_up(partition, state)

    # ---- damaged logs

    def _damaged(self, partition: Partition, offset: int) -> None:
        """This broker's copy is damaged. If another replica is in sync, that one should lead, and this one copies again
        from the damage on. Otherwise readers are served up to the damage."""
        if partition.damaged_at is not None and partition.damaged_at <= offset:
            return
        partition.damaged_at = offset
        others = partition.leader is not None and len(partition.leader.isr) > 1
        self._events.error(
            "damaged log",
            partition=str(partition),
            what=f"the batch at offset {offset} does not match its checksum, or is out of place",
            hint="another replica should lead, and this one copies the rest again"
            if others
            else "no other replica is in sync; restore the file, or let another replica catch up",
        )
        self._give_up(partition)

    def _give_up(self, partition: Partition) -> None:
        """Propose another leader for a partition whose copy here is damaged, if one is in sync."""
        leader = partition.leader
        if leader is not None and partition.damaged_at is not None:
            proposal = leader.give_up(self._runtime.now_ms())
            if proposal is not None:
                self.isr_changes.propose(partition, proposal)

    async def _cut_damaged(self, partition: Partition, log: Log, offset: int) -> None:
        """Truncate a damaged log. Another broker leads, and this replica has left the ISR, so nothing depends on its
        data."""
        before = log.end_offset
        try:
            await self._truncate_damaged(log, offset)
        except Exception as error:
            self._runtime.task_failed(f"repair {partition}", error)
            self._end_cutting(partition)
            self._runtime.call_later(REPAIR_AGAIN_MS, self._settle, partition)
            return
        self._events.warning("damaged log cut", partition=str(partition), before=before, end=log.end_offset)
        partition.damaged_at = None
        partition.repairs += 1
        self.on_repaired(partition)
        partition.high_watermark = min(partition.high_watermark, log.end_offset)
        self._end_cutting(partition)
        self._settle(partition)

    async def _truncate_damaged(self, log: Log, offset: int) -> None:
        try:
            await log.trimmer.truncate_to(offset)
        except KafkaError:
            # The damage is so severe that the offset cannot be located.
            await log.trimmer.truncate_fully_and_start_at(log.start_offset)

    def _end_cutting(self, partition: Partition) -> None:
        assert partition.cutting is not None
        partition.cutting.set_result(None)
        partition.cutting = None

    # ---- in-sync replicas

    async def watch_followers(self) -> None:
        """Propose to remove followers that lag, and to add those that have caught up."""
        slices = Slices(self._runtime)
        for partition in list(self._replicated):
            leader = partition.leader
            if leader is not None:
                proposal = leader.tick(self._runtime.now_ms())
                if proposal is not None:
                    self.isr_changes.propose(partition, proposal)
                else:
                    self._consider(partition)
            await slices.breathe()

    async def watch_contact(self) -> None:
        """Handle silent followers, sooner than those that are only slow.

        While the controller is reachable, a silent follower leaves the ISR after `broker.session.timeout.ms`, as a
        silent broker leaves the cluster. While it is not, partitions whose commits wait for such a follower are
        stranded.
        """
        contact = self.contact
        cut_off = contact.is_out_of_service
        unreachable_ms = FOLLOWER_SILENT_MS + self._config.replica_fetch_wait_max_ms
        silent = contact.silent_followers(unreachable_ms if cut_off else contact.session_timeout_ms)
        if not silent and not self._has_stranded:
            return
        self._has_stranded = cut_off
        unneeded = dict.fromkeys(silent)
        slices = Slices(self._runtime)
        for partition in list(self._replicated):
            leader = partition.leader
            if leader is None:
                continue
            for replica in silent:
                if replica in leader.followers:
                    unneeded.pop(replica, None)
            stranded = cut_off and any(replica in leader.maximal_isr for replica in silent)
            if stranded != leader.stranded:
                partition.strand(stranded)
            if silent and not cut_off:
                proposal = leader.drop(self._runtime.now_ms(), contact.session_timeout_ms, silent)
                if proposal is not None:
                    self.isr_changes.propose(partition, proposal)
            await slices.breathe()
        for replica in unneeded:
            contact.forget_follower(replica)

    async def consider_all(self, slices: Slices) -> None:
        """Brokers were fenced or unfenced: a follower that was fenced at its last fetch may have had no reason to fetch
        since."""
        for partition in list(self._replicated):
            self._consider(partition)
            await slices.breathe()

    def _consider(self, partition: Partition) -> None:
        """Propose the followers that may join the ISR."""
        leader = partition.leader
        if partition.damaged_at is not None:
            self._give_up(partition)
        elif leader is not None and len(leader.isr) < len(leader.replicas):
            proposal = leader.expand(self._runtime.now_ms(), self._may_join)
            if proposal is not None:
                self.isr_changes.propose(partition, proposal)

    def _may_join(self, replica: int, broker_epoch: int) -> bool:
        broker = self._image().broker(replica)
        return broker is not None and broker.active and broker.epoch == broker_epoch
