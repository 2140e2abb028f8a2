"""`penstock chaos` with producers of Apache Kafka's Java client, to compare them with librdkafka's.

    python tests/processes/java_chaos.py --brokers 3 --netns --rounds 4 --seed 5 --json

takes the options of `penstock chaos`. The readers and the account are the same.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from penstock.chaos import isolation, runner  # noqa: E402
from penstock.chaos.ledger import Name  # noqa: E402
from penstock.chaos.load import DELIVERY_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Load, encode  # noqa: E402
from support import java  # noqa: E402
from support.server_process import die_with_parent  # noqa: E402

SOURCE = TESTS / "support" / "java_sources" / "NumberedProducer.java"
HEAP = "192M"


class JavaWriter(threading.Thread):
    """What `penstock.chaos.load.Writer` does, with a producer in a Java machine."""

    def __init__(self, load: Load, number: int, rate: float, value_bytes: int) -> None:
        super().__init__(name=f"Java producer {number}", daemon=True)
        self._load = load
        self._number = number
        self._pause_s = 1 / rate
        self._value_bytes = value_bytes

    def run(self) -> None:
        load = self._load
        properties = {
            "bootstrap.servers": str(load.settings["bootstrap.servers"]),
            "linger.ms": "5",
            "request.timeout.ms": str(REQUEST_TIMEOUT_MS),
            "delivery.timeout.ms": str(DELIVERY_TIMEOUT_MS),
        }
        words = [f"{name}={value}" for name, value in properties.items()]
        process = subprocess.Popen(
            [*die_with_parent(), *java.command(SOURCE, heap=HEAP), load.topic, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        answers = threading.Thread(target=self._listen, args=(process,), daemon=True)
        answers.start()
        assert process.stdin is not None
        partition = self._number % load.ledger.partitions
        next_s = time.monotonic()
        while not load.stop_sending.is_set():
            with load.lock:
                name = load.ledger.sent(self._number, partition)
            value = encode(name).decode().ljust(self._value_bytes)
            process.stdin.write(f"{name[1]} {partition} {value}\n")
            partition = (partition + 1) % load.ledger.partitions
            next_s += self._pause_s
            load.stop_sending.wait(max(0.0, next_s - time.monotonic()))
        process.stdin.close()
        answers.join()
        process.wait()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        load = self._load
        assert process.stdout is not None
        for line in process.stdout:
            number, partition, offset = map(int, line.split())
            name = Name(self._number, number)
            with load.lock:
                if offset < 0:
                    load.ledger.failed(name, partition)
                else:
                    load.ledger.acknowledged(name, partition, offset)
                    load.pauses.acknowledged(partition, time.monotonic())


class JavaLoad(Load):
    def __init__(self, *arguments: Any, producers: int, rate: float, value_bytes: int, **options: Any) -> None:
        super().__init__(*arguments, producers=producers, rate=rate, value_bytes=value_bytes, **options)
        self._writers = [  # type: ignore[assignment]
            JavaWriter(self, number, rate / producers, value_bytes) for number in range(producers)
        ]


def main() -> None:
    from penstock.__main__ import main as penstock

    if "--netns" in sys.argv and not isolation.inside():
        isolation.enter([__file__, *sys.argv[1:]])
    runner.Load = JavaLoad  # type: ignore[misc]
    sys.argv = ["penstock", "chaos", *sys.argv[1:]]
    sys.exit(penstock())


if __name__ == "__main__":
    main()
