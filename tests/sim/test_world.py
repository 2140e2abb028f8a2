"""Virtual time, processes and what befalls them."""

from __future__ import annotations

import asyncio

import pytest

from penstock.sim import Deadlock, Livelock, ProcessEnded, SimRuntime, UnhandledError, World, run


async def forever(runtime: SimRuntime) -> None:
    await runtime.future()


def test_an_hour_of_virtual_time_takes_no_time() -> None:
    async def main(runtime: SimRuntime) -> float:
        began_ms = runtime.now_ms()
        for _ in range(60):
            await runtime.sleep(60_000)
        return runtime.now_ms() - began_ms

    assert run(main, limit_ms=4_000_000) == pytest.approx(3_600_000)


def test_waiting_for_what_never_comes_is_found() -> None:
    with pytest.raises(Deadlock, match="node#1 main"):
        run(forever)


def test_running_without_end_is_found() -> None:
    async def main(runtime: SimRuntime) -> None:
        runtime.call_soon(spin, runtime)
        await runtime.future()

    def spin(runtime: SimRuntime) -> None:
        runtime.call_soon(spin, runtime)

    with pytest.raises(Livelock, match="node#1"):
        run(main)


def test_taking_too_long_is_found() -> None:
    async def main(runtime: SimRuntime) -> None:
        while True:
            await runtime.sleep(100)

    with pytest.raises(TimeoutError):
        run(main, limit_ms=10_000)


def test_an_error_in_a_callback_fails_the_run() -> None:
    async def main(runtime: SimRuntime) -> None:
        runtime.call_soon(int, "not a number")
        await runtime.sleep(1)

    with pytest.raises(UnhandledError, match="not a number"):
        run(main)


def test_an_error_of_a_program_in_the_background_fails_the_run() -> None:
    async def broken(runtime: SimRuntime) -> None:
        raise LookupError("a bug")

    world = World()
    world.host("a").start(broken)
    world.run(10)
    with pytest.raises(UnhandledError, match="a bug"):
        world.__exit__(None, None, None)


@pytest.mark.parametrize("error", [ValueError("a bug"), OSError("the disk")])
def test_an_essential_task_that_fails_is_fatal(error: Exception) -> None:
    async def broken(runtime: SimRuntime) -> None:
        raise error

    async def main(runtime: SimRuntime) -> None:
        runtime.spawn_essential(broken(runtime), "the cleaner")
        await runtime.sleep(1000)

    with pytest.raises(ProcessEnded, match="the cleaner"):
        run(main)


def test_a_background_task_under_which_the_disk_fails_is_fatal() -> None:
    async def broken(runtime: SimRuntime) -> None:
        raise OSError("the disk")

    async def main(runtime: SimRuntime) -> None:
        runtime.spawn(broken(runtime), "the cleaner")
        await runtime.sleep(1000)

    with pytest.raises(ProcessEnded, match="the cleaner"):
        run(main)


def test_a_background_task_that_fails_by_a_bug_fails_the_run_unless_the_test_expects_it() -> None:
    async def broken(runtime: SimRuntime) -> None:
        raise ValueError("a bug")

    async def main(runtime: SimRuntime) -> str:
        runtime.spawn(broken(runtime), "the cleaner")
        await runtime.sleep(1000)
        return "still here"

    with pytest.raises(UnhandledError, match="the cleaner"):
        run(main)


def test_fatal_ends_the_process_there_and_then() -> None:
    happened: list[str] = []

    async def main(runtime: SimRuntime) -> None:
        runtime.call_soon(happened.append, "later")
        runtime.fatal("no way on", OSError("broken"))
        happened.append("after")  # type: ignore[unreachable,unused-ignore]

    with World() as world:
        host = world.host("a")
        host.start(main)
        world.run(10)
        assert host.process is not None
        assert host.process.is_dead
        assert [exit.reason for exit in host.exits] == ["fatal: no way on"]
        assert isinstance(host.exits[0].error, OSError)
    assert happened == []


def test_a_killed_process_runs_nothing_more_not_even_finally() -> None:
    happened: list[str] = []

    async def main(runtime: SimRuntime) -> None:
        try:
            while True:
                happened.append("tick")
                await runtime.sleep(10)
        finally:
            happened.append("finally")

    world = World()
    host = world.host("a")
    host.start(main)
    world.run(35)
    host.kill()
    world.run(1000)
    assert happened == ["tick"] * 4
    world.close()


def test_a_killed_process_starts_again_with_its_page_cache_and_after_power_loss_without() -> None:
    async def main(runtime: SimRuntime) -> None:
        file = runtime.disk.open("count", create=True)
        runtime.disk.lock("")
        file.pwrite(b"x", file.size())
        await runtime.future()

    with World(seed=5) as world:
        host = world.host("a")
        host.start(main)
        for _ in range(3):
            world.run(10)
            host.kill()
            host.restart(delay_ms=5)
        world.run(10)
        assert host.disk.content("count") == b"xxxx"
        host.power_loss()
        assert host.disk.namespace.find("count") is None or len(host.disk.content("count")) <= 4
        assert not host.is_powered
        host.restart()
        world.run(1)
        assert host.is_powered
        assert [exit.reason for exit in host.exits] == ["killed"] * 3 + ["power loss"]


def test_a_paused_process_is_late_and_loses_nothing() -> None:
    ticks: list[float] = []

    async def main(runtime: SimRuntime) -> None:
        for number in range(10):
            runtime.call_later(10 * (number + 1), lambda: ticks.append(runtime.world.now_ms))
        await runtime.future()

    with World() as world:
        host = world.host("a")
        host.start(main)
        world.run(35)
        assert len(ticks) == 3
        host.pause()
        world.run(1000)
        assert len(ticks) == 3
        host.resume()
        world.run(1)
        assert len(ticks) == 10


def test_stop_is_sigterm() -> None:
    async def main(runtime: SimRuntime) -> None:
        stopped = runtime.future()
        runtime.on_stop(lambda: stopped.set_result(None))
        await stopped
        runtime.disk.open("clean", create=True)

    with World() as world:
        host = world.host("a")
        process = host.start(main)
        world.run(10)
        assert not process.is_dead
        host.stop()
        host.stop()
        world.run(10)
        assert process.is_dead
        assert host.disk.content("clean") == b""


def test_clocks_of_hosts_differ_jump_and_drift() -> None:
    async def main(runtime: SimRuntime) -> tuple[float, int, float]:
        began_ms, began_wall_ms, began_world_ms = runtime.now_ms(), runtime.wall_ms(), runtime.world.now_ms
        runtime.host.jump_wall_clock(-60_000)
        await runtime.sleep(1000)
        return runtime.now_ms() - began_ms, runtime.wall_ms() - began_wall_ms, runtime.world.now_ms - began_world_ms

    with World() as world:
        world.host("a").clock_rate = 1.25
        passed_ms, wall_ms, world_ms = world.execute(main, host="a")
        assert passed_ms == pytest.approx(1000)
        assert world_ms == pytest.approx(800)
        assert wall_ms == pytest.approx(800 - 60_000, abs=2)


def test_timeouts_of_asyncio_work_in_virtual_time() -> None:
    async def main(runtime: SimRuntime) -> str:
        try:
            async with asyncio.timeout(30):
                await runtime.future()
        except TimeoutError:
            pass
        try:
            await asyncio.wait_for(runtime.future(), 30)
        except TimeoutError:
            return "in time"
        return "never"

    assert run(main) == "in time"


def test_several_programs_talk_about_one_world() -> None:
    async def ask(runtime: SimRuntime) -> str:
        return runtime.host.name

    with World() as world:
        assert [world.execute(ask, host=name) for name in ("a", "b", "a")] == ["a", "b", "a"]
        assert list(world.hosts) == ["a", "b"]
