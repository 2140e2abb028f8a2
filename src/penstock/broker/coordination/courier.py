"""Sends requests of shards to other brokers, and resends them until they are answered.

A recipient is a broker, or the leader of a partition, which is looked up before every attempt. A failed attempt (no
leader, no connection, no answer) is repeated after a growing pause. Any answer ends the delivery, even an error code:
the shard decides how to react.

Markers of transactions are many and small: those for the same broker travel in one request
(`penstock.broker.coordination.marker_courier`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.coordination.marker_courier import MarkerCourier
from penstock.broker.net.peer_connection import PeerUnavailable
from penstock.coordinators.clock import Cancellable
from penstock.coordinators.shard import PartitionLeader, Recipient
from penstock.metadata import MetadataImage
from penstock.runtime import Runtime
from penstock.runtime.eventlog import EventLog
from penstock.wire.codec import Message
from penstock.wire.errors import KafkaError
from penstock.wire.messages.write_txn_markers import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from penstock.broker.net.peers import Peers

CHANNEL = "coordinator"
TIMEOUT_MS = 30_000
SILENCE_MS = 10_000
"""Longer than the timeout of other requests between nodes: an answer may wait for the recipient's high watermark."""
RETRY_FIRST_MS = 20.0
RETRY_MAX_MS = 1_000.0


class Delivery:
    """One request that is being delivered."""

    __slots__ = ("is_cancelled", "recipient", "request", "then")

    def __init__(self, recipient: Recipient, request: Message, then: Callable[[Message], None]) -> None:
        self.recipient = recipient
        self.request = request
        self.then = then
        self.is_cancelled = False

    def cancel(self) -> None:
        """Stop further attempts, and ignore any answer."""
        self.is_cancelled = True


class PeerCourier:
    """`penstock.coordinators.host.Courier` over the connections between brokers."""

    def __init__(self, runtime: Runtime, events: EventLog, peers: Peers, image: Callable[[], MetadataImage]) -> None:
        self._runtime = runtime
        self._events = events
        self._peers = peers
        self._image = image
        self._markers = MarkerCourier(runtime, events, peers, self._broker_of)

    def send(self, recipient: Recipient, request: Message, then: Callable[[Message], None]) -> Cancellable:
        if isinstance(request, WriteTxnMarkersRequest):
            return self._markers.send(recipient, request, then)
        delivery = Delivery(recipient, request, then)
        self._runtime.spawn(self._deliver(delivery), "deliver a coordinator's request")
        return delivery

    async def _deliver(self, delivery: Delivery) -> None:
        pause_ms = RETRY_FIRST_MS
        while not delivery.is_cancelled:
            try:
                response = await self._attempt(delivery)
            except (PeerUnavailable, KafkaError) as error:
                api = type(delivery.request).__name__.removesuffix("Request")
                self._events.recurring(
                    "coordinator repeats a request", delivery.recipient, to=str(delivery.recipient), api=api,
                    error=str(error),
                )  # fmt: skip
                await self._runtime.sleep(pause_ms)
                pause_ms = min(2 * pause_ms, RETRY_MAX_MS)
                continue
            if not delivery.is_cancelled:
                delivery.then(response)
            return

    async def _attempt(self, delivery: Delivery) -> Message:
        broker_id = self._broker_of(delivery.recipient)
        response: Message = await self._peers.call(
            broker_id, delivery.request, timeout_ms=TIMEOUT_MS, silence_ms=SILENCE_MS, channel=CHANNEL
        )
        return response

    def _broker_of(self, recipient: Recipient) -> int:
        if not isinstance(recipient, PartitionLeader):
            return recipient
        topic = self._image().topic(recipient.topic)
        if topic is None or not 0 <= recipient.partition < len(topic.partitions):
            raise PeerUnavailable(f"partition {recipient.topic}-{recipient.partition} does not exist")
        leader = topic.partitions[recipient.partition].leader
        if leader < 0:
            raise PeerUnavailable(f"{recipient.topic}-{recipient.partition} has no leader")
        return leader
