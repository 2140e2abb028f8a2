"""Sends the markers of transactions to the brokers that lead their partitions, many in one request.

A shard asks for one marker in one partition at a time. Markers for the same broker are collected until the turn of the
loop ends; while a request to that broker is under way, further ones wait for the next. So under load one request has
the markers of many transactions, and an idle broker gets a marker without delay.

A request that fails as a whole (no connection, no answer) is not repeated as it was: each of its markers looks for the
leader again after a growing pause. The answer for each partition goes to the shard, even if it is an error code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.net.peer_connection import PeerUnavailable
from penstock.coordinators.shard import Recipient
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.codec import Message
from penstock.wire.errors import KafkaError
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from penstock.broker.net.peers import Peers

CHANNEL = "markers"
TIMEOUT_MS = 30_000
SILENCE_MS = 10_000
"""An answer waits until the markers are replicated."""
RETRY_FIRST_MS = 20.0
RETRY_MAX_MS = 1_000.0
PARTITIONS_PER_REQUEST_MAX = 1_000


class MarkerDelivery:
    """One marker for one partition."""

    __slots__ = ("is_cancelled", "marker", "partition", "pause_ms", "recipient", "then", "topic")

    def __init__(self, recipient: Recipient, request: WriteTxnMarkersRequest, then: Callable[[Message], None]) -> None:
        (self.marker,) = request.markers
        (topic,) = self.marker.topics
        (self.partition,) = topic.partition_indexes
        self.topic = topic.name
        self.recipient = recipient
        self.then = then
        self.pause_ms = RETRY_FIRST_MS
        self.is_cancelled = False

    def cancel(self) -> None:
        """Stop further attempts, and ignore any answer."""
        self.is_cancelled = True


class MarkerCourier:
    def __init__(self, runtime: Runtime, events: EventLog, peers: Peers, broker_of: Callable[[Recipient], int]) -> None:
        self._runtime = runtime
        self._events = events
        self._peers = peers
        self._broker_of = broker_of
        self._queues: dict[int, list[MarkerDelivery]] = {}
        """By broker. An entry exists while a request is under way or about to be sent."""

    def send(
        self, recipient: Recipient, request: WriteTxnMarkersRequest, then: Callable[[Message], None]
    ) -> MarkerDelivery:
        delivery = MarkerDelivery(recipient, request, then)
        self._enqueue(delivery)
        return delivery

    def _enqueue(self, delivery: MarkerDelivery) -> None:
        if delivery.is_cancelled:
            return
        try:
            broker_id = self._broker_of(delivery.recipient)
        except PeerUnavailable as error:
            self._repeat(delivery, error)
            return
        queue = self._queues.get(broker_id)
        if queue is None:
            self._queues[broker_id] = [delivery]
            self._runtime.spawn(self._deliver(broker_id), "deliver markers of transactions")
        else:
            queue.append(delivery)

    def _repeat(self, delivery: MarkerDelivery, error: Exception) -> None:
        to = f"{delivery.topic}-{delivery.partition}"
        self._events.recurring("transaction marker is repeated", to, to=to, error=str(error))
        self._runtime.call_later(delivery.pause_ms, self._enqueue, delivery)
        delivery.pause_ms = min(2 * delivery.pause_ms, RETRY_MAX_MS)

    async def _deliver(self, broker_id: int) -> None:
        queue = self._queues[broker_id]
        try:
            await self._runtime.sleep(0)
            while queue:
                batch = [delivery for delivery in queue[:PARTITIONS_PER_REQUEST_MAX] if not delivery.is_cancelled]
                del queue[:PARTITIONS_PER_REQUEST_MAX]
                if batch:
                    await self._attempt(broker_id, batch)
        finally:
            del self._queues[broker_id]

    async def _attempt(self, broker_id: int, batch: list[MarkerDelivery]) -> None:
        try:
            response: WriteTxnMarkersResponse = await self._peers.call(
                broker_id, combined(batch), timeout_ms=TIMEOUT_MS, silence_ms=SILENCE_MS, channel=CHANNEL
            )
        except (PeerUnavailable, KafkaError) as error:
            for delivery in batch:
                self._repeat(delivery, error)
            return
        codes = {
            (marker.producer_id, topic.name, result.partition_index): result.error_code
            for marker in response.markers
            for topic in marker.topics
            for result in topic.partitions
        }
        for delivery in batch:
            code = codes.get((delivery.marker.producer_id, delivery.topic, delivery.partition))
            if code is None:
                self._repeat(delivery, PeerUnavailable("the answer does not mention the partition"))
            elif not delivery.is_cancelled:
                delivery.then(answer_of(delivery, code))


def combined(batch: list[MarkerDelivery]) -> WriteTxnMarkersRequest:
    """One request: the partitions of a transaction share a marker."""
    markers: dict[tuple[int, int, bool, int, int], dict[str, list[int]]] = {}
    for delivery in batch:
        marker = delivery.marker
        same = (
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        markers.setdefault(same, {}).setdefault(delivery.topic, []).append(delivery.partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=committed,
                topics=[WritableTxnMarkerTopic(name, partitions) for name, partitions in topics.items()],
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
            )
            for (producer_id, epoch, committed, coordinator_epoch, version), topics in markers.items()
        ]
    )


def answer_of(delivery: MarkerDelivery, code: int) -> WriteTxnMarkersResponse:
    result = WritableTxnMarkerPartitionResult(delivery.partition, code)
    topic = WritableTxnMarkerTopicResult(delivery.topic, [result])
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(delivery.marker.producer_id, [topic])])
