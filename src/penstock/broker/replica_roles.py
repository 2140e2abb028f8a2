"""The part that this broker plays in each partition that it holds: it leads, it follows, or it waits for a leader.

The metadata says which. Who follows copies from the leader (`penstock.broker.fetchers`); who leads watches those who
follow, and proposes ISRs to the controller (`penstock.broker.isr_changes`). A log that is being cut back to its
leader's is left alone: what the metadata says meanwhile is taken up when it has been cut.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.fetchers import Fetchers
from penstock.broker.isr_changes import IsrChanges
from penstock.broker.partition import NO_LEADER, Partition
from penstock.broker.peers import Peers
from penstock.broker.slices import Slices
from penstock.broker.throttles import Throttle
from penstock.config import BrokerConfig
from penstock.log import Log
from penstock.metadata import MetadataImage, PartitionState
from penstock.replication import Follower, Leader
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.errors import ErrorCode, KafkaError


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
        """`throttle`: of what is copied to this broker."""
        self._runtime = runtime
        self._events = events
        self._config = config
        self._image = image
        self._replicated: dict[Partition, None] = {}
        """Led here, and followed by others."""
        self.fetchers = Fetchers(runtime, events, config, peers, self._settle, throttle)
        self.isr_changes = IsrChanges(runtime, events, peers, config.node_id, self._consider)

    def configure(self, config: BrokerConfig) -> None:
        self._config = self.fetchers.config = config
        for partition in self._replicated:
            if partition.leader is not None:
                partition.leader.lag_time_max_ms = config.replica_lag_time_max_ms

    def registered(self, broker_epoch: int) -> None:
        """This broker has joined the cluster (again) under this epoch: it may follow, and propose ISRs."""
        self.isr_changes.broker_epoch = broker_epoch
        self.fetchers.registered(broker_epoch)

    def close(self) -> None:
        """Nothing is proposed or copied any more. Each partition is still to be left."""
        self.isr_changes.close()
        self.fetchers.close()

    # ---- leading and following

    def take_up(self, partition: Partition, state: PartitionState) -> None:
        """Play the part that the metadata gives this broker, as soon as the log is open."""
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
        # Nobody leads with a log that is being cut; it will be looked at again (`_settle`).
        if partition.cutting is None:
            self._lead(partition, state, log)

    async def leave(self, partition: Partition, error: ErrorCode) -> None:
        """Neither lead nor follow it any longer; those who wait for it are told `error`."""
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
                now_ms=self._runtime.now_ms(),
            )
        )

    def _follow(self, partition: Partition, state: PartitionState, log: Log) -> None:
        follower = partition.follower
        if follower is not None and (follower.leader_id, follower.leader_epoch) == (state.leader, state.leader_epoch):
            return
        self.fetchers.unfollow(partition)
        if state.leader == NO_LEADER or partition.cutting is not None:
            return
        log.forget_empty_epochs()
        partition.follow(Follower(state.leader, state.leader_epoch, min(partition.high_watermark, log.end_offset)))
        self.fetchers.follow(partition)

    def _settle(self, partition: Partition) -> None:
        """Its log was cut, and it was to change its part meanwhile."""
        if partition.state is not None and not partition.retired:
            self.take_up(partition, partition.state)

    # ---- in-sync replicas

    async def watch_followers(self) -> None:
        """Propose to drop the followers that lag, and to take in those that may join and have not been."""
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

    async def consider_all(self, slices: Slices) -> None:
        """Brokers came or went: who was fenced when it asked last may have nothing to ask since."""
        for partition in list(self._replicated):
            self._consider(partition)
            await slices.breathe()

    def _consider(self, partition: Partition) -> None:
        """Propose who may join."""
        leader = partition.leader
        if leader is not None and len(leader.isr) < len(leader.replicas):
            proposal = leader.expand(self._runtime.now_ms(), self._may_join)
            if proposal is not None:
                self.isr_changes.propose(partition, proposal)

    def _may_join(self, replica: int, broker_epoch: int) -> bool:
        broker = self._image().broker(replica)
        return broker is not None and broker.active and broker.epoch == broker_epoch
