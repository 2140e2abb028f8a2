"""A second, impatient producer: it shows when the cluster acknowledges again, whatever the client under load does.

After a fault the client must find out that it talks to the wrong broker, wait for its back-off, and send in order what
is under way. The probe has nothing under way: every half second it asks who leads a partition and sends one record with
acks=all, once, over a connection that it gives up after two seconds. A pause of the load that the probe does not share
is the client's; one that both have is the cluster's.

Its records are in the account like all others, but for their order: one that was given up may be stored late.
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
"""A thread each: of a larger topic only the first ones are probed."""
EVERY_S: Final = 0.5
REQUEST_TIMEOUT_MS: Final = 2_000
PRODUCE_TIMEOUT_MS: Final = 1_500
RETRY_TIMEOUT_MS: Final = 500
PRODUCE_VERSION: Final = 12
"""The newest that names topics by their names."""


class Probe(threading.Thread):
    """Sends to one partition, as a producer with a number of its own."""

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
        """The longest time within this one in which it got no acknowledgement."""
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
            pass  # given up: it may be stored or not
        if offset is None:
            cluster.forget(load.topic)
        load.probed(name, partition, offset)
