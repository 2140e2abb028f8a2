"""Apache Kafka's command-line tools, all in one Java machine: each call takes a tenth of what a process would."""

from __future__ import annotations

import base64
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from support import apache_kafka, java
from support.server_process import die_with_parent

SOURCE = Path(__file__).parent / "java_sources" / "ToolRunner.java"
HEAP = "256M"
CALL_TIMEOUT_S = 60

# The tools by the names of Kafka's scripts, without `.sh`.
TOOLS = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "ConfigCommand",
    "kafka-console-consumer": "ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-consumer-groups": "ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-delegation-tokens": "DelegationTokenCommand",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-dump-log": "DumpLogSegments",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-groups": "GroupsCommand",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "ReassignPartitionsCommand",
    "kafka-share-groups": "ShareGroupCommand",
    "kafka-streams-groups": "StreamsGroupCommand",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
}


@dataclass(frozen=True)
class Said:
    """How a tool ended and what it said."""

    code: int
    output: str
    errors: str


class KafkaTools:
    """Runs tools one at a time; as a context manager it starts the machine and ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            # The tools are short: compiling their code thoroughly would cost more than it gives.
            [*die_with_parent(), *java.command(SOURCE, heap=HEAP, flags=("-XX:TieredStopAtLevel=1",))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._process = None

    def run(self, tool: str, *arguments: str, given: str = "") -> Said:
        """Runs the tool named as Kafka's script is; `given` is what it reads on its standard input."""
        process = self._process
        assert process is not None, "use it as a context manager"
        assert process.stdin is not None
        assert process.stdout is not None
        main_class = apache_kafka.SHORT_NAMES[TOOLS[tool]]
        words = [base64.b64encode(word.encode()) for word in (main_class, given, *arguments)]
        with self._lock:
            # A tool that waits for ever would keep the whole machine: it is ended, and the reader sees the end.
            guard = threading.Timer(CALL_TIMEOUT_S, process.kill)
            guard.start()
            try:
                process.stdin.write(b" ".join(words) + b"\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            finally:
                guard.cancel()
        assert answer, f"{tool} {' '.join(arguments)} did not end within {CALL_TIMEOUT_S} s"
        code, output, errors = answer[:-1].split(b" ")
        return Said(int(code), base64.b64decode(output).decode(), base64.b64decode(errors).decode())
