"""`python -m bench.recovery`: how long a broker needs after it was killed, with many partitions and much data.

The data is dealt evenly to all partitions, the process is killed with SIGKILL right after the last acknowledgement, and
a start is timed until the first message is acknowledged and until every partition tells its end. Nothing that was
acknowledged may be missing then: the ends are counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from bench import command_line, processes
from bench.client import Load, LoadFailed
from bench.footprint import TOPIC, start_to_first_acknowledgement_s
from bench.model import Better, Case, Metric, Sample, Side, Target
from bench.payloads import RECORD_BYTES
from bench.runner import Bench
from bench.topics import await_partitions, create_topics

_DATA_TOPIC = "bench-recovery"
_RUN_MESSAGES = 64
_TIMEOUT_S = 1200

# Room for a run of messages in each of 10,000 partitions.
_FILL_PROPERTIES: Mapping[str, str] = {
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "1000000",
    "linger.ms": "50",
}


class Recovery(Case):
    warmup_samples = 0
    name = "recovery"
    metrics = (
        Metric("first_s", "start to first acknowledged message", "s", Better.LOWER, digits=2),
        Metric("all_served_s", "start to all partitions served", "s", Better.LOWER, digits=2),
        Metric("cpu_s", "CPU until then", "s", Better.LOWER),
        Metric("rss_mb", "memory then (RSS)", "MB", Better.LOWER, digits=0),
        Metric("open_files", "open files then", "", Better.LOWER, digits=0),
        Metric("fill_mb_per_s", "filling it before", "MB/s", Better.HIGHER, digits=0),
    )

    def __init__(self, partitions: int, gigabytes: float, targets: tuple[Target, ...]) -> None:
        self._partitions = partitions
        self._messages = int(gigabytes * 1e9 / RECORD_BYTES)
        self.targets = targets
        self.title = f"start after kill -9 with {partitions:,} partitions and {gigabytes:g} GB"

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "partitions": self._partitions,
            "messages": self._messages,
            "record_bytes": RECORD_BYTES,
            "run_messages": _RUN_MESSAGES,
            "client_properties": _FILL_PROPERTIES,
        }

    def sample(self, bench: Bench, side: Side) -> Sample:
        with bench.fresh(side) as broker:
            broker.start()
            create_topics(broker.bootstrap, {TOPIC: 1, _DATA_TOPIC: self._partitions}, _TIMEOUT_S)
            fill = Load(
                "produce",
                _DATA_TOPIC,
                messages=self._messages,
                partitions=self._partitions,
                run_messages=_RUN_MESSAGES,
                properties=_FILL_PROPERTIES,
            )
            filled = bench.client.run(fill, broker.bootstrap, broker.pid)
            broker.kill()
            begun_s = time.monotonic()
            first_s = start_to_first_acknowledgement_s(bench, broker, TOPIC)
            ends = await_partitions(broker.bootstrap, {_DATA_TOPIC: self._partitions}, _TIMEOUT_S)
            all_served_s = time.monotonic() - begun_s
            found = sum(ends.values())
            if found != self._messages:
                raise LoadFailed(f"{self._messages} messages were acknowledged, {found} are there after the kill")
            return {
                "first_s": first_s,
                "all_served_s": all_served_s,
                "cpu_s": processes.cpu_s(broker.pid),
                "rss_mb": processes.memory(broker.pid).rss_mb,
                "open_files": processes.open_files(broker.pid),
                "fill_mb_per_s": filled.megabytes_per_s,
            }


def main() -> None:
    parser = command_line.parser("A start after kill -9.", pairs=3)
    parser.add_argument("--partitions", type=int, default=1000, metavar="N", help="how many (default 1,000)")
    parser.add_argument("--gigabytes", type=float, default=2, metavar="G", help="how much data (default 2)")
    parser.add_argument("--full", action="store_true", help="9,999 partitions and 20 GB, one pair")
    given = parser.parse_args()
    if given.full:
        # One topic, and Kafka creates at most 10,000 records at once: the topic itself is one of them.
        given.partitions, given.gigabytes, given.pairs = 9_999, 20, 1
    elif given.quick:
        given.gigabytes /= 8
    targets = (Target("all_served_s", 30, Better.LOWER, against=None),) if given.full else ()
    try:
        command_line.run([Recovery(given.partitions, given.gigabytes, targets)], given)
    except KeyboardInterrupt:
        sys.exit("interrupted; everything that was started is stopped")


if __name__ == "__main__":
    main()
