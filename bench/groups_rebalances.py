"""Cases of rebalances: how long until a group is stable, and what that costs the coordinator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from bench import processes
from bench.groups_client import run
from bench.groups_members import GroupShape, connected
from bench.groups_settings import timing
from bench.model import Better, Case, Metric, Sample, Side, Target
from bench.runner import Bench
from bench.topics import create_topics
from support.server_process import ServerProcess, admin_client

REBALANCE_MAX_S = 30
"""No rebalance may take longer, whatever the number of members."""

_TIMEOUT_S = 120

# Of what is mostly waiting, for delays and heartbeats that both sides have in common: nothing but the noise of timers.
# The rest, which is the broker's, is compared by itself.
_AS_LONG = 1.05


class _GroupCase(Case):
    """Forms a group on the shared brokers, over a topic that all these cases share."""

    under_load = True

    def __init__(self, name: str, protocol: str, members: int, partitions: int) -> None:
        self.name = name
        self._protocol = protocol
        self._members = members
        self._partitions = partitions

    def settings(self, bench: Bench) -> Mapping[str, object]:
        shape = self._shape(bench)
        return {
            "protocol": shape.protocol,
            "members": shape.members,
            "partitions": shape.partitions,
            "group.initial.rebalance.delay.ms": timing(bench.options.quick).initial_delay_ms,
            "heartbeat_interval_ms": shape.heartbeat_interval_ms,
            "session_timeout_ms": shape.session_timeout_ms,
        }

    def prepare(self, bench: Bench, side: Side) -> None:
        bootstrap, shape = self._broker(bench, side).bootstrap, self._shape(bench)
        if shape.topic not in admin_client(bootstrap).list_topics(timeout=_TIMEOUT_S).topics:
            create_topics(bootstrap, {shape.topic: shape.partitions})

    def _broker(self, bench: Bench, side: Side) -> ServerProcess:
        broker = bench.shared(side)
        assert broker is not None
        return broker

    def _shape(self, bench: Bench) -> GroupShape:
        times = timing(bench.options.quick)
        partitions = bench.scaled(self._partitions)
        return GroupShape(
            protocol=self._protocol,
            members=max(2, bench.scaled(self._members)),
            topic=f"bench-groups-{partitions}",
            partitions=partitions,
            heartbeat_interval_ms=times.heartbeat_interval_ms,
            session_timeout_ms=times.session_timeout_ms,
        )


class Stable(_GroupCase):
    """All members come at once; when their group is stable, one of them leaves."""

    def __init__(self, protocol: str, members: int, partitions: int = 1000) -> None:
        super().__init__(f"stable-{protocol}-{members}", protocol, members, partitions)
        self.title = f"a {protocol} group of {members:,} members over {partitions:,} partitions"
        classic = protocol == "classic"
        form_busy = Metric("form_busy_ms", "of that, not waiting for latecomers", "ms", Better.LOWER)
        self.metrics = (
            Metric("form_s", "all join: first request to stable", "s", Better.LOWER, digits=3),
            *([form_busy] if classic else []),
            Metric("form_cpu_ms", "broker CPU for it", "ms", Better.LOWER),
            Metric("leave_s", "one leaves: to stable", "s", Better.LOWER, digits=3),
            Metric("leave_busy_ms", "of that, after the last heartbeat that told", "ms", Better.LOWER),
            Metric("leave_cpu_ms", "broker CPU for it", "ms", Better.LOWER),
        )
        self.targets = (
            Target("form_s", REBALANCE_MAX_S, Better.LOWER, against=None),
            Target("form_s", _AS_LONG, Better.LOWER),
            *([Target("form_busy_ms", 1.0, Better.LOWER)] if classic else []),
            Target("form_cpu_ms", 1.0, Better.LOWER),
            Target("leave_s", _AS_LONG, Better.LOWER),
            Target("leave_busy_ms", 1.0, Better.LOWER),
            Target("leave_cpu_ms", 1.0, Better.LOWER),
        )

    def sample(self, bench: Bench, side: Side) -> Sample:
        broker = self._broker(bench, side)
        return run(_form_and_shrink(broker.bootstrap, self._shape(bench), _cpu_clock(broker)))


class Killed(_GroupCase):
    """One member's connection ends without a word: from the end of its session to a stable group of the others."""

    metrics = (
        Metric("beyond_session_s", "session timeout to stable", "s", Better.LOWER, digits=3),
        Metric("busy_ms", "of that, after the last heartbeat that told", "ms", Better.LOWER),
        Metric("cpu_ms", "broker CPU, from the last heartbeat on", "ms", Better.LOWER),
    )
    targets = (
        Target("beyond_session_s", REBALANCE_MAX_S, Better.LOWER, against=None),
        Target("beyond_session_s", _AS_LONG, Better.LOWER),
        Target("busy_ms", 1.0, Better.LOWER),
        Target("cpu_ms", 1.0, Better.LOWER),
    )

    def __init__(self, protocol: str, members: int = 20, partitions: int = 1000) -> None:
        super().__init__(f"killed-{protocol}", protocol, members, partitions)
        self.title = f"one of {members} members of a {protocol} group is killed, {partitions:,} partitions"

    def sample(self, bench: Bench, side: Side) -> Sample:
        broker = self._broker(bench, side)
        return run(_form_and_kill(broker.bootstrap, self._shape(bench), _cpu_clock(broker)))


async def form_once(bootstrap: str, shape: GroupShape) -> None:
    """A group comes and goes: for warming up."""
    async with connected(bootstrap, shape) as group:
        group.start()
        await group.stable(_TIMEOUT_S)


async def _form_and_shrink(bootstrap: str, shape: GroupShape, cpu_s: Callable[[], float]) -> Sample:
    async with connected(bootstrap, shape) as group:
        cpu_before_s = cpu_s()
        group.start()
        formed_at_s = await group.stable(_TIMEOUT_S)
        form_cpu_s = cpu_s() - cpu_before_s
        form_s = formed_at_s - group.begun_s
        busy_s = group.last_identified_s - group.begun_s + formed_at_s - group.first_joined_s
        await asyncio.sleep(shape.heartbeat_interval_ms / 1000)
        begun_s, cpu_before_s = time.monotonic(), cpu_s()
        await group.leave(group.members[-1])
        stable_at_s = await group.stable(_TIMEOUT_S)
        leave_cpu_s = cpu_s() - cpu_before_s
    return {
        "form_s": form_s,
        **({"form_busy_ms": busy_s * 1000} if shape.protocol == "classic" else {}),
        "form_cpu_ms": form_cpu_s * 1000,
        "leave_s": stable_at_s - begun_s,
        "leave_busy_ms": (stable_at_s - group.last_told_s) * 1000,
        "leave_cpu_ms": leave_cpu_s * 1000,
    }


async def _form_and_kill(bootstrap: str, shape: GroupShape, cpu_s: Callable[[], float]) -> Sample:
    async with connected(bootstrap, shape) as group:
        group.start()
        await group.stable(_TIMEOUT_S)
        await asyncio.sleep(shape.heartbeat_interval_ms / 1000)
        last_beat_s = await group.kill(group.members[-1])
        cpu_before_s = cpu_s()
        stable_at_s = await group.stable(_TIMEOUT_S)
        cpu_ms = (cpu_s() - cpu_before_s) * 1000
    return {
        "beyond_session_s": stable_at_s - last_beat_s - shape.session_timeout_ms / 1000,
        "busy_ms": (stable_at_s - group.last_told_s) * 1000,
        "cpu_ms": cpu_ms,
    }


def _cpu_clock(broker: ServerProcess) -> Callable[[], float]:
    return lambda: processes.fine_cpu_s(broker.pid)
