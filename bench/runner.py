"""Takes the samples: sides in turn, warmed up, on brokers that are shared or fresh, all of them gone at the end."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException

from bench.client import Client, Load, LoadFailed
from bench.model import Case, Outcome, Sample, Side
from bench.payloads import RECORD_BYTES, write_payloads
from bench.topics import create_topics, delete_topic
from support.apache_kafka import ApacheKafka, KafkaToolFailed
from support.penstock import PenstockServer
from support.server_process import ServerFailed, ServerProcess

WORK = Path(__file__).with_name("work")

# A deleted topic's files go a second later instead of a minute, on both sides: pages of one sample that are not yet
# written to disk must not be written during the next.
SHARED_PROPERTIES = {"log.segment.delete.delay.ms": "1000"}

_WARMUP_TOPIC = "bench-warmup"
# Messages, and how many of them to a batch.
_WARMUP_LOADS = ((400_000, 1000), (200_000, 16), (20_000, 1))
_WARMUP_S = {Side.PENSTOCK: 5, Side.KAFKA: 40}
_WARMUP_PARTITIONS = 4

_FAILURES = (ServerFailed, LoadFailed, KafkaToolFailed, KafkaException, OSError)


@dataclass(frozen=True, slots=True)
class Options:
    """`penstock` is the command to measure; `sides` those that can run here."""

    penstock: Sequence[str]
    sides: Sequence[Side]
    pairs: int = 5
    quick: bool = False


class Bench:
    """Holds what the cases share, for as long as the `with` block lasts."""

    def __init__(self, options: Options) -> None:
        self.options = options
        WORK.mkdir(exist_ok=True)
        self.directory = Path(tempfile.mkdtemp(prefix="run-", dir=WORK))
        self._shared: dict[Side, ServerProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop_shared()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    @cached_property
    def client(self) -> Client:
        """The load generator, compiled when it is first asked for."""
        payloads = self.directory / "payloads"
        write_payloads(payloads)
        return Client(payloads, RECORD_BYTES)

    @property
    def client_kind(self) -> str:
        """What the load comes from, for the record."""
        return self.client.kind

    def scaled(self, count: int) -> int:
        """A volume, or the eighth of it that a quick look takes."""
        return max(1, count // 8) if self.options.quick else count

    def sides(self, case: Case) -> list[Side]:
        return [side for side in case.sides if side in self.options.sides]

    def run(self, case: Case, on_step: Callable[[str], None]) -> Outcome:
        """All samples of one case. A side that fails drops out; the others go on."""
        if not case.under_load:
            self.stop_shared()
        outcome = Outcome(case, case.settings(self))
        prepared: list[Side] = []
        try:
            for side in self.sides(case):
                on_step(f"{side.value}: preparing")
                prepared.append(side)
                self._guarded(outcome, side, case.prepare)
            for turn in range(-case.warmup_samples, self.options.pairs):
                for side in self.sides(case):
                    if side in outcome.failures:
                        continue
                    on_step(f"{side.value}: {'warm-up' if turn < 0 else f'{turn + 1} of {self.options.pairs}'}")
                    sample = self._guarded(outcome, side, case.sample)
                    if sample is not None and turn >= 0:
                        outcome.samples.setdefault(side, []).append(sample)
        finally:
            for side in prepared:
                self._clean_up(outcome, side)
        return outcome

    def shared(self, side: Side) -> ServerProcess | None:
        """The warmed-up broker of a side; None for the mock, which lives in the client."""
        if side is Side.MOCK:
            return None
        if side not in self._shared:
            broker = self._new(side, SHARED_PROPERTIES)
            self._shared[side] = broker
            broker.start()
            self._warm_up(side, broker)
        return self._shared[side]

    def stop_shared(self) -> None:
        while self._shared:
            _, broker = self._shared.popitem()
            broker.close()

    @contextmanager
    def standing_in(self, side: Side, broker: ServerProcess) -> Iterator[None]:
        """Has the cases under load meet this broker instead of the shared one."""
        usual = self._shared.pop(side, None)
        self._shared[side] = broker
        try:
            yield
        finally:
            del self._shared[side]
            if usual is not None:
                self._shared[side] = usual

    @contextmanager
    def fresh(
        self, side: Side, properties: Mapping[str, str] | None = None, command: Sequence[str] | None = None
    ) -> Iterator[ServerProcess]:
        """A new broker, formatted but not started."""
        broker = self._new(side, properties or {}, command)
        try:
            broker.format()
            yield broker
        finally:
            broker.close()

    def _new(self, side: Side, properties: Mapping[str, str], command: Sequence[str] | None = None) -> ServerProcess:
        if side is Side.PENSTOCK:
            return PenstockServer(properties, directory=self.directory, command=command or self.options.penstock)
        assert side is Side.KAFKA, f"{side} is no server"
        return ApacheKafka(directory=self.directory, properties=properties)

    def _warm_up(self, side: Side, broker: ServerProcess) -> None:
        """Sends and reads for long enough that the JVM has compiled what is hot; a quick look halves that."""
        create_topics(broker.bootstrap, {_WARMUP_TOPIC: _WARMUP_PARTITIONS})
        end_s = time.monotonic() + _WARMUP_S[side] / (2 if self.options.quick else 1)
        for count, batch_messages in itertools.cycle(_WARMUP_LOADS):
            batches = {"batch.num.messages": str(batch_messages)}
            self.client.run(Load("produce", _WARMUP_TOPIC, messages=count, properties=batches), broker.bootstrap, None)
            consume = Load("consume", _WARMUP_TOPIC, messages=count, partitions=_WARMUP_PARTITIONS)
            self.client.run(consume, broker.bootstrap, None)
            if time.monotonic() > end_s:
                break
        delete_topic(broker, _WARMUP_TOPIC)

    def _clean_up(self, outcome: Outcome, side: Side) -> None:
        if side in outcome.failures and outcome.case.under_load:
            # Whatever ails the shared broker, the next case gets a new one.
            if side in self._shared:
                self._shared.pop(side).close()
            return
        with suppress(*_FAILURES):
            outcome.case.clean_up(self, side)

    def _guarded(self, outcome: Outcome, side: Side, step: Callable[[Bench, Side], Sample | None]) -> Sample | None:
        if side in outcome.failures:
            return None
        try:
            return step(self, side)
        except _FAILURES as failure:
            outcome.failures[side] = f"{type(failure).__name__}: {failure}"
            return None
