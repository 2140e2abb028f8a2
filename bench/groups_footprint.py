"""Cases of rest: what groups cost that do nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bench import processes
from bench.groups_client import Connection, all_of, await_coordinator, closing, open_many, run, within
from bench.groups_members import GroupShape, join_alone, leave_classic
from bench.groups_offsets import commit_once, commit_request
from bench.groups_settings import timing
from bench.model import Better, Case, Metric, Sample, Side, Target
from bench.runner import Bench
from bench.topics import create_topics

_TOPIC = "bench-idle-groups"
_SHAPE = GroupShape("classic", 1, _TOPIC, 1, 0, 0)
_CONNECTIONS = 50
_FIRST_GROUPS = 500
_TIMEOUT_S = 600


class IdleGroups(Case):
    """Each group had a member that joined, synced and committed; it stays for good or has left."""

    warmup_samples = 0
    metrics = (
        Metric("added_rss_mb", "memory added (RSS)", "MB", Better.LOWER),
        Metric("added_pss_mb", "memory added (PSS)", "MB", Better.LOWER),
        Metric("added_kb_each", "for each group", "KB", Better.LOWER, digits=2),
        Metric("groups_per_s", "making them", "/s", Better.HIGHER, digits=0),
        Metric("cpu_percent", "CPU at rest with them", "% of a core", Better.LOWER, digits=2),
    )
    targets = (Target("added_rss_mb", 0.5, Better.LOWER), Target("groups_per_s", 1.0, Better.HIGHER))

    def __init__(self, count: int, *, empty: bool) -> None:
        self._count = count
        self._empty = empty
        self.name = f"idle-groups-{'empty' if empty else 'stable'}"
        self.title = f"{count:,} groups {'whose only member has left' if empty else 'of one member'}, one offset each"

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "groups": bench.scaled(self._count),
            "offsets_of_each": 1,
            "members_of_each": 0 if self._empty else 1,
            "groups_before_the_first_reading": bench.scaled(_FIRST_GROUPS),
            "group.initial.rebalance.delay.ms": 0,
            "settle_s": timing(bench.options.quick).settle_s,
        }

    def sample(self, bench: Bench, side: Side) -> Sample:
        settle_s = timing(bench.options.quick).settle_s
        with bench.fresh(side, {"group.initial.rebalance.delay.ms": "0"}) as broker:
            broker.start()
            create_topics(broker.bootstrap, {_TOPIC: 1})
            # The first groups bring code, connections and the offsets topic, which are the broker's and not theirs.
            self._make(broker.bootstrap, "first", bench.scaled(_FIRST_GROUPS))
            time.sleep(settle_s)
            before = processes.memory(broker.pid)
            count = bench.scaled(self._count)
            begun_s = time.monotonic()
            self._make(broker.bootstrap, "idle", count)
            elapsed_s = time.monotonic() - begun_s
            time.sleep(settle_s)
            cpu_before_s, begun_s = processes.fine_cpu_s(broker.pid), time.monotonic()
            time.sleep(settle_s)
            cpu_percent = 100 * (processes.fine_cpu_s(broker.pid) - cpu_before_s) / (time.monotonic() - begun_s)
            after = processes.memory(broker.pid)
        return {
            "added_rss_mb": after.rss_mb - before.rss_mb,
            "added_pss_mb": after.pss_mb - before.pss_mb,
            "added_kb_each": (after.rss_mb - before.rss_mb) * 1000 / count,
            "groups_per_s": count / elapsed_s,
            "cpu_percent": cpu_percent,
        }

    def _make(self, bootstrap: str, name: str, count: int) -> None:
        group_ids = [f"bench-{name}-{number}" for number in range(count)]
        run(within(_make_groups(bootstrap, group_ids, self._empty), _TIMEOUT_S))


async def _make_groups(bootstrap: str, group_ids: list[str], empty: bool) -> None:
    with closing(await open_many(bootstrap, _CONNECTIONS)) as connections:
        await await_coordinator(connections[0], group_ids[0])

        async def make_share(number: int, connection: Connection) -> None:
            for group_id in group_ids[number::_CONNECTIONS]:
                member_id, generation = await join_alone(connection, group_id, _SHAPE)
                await commit_once(connection, commit_request(group_id, _TOPIC, 1, member_id, generation))
                if empty:
                    await leave_classic(connection, group_id, [member_id])

        await all_of([make_share(number, connection) for number, connection in enumerate(connections)])
