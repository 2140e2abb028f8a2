"""The log against a plain list: any operations in any order, with crashes at any time in between."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from log.helpers import (
    History,
    Stored,
    batch,
    check_epochs,
    check_indexes,
    check_producers,
    contents,
    slice_bytes,
    stamped,
    stored,
)
from penstock.log import NEVER, IndexCache, Log, LogConfig, LogDirectory, TimeSearch
from penstock.log.tools import Problem, Severity, verify
from penstock.sim.runtime import SimRuntime
from penstock.sim.world import World
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import iter_records

T = TypeVar("T")

NAME = "topic-0"
HOST = "node"
CONFIG = LogConfig(
    segment_bytes=2_000, index_interval_bytes=200, retention_bytes=3_000, retention_ms=-1, file_delete_delay_ms=50
)
PRODUCERS = (7, 8, 9)
INDEX_CACHE_BYTES = 1_500
"""So small that indexes are dropped and loaded all the time."""

sizes = st.sampled_from((1, 20, 100, 350))
counts = st.integers(1, 5)
shares = st.floats(0, 1)


async def wait_for_ever(runtime: SimRuntime) -> None:
    await runtime.future()


class LogMachine(RuleBasedStateMachine):
    """`history` is the list. Records carry a running number, so that no two batches are equal."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.world = World(seed, guard=False)
        self.host = self.world.host(HOST)
        self.history = History()
        self.config = CONFIG
        self.epoch = 0
        self.number = 0
        self.stable_before = 0
        self.has_lost_power = False
        self.recent: dict[int, list[Stored]] = {}
        """Of each producer, the batches that the log must remember."""
        self.start()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()

    # ---- a process, and what it does

    def start(self) -> None:
        self.process = self.host.start(wait_for_ever)
        self.runtime = self.process.runtime
        self.directory = LogDirectory(self.runtime, cache=IndexCache(INDEX_CACHE_BYTES))
        self.do(self.directory.load())
        self.log: Log = self.do(self.directory.open(NAME, self.config))

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = self.process.loop.create_task(coroutine)
        self.world.run_until(task.done)
        result: T = task.result()
        return result

    def label(self) -> str:
        self.number += 1
        return str(self.number)

    def took(self, records: memoryview, producer_id: int = -1) -> None:
        taken = stored(bytes(records))
        self.history.batches += taken
        if producer_id >= 0:
            self.recent[producer_id] = [*self.recent.get(producer_id, []), *taken][-5:]

    def forget_all_but_the_last(self) -> None:
        """The producer state that a log must have after it was truncated or reopened."""
        self.recent = {}
        for one in self.history.batches:
            if one.header.producer_id >= 0 and one.first >= self.log.segments[0].base_offset:
                self.recent[one.header.producer_id] = [one]

    # ---- writing

    @rule(count=counts, size=sizes, codec=st.sampled_from(Codec), age_ms=st.integers(-1000, 1000))
    def append(self, count: int, size: int, codec: Codec, age_ms: int) -> None:
        wall_ms = self.runtime.wall_ms()
        records = batch(count, size=size, codec=codec, timestamp=wall_ms - age_ms, label=self.label())
        expected = stamped(records, self.history.end, self.epoch)
        appended = self.log.writer.append_leader(records, self.epoch, wall_ms)
        assert bytes(records) == expected
        assert appended == (self.history.end, self.history.end + count - 1, -1, False)
        self.took(records)

    @rule(producer_id=st.sampled_from(PRODUCERS), count=counts, new_epoch=st.booleans())
    def append_idempotent(self, producer_id: int, count: int, new_epoch: bool) -> None:
        known = self.log.producers.get(producer_id)
        epoch, sequence = (0, 0) if known is None else (known.epoch, known.last_sequence + 1)
        if new_epoch and known is not None:
            epoch, sequence = epoch + 1, 0
        wall_ms = self.runtime.wall_ms()
        records = batch(
            count, timestamp=wall_ms, producer_id=producer_id, epoch=epoch, sequence=sequence, label=self.label()
        )
        appended = self.log.writer.append_leader(records, self.epoch, wall_ms)
        assert not appended.duplicate
        if new_epoch:
            self.recent.pop(producer_id, None)
        self.took(records, producer_id)

    @precondition(lambda self: self.recent)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.recent)))
        original = data.draw(st.sampled_from(self.recent[producer_id]))
        records = memoryview(bytearray(stamped(memoryview(original.data), 0, -1)))
        appended = self.log.writer.append_leader(records, self.epoch, self.runtime.wall_ms())
        assert appended == (original.first, original.next - 1, -1, True)

    @precondition(lambda self: self.recent)
    @rule(data=st.data(), gap=st.integers(1, 3))
    def skip_a_sequence(self, data: st.DataObject, gap: int) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.recent)))
        entry = self.log.producers.get(producer_id)
        assert entry is not None
        records = batch(producer_id=producer_id, epoch=entry.epoch, sequence=entry.last_sequence + 1 + gap)
        with pytest.raises(KafkaError) as refused:
            self.log.writer.append_leader(records, self.epoch, self.runtime.wall_ms())
        assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(counts=st.lists(counts, min_size=1, max_size=4), cut=st.booleans())
    def follow(self, counts: list[int], cut: bool) -> None:
        """Append as a follower: several batches at once, possibly with an incomplete one."""
        data = b""
        offset = self.history.end
        for count in counts:
            data += stamped(batch(count, timestamp=self.runtime.wall_ms(), label=self.label()), offset, self.epoch)
            offset += count
        rest = stamped(batch(3), offset, self.epoch)[:80] if cut else b""
        appended = self.log.writer.append_follower(memoryview(bytearray(data + rest)))
        assert appended == (self.history.end, offset - 1, -1, False)
        self.took(memoryview(data))

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.writer.roll()

    @rule()
    def flush(self) -> None:
        self.do(self.history.flush(self.log))

    @rule(messages=st.sampled_from((1, 3, NEVER)), ms=st.sampled_from((0, 10, NEVER)))
    def set_flush(self, messages: int, ms: int) -> None:
        self.config = self.log.config = msgspec.structs.replace(CONFIG, flush_messages=messages, flush_ms=ms)
        self.stable_before = self.log.stable_end

    @rule(ms=st.sampled_from((1.0, 5.0, 100.0)))
    def wait(self, ms: float) -> None:
        self.world.run(ms)

    # ---- taking away

    @rule(share=shares)
    def truncate(self, share: float) -> None:
        low = self.log.segments[0].base_offset
        offset = low + int(share * (self.history.end - low))
        self.do(self.history.truncate(self.log, offset))
        self.forget_all_but_the_last()
        self.epoch = max(self.epoch, self.log.latest_epoch)

    @rule(distance=st.integers(0, 20))
    def start_afresh(self, distance: int) -> None:
        offset = self.history.end + distance
        self.do(self.log.trimmer.truncate_fully_and_start_at(offset))
        self.history = History(base=offset, durable=offset, start=offset)
        self.recent = {}

    @rule(share=shares)
    def delete_records(self, share: float) -> None:
        offset = self.log.start_offset + int(share * (self.log.end_offset - self.log.start_offset))
        self.log.trimmer.advance_start_offset(offset)
        self.history.start = offset

    @rule(share=shares)
    def retain(self, share: float) -> None:
        upto = self.log.start_offset + int(share * (self.log.end_offset - self.log.start_offset))
        self.do(self.log.trimmer.retain(self.runtime.wall_ms(), upto))
        assert self.log.start_offset <= max(upto, self.history.start)
        self.history.start = self.log.start_offset

    # ---- ends and beginnings

    @rule()
    def checkpoint(self) -> None:
        self.do(self.directory.checkpoint())

    @rule(at_once=st.booleans())
    def stop_cleanly(self, at_once: bool) -> None:
        self.do(self.directory.close())
        self.host.kill()
        if at_once:
            self.host.power_loss()
            self.has_lost_power = True
        # A power loss may spoil what is not synced because it can be rebuilt: indexes, and snapshots without producers.
        problems = self.examine()
        assert [problem for problem in problems if problem.severity is Severity.ERROR] == []
        assert self.has_lost_power or problems == []
        self.history.durable = self.history.end
        start = self.history.start
        self.start()
        assert self.directory.is_clean
        assert self.log.start_offset == start
        self.look_at_everything(power_loss=False)

    @rule()
    def be_killed(self) -> None:
        self.host.kill()
        self.start()
        self.look_at_everything(power_loss=False)

    @rule()
    def lose_power(self) -> None:
        self.host.power_loss()
        self.has_lost_power = True
        self.start()
        self.look_at_everything(power_loss=True)

    def examine(self) -> list[Problem]:
        self.process = self.host.start(wait_for_ever)
        found = [problem for problem in verify(self.process.runtime.disk, NAME) if isinstance(problem, Problem)]
        self.host.kill()
        return found

    def look_at_everything(self, *, power_loss: bool) -> None:
        self.do(self.history.check(self.log, power_loss=power_loss))
        self.history.start = self.log.start_offset
        self.forget_all_but_the_last()
        self.epoch = max(self.epoch, self.log.latest_epoch)

    # ---- reading

    @precondition(lambda self: self.log.end_offset > self.log.start_offset)
    @rule(share=shares, upto_share=shares, max_bytes=st.sampled_from((0, 60, 300, 5000)), min_one=st.booleans())
    def read(self, share: float, upto_share: float, max_bytes: int, min_one: bool) -> None:
        log = self.log
        span = log.end_offset - log.start_offset
        offset = log.start_offset + int(share * (span - 1))
        upto = log.start_offset + int(upto_share * span)
        found = log.reader.try_read(offset, max_bytes, upto, min_one=min_one)
        if found is None:
            found = self.do(log.reader.read(offset, max_bytes, upto, min_one=min_one))
        data = self.do(_bytes_of(found))
        batches = stored(data)
        wanted = [one for one in self.history.batches if one.next > offset and one.next <= upto]
        assert batches == wanted[: len(batches)]
        assert sum(len(one.data) for one in batches[1:]) < max(max_bytes, 1)
        if wanted and (min_one or len(wanted[0].data) <= max_bytes):
            assert batches, "at least one batch"
        if not min_one:
            assert len(data) <= max_bytes
        if batches:
            assert found.first_offset == batches[0].first
            assert found.next_offset in (-1, batches[-1].next)

    @rule(beyond=st.integers(1, 5))
    def read_beyond(self, beyond: int) -> None:
        for offset in (self.log.end_offset + beyond, self.log.start_offset - beyond):
            with pytest.raises(KafkaError) as refused:
                self.log.reader.try_read(offset, 100, self.log.end_offset)
            assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(share=shares, shift=st.integers(-1, 1))
    def find_time(self, share: float, shift: int) -> None:
        records = [
            record
            for one in self.history.batches
            for record in iter_records(one.data)
            if record.offset >= self.log.start_offset
        ]
        if not records:
            return
        timestamp = records[int(share * (len(records) - 1))].timestamp + shift
        first = next((record for record in records if record.timestamp >= timestamp), None)
        found = self.do(TimeSearch(self.log).offset_for_timestamp(timestamp, self.log.end_offset))
        if first is None:
            assert found is None
        else:
            assert found is not None
            assert (found.offset, found.timestamp) == (first.offset, first.timestamp)

    @rule()
    def read_it_all(self) -> None:
        self.do(self.look())

    async def look(self) -> None:
        expected = [one for one in self.history.batches if one.next > self.log.start_offset]
        assert await contents(self.log) == expected
        check_epochs(self.log, expected)
        check_producers(self.log, self.history.batches)
        await check_indexes(self.log, expected)
        if expected:
            last = expected[-1]
            assert await slice_bytes(self.log, last.next - 1) == last.data

    @invariant()
    def offsets_are_in_order(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            assert log.start_offset <= log.end_offset == self.history.end
            assert log.durable_end <= log.stable_end <= log.end_offset
            if log.config.flush_messages == 1 or log.config.flush_ms == 0:
                assert log.stable_end - self.stable_before <= 0 or log.stable_end == log.durable_end
            self.stable_before = log.stable_end
            files = [self.host.disk.content(segment.path(".log")) for segment in log.segments if segment.has_file]
            assert log.size_bytes == sum(map(len, files))


async def _bytes_of(found: Any) -> bytes:
    return await found.file.pread(found.size, found.position) if found.size else b""


TestLogAgainstAList = LogMachine.TestCase
# To shrink a failure takes a while.
TestLogAgainstAList.pytestmark = [pytest.mark.timeout(600)]  # type: ignore[attr-defined]
TestLogAgainstAList.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
