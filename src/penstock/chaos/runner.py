"""One run: a topic, the load, faults, and the account at the end.

Faults come in *episodes*. An episode begins and ends with all replicas in sync. Without `overlap` it has one fault;
with `overlap` it has several, of which up to that many run at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.chaos.faults import Fault, FaultFailed, Steps
from penstock.chaos.ledger import Counts, Verdict
from penstock.chaos.load import Load
from penstock.chaos.nodes import NodeFailed, Nodes
from penstock.chaos.overlap import Overlap, Planned
from penstock.chaos.pauses import Pause, merged
from penstock.chaos.plan import Step, plan
from penstock.chaos.reach import Need, Timeline
from penstock.chaos.roles import Roles
from penstock.chaos.transaction_account import TransactionVerdict
from penstock.chaos.workload import TransactionalWorkload

TICK_S: Final = 0.05
READY_TIMEOUT_S: Final = 90.0
CALM_S: Final = 1.0
"""The pause between two faults."""
FAULTS_PER_SLOT: Final = 3
"""The number of faults in an overlapping episode, per fault that may run at the same time."""
CALM_RECORDS: Final = 50
"""Records acknowledged per partition before the first fault and after the last one."""
WHOLE_TIMEOUT_S: Final = 120.0
FLUSH_TIMEOUT_S: Final = 150.0
READ_TIMEOUT_S: Final = 90.0
REQUEST_TIMEOUT_S: Final = 15


class ChaosFailed(Exception):
    """The run could not be carried out; this says nothing about the cluster's records."""


@dataclass(frozen=True, slots=True)
class Options:
    seconds: float | None
    """How long new faults are started; None with `rounds`."""
    rounds: int | None
    """How many times each fault is applied."""
    seed: int
    topic: str
    group: str
    partitions: int
    replication_factor: int
    min_insync_replicas: int
    producers: int
    members: int
    rate: float
    value_bytes: int
    group_protocol: str
    keep: bool
    overlap: int = 1
    """How many faults may run at the same time."""
    producer_command: Sequence[str] = ()
    """The program that produces instead of librdkafka (`penstock.chaos.program`)."""
    workload: str = ""
    """A transactional workload beside the records: one of `penstock.chaos.workload.KINDS`."""


@dataclass(slots=True)
class Applied:
    """A fault that was applied, and its effect."""

    name: str
    at_s: float
    end_s: float | None = None
    """When it was undone."""
    what: str = ""
    pause_s: float | None = None
    """The longest time without an acknowledgement on a partition during its episode."""
    whole_after_s: float | None = None
    """The time from its end until all replicas were in sync again."""


@dataclass(slots=True)
class LongPause:
    """A long time without an acknowledgement, and the faults at that time. Times count from the start of the run."""

    partitions: list[int]
    start_s: float
    end_s: float
    faults: list[str]
    """The faults that were active during the pause."""
    unable_s: float | None
    """How long no group of nodes could have acknowledged; None for a cluster that we did not start."""
    probe_s: float | None
    """How long the probe waited; the rest of the pause is the client's. None if it was not probed."""

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(slots=True)
class Result:
    seed: int
    seconds: float
    applied: list[Applied]
    problems: list[str]
    verdict: Verdict | None
    exit_codes: Mapping[int, Sequence[int]] = field(default_factory=dict)
    long_pauses: list[LongPause] = field(default_factory=list)
    longest_commit_s: float = 0.0
    """The longest synchronous commit of a group member."""
    transactions: TransactionVerdict | None = None
    """The account of the transactional workload, if there was one."""

    @property
    def holds(self) -> bool:
        whole = self.transactions is None or self.transactions.holds
        return self.verdict is not None and self.verdict.holds and whole and not self.problems

    @property
    def is_clean(self) -> bool:
        """Whether nothing needs a closer look, so that the topic and the data may be removed."""
        return self.holds and self.verdict is not None and not self.verdict.copies

    def as_json(self) -> dict[str, object]:
        counts = Counts() if self.verdict is None else self.verdict.counts
        return {
            "holds": self.holds,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "faults": [
                {"name": one.name, "at_s": round(one.at_s, 3), "end_s": _rounded(one.end_s), "what": one.what,
                 "pause_s": _rounded(one.pause_s), "whole_after_s": _rounded(one.whole_after_s)}
                for one in self.applied
            ],
            "longest_commit_s": round(self.longest_commit_s, 3),
            "long_pauses": [
                {"partitions": one.partitions, "start_s": round(one.start_s, 3), "end_s": round(one.end_s, 3),
                 "seconds": round(one.seconds, 3), "unable_s": _rounded(one.unable_s), "probe_s": _rounded(one.probe_s),
                 "faults": one.faults}
                for one in self.long_pauses
            ],
            "records": {name: getattr(counts, name) for name in Counts.__slots__},
            "violations": {} if self.verdict is None else {str(k): n for k, n in self.verdict.violations.items()},
            "examples": [] if self.verdict is None else [
                {"kind": one.kind, "partition": one.partition, "text": one.text} for one in self.verdict.examples
            ],
            "copies": [] if self.verdict is None else [
                {"partition": one.first.partition, "producer": one.first.producer, "number": one.first.number,
                 "count": one.count, "offset": one.first.offset, "again": one.first.again, "blame": one.blame,
                 "stamp": one.stamp and one.stamp._asdict(),
                 "stamp_again": one.stamp_again and one.stamp_again._asdict()}
                for one in self.verdict.copies
            ],
            "transactions": None if self.transactions is None else self.transactions.as_json(),
            "problems": self.problems,
            "exit_codes": {str(node): list(codes) for node, codes in self.exit_codes.items()},
        }  # fmt: skip


class Screen(Protocol):
    """Displays the progress of a run."""

    def show(self, run: Run) -> None: ...

    def line(self, at_s: float, text: str) -> None: ...


class Run:
    """One run; it is the `Place` of the faults."""

    def __init__(
        self,
        options: Options,
        properties: Mapping[str, object],
        faults: Sequence[Fault],
        screen: Screen,
        nodes: Nodes | None = None,
        need: Need | None = None,
    ) -> None:
        """`need`: the conditions for acknowledgements, for a cluster that we started."""
        self.options = options
        self._timeline = None if need is None else Timeline(need)
        self.faults = {fault.name: fault for fault in faults}
        self.nodes = nodes
        self.rng = Random(options.seed)
        self.properties = properties
        self.copies = options.replication_factor
        self.roles = Roles(properties, options.topic, options.group)
        self.applied: list[Applied] = []
        self.doing = "starting"
        self.load: Load | None = None
        self.workload: TransactionalWorkload | None = None
        self._screen = screen
        self._started_s = time.monotonic()

    # ---- waiting: nodes and display are served meanwhile

    def wait(self, seconds: float) -> None:
        self._wait_until(lambda: False, time.monotonic() + seconds)

    def tell(self, text: str) -> None:
        self.doing = text
        self._screen.line(self.elapsed_s, text)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def _wait_until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        while not condition():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            if self.workload is not None:
                self.workload.tend()
            if self.nodes is not None:
                self.nodes.tend()
                if self._timeline is not None:
                    self._timeline.saw(self.nodes.reach(), time.monotonic())
            self._screen.show(self)
            time.sleep(min(TICK_S, left_s))
        return True

    # ---- the run

    def run(self) -> Result:
        """Raises ChaosFailed if the run says nothing about the cluster."""
        options = self.options
        admin = self._prepare()
        load = self.load = self._load()
        if self.nodes is not None:
            self.nodes.tell = lambda text: self._screen.line(self.elapsed_s, text)
            self.nodes.problem = load.problem
        workload = self.workload = self._workload(admin)
        try:
            load.start()
            if workload is not None:
                workload.start()
            self._acknowledge_more("before anything is done to the cluster", ChaosFailed)
            self.doing = "waiting for the group to commit for the first time"
            if not self._wait_until(lambda: load.ledger.counts.commits > 0, time.monotonic() + WHOLE_TIMEOUT_S):
                raise ChaosFailed(f"the group {options.group} committed nothing within {WHOLE_TIMEOUT_S:.0f} s")
            self._break()
            if workload is not None:
                workload.finish(self._wait_until, self.tell)
                load.problems += workload.problems
            verdict = self._account(load)
        finally:
            if workload is not None:
                workload.stop()
            load.stop()
        codes = {} if self.nodes is None else {node.id: node.ends for node in self.nodes.by_id.values()}
        pauses = [self._explained(load, pause) for pause in merged(load.pauses.long)]
        result = Result(
            options.seed, self.elapsed_s, self.applied, load.problems, verdict, codes, pauses, load.longest_commit_s,
            None if workload is None else workload.verdict,
        )  # fmt: skip
        if not options.keep and result.is_clean:
            self._remove(admin)
        return result

    def _explained(self, load: Load, pause: Pause) -> LongPause:
        start_s, end_s = pause.start_s - self._started_s, pause.end_s - self._started_s
        unable_s = None if self._timeline is None else self._timeline.unable_s(pause.start_s, pause.end_s)
        faults = [
            f"{one.name} ({one.at_s:.1f}–{one.end_s:.1f} s)" if one.end_s is not None else one.name
            for one in self.applied
            if one.at_s < end_s and (one.end_s is None or one.end_s > start_s)
        ]
        return LongPause(pause.partitions, start_s, end_s, faults, unable_s, load.probe_waited_s(pause))

    def _load(self) -> Load:
        options = self.options
        return Load(
            self.properties, options.topic, options.group,
            partitions=options.partitions, producers=options.producers, members=options.members, rate=options.rate,
            value_bytes=options.value_bytes, group_protocol=options.group_protocol,
            producer_command=options.producer_command,
        )  # fmt: skip

    def _workload(self, admin: AdminClient) -> TransactionalWorkload | None:
        options = self.options
        if not options.workload:
            return None
        workload = TransactionalWorkload(
            options.workload, self.properties, options.topic,
            partitions=options.partitions, rate=options.rate, seed=options.seed,
        )  # fmt: skip
        try:
            workload.create_topics(admin, options.replication_factor, options.min_insync_replicas)
        except KafkaException as error:
            raise ChaosFailed(f"the topics of the {options.workload} could not be created: {error}") from None
        self.roles.transactional_ids = [worker.plan.name for worker in workload.workers]
        return workload

    def _prepare(self) -> AdminClient:
        """Create the topic, and wait until all its replicas are in sync."""
        options = self.options
        self.tell(f"seed {options.seed}: creating topic {options.topic}")
        settings: dict[str, Any] = {"log_level": 0, "reconnect.backoff.max.ms": 500, **self.properties}
        admin = AdminClient(settings)
        config = {"min.insync.replicas": str(options.min_insync_replicas), "unclean.leader.election.enable": "false"}
        topic = NewTopic(options.topic, options.partitions, options.replication_factor, config=config)
        reason = ["no broker responds"]

        def created() -> bool:
            try:
                admin.create_topics([topic], request_timeout=5)[options.topic].result(10)
            except KafkaException as error:
                reason[0] = error.args[0].str()
                return bool(error.args[0].name() == "TOPIC_ALREADY_EXISTS")
            return True

        def whole() -> bool:
            reason[0] = "not all of its replicas are in sync"
            return self.roles.whole()

        for condition in (created, whole):
            if not self._wait_until(condition, time.monotonic() + READY_TIMEOUT_S):
                raise ChaosFailed(f"topic {options.topic} could not be created: {reason[0]}")
        return admin

    def _break(self) -> None:
        """Apply faults until the time is up. Ctrl-C ends this early; the records are checked all the same."""
        options = self.options
        end_s = None if options.seconds is None else time.monotonic() + options.seconds
        steps = plan(list(self.faults), self.rng, options.rounds) if self.faults else iter(())
        try:
            while end_s is None or time.monotonic() < end_s:
                if not self._episode(steps):
                    break
            if end_s is not None:
                self.wait(end_s - time.monotonic())
        except KeyboardInterrupt:
            self.tell("interrupted: checking the records sent so far")

    def _episode(self, steps: Iterator[Step]) -> bool:
        """Apply some faults, and wait until all replicas are in sync again. False if no fault is left."""
        load = self.load
        assert load is not None
        chosen = list(islice(steps, 1 if self.options.overlap == 1 else self.options.overlap * FAULTS_PER_SLOT))
        if not chosen:
            return False
        with load.lock:
            load.pauses.take_s(time.monotonic())
        before = len(self.applied)
        self._overlap(chosen)
        undone_s, whole_after_s = time.monotonic(), None
        self.tell("waiting until all replicas are in sync")
        try:
            if not self._wait_until(self.roles.whole, time.monotonic() + WHOLE_TIMEOUT_S):
                raise FaultFailed(f"not all replicas were in sync again within {WHOLE_TIMEOUT_S:.0f} s")
            whole_after_s = time.monotonic() - undone_s
            self._acknowledge_more(f"after {self.applied[-1].name}", FaultFailed)
        except (FaultFailed, NodeFailed) as error:
            load.problem(f"{self.applied[-1].name}: {error}")
        with load.lock:
            pause_s = load.pauses.take_s(time.monotonic())
        for applied in self.applied[before:]:
            applied.pause_s, applied.whole_after_s = pause_s, whole_after_s
        self.wait(CALM_S)
        return True

    def _overlap(self, steps: list[Step]) -> None:
        """Run all of these faults."""
        overlap = Overlap(map(self._planned, steps), self.options.overlap, self.rng)
        try:
            while overlap.tick(time.monotonic()):
                self.wait(TICK_S)
        finally:
            overlap.close()

    def _planned(self, step: Step) -> Planned:
        load, fault = self.load, self.faults[step.name]
        assert load is not None
        applied = Applied(step.name, 0.0)
        least_s, most_s = fault.hold_s

        def begin() -> Steps:
            applied.at_s = self.elapsed_s
            self.applied.append(applied)
            return fault.run(self, least_s + (most_s - least_s) * step.share)

        def done(what: str) -> None:
            applied.what, applied.end_s = what, self.elapsed_s

        def failed(error: str) -> None:
            applied.end_s = self.elapsed_s
            load.problem(f"{step.name}: {error}")

        return Planned(begin, fault.alone, done, failed)

    def _acknowledge_more(self, when: str, failure: type[Exception]) -> None:
        """Wait for some acknowledgements on every partition, so that the next fault happens under load."""
        load = self.load
        assert load is not None
        goal = load.ledger.counts.acknowledged + CALM_RECORDS
        self.doing = f"waiting for acknowledgements {when}"
        if not self._wait_until(
            lambda: load.ledger.counts.acknowledged >= goal or load.stop_sending.is_set(),
            time.monotonic() + WHOLE_TIMEOUT_S,
        ):
            reasons = [f"nothing was acknowledged {when} within {WHOLE_TIMEOUT_S:.0f} s", *load.problems]
            raise failure("; ".join(reasons))

    # ---- the account

    def _account(self, load: Load) -> Verdict | None:
        self.tell("producers stopped; waiting for the last acknowledgements")
        load.stop_sending.set()
        if not self._wait_until(lambda: load.ledger.pending == 0, time.monotonic() + FLUSH_TIMEOUT_S):
            load.problem(f"{load.ledger.pending} records were neither acknowledged nor refused")
        self.tell("waiting until the readers have read everything")
        try:
            ends = load.ends()
        except KafkaException as error:
            load.problem(f"the end offsets of the partitions cannot be read: {error.args[0].str()}")
            return None
        if not self._wait_until(lambda: load.caught_up(ends), time.monotonic() + READ_TIMEOUT_S):
            load.problem(f"the readers did not reach the end within {READ_TIMEOUT_S:.0f} s")
        load.stop()
        self.tell("reading everything once more, from the beginning")
        try:
            return load.ledger.judge(load.stored(ends), lambda: load.stamps(ends))
        except KafkaException as error:
            load.problem(f"the topic cannot be read: {error.args[0].str()}")
            return None

    def _remove(self, admin: AdminClient) -> None:
        names = [self.options.topic, *(self.workload.topics if self.workload is not None else ())]
        for name, future in admin.delete_topics(names, request_timeout=REQUEST_TIMEOUT_S).items():
            try:
                future.result(REQUEST_TIMEOUT_S)
            except KafkaException:
                self.tell(f"topic {name} could not be deleted")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
