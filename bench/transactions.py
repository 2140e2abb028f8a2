"""`python -m bench.transactions`: transactions, Penstock beside Apache Kafka, on one broker and on three.

The producer and the consumer are librdkafka's (confluent-kafka), the same for both sides. A commit is measured from
`commit_transaction` to its return, which includes the wait for the records in flight; so p50 and p99 are what an
application waits. Transactional ids at rest are made with raw InitProducerId requests.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Final
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench import command_line, processes
from bench.cluster_faults import TOPIC, ClusterCase
from bench.model import Better, Case, Metric, Sample, Side, Target
from bench.runner import Bench
from bench.topics import create_topics
from penstock.client import ClientSettings, Cluster, CoordinatorKind
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.server_process import ServerProcess

RECORD: Final = b"x" * 1000
PARTITIONS: Final = 3
WARMUP_S: Final = {Side.PENSTOCK: 3, Side.KAFKA: 15}
DURATION_S: Final = 8.0
READ_RECORDS: Final = 100_000
RECORDS_PER_READ_TRANSACTION: Final = 500
COMMIT_TIMEOUT_S: Final = 60
IDS: Final = 10_000
FIRST_IDS: Final = 500
PIPELINED: Final = 5
SETTLE_S: Final = 5.0
ONE_COPY: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}

THROUGHPUT = Metric("records_per_s", "throughput", "records/s", Better.HIGHER, digits=0)
COMMITS = (
    Metric("commit_p50_ms", "commit, p50", "ms", Better.LOWER, digits=2),
    Metric("commit_p99_ms", "commit, p99", "ms", Better.LOWER, digits=2),
    Metric("transactions_per_s", "transactions", "/s", Better.HIGHER, digits=1),
    Metric("cpu_ms_each", "CPU of the brokers per transaction", "ms", Better.LOWER, digits=2),
)
TARGETS = (Target("records_per_s", 1.0, Better.HIGHER), Target("commit_p99_ms", 0.5, Better.LOWER))


def write(
    bootstrap: str, topic: str, seconds: float, *, every_ms: float | None = None, every_records: int | None = None,
    records: int | None = None,
) -> tuple[int, list[float], float]:  # fmt: skip
    """Produces in transactions; returns the records, the times of the commits in ms, and the seconds it took."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"bench-{uuid4().hex}", "linger.ms": 5, "log_level": 0}
    )
    producer.init_transactions(COMMIT_TIMEOUT_S)
    sent, commits = 0, []
    begun_s = time.monotonic()
    end_s = begun_s + seconds
    while time.monotonic() < end_s and (records is None or sent < records):
        producer.begin_transaction()
        started_s, in_this = time.monotonic(), 0
        while True:
            try:
                producer.produce(topic, RECORD, partition=sent % PARTITIONS)
            except BufferError:
                producer.poll(0.01)
                continue
            sent, in_this = sent + 1, in_this + 1
            if every_records is not None and in_this >= every_records:
                break
            if every_ms is not None and not in_this % 20 and time.monotonic() - started_s >= every_ms / 1000:
                break
        asked_s = time.monotonic()
        producer.commit_transaction(COMMIT_TIMEOUT_S)
        commits.append((time.monotonic() - asked_s) * 1000)
    return sent, commits, time.monotonic() - begun_s


def read(bootstrap: str, topic: str) -> tuple[int, float]:
    """Reads everything that is committed; returns the number of records and the seconds from the first to the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False, "log_level": 0,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    count, left, first_s, last_s = 0, PARTITIONS, 0.0, 0.0
    while left:
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                left -= 1
        first_s, last_s = first_s or time.monotonic(), time.monotonic()
    consumer.close()
    return count, last_s - first_s


def percentile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1] if len(values) > 1 else 0.0


def measured(result: tuple[int, list[float], float], cpu_s: float) -> Sample:
    sent, commits, elapsed_s = result
    return {
        "records_per_s": sent / elapsed_s,
        "commit_p50_ms": percentile(commits, 0.5),
        "commit_p99_ms": percentile(commits, 0.99),
        "transactions_per_s": len(commits) / elapsed_s,
        "cpu_ms_each": 1000 * cpu_s / len(commits),
    }


class Alone(Case):
    """One broker for all samples of a side."""

    def __init__(self) -> None:
        self._brokers: dict[Side, ServerProcess] = {}
        self._open: dict[Side, ExitStack] = {}

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {"replication_factor": 1, "partitions": PARTITIONS, "record_bytes": len(RECORD), **ONE_COPY}

    def prepare(self, bench: Bench, side: Side) -> None:
        self._open[side] = ExitStack()
        broker = self._brokers[side] = self._open[side].enter_context(bench.fresh(side, ONE_COPY))
        broker.start()
        create_topics(broker.bootstrap, {TOPIC: PARTITIONS})
        write(broker.bootstrap, TOPIC, WARMUP_S[side] / (4 if bench.options.quick else 1), every_records=10)

    def clean_up(self, bench: Bench, side: Side) -> None:
        self._open.pop(side).close()


class Produce(Alone):
    """1 KB records as fast as one producer can, with a commit every so often."""

    metrics = (THROUGHPUT, *COMMITS)
    targets = TARGETS

    def __init__(self, *, every_ms: float | None = None, every_records: int | None = None) -> None:
        super().__init__()
        self.how = {"every_ms": every_ms, "every_records": every_records}
        often = f"{every_ms:g}-ms" if every_ms is not None else f"{every_records}-records"
        self.name, self.title = f"commit-{often}-rf1", f"1 KB records, a commit every {often.replace('-', ' ')}"

    def sample(self, bench: Bench, side: Side) -> Sample:
        broker = self._brokers[side]
        before_s = processes.fine_cpu_s(broker.pid)
        result = write(broker.bootstrap, TOPIC, seconds(bench), **self.how)  # type: ignore[arg-type]
        return measured(result, processes.fine_cpu_s(broker.pid) - before_s)


class Consume(Alone):
    """Reads the records of many transactions from the beginning."""

    name = "read-committed-rf1"
    title = "read 1 KB records of transactions, read_committed"
    metrics = (THROUGHPUT,)
    targets = (Target("records_per_s", 1.0, Better.HIGHER),)

    def prepare(self, bench: Bench, side: Side) -> None:
        super().prepare(bench, side)
        broker = self._brokers[side]
        wanted = bench.scaled(READ_RECORDS)
        write(broker.bootstrap, TOPIC, 300, every_records=RECORDS_PER_READ_TRANSACTION, records=wanted)

    def sample(self, bench: Bench, side: Side) -> Sample:
        count, elapsed_s = read(self._brokers[side].bootstrap, TOPIC)
        return {"records_per_s": count / elapsed_s}


class Replicated(ClusterCase):
    """The same on three nodes with three copies."""

    metrics = (THROUGHPUT, *COMMITS)
    targets = TARGETS
    partitions = PARTITIONS

    def __init__(self, *, every_ms: float | None = None, every_records: int | None = None) -> None:
        super().__init__()
        self.how = {"every_ms": every_ms, "every_records": every_records}
        often = f"{every_ms:g}-ms" if every_ms is not None else f"{every_records}-records"
        self.name = f"commit-{often}-rf3"
        self.title = f"1 KB records, a commit every {often.replace('-', ' ')}, three copies"

    def prepare(self, bench: Bench, side: Side) -> None:
        super().prepare(bench, side)
        bootstrap = self.cluster(side).bootstrap
        write(bootstrap, TOPIC, WARMUP_S[side] / (4 if bench.options.quick else 1), every_records=10)

    def sample(self, bench: Bench, side: Side) -> Sample:
        cluster = self.cluster(side)
        before_s = cluster.cpu_s()
        result = write(cluster.bootstrap, TOPIC, seconds(bench), **self.how)  # type: ignore[arg-type]
        return measured(result, cluster.cpu_s() - before_s)


class IdsAtRest(Case):
    """Transactional ids that were initialised once and do nothing."""

    warmup_samples = 0
    metrics = (
        Metric("added_rss_mb", "memory added (RSS)", "MB", Better.LOWER),
        Metric("added_kb_each", "for each id", "KB", Better.LOWER, digits=2),
        Metric("ids_per_s", "making them", "/s", Better.HIGHER, digits=0),
    )
    targets = (Target("added_rss_mb", 0.2, Better.LOWER),)
    name = "ids-at-rest"
    title = f"{IDS:,} transactional ids at rest"

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {"ids": bench.scaled(IDS), "ids_before_the_first_reading": bench.scaled(FIRST_IDS), **ONE_COPY}

    def sample(self, bench: Bench, side: Side) -> Sample:
        with bench.fresh(side, ONE_COPY) as broker:
            broker.start()
            initialise(broker.bootstrap, "first", bench.scaled(FIRST_IDS))
            time.sleep(SETTLE_S)
            before, begun_s, count = processes.memory(broker.pid), time.monotonic(), bench.scaled(IDS)
            initialise(broker.bootstrap, "idle", count)
            elapsed_s = time.monotonic() - begun_s
            time.sleep(SETTLE_S)
            added_mb = processes.memory(broker.pid).rss_mb - before.rss_mb
        return {
            "added_rss_mb": added_mb,
            "added_kb_each": added_mb * 1000 / count,
            "ids_per_s": count / elapsed_s,
        }


def initialise(bootstrap: str, name: str, count: int) -> None:
    """Initialises so many transactional ids, several requests at a time."""
    left = [f"bench-{name}-{number}" for number in range(count)]
    with Cluster(ClientSettings.from_properties({"bootstrap.servers": bootstrap})) as cluster:
        coordinator = cluster.coordinator(left[0], CoordinatorKind.TRANSACTION)
        while left:
            asked = left[:PIPELINED]
            requests = [InitProducerIdRequest(transactional_id=one, transaction_timeout_ms=60_000) for one in asked]
            sent = [coordinator.send(request) for request in requests]
            answers = [coordinator.receive(one, InitProducerIdResponse) for one in sent]
            done = {one for one, answer in zip(asked, answers, strict=True) if answer.error_code == ErrorCode.NONE}
            left = [one for one in left if one not in done]
            if len(done) < len(asked):
                time.sleep(0.05)


def seconds(bench: Bench) -> float:
    return DURATION_S / (4 if bench.options.quick else 1)


def all_cases() -> list[Case]:
    return [
        Produce(every_ms=100),
        Produce(every_records=10),
        Replicated(every_ms=100),
        Replicated(every_records=10),
        Consume(),
        IdsAtRest(),
    ]


def main() -> None:
    parser = command_line.parser("Transactions, Penstock beside Apache Kafka.", pairs=3)
    parser.add_argument(
        "--cases",
        default="*",
        metavar="NAMES",
        help="names or patterns, with commas between: 'commit-*' (default: all)",
    )
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    given = parser.parse_args()
    cases = all_cases()
    if given.list:
        for case in cases:
            print(f"{case.name:24} {case.title}")
        return
    patterns = [pattern.strip() for pattern in given.cases.split(",")]
    for pattern in patterns:
        if not any(fnmatchcase(case.name, pattern) for case in cases):
            parser.error(f"no case matches {pattern!r}; there are: {', '.join(case.name for case in cases)}")
    try:
        command_line.run([one for one in cases if any(fnmatchcase(one.name, two) for two in patterns)], given)
    except KeyboardInterrupt:
        sys.exit("interrupted; everything that was started is stopped")


if __name__ == "__main__":
    main()
