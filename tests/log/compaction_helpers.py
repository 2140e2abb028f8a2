"""Helpers of the compaction tests: keyed batches, compacting a log, and reading it as a table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import pairwise

from log.helpers import WALL_MS, Stored, open_log, simulate, slice_bytes, stored
from penstock.log import UNCHECKED, Log, LogConfig
from penstock.log.compaction import Compacted, Compaction, cleanable
from penstock.sim.runtime import SimRuntime
from penstock.wire.compression import Codec
from penstock.wire.records import Record, TimestampType, build_batch, iter_records

MAP_BYTES = 1 << 20

Pair = tuple[bytes, bytes | None]

CONFIG = LogConfig(
    cleanup_policy="compact",
    segment_bytes=1_000,
    index_interval_bytes=150,
    delete_retention_ms=60_000,
    file_delete_delay_ms=5,
)


def on_a_log(check: Callable[[Log], Awaitable[None]], config: LogConfig = CONFIG) -> None:
    async def main(runtime: SimRuntime) -> None:
        await check(await open_log(runtime, config))

    simulate(main)


def append(log: Log, *pairs: Pair, **options: object) -> None:
    wall_ms = log.runtime.wall_ms()
    log.writer.append_leader(keyed(pairs, timestamp=wall_ms, **options), 0, wall_ms, verification=UNCHECKED)  # type: ignore[arg-type]


async def closed(log: Log) -> None:
    """Close the active segment, and wait until it is durable."""
    log.writer.roll()
    await log.flush()


def keyed(
    pairs: Iterable[Pair],
    *,
    timestamp: int = WALL_MS,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> memoryview:
    """A batch of keys and values, a millisecond apart."""
    records = [
        Record(timestamp=timestamp + number, key=key, value=value, headers=(("h", b"x"),))
        for number, (key, value) in enumerate(pairs)
    ]
    return memoryview(
        bytearray(
            build_batch(
                records,
                codec=codec,
                timestamp_type=timestamp_type,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
            )
        )
    )


async def compact(log: Log, *, map_bytes: int = MAP_BYTES, upto: int | None = None) -> Compacted | None:
    """Run a compaction if anything can be compacted."""
    extent = await cleanable(log, log.end_offset if upto is None else upto, log.runtime.wall_ms())
    if not extent.cleanable_bytes:
        return None
    return await Compaction(log, extent, map_bytes=map_bytes).run()


async def batches_of(log: Log, max_bytes: int = 700) -> list[Stored]:
    """All batches of a log that may have gaps, read as a consumer does: each read continues after the last batch."""
    batches: list[Stored] = []
    offset = log.start_offset
    while offset < log.end_offset:
        found = stored(await slice_bytes(log, offset, max_bytes))
        assert found, f"nothing at offset {offset} of {log}"
        assert found[0].next > offset
        batches += found
        assert found[-1].next > offset
        offset = found[-1].next
    assert all(one.next <= two.first for one, two in pairwise(batches))
    return batches


def records_of(batches: Iterable[Stored]) -> list[Record]:
    return [record for one in batches for record in iter_records(one.data)]


async def records(log: Log) -> list[Record]:
    return [record for record in records_of(await batches_of(log)) if record.offset >= log.start_offset]


def newest(found: Iterable[Record]) -> dict[bytes, bytes | None]:
    """The table that a reader builds: the last value of each key."""
    table: dict[bytes, bytes | None] = {}
    for record in found:
        assert record.key is not None
        table[record.key] = record.value
    return table


def living(table: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in sorted(table.items()) if value is not None}
