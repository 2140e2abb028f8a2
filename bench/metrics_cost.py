"""What counting costs a request: the broker's own path from received bytes to written answer, with and without metrics.

    python -m bench.metrics_cost

One connection without a socket hands one-message produce requests to a broker in this process, so that system calls of
the network do not hide the difference. Both sides alternate; the best of many short runs counts, because whatever
else the machine does can only make a run slower.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from collections.abc import Callable
from typing import cast

from penstock.broker.server import Broker
from penstock.config import BrokerConfig
from penstock.metadata import NewTopic
from penstock.runtime.eventlog import EventLog
from penstock.runtime.production import ProductionRuntime, run
from penstock.telemetry.samples import Histogram
from penstock.wire.records import Record, build_batch

REQUESTS = 2_000
ROUNDS = 30
TOPIC = b"cost"


class NoHistogram(Histogram):
    """Takes durations and forgets them."""

    __slots__ = ()

    def record(self, duration_ms: float) -> None:
        pass


class NoSocket:
    """A transport that takes everything at once."""

    def write(self, data: bytes) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 1) if name == "peername" else default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class Silence:
    def info(self, event: str, **fields: object) -> None:
        pass

    warning = error = limited = info


def frame() -> bytes:
    """Produce v10 with one message of 100 bytes for one partition."""
    batch = build_batch([Record(timestamp=time.time_ns() // 1_000_000, value=b"x" * 100)])
    size = len(batch) + 1
    body = struct.pack(">hhih", 0, 10, 1, 4) + b"cost\0\0" + struct.pack(">hi", -1, 30_000)
    body += bytes([2, len(TOPIC) + 1]) + TOPIC + b"\x02" + struct.pack(">i", 0)
    body += bytes([size & 127 | 128, size >> 7]) + batch + b"\0\0\0"
    return struct.pack(">i", len(body)) + body


async def measure(runtime: ProductionRuntime) -> tuple[float, float]:
    config = BrokerConfig.resolve({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": runtime.disk.root})
    broker = Broker(runtime, config, cast(EventLog, Silence()))
    await broker.start()
    await broker.quorum.submit(lambda controller: controller.decide_create_topics([NewTopic(TOPIC.decode(), 1, 1)]))
    runtime.settle()
    broker.service.direct_socket = lambda transport: None
    connection = broker.service.connection()
    connection.connection_made(NoSocket())  # type: ignore[arg-type]
    request = frame()
    metrics = broker.metrics.requests[0]
    counted, uncounted = metrics.total, NoHistogram()
    now_ms = runtime.now_ms

    def send() -> None:
        buffer = connection.get_buffer(-1)
        buffer[: len(request)] = request
        connection.buffer_updated(len(request))

    def run_once() -> float:
        broker.service.turns.until_ms = float("inf")  # the loop does not run meanwhile: nobody else waits
        began = time.perf_counter()
        for _ in range(REQUESTS):
            send()
        return (time.perf_counter() - began) / REQUESTS * 1e6

    best = {True: float("inf"), False: float("inf")}
    standing: Callable[[], float] = lambda: 0.0  # noqa: E731
    for round_number in range(2 * ROUNDS):
        on = round_number % 2 == 0
        metrics.total = counted if on else uncounted
        broker.service.now_ms = now_ms if on else standing
        best[on] = min(best[on], run_once())
    broker.service.now_ms = now_ms
    await broker.stop()
    return best[True], best[False]


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        with_metrics, without = run(measure, root=directory, events=cast(EventLog, Silence()))
    cost = with_metrics - without
    print(f"one-message produce request, from received bytes to written answer (best of {ROUNDS} × {REQUESTS}):")
    print(f"  with metrics     {with_metrics:6.2f} µs")
    print(f"  without          {without:6.2f} µs")
    print(f"  cost             {cost:6.2f} µs  ({cost / with_metrics:.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
