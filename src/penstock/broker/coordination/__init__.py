"""Coordinators on this broker: for each declared kind, a host for every partition of its topic that the broker leads.

A key (a group id, a transactional id) belongs to the partition that it hashes to, and its coordinator is the broker
that leads that partition. `penstock.coordinators` explains hosts and their guarantees.

    kind          the interface of a kind of coordinator: its topic, its shards, its hash, its settings
    groups        the declaration of the group coordinator
    transactions  the declaration of the transaction coordinator
    coordinator   all hosts of one kind: started, loaded, restarted and ended as the leadership of partitions moves
    loading       loads shards, one partition at a time, for all kinds
    journal       a partition and its log, as hosts see them
    courier       requests of shards to other brokers, repeated until they are answered; with
      marker_courier  the markers of transactions, combined into one request for each broker

A further kind needs a shard in `penstock.coordinators` and a declaration here, which `KINDS` lists. FindCoordinator,
the creation of its topic, loading and failover follow from that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.coordination.coordinator import Coordinator
from penstock.broker.coordination.courier import PeerCourier
from penstock.broker.coordination.groups import GroupKind, GroupWeighing
from penstock.broker.coordination.kind import CoordinatorType, Kind
from penstock.broker.coordination.loading import Loader
from penstock.broker.coordination.transactions import TransactionKind
from penstock.config import BrokerConfig
from penstock.coordinators.groups import GroupShard
from penstock.coordinators.transactions import TransactionShard
from penstock.metadata import NewTopic
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.runtime.steady_clock import SteadyClock

if TYPE_CHECKING:
    from penstock.broker.net.peers import Peers
    from penstock.broker.producer_ids import ProducerIds
    from penstock.broker.quorum.forwarding import Administration
    from penstock.broker.quorum.shell import MetadataQuorum
    from penstock.broker.replicas.partitions import PartitionManager

__all__ = ["KINDS", "Coordinator", "CoordinatorType", "Coordinators", "GroupKind", "Kind", "TransactionKind"]

KINDS: tuple[type[Kind[Any]], ...] = (GroupKind, TransactionKind)


class Coordinators:
    """All kinds of coordinators of a broker."""

    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        quorum: MetadataQuorum,
        manager: PartitionManager,
        administration: Administration,
        peers: Peers,
        producer_ids: ProducerIds,
    ) -> None:
        self._clock = SteadyClock(runtime)
        loader = Loader(runtime, events)
        courier = PeerCourier(runtime, events, peers, lambda: quorum.image)
        self._by_type: dict[int, Coordinator[Any]] = {}
        for kind in (new() for new in KINDS):
            self._by_type[kind.key_type] = Coordinator(
                kind, runtime, events, config, quorum, manager, administration, self._clock, loader, courier
            )
        self.groups: Coordinator[GroupShard] = self._by_type[CoordinatorType.GROUP]
        assert isinstance(self.groups.kind, GroupKind)
        self.transactions: Coordinator[TransactionShard] = self._by_type[CoordinatorType.TRANSACTION]
        assert isinstance(self.transactions.kind, TransactionKind)
        self.transactions.kind.take_producer_id = producer_ids.take
        GroupWeighing(runtime, self.groups.kind.memory, lambda: [host.shard for host in self.groups.hosts()])

    def of_type(self, key_type: int) -> Coordinator[Any] | None:
        """The coordinator for a key type of FindCoordinator; None if this release does not support the type."""
        return self._by_type.get(key_type)

    def new_topic(self, name: str) -> NewTopic:
        """The settings of a topic that is created on first use; an internal topic has those its coordinators need."""
        return next((one.new_topic() for one in self._by_type.values() if one.topic == name), NewTopic(name))

    def start(self) -> None:
        for coordinator in self._by_type.values():
            coordinator.start()

    def configure(self, config: BrokerConfig) -> None:
        for coordinator in self._by_type.values():
            coordinator.configure(config)

    def close(self) -> None:
        """Answer all pending requests and stop coordinating."""
        self._clock.stop()
        for coordinator in self._by_type.values():
            coordinator.close()
