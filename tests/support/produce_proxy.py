"""A proxy before a broker that lets one produce request fail, and loses the answer to another.

    with ProduceProxy(port, broker_port) as proxy:
        proxy.arm()
        …  one batch to partition 0     proxy.await_step(HELD)      is kept from the broker
        …  one batch to partition 1     proxy.await_step(LOST)      is stored, and its answer kept from the client
        …  one batch to partition 0     proxy.await_step(OVER)

With the third one the client gets its answers: NOT_ENOUGH_REPLICAS for the first, REQUEST_TIMED_OUT for the second, and
for the third whatever the broker says, which has never seen the first: OUT_OF_ORDER_SEQUENCE_NUMBER. That is what a
change of leaders looks like to a producer. From then on everything passes.
"""

from __future__ import annotations

import socket
import threading

from penstock.wire.apis import ApiKey
from penstock.wire.codec import decode, encode
from penstock.wire.errors import ErrorCode
from penstock.wire.headers import read_request_header
from penstock.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from support.frame_proxy import FrameProxy, framed

FLEXIBLE_FROM = 9
TIMEOUT_S = 30.0
IDLE, ARMED, HELD, LOST, OVER = range(5)


class ProduceProxy(FrameProxy):
    def __init__(self, port: int, broker_port: int) -> None:
        super().__init__(port, broker_port)
        self._changed = threading.Condition()
        self._step = IDLE
        self._lost_correlation = -1
        self._owed: list[bytes] = []
        """Answers that the client is still to get, in order."""

    def arm(self) -> None:
        self._go_to(ARMED)

    def await_step(self, step: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._step >= step, TIMEOUT_S), f"step {self._step}, not {step}"

    def _go_to(self, step: int) -> None:
        with self._changed:
            self._step = step
            self._changed.notify_all()

    def passes_request(self, frame: bytes, client: socket.socket) -> bool:
        return self._step in (IDLE, OVER) or not self._takes(frame, client)

    def passes_answer(self, frame: bytes) -> bool:
        if self._step == HELD and int.from_bytes(frame[:4], "big") == self._lost_correlation:
            self._go_to(LOST)
            return False
        return True

    def _takes(self, frame: bytes, client: socket.socket) -> bool:
        """Whether this request is not to reach the broker."""
        if int.from_bytes(frame[:2], "big") != ApiKey.PRODUCE:
            return False
        version, correlation = int.from_bytes(frame[2:4], "big"), frame[4:8]
        position = _body_of(frame)
        request, _ = decode(ProduceRequest, version, memoryview(frame), position)
        partition = request.topic_data[0].partition_data[0].index
        if self._step == ARMED and partition == 0:
            self._owed.append(_refused(request, version, correlation, ErrorCode.NOT_ENOUGH_REPLICAS))
            self._go_to(HELD)
            return True
        if self._step == HELD and partition == 1:
            self._owed.append(_refused(request, version, correlation, ErrorCode.REQUEST_TIMED_OUT))
            self._lost_correlation = int.from_bytes(correlation, "big")
        elif self._step == LOST and partition == 0:
            for answer in self._owed:
                client.sendall(framed(answer))
            self._go_to(OVER)
        return False


def _body_of(frame: bytes) -> int:
    return read_request_header(memoryview(frame)).body_position


def _refused(request: ProduceRequest, version: int, correlation: bytes, error: ErrorCode) -> bytes:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                topic_id=topic.topic_id,
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=part.index, error_code=error, base_offset=-1)
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
    out = bytearray(correlation)
    if version >= FLEXIBLE_FROM:
        out.append(0)
    encode(response, version, out)
    return bytes(out)
