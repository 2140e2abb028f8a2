"""`python -m bench.slow_readers`: consumers that ask for much and never read. What do they cost the broker?

Each asks for 50 MB of one partition and leaves the answer in its socket. A broker that builds its answers in memory
pays 500 × 50 MB; one that sends slices of its files as the sockets take them pays next to nothing.
"""

from __future__ import annotations

import selectors
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack

from bench import command_line, processes, wire
from bench.client import Load
from bench.model import Better, Case, Metric, Sample, Side, Target
from bench.payloads import RECORD_BYTES
from bench.runner import Bench
from bench.topics import create_topics

_TOPIC = "bench-slow"
_RECEIVE_BUFFER_BYTES = 64 * 1024


class SlowReaders(Case):
    warmup_samples = 0
    title: str
    name = "slow-readers"
    metrics = (
        Metric("added_rss_mb", "memory added, at most (RSS)", "MB", Better.LOWER),
        Metric("answered", "readers that had an answer begin", "", Better.HIGHER, digits=0),
        Metric("ping_ms", "ApiVersions of another client meanwhile, at most", "ms", Better.LOWER),
        Metric("cpu_percent", "CPU while they wait", "% of a core", Better.LOWER),
    )
    targets = (Target("added_rss_mb", 200, Better.LOWER, against=None),)

    def __init__(self, readers: int, ask_bytes: int, observed_s: float) -> None:
        self._readers = readers
        self._ask_bytes = ask_bytes
        self._observed_s = observed_s
        self.title = f"{readers} consumers that ask for {ask_bytes // 1_000_000} MB each and never read"

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "readers": self._readers,
            "ask_bytes": self._ask_bytes,
            "topic_bytes": 2 * self._ask_bytes,
            "receive_buffer_bytes": _RECEIVE_BUFFER_BYTES,
            "observed_s": self._observed_s,
            "request": "Fetch v11",
        }

    def sample(self, bench: Bench, side: Side) -> Sample:
        with bench.fresh(side) as broker, ExitStack() as connections:
            broker.start()
            create_topics(broker.bootstrap, {_TOPIC: 1})
            fill = Load("produce", _TOPIC, messages=2 * self._ask_bytes // RECORD_BYTES)
            bench.client.run(fill, broker.bootstrap, broker.pid)
            time.sleep(2)
            before_mb = processes.memory(broker.pid).rss_mb
            waiting = connections.enter_context(selectors.DefaultSelector())
            for _ in range(self._readers):
                reader = wire.connect(broker.bootstrap, receive_buffer_bytes=_RECEIVE_BUFFER_BYTES)
                connections.enter_context(reader)
                wire.say_api_versions(reader)
                wire.ask_fetch(reader, _TOPIC, max_bytes=self._ask_bytes)
                waiting.register(reader, selectors.EVENT_READ)
            other = connections.enter_context(wire.connect(broker.bootstrap))
            peak_mb = before_mb
            ping_ms = 0.0
            begun_s, cpu_before_s = time.monotonic(), processes.cpu_s(broker.pid)
            while time.monotonic() < begun_s + self._observed_s:
                asked_s = time.monotonic()
                wire.say_api_versions(other)
                ping_ms = max(ping_ms, (time.monotonic() - asked_s) * 1000)
                peak_mb = max(peak_mb, processes.memory(broker.pid).rss_mb)
                time.sleep(0.05)
            return {
                "added_rss_mb": peak_mb - before_mb,
                "answered": len(waiting.select(timeout=0)),
                "ping_ms": ping_ms,
                "cpu_percent": 100 * (processes.cpu_s(broker.pid) - cpu_before_s) / (time.monotonic() - begun_s),
            }


def main() -> None:
    parser = command_line.parser("Consumers that ask for much and never read.", pairs=3)
    parser.add_argument("--readers", type=int, default=500, metavar="N", help="how many (default 500)")
    parser.add_argument("--ask-mb", type=int, default=50, metavar="MB", help="what each asks for (default 50)")
    given = parser.parse_args()
    case = SlowReaders(given.readers, given.ask_mb * 1_000_000, observed_s=5 if given.quick else 15)
    try:
        command_line.run([case], given)
    except KeyboardInterrupt:
        sys.exit("interrupted; everything that was started is stopped")


if __name__ == "__main__":
    main()
