"""Compaction against a model: any sequence of appends, rolls, time, compactions, retention and crashes.

The model has every record that was ever appended. It checks the log: a reader from the start builds the table that the
records define; every remaining record is at its offset; and the state of idempotent producers is unchanged.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from log.compaction_helpers import Pair, batches_of, compact, keyed, living, newest, records
from log.helpers import check_indexes, simulate
from penstock.log import Log, LogConfig, LogDirectory
from penstock.log.compaction_job import MAP_ENTRY_BYTES
from penstock.log.tools import Severity, Verdict, verify
from penstock.sim.disk import SimDisk
from penstock.sim.runtime import SimRuntime
from penstock.wire.compression import Codec
from penstock.wire.records import Record

NAME = "topic-0"
KEYS = [b"a", b"b", b"c", b"a-longer-key-that-is-only-known-by-its-digest"]
PAIRS = st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=60)))
DELETE_RETENTION_MS = 200

CONFIGS = st.builds(
    LogConfig,
    cleanup_policy=st.sampled_from(["compact", "compact,delete"]),
    segment_bytes=st.sampled_from([600, 1_000, 4_000]),
    segment_index_bytes=st.sampled_from([64, 10 << 20]),
    index_interval_bytes=st.sampled_from([0, 150, 4_096]),
    delete_retention_ms=st.just(DELETE_RETENTION_MS),
    min_compaction_lag_ms=st.sampled_from([0, 50]),
    timestamp_type=st.sampled_from(["CreateTime", "LogAppendTime"]),
    retention_ms=st.just(-1),
    retention_bytes=st.sampled_from([-1, 3_000]),
    file_delete_delay_ms=st.just(5),
)


class Compacted(RuleBasedStateMachine):
    """Each rule runs as one process, from a clean start to a clean stop or a crash."""

    @initialize(config=CONFIGS, seed=st.integers(0, 1 << 30))
    def begin(self, config: LogConfig, seed: int) -> None:
        self.config = config
        self.disk = SimDisk(seed)
        self.seed = seed
        self.appended: list[Pair] = []
        self.timestamps: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.last_offsets: dict[int, int] = {}
        self.elapsed_ms = 0
        self.start = 0
        self.lives = 0

    @rule(
        batches=st.lists(
            st.tuples(
                st.lists(PAIRS, min_size=1, max_size=6),
                st.sampled_from([-1, 1, 2]),
                st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
                st.booleans(),
            ),
            min_size=1,
            max_size=12,
        ),
        compactions=st.integers(0, 2),
        keys_max=st.sampled_from([2, 1_000]),
        retains=st.booleans(),
        pause_ms=st.sampled_from([0, 60, 300]),
        end=st.sampled_from(["clean", "kill", "power loss"]),
    )
    def live(
        self,
        batches: list[tuple[list[Pair], int, Codec, bool]],
        compactions: int,
        keys_max: int,
        retains: bool,
        pause_ms: int,
        end: str,
    ) -> None:
        async def life(runtime: SimRuntime) -> None:
            directory = LogDirectory(runtime)
            await directory.load()
            log = await directory.open(NAME, self.config)
            await self.check(log)
            for pairs, producer_id, codec, rolls in batches:
                self.append(log, pairs, producer_id, codec)
                if rolls:
                    log.writer.roll()
            await log.flush()
            await runtime.sleep(pause_ms)
            for _ in range(compactions):
                await compact(log, map_bytes=keys_max * MAP_ENTRY_BYTES)
                await self.check(log)
            if retains:
                await log.trimmer.retain(runtime.wall_ms(), log.end_offset)
                self.start = max(self.start, log.start_offset)
                await directory.checkpoint()
            if end == "clean":
                await directory.close()
                problems = [
                    found for found in verify(runtime.disk, NAME, records=True)
                    if not isinstance(found, Verdict) and found.severity is Severity.ERROR
                ]  # fmt: skip
                assert problems == []

        self.lives += 1
        simulate(life, self.disk, seed=self.seed + self.lives)
        if end != "clean":
            self.disk.restart(power_loss=end == "power loss")

    @invariant()
    def is_what_it_was(self) -> None:
        if not getattr(self, "appended", None):
            return

        async def look(runtime: SimRuntime) -> None:
            directory = LogDirectory(runtime)
            await directory.load()
            await self.check(await directory.open(NAME, self.config))

        simulate(look, self.disk, seed=self.seed)
        self.disk.restart(power_loss=False)

    def append(self, log: Log, pairs: list[Pair], producer_id: int, codec: Codec) -> None:
        wall_ms = log.runtime.wall_ms()
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        data = keyed(
            pairs, timestamp=wall_ms, codec=codec, producer_id=producer_id,
            epoch=0 if producer_id >= 0 else -1, sequence=sequence,
        )  # fmt: skip
        done = log.writer.append_leader(data, 0, wall_ms)
        assert done.first_offset == len(self.appended)
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(pairs)
            self.last_offsets[producer_id] = done.last_offset
        for number in range(len(pairs)):
            time_ms = done.log_append_time_ms if done.log_append_time_ms >= 0 else wall_ms + number
            self.timestamps[len(self.appended) + number] = time_ms
        self.appended += pairs

    async def check(self, log: Log) -> None:
        assert log.damage == ()
        assert log.end_offset == len(self.appended)
        found = await records(log)
        self.check_table(found, log.start_offset)
        for record in found:
            assert self.appended[record.offset] == (record.key, record.value)
            assert self.timestamps[record.offset] == record.timestamp
        for producer_id, sequence in self.sequences.items():
            entry = log.producers.get(producer_id)
            if entry is None:
                # Retention has taken all that it wrote; as in Kafka a recovery then does not know it.
                assert self.last_offsets[producer_id] < log.start_offset
            else:
                assert entry.last_sequence == sequence - 1
        await check_indexes(log, await batches_of(log))

    def check_table(self, found: list[Record], start_offset: int) -> None:
        """Keys that are not deleted have their last value, unless retention removed it."""
        last = {key: offset for offset, (key, _) in enumerate(self.appended)}
        expected = {key: self.appended[offset][1] for key, offset in last.items() if offset >= start_offset}
        table = newest(found)
        assert living({key: table.get(key) for key in expected}) == living(expected)
        for key, value in table.items():
            if key in expected:
                assert value == expected[key]


TestCompacted = Compacted.TestCase
TestCompacted.settings = settings(
    max_examples=60, stateful_step_count=6, deadline=None, suppress_health_check=list(HealthCheck)
)
