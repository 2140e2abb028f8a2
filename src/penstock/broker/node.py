"""The broker as its API handlers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.partitions import PartitionManager, PartitionTable
from penstock.broker.producer_ids import ProducerIds
from penstock.config import BrokerConfig
from penstock.metadata import BrokerRegistration, MetadataImage
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.apis import SERVED
from penstock.wire.messages.api_versions import ApiVersion

if TYPE_CHECKING:
    from penstock.broker.coordination import Coordinators
    from penstock.broker.quorum import MetadataQuorum


class Node:
    def __init__(
        self,
        runtime: Runtime,
        events: EventLog,
        config: BrokerConfig,
        quorum: MetadataQuorum,
        manager: PartitionManager,
        coordinators: Coordinators,
        producer_ids: ProducerIds,
        cluster_id: str,
        advertised_address: tuple[str, int],
    ) -> None:
        self.runtime = runtime
        self.events = events
        self.config = config
        """The configuration in force: a new object after each change at run time."""
        self.quorum = quorum
        self.manager = manager
        self.table: PartitionTable = manager.table
        self.coordinators = coordinators
        self.producer_ids = producer_ids
        self.cluster_id = cluster_id
        self.node_id = config.node_id
        self.advertised_address = advertised_address
        self.advertised_apis = [
            ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
            for api in SERVED.values()
        ]

    @property
    def image(self) -> MetadataImage:
        return self.quorum.image

    @property
    def controller_id(self) -> int:
        return self.quorum.leader_id

    def address_of(self, broker: BrokerRegistration) -> tuple[str, int]:
        """Where clients reach that broker."""
        listener = broker.listener(self.config.inter_broker_listener_name) or broker.listeners[0]
        return listener.host, listener.port

    def live_brokers(self) -> list[BrokerRegistration]:
        return [broker for broker in self.image.brokers.values() if not broker.fenced]

    def is_live(self, node_id: int) -> bool:
        broker = self.image.brokers.get(node_id)
        return broker is not None and not broker.fenced

    def offline(self, replicas: tuple[int, ...]) -> list[int]:
        return [replica for replica in replicas if not self.is_live(replica)]
