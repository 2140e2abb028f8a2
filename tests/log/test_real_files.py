"""The log on real files: what the simulated disk stands for."""

from __future__ import annotations

from pathlib import Path

from log.compaction_helpers import compact, keyed, living, newest, records
from log.helpers import batch, contents
from penstock.log import Log, LogConfig, LogDirectory
from penstock.log.tools import Problem, verify
from penstock.runtime.production import ProductionRuntime, run
from penstock.wire.compression import Codec

CONFIG = LogConfig(segment_bytes=4_000, index_interval_bytes=500, file_delete_delay_ms=1, retention_ms=-1)
NAMES = [f"topic-{number}" for number in range(3)]


async def opened(runtime: ProductionRuntime) -> LogDirectory:
    directory = LogDirectory(runtime)
    await directory.load()
    await directory.open_all(dict.fromkeys(NAMES, CONFIG), lambda log: None)
    return directory


def fill(directory: LogDirectory, count: int = 50) -> None:
    for name in NAMES:
        log = directory.logs[name]
        known = log.producers.get(5)
        sequence = 0 if known is None else known.last_sequence + 1
        for number in range(count):
            wall_ms = log.runtime.wall_ms()
            records = batch(2, size=90, timestamp=wall_ms, producer_id=5, epoch=0, sequence=sequence + 2 * number)
            log.writer.append_leader(records, 0, wall_ms)


def test_a_life_of_logs_on_real_files(tmp_path: Path) -> None:
    root = str(tmp_path)

    async def write(runtime: ProductionRuntime) -> None:
        directory = await opened(runtime)
        fill(directory)
        for log in directory.logs.values():
            await log.flush()
            assert log.durable_end == log.end_offset == 100
            assert len(await contents(log)) == 50
        await directory.close()

    async def go_on(runtime: ProductionRuntime) -> None:
        directory = await opened(runtime)
        assert directory.is_clean
        assert runtime.disk.descriptors_open == 0
        first, second, third = (directory.logs[name] for name in NAMES)
        assert len(await contents(first)) == 50
        await second.trimmer.truncate_to(33)
        third.trimmer.advance_start_offset(50)
        third.config = LogConfig(retention_bytes=0, segment_bytes=4_000, file_delete_delay_ms=1)
        assert await third.trimmer.retain(runtime.wall_ms(), 60) == 2
        fill(directory, 5)
        await directory.checkpoint()
        # The process ends here without a word.

    async def recover(runtime: ProductionRuntime) -> None:
        directory = await opened(runtime)
        assert not directory.is_clean
        first, second, third = (directory.logs[name] for name in NAMES)
        assert [log.damage for log in directory.logs.values()] == [(), (), ()]
        assert (first.end_offset, second.end_offset, third.end_offset) == (108, 42, 110)
        assert third.start_offset >= 50
        for log in directory.logs.values():
            batches = await contents(log)
            assert batches[-1].next == log.end_offset
            retry = batch(2, size=90, producer_id=5, epoch=0, sequence=batches[-1].header.base_sequence)
            assert log.writer.append_leader(retry, 0, runtime.wall_ms()).duplicate
        await directory.close()
        for name in NAMES:
            assert not [found for found in verify(runtime.disk, name) if isinstance(found, Problem)]
        await directory.delete(NAMES[0])
        assert NAMES[0] not in directory.names()

    run(write, root=root)
    run(go_on, root=root)
    newest = max((tmp_path / NAMES[0]).glob("*.log"))
    newest.write_bytes(newest.read_bytes()[:-10])
    run(recover, root=root)


def test_compaction_of_real_files_in_a_real_subprocess(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy="compact", segment_bytes=40_000, index_interval_bytes=500, file_delete_delay_ms=1)

    async def write(runtime: ProductionRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", config)
        wall_ms = runtime.wall_ms()
        for number in range(1_000):
            pairs = [(b"%d" % (number % 50), b"%d" % number * 30), (b"gone", None)]
            made = keyed(
                pairs, timestamp=wall_ms, codec=list(Codec)[number % 5], producer_id=5, epoch=0, sequence=2 * number
            )
            log.writer.append_leader(made, number // 300, wall_ms)
        log.writer.roll()
        await log.flush()
        held = await log.reader.read(0, 1 << 20, log.end_offset)
        held.file.retain()
        old = await held.file.pread(held.size, held.position)
        done = await compact(log)
        assert done is not None
        assert done.bytes_after < done.bytes_before / 5
        assert await held.file.pread(held.size, held.position) == old
        held.file.release()
        await check(log)
        log.writer.append_leader(keyed([(b"more", b"1")], timestamp=wall_ms), 4, wall_ms)
        # The process ends here without a word.

    async def check(log: Log) -> None:
        found = await records(log)
        assert living(newest(found)) == {b"%d" % (n % 50): b"%d" % n * 30 for n in range(950, 1_000)} | (
            {b"more": b"1"} if log.end_offset > 2_000 else {}
        )
        entry = log.producers.get(5)
        assert entry is not None
        assert entry.last_sequence == 1_999

    async def recover(runtime: ProductionRuntime) -> None:
        directory = LogDirectory(runtime)
        await directory.load()
        log = await directory.open("topic-0", config)
        assert log.damage == ()
        await check(log)
        log.writer.roll()
        await log.flush()
        await compact(log)
        await check(log)
        await directory.close()
        assert not [found for found in verify(runtime.disk, "topic-0", records=True) if isinstance(found, Problem)]

    run(write, root=str(tmp_path))
    run(recover, root=str(tmp_path))
    assert not [name for name in (tmp_path / "topic-0").iterdir() if name.suffix in (".cleaned", ".swap")]
