"""From the log to the state: transactions, slices, and what is answered meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable
from struct import pack
from typing import Any

from coordinators.host.toy import Bench, ToyPartition, said
from penstock.coordinators.host import State
from penstock.coordinators.loading import RECORDS_PER_STEP, SLICE_MS, replay_batches
from penstock.sim import SimRuntime, World
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.records import ControlRecordType, Record, build_batch, control_key

PRODUCER, EPOCH = 7, 3


def run(scenario: Any) -> None:
    with World(0) as world:
        world.execute(scenario)


def batch(*pairs: tuple[bytes | None, bytes | None], **options: Any) -> bytes:
    return build_batch([Record(timestamp=1, key=key, value=value) for key, value in pairs], **options)


def marker(kind: ControlRecordType, producer_id: int = PRODUCER) -> bytes:
    record = Record(timestamp=1, key=control_key(kind), value=pack(">hi", 0, 0))
    return build_batch([record], producer_id=producer_id, producer_epoch=EPOCH, transactional=True, control=True)


def transactional(*pairs: tuple[bytes | None, bytes | None], producer_id: int = PRODUCER) -> bytes:
    return batch(*pairs, producer_id=producer_id, producer_epoch=EPOCH, base_sequence=0, transactional=True)


async def loaded(runtime: SimRuntime, *batches: bytes) -> Bench:
    partition = ToyPartition()
    for one in batches:
        partition.append(one)
    bench = Bench(runtime, partition)
    await bench.host.load(partition)
    return bench


def test_the_newest_value_of_every_key_is_there() -> None:
    async def main(runtime: SimRuntime) -> None:
        bench = await loaded(
            runtime,
            batch((b"a", b"1"), (b"b", b"2")),
            batch((b"a", None), (b"c", b"3"), codec=Codec.ZSTD),
            batch((b"b", b"4"), (None, b"of nobody")),
        )
        assert bench.shard.values == {b"b": b"4", b"c": b"3"}
        assert bench.shard.replayed == [(offset, -1, -1) for offset in range(5)]
        assert bench.shard.is_loaded
        assert bench.host.state is State.ACTIVE

    run(main)


def test_what_a_transaction_wrote_comes_with_its_producer_and_shows_with_its_marker() -> None:
    async def main(runtime: SimRuntime) -> None:
        bench = await loaded(
            runtime,
            transactional((b"a", b"1")),
            transactional((b"b", b"2"), producer_id=8),
            batch((b"c", b"3"), producer_id=9, producer_epoch=0, base_sequence=0),
            marker(ControlRecordType.COMMIT),
            marker(ControlRecordType.ABORT, 8),
            transactional((b"d", b"4")),
        )
        assert bench.shard.values == {b"a": b"1", b"c": b"3"}
        assert bench.shard.open == {PRODUCER: [(b"d", b"4")]}
        # An idempotent producer is no transaction.
        assert bench.shard.replayed == [(0, PRODUCER, EPOCH), (1, 8, EPOCH), (2, -1, -1), (5, PRODUCER, EPOCH)]

    run(main)


def test_a_log_that_begins_within_a_batch_is_replayed_from_there() -> None:
    async def main(runtime: SimRuntime) -> None:
        shard = Bench(runtime).shard
        data = batch((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
        assert list(replay_batches(shard, data + data[:40], 2)) == [3]
        assert shard.values == {b"c": b"3"}
        assert list(replay_batches(shard, data, 3)) == []

    run(main)


def test_a_log_may_have_nothing_at_its_end() -> None:
    """After compaction."""

    async def main(runtime: SimRuntime) -> None:
        partition = ToyPartition()
        partition.append(batch((b"a", b"1")))
        bench = Bench(runtime, partition)
        partition.fixed_end = 6
        await bench.host.load(partition)
        assert bench.host.state is State.ACTIVE
        assert bench.shard.values == {b"a": b"1"}

    run(main)


class CostlyLoop:
    """Time passes with the records that were replayed: 0.2 ms each."""

    def __init__(self, runtime: SimRuntime) -> None:
        self._runtime = runtime
        self.bench: Bench | None = None
        self.held_ms: list[float] = []
        self._began_ms = 0.0
        self.while_loading: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def now_ms(self) -> float:
        spent = 0 if self.bench is None else len(self.bench.shard.replayed)
        return self._runtime.now_ms() + spent * 0.2

    def sleep(self, delay_ms: float) -> Awaitable[None]:
        self.held_ms.append(self.now_ms() - self._began_ms)
        self._began_ms = self.now_ms()
        assert self.bench is not None
        self.while_loading.append(said(self.bench.get("k1")))
        return self._runtime.sleep(delay_ms)


def test_loading_gives_the_loop_back_and_answers_meanwhile_that_it_is_under_way() -> None:
    async def main(runtime: SimRuntime) -> None:
        partition = ToyPartition()
        pairs = [(f"k{number}".encode(), b"v") for number in range(1000)]
        partition.append(batch(*pairs[:900]))
        partition.append(batch(*pairs[900:]))
        bench = Bench(runtime, partition)
        loop = CostlyLoop(runtime)
        bench.new_host(loop)
        loop.bench = bench
        loop._began_ms = loop.now_ms()
        await bench.host.load(partition)
        # 200 ms of work. A slice ends at the first look at the clock after its time.
        assert len(loop.held_ms) >= 10
        assert max(loop.held_ms) <= SLICE_MS + RECORDS_PER_STEP * 0.2
        assert set(loop.while_loading) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        assert said(bench.get("k1")) == "v"

    run(main)


def test_a_host_that_resigns_while_it_loads_stops_to_load() -> None:
    async def main(runtime: SimRuntime) -> None:
        partition = ToyPartition()
        partition.append(batch((b"a", b"1")))
        bench = Bench(runtime, partition)
        read = partition.read

        async def resign_meanwhile(offset: int, end_offset: int) -> bytes:
            bench.host.resign()
            return await read(offset, end_offset)

        partition.read = resign_meanwhile  # type: ignore[method-assign]
        await bench.host.load(partition)
        assert bench.host.state is State.CLOSED
        assert not bench.shard.is_loaded
        assert said(bench.get("a")) == ErrorCode.NOT_COORDINATOR
        assert bench.failures == []

    run(main)


def test_a_log_that_cannot_be_replayed_is_told_and_served_by_nobody() -> None:
    async def main(runtime: SimRuntime) -> None:
        partition = ToyPartition()
        partition.append(batch((b"a", b"1")))
        damaged = bytearray(partition.batches[0])
        damaged[-1] ^= 1
        partition.batches[0] = bytes(damaged)
        bench = Bench(runtime, partition)
        await bench.host.load(partition)
        assert len(bench.failures) == 1
        assert not bench.host.has_served
        assert said(bench.get("a")) == ErrorCode.NOT_COORDINATOR

    run(main)
