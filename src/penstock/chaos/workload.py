"""Transactional workloads beside the numbered records: a bank, and a chain of copies.

    bank   transfers between accounts. Each transfer is two records, a debit and a credit, mostly in two partitions,
           in one transaction with the offset of its order.
    copy   a topic is copied to a second one, and that to a third, partition by partition.

Workers are processes (`penstock.chaos.worker`). Besides the faults of the run, one of them is killed every few seconds.
A reader of committed records follows the last topic. At the end all topics are read once more, with librdkafka and not
with the client under test, and `transaction_account` compares.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.chaos.nodes import die_with_parent
from penstock.chaos.transaction_account import HEADER, Output, Place, TransactionVerdict, check_money, check_stage
from penstock.chaos.worker import Plan
from penstock.client import LATEST, ClientError, ClientSettings, Cluster, IsolationLevel

KINDS: Final = ("bank", "copy")
ACCOUNTS: Final = 40
WORKERS: Final = 2
"""Per stage."""
RATE_SHARE_MAX: Final = 200.0
KILL_EVERY_S: Final = (3.0, 9.0)
RESTART_AFTER_S: Final = 0.3
DRAIN_TIMEOUT_S: Final = 180.0
END_TIMEOUT_S: Final = 40.0
DECIDED_TIMEOUT_S: Final = 90.0
"""The workers' transaction timeout, and a failover of its coordinator with room to spare."""
AUDIT_TIMEOUT_S: Final = 90.0
DELIVERY_TIMEOUT_MS: Final = 120_000
LAST_WORDS: Final = 8
"""Lines of a worker's standard error that are told if it fails."""


class Stage(NamedTuple):
    name: str
    source: str
    target: str
    legs: int


class Worker:
    """One worker, and its successors after each death."""

    def __init__(self, plan: Plan, workload: TransactionalWorkload) -> None:
        self.plan = plan
        self._workload = workload
        self.process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._errors: list[str] = []
        self.start_at_s = 0.0

    def tend(self, now_s: float) -> None:
        """Starts it unless it runs. In the main thread: the kernel kills it when the thread that started it ends."""
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None:
            code, self.process = self.process.returncode, None
            self.start_at_s = now_s + RESTART_AFTER_S
            if code not in (0, -signal.SIGKILL):
                said = "".join(self._errors[-LAST_WORDS:]).strip().replace("\n", " | ")
                self._workload.problem(f"worker {self.plan.name} ended with exit code {code}: {said}")
        if now_s >= self.start_at_s:
            # The environment has the packages of this process, whatever the directory.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.chaos.worker", self.plan.encode()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                preexec_fn=die_with_parent, env=os.environ.copy(),
            )  # fmt: skip
            self._listener = threading.Thread(target=self._listen, args=(self.process,), daemon=True)
            self._listener.start()
            self._errors = []
            threading.Thread(target=self._listen_to_errors, args=(self.process, self._errors), daemon=True).start()

    def kill(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.kill()
        return True

    def ask_to_end(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()

    def end(self, deadline_s: float) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._listener is not None:
            self._listener.join()

    @staticmethod
    def _listen_to_errors(process: subprocess.Popen[str], errors: list[str]) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                errors.append(line)
                del errors[:-LAST_WORDS]

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):
                    kind, _, what = line.strip().partition(" ")
                    self._workload.told(kind, what)


class TransactionalWorkload:
    def __init__(
        self, kind: str, properties: Mapping[str, object], name: str, *, partitions: int, rate: float, seed: int
    ) -> None:
        self.kind = kind
        self._properties = dict(properties)
        self._settings: dict[str, Any] = {"log_level": 0, "reconnect.backoff.max.ms": 500, **properties}
        self._partitions = partitions
        self._rate = min(rate, RATE_SHARE_MAX)
        self._rng = random.Random(f"workload-{seed}")
        first = f"{name}-{kind}"
        if kind == "bank":
            self.stages = [Stage("bank", f"{first}-orders", f"{first}-ledger", 2)]
        else:
            topics = [f"{first}-{number}" for number in range(3)]
            self.stages = [Stage(f"copy {n}", topics[n - 1], topics[n], 1) for n in (1, 2)]
        self.topics = list(dict.fromkeys(one for stage in self.stages for one in (stage.source, stage.target)))
        servers = str(properties.get("bootstrap.servers", ""))
        given = {name: str(value) for name, value in properties.items() if name != "bootstrap.servers"}
        self.workers = [
            Worker(
                Plan(
                    servers, f"{stage.target}-worker-{number}", kind, stage.source, stage.target,
                    f"{stage.target}-group", partitions, properties=given,
                ),
                self,
            )
            for stage in self.stages
            for number in range(WORKERS)
        ]  # fmt: skip
        self.verdict = TransactionVerdict()
        self._lock = threading.Lock()
        self._committed: set[str] = set()
        self._aborted: set[str] = set()
        self._over: dict[str, int] = defaultdict(int)
        self._last_over: dict[str, str] = {}
        self.problems: list[str] = []
        self._sent = self._acknowledged = 0
        self._seen: dict[Place, Output | None] = {}
        self._stop_feeding = threading.Event()
        self._stop_reading = threading.Event()
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._feed, self._follow)]
        self._next_kill_s = float("inf")
        self._ending = False

    # ---- the run

    def create_topics(self, admin: AdminClient, replication_factor: int, min_insync_replicas: int) -> None:
        config = {"min.insync.replicas": str(min_insync_replicas), "unclean.leader.election.enable": "false"}
        wanted = [NewTopic(one, self._partitions, replication_factor, config=config) for one in self.topics]
        for future in admin.create_topics(wanted, request_timeout=15).values():
            future.result(30)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        self._next_kill_s = time.monotonic() + self._rng.uniform(*KILL_EVERY_S)

    def tend(self) -> None:
        """Restarts workers that ended, and kills one now and then."""
        now_s = time.monotonic()
        if self._ending:
            return
        for worker in self.workers:
            worker.tend(now_s)
        if now_s >= self._next_kill_s:
            self._next_kill_s = now_s + self._rng.uniform(*KILL_EVERY_S)
            self.verdict.kills += self._rng.choice(self.workers).kill()

    def told(self, kind: str, what: str) -> None:
        with self._lock:
            if kind == "commit":
                self._committed.add(what)
            elif kind == "abort":
                self._aborted.add(what)
            elif kind == "over":
                kind, _, why = what.partition(" ")
                self._over[kind] += 1
                self._last_over[kind] = why

    def problem(self, text: str) -> None:
        with self._lock:
            if text not in self.problems:
                self.problems.append(text)

    @property
    def progress(self) -> str:
        with self._lock:
            return (
                f"{self.kind}: {self._acknowledged:,} orders, {len(self._committed):,} transactions committed, "
                f"{len(self._aborted):,} aborted, {self.verdict.kills} workers killed, {len(self._seen):,} records read"
            )

    # ---- the end

    def finish(self, wait_until: Callable[[Callable[[], bool], float], bool], tell: Callable[[str], None]) -> None:
        """Lets the workers finish, and checks everything; the result is in `verdict` and `problems`."""
        self._stop_feeding.set()
        self._threads[0].join()
        self._next_kill_s = float("inf")
        wanted = self._acknowledged * self.stages[-1].legs
        tell(f"waiting until the {self.kind} has done all {self._acknowledged:,} orders")
        wait_until(lambda: len(self._seen) >= wanted, time.monotonic() + DRAIN_TIMEOUT_S)
        self.stop()
        tell("waiting until no transaction is open")
        if not wait_until(self._decided, time.monotonic() + DECIDED_TIMEOUT_S):
            self.verdict.violate("hanging", f"a transaction is open {DECIDED_TIMEOUT_S:.0f} s after its worker ended")
        tell(f"reading all topics of the {self.kind} once more")
        try:
            self._check()
        except KafkaException as error:
            self.problem(f"the topics of the {self.kind} cannot be read: {error.args[0].str()}")
        for cause, times in sorted(self._over.items()):
            tell(f"workers started over {times} times because of {cause}, the last time: {self._last_over[cause]}")

    def stop(self) -> None:
        self._ending = True
        self._stop_feeding.set()
        for worker in self.workers:
            worker.ask_to_end()
        deadline_s = time.monotonic() + END_TIMEOUT_S
        for worker in self.workers:
            worker.end(deadline_s)
        self._stop_reading.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _decided(self) -> bool:
        """Whether every last stable offset is the high watermark."""
        places = [(topic, number) for topic in self.topics for number in range(self._partitions)]
        try:
            with Cluster(ClientSettings.from_properties(self._properties)) as cluster:
                ends = cluster.list_offsets(dict.fromkeys(places, LATEST))
                stable = cluster.list_offsets(dict.fromkeys(places, LATEST), isolation=IsolationLevel.READ_COMMITTED)
        except ClientError:
            return False
        return all(ends[one].offset == stable[one].offset for one in ends)

    def _check(self) -> None:
        verdict = self.verdict
        verdict.commits, verdict.aborts = len(self._committed), len(self._aborted)
        contents = {topic: list(self._read(topic)) for topic in self.topics}
        for stage in self.stages:
            inputs = [_place(message) for message in contents[stage.source]]
            outputs = [(_place(message), _output(message)) for message in contents[stage.target]]
            mine = f"{stage.target}-worker-"
            check_stage(
                verdict, stage.name, inputs, outputs, legs=stage.legs,
                committed={one for one in self._committed if one.startswith(mine)},
                aborted={one for one in self._aborted if one.startswith(mine)},
                seen=list(self._seen.items()) if stage is self.stages[-1] else None,
            )  # fmt: skip
        if len(contents[self.stages[0].source]) < self._acknowledged:
            verdict.violate("lost", f"{self._acknowledged} orders were acknowledged, fewer are there")
        if self.kind == "bank":
            expected: dict[str, int] = defaultdict(int)
            for message in contents[self.stages[0].source]:
                order = json.loads(message.value() or b"{}")
                expected[str(order["from"])] -= order["amount"]
                expected[str(order["to"])] += order["amount"]
            found: dict[str, int] = defaultdict(int)
            for message in contents[self.stages[0].target]:
                entry = json.loads(message.value() or b"{}")
                found[str(entry["account"])] += entry["amount"]
            check_money(verdict, expected, found)

    # ---- orders in, committed records out

    def _feed(self) -> None:
        producer = Producer(
            {
                **self._settings, "enable.idempotence": True, "acks": "all", "linger.ms": 5,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS, "request.timeout.ms": 4_000,
            }
        )  # fmt: skip
        source, next_s = self.stages[0].source, time.monotonic()

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._acknowledged += error is None

        while not self._stop_feeding.is_set():
            payer, payee = self._rng.sample(range(ACCOUNTS), 2)
            order = {"number": self._sent, "from": payer, "to": payee, "amount": self._rng.randint(1, 1000)}
            with suppress(BufferError):
                producer.produce(
                    source, json.dumps(order), partition=self._sent % self._partitions, on_delivery=delivered
                )
                self._sent += 1
            next_s = max(next_s + 1 / self._rate, time.monotonic() - 1)
            producer.poll(0)
            while (left_s := next_s - time.monotonic()) > 0 and not self._stop_feeding.is_set():
                producer.poll(left_s)  # an event ends it early
        producer.flush(DELIVERY_TIMEOUT_MS / 1000)

    def _follow(self) -> None:
        """Reads the last topic during the run."""
        consumer = self._consumer(self.stages[-1].target, eof=False)
        while not self._stop_reading.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    where, output = _place(message), _output(message)
                    if self._seen.setdefault(where, output) != output:
                        self.verdict.violate("vanished", f"{where}: first {self._seen[where]}, then {output}")
        consumer.close()

    def _read(self, topic: str) -> Iterator[Message]:
        """All committed records of a topic, in the order of each partition."""
        consumer = self._consumer(topic, eof=True)
        left = set(range(self._partitions))
        deadline_s = time.monotonic() + AUDIT_TIMEOUT_S
        while left:
            if time.monotonic() > deadline_s:
                self.problem(f"{topic}: partitions {sorted(left)} cannot be read to the end")
                break
            for message in consumer.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    deadline_s = time.monotonic() + AUDIT_TIMEOUT_S
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(int(message.partition() or 0))
        consumer.close()

    def _consumer(self, topic: str, *, eof: bool) -> Consumer:
        consumer = Consumer(
            {
                **self._settings, "group.id": f"{topic}-audit", "enable.auto.commit": False,
                "isolation.level": "read_committed", "enable.partition.eof": eof,
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, number, 0) for number in range(self._partitions)])
        return consumer


def _place(message: Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _output(message: Message) -> Output | None:
    headers = message.headers() or []
    for name, value in headers.items() if isinstance(headers, dict) else headers:
        if name == HEADER and isinstance(value, bytes):
            return Output.decode(value)
    return None
