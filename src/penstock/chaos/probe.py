"""A second, impatient producer: it shows when the cluster acknowledges again, independently of the client under load.

After a fault a client must discover that it talks to the wrong broker, wait for its back-off, and send its queued
records in order. The probe has no queue: every half second it looks up the leader of a partition and sends one record
with acks=all, without retries, over a connection that it abandons after two seconds. A pause that only the load sees is
the client's; a pause that both see is the cluster's.

Its records are in the ledger like all others, except for their order: an abandoned record may be stored late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.chaos.ledger import encode
from penstock.chaos.pauses import longest_wait_s
from penstock.client import ClientError, ClientSettings, Cluster
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.records import Record, build_batch

if TYPE_CHECKING:
    from penstock.chaos.load import Load

PARTITIONS_MAX: Final = 8
"""Each probe is a thread, so only the first partitions of a larger topic are probed."""
EVERY_S: Final = 0.5
REQUEST_TIMEOUT_MS: Final = 2_000
PRODUCE_TIMEOUT_MS: Final = 1_500
RETRY_TIMEOUT_MS: Final = 500
PRODUCE_VERSION: Final = 12
"""The newest version that identifies topics by name."""


class Probe(threading.Thread):
    """Sends to one partition, under a producer number of its own."""

    def __init__(self, load: Load, properties: Mapping[str, object], number: int, partition: int) -> None:
        super().__init__(name=f"probe of partition {partition}", daemon=True)
        self._load = load
        self._number = number
        self._partition = partition
        self._acknowledged_s: list[float] = []
        quick = {
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "socket.connection.setup.timeout.ms": REQUEST_TIMEOUT_MS,
            "default.api.timeout.ms": RETRY_TIMEOUT_MS,
        }
        self._settings = ClientSettings.from_properties({**properties, **quick})

    def run(self) -> None:
        load = self._load
        with Cluster(self._settings) as cluster:
            while not load.stop_sending.wait(EVERY_S):
                self._send(cluster)

    def waited_s(self, start_s: float, end_s: float) -> float:
        """The longest time in this interval without an acknowledgement."""
        return longest_wait_s(tuple(self._acknowledged_s), start_s, end_s)

    def _send(self, cluster: Cluster) -> None:
        load, partition = self._load, self._partition
        with load.lock:
            name = load.ledger.sent(self._number, partition)
        batch = build_batch([Record(timestamp=time.time_ns() // 1_000_000, value=encode(name))])
        data = [TopicProduceData(name=load.topic, partition_data=[PartitionProduceData(partition, batch)])]
        request = ProduceRequest(acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=data)
        offset: int | None = None
        try:
            leader = cluster.leader(load.topic, partition)
            answer = leader.call(request, ProduceResponse, version=PRODUCE_VERSION)
            told: PartitionProduceResponse = answer.responses[0].partition_responses[0]
            if not told.error_code:
                offset = told.base_offset
                self._acknowledged_s.append(time.monotonic())
        except ClientError:
            pass  # abandoned: it may be stored or not
        if offset is None:
            cluster.forget(load.topic)
        load.probed(name, partition, offset)
