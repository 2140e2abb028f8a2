"""Timers that are set again and again, on a clock that leaves out the time in which the process stood still."""

from __future__ import annotations

from typing import Any

from coordinators.host.toy import Bench, said
from penstock.coordinators.shard import TimerKey, Turn
from penstock.coordinators.timers import FIRED_PER_TURN_MAX
from penstock.runtime.steady_clock import LONG_STALL_MS
from penstock.sim import SimRuntime, World


def run(scenario: Any) -> None:
    with World(0) as world:
        world.execute(scenario)


async def bench_of(runtime: SimRuntime) -> Bench:
    bench = Bench(runtime)
    bench.host.loaded()
    return bench


def test_a_timer_fires_once_in_a_turn_of_its_own() -> None:
    async def main(runtime: SimRuntime) -> None:
        bench = await bench_of(runtime)
        began_ms = runtime.now_ms()
        bench.ask(bench.shard.timer, "late", 300)
        bench.ask(bench.shard.timer, "soon", 100)
        await runtime.sleep(1000)
        assert [(name, round(at_ms - began_ms)) for name, at_ms in bench.shard.fired] == [("soon", 100), ("late", 300)]

    run(main)


def test_setting_a_timer_again_replaces_it() -> None:
    async def main(runtime: SimRuntime) -> None:
        bench = await bench_of(runtime)
        for _ in range(10):
            bench.ask(bench.shard.timer, "session", 100)
            await runtime.sleep(60)
        assert bench.shard.fired == []
        await runtime.sleep(60)
        assert len(bench.shard.fired) == 1
        bench.ask(bench.shard.timer, "session", 10_000)
        bench.ask(bench.shard.timer, "session", 10)
        await runtime.sleep(20)
        assert len(bench.shard.fired) == 2
        await runtime.sleep(20_000)
        assert len(bench.shard.fired) == 2

    run(main)


def test_heartbeats_leave_nothing_behind() -> None:
    async def main(runtime: SimRuntime) -> None:
        bench = await bench_of(runtime)
        for number in range(2000):
            bench.ask(bench.shard.timer, f"m{number % 10}", 1000)
            bench.host.decide(lambda turn, n=number: turn.cancel_timer((f"m{n % 7}",)))  # type: ignore[misc]
        timers = bench.host.timers
        assert len(timers) <= 10
        assert len(timers._heap) < 200
        await runtime.sleep(3000)
        assert (len(timers), len(timers._heap)) == (0, 0)

    run(main)


def test_a_cancelled_timer_does_not_fire_and_one_that_is_not_there_is_no_error() -> None:
    async def main(runtime: SimRuntime) -> None:
        bench = await bench_of(runtime)
        bench.ask(bench.shard.timer, "gone", 10)
        bench.host.decide(lambda turn: turn.cancel_timer(("gone",)))
        bench.host.decide(lambda turn: turn.cancel_timer(("never",)))
        await runtime.sleep(100)
        assert bench.shard.fired == []

    run(main)


def test_many_timers_at_once_are_spread_over_turns_of_the_loop() -> None:
    async def main(runtime: SimRuntime) -> None:
        bench = await bench_of(runtime)
        for number in range(200):
            bench.ask(bench.shard.timer, f"t{number}", 10)
        counts: list[int] = []
        timers: Any = bench.host.timers
        wake = timers._wake

        def counted() -> None:
            before = len(bench.shard.fired)
            wake()
            counts.append(len(bench.shard.fired) - before)

        timers._wake = counted
        timers._armed_ms = float("inf")
        timers._arm(bench.clock.now_ms())
        await runtime.sleep(11)
        assert sum(counts) == 200
        assert max(counts) <= FIRED_PER_TURN_MAX

    run(main)


def test_a_timer_may_set_itself_again() -> None:
    async def main(runtime: SimRuntime) -> None:
        bench = await bench_of(runtime)
        fired: list[float] = []

        def again(turn: Turn, key: TimerKey) -> None:
            fired.append(turn.now_ms)
            turn.append(b"tick", str(len(fired)).encode())
            turn.set_timer(("tick",), 100, again)

        bench.host.decide(lambda turn: turn.set_timer(("tick",), 100, again))
        await runtime.sleep(1050)
        assert len(fired) == 10
        assert bench.partition.end_offset == 10

    run(main)


def paused_for(duration_ms: float, *, timeout_ms: float, elapsed_ms: float) -> tuple[list[float], float]:
    """Set a timer, let time pass, stop the process; when the timer fired after that, and the clock's own reading."""
    fired: list[float] = []
    readings: list[float] = []
    with World(0) as world:

        async def stopped(runtime: SimRuntime) -> None:
            bench = await bench_of(runtime)
            began_ms = bench.clock.now_ms()
            bench.ask(bench.shard.timer, "session", timeout_ms)
            while not bench.shard.fired:
                await runtime.sleep(1)
            fired.append(runtime.now_ms())
            readings.append(bench.clock.now_ms() - began_ms)
            assert said(bench.get("x")) == "-"

        host = world.host("broker")
        process = host.start(stopped)
        world.run(elapsed_ms)
        before_ms = process.runtime.now_ms()
        host.pause()
        world.run(duration_ms)
        host.resume()
        world.run_until(lambda: process.is_dead)
        process.result()
    return [at_ms - before_ms - duration_ms for at_ms in fired], readings[0]


def test_a_process_that_stood_still_gives_everyone_their_full_time_again() -> None:
    fired_after, reading = paused_for(60_000, timeout_ms=10_000, elapsed_ms=9_000)
    assert 10_000 <= fired_after[0] < 10_600, "counted from the end of the stall"
    assert reading < 20_000, "the stall itself is not in the clock"


def test_a_short_stall_is_just_left_out() -> None:
    fired_after, _ = paused_for(LONG_STALL_MS - 500, timeout_ms=10_000, elapsed_ms=9_000)
    assert 0 <= fired_after[0] < 1_100


def test_a_busy_loop_is_no_stall() -> None:
    fired_after, reading = paused_for(200, timeout_ms=10_000, elapsed_ms=9_000)
    assert 790 <= fired_after[0] <= 810
    assert round(reading) in range(10_000, 10_003)
