"""One message per request without a client library: how many requests the broker itself can take.

librdkafka spends some 40 µs on a request that carries one message, more than a broker should. Here every request is
the same bytes, made beforehand and sent many at a time, and answers are counted by their size, so that nearly all of
the work is the broker's.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench import processes, wire
from bench.client import LoadFailed
from bench.model import Better, Case, Metric, Sample, Side
from bench.payloads import RECORD_BYTES
from bench.runner import Bench
from bench.topics import create_topics, delete_topic

_TOPIC = "bench-raw-produce"
_PARTITIONS = 4
_CONNECTIONS = 4
_IN_FLIGHT_MAX = 64
_RECEIVE_BYTES = 256 * 1024
_STALL_TIMEOUT_S = 60


class RawProduce(Case):
    name = "produce-requests"
    title = "produce 1 KB, one message per request, ready-made requests over raw sockets"
    metrics = (
        Metric("requests_per_s", "requests", "/s", Better.HIGHER, digits=0),
        Metric("broker_cpu_us_each", "broker CPU for each", "µs", Better.LOWER),
        Metric("broker_cores", "broker cores", "", Better.LOWER, digits=2),
    )
    under_load = True
    requests = 400_000

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "requests": bench.scaled(self.requests),
            "record_bytes": RECORD_BYTES,
            "partitions": _PARTITIONS,
            "connections": _CONNECTIONS,
            "in_flight_for_each": _IN_FLIGHT_MAX,
            "acks": "all",
        }

    def sample(self, bench: Bench, side: Side) -> Sample:
        broker = bench.shared(side)
        assert broker is not None
        create_topics(broker.bootstrap, {_TOPIC: _PARTITIONS})
        try:
            count = bench.scaled(self.requests)
            cpu_before_s, begun_s = processes.cpu_s(broker.pid), time.monotonic()
            _send_all(broker.bootstrap, count)
            elapsed_s = time.monotonic() - begun_s
            broker_cpu_s = processes.cpu_s(broker.pid) - cpu_before_s
        finally:
            delete_topic(broker, _TOPIC)
        return {
            "requests_per_s": count / elapsed_s,
            "broker_cpu_us_each": broker_cpu_s * 1e6 / count,
            "broker_cores": broker_cpu_s / elapsed_s,
        }


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    frame: wire.ProduceFrame
    to_send: int
    in_flight: int = 0
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    answer: bytes = b""

    def refill(self) -> None:
        """Requests go out in bursts, as soon as half of those in flight were answered."""
        if not self.unsent and self.in_flight <= _IN_FLIGHT_MAX // 2:
            burst = min(_IN_FLIGHT_MAX - self.in_flight, self.to_send)
            self.unsent = memoryview(self.frame.request * burst)
            self.to_send -= burst
            self.in_flight += burst

    def send(self) -> None:
        self.unsent = self.unsent[self.socket.send(self.unsent) :]

    def receive(self) -> None:
        received = self.socket.recv(_RECEIVE_BYTES)
        if not received:
            raise LoadFailed("the broker closed the connection")
        received = self.answer + received
        whole = len(received) - len(received) % self.frame.response_bytes
        for place in (self.frame.error_code_at, self.frame.error_code_at + 1):
            if any(received[place : whole : self.frame.response_bytes]):
                raise LoadFailed("the broker answered with an error code")
        self.in_flight -= whole // self.frame.response_bytes
        self.answer = received[whole:]


def _send_all(bootstrap: str, count: int) -> None:
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for number in range(_CONNECTIONS):
            connected = stack.enter_context(wire.connect(bootstrap))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setblocking(False)
            frame = wire.produce_frame(_TOPIC, number % _PARTITIONS, b"x" * RECORD_BYTES)
            share = count // _CONNECTIONS + (number < count % _CONNECTIONS)
            one = _Connection(connected, frame, share)
            one.refill()
            selector.register(connected, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
        while selector.get_map():
            ready = selector.select(_STALL_TIMEOUT_S)
            if not ready:
                raise LoadFailed("stalled: no answer for too long")
            for key, events in ready:
                one = key.data
                if events & selectors.EVENT_READ:
                    one.receive()
                    one.refill()
                if one.unsent:
                    one.send()
                if one.in_flight == 0 and one.to_send == 0:
                    selector.unregister(key.fileobj)
                    continue
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if one.unsent else 0)
                if wanted != key.events:
                    selector.modify(key.fileobj, wanted, one)
