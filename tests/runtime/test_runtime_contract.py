"""What both runtimes promise about time, tasks and off-loop work."""

from __future__ import annotations

import errno
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest

from penstock.runtime import Runtime
from penstock.runtime.tasks import keep_running

RunOn = Callable[..., Any]


def double(value: int) -> int:
    return value * 2


def fail(message: str) -> None:
    raise ValueError(message)


def test_the_result_and_the_error_of_the_main_program_reach_the_caller(run_on: RunOn) -> None:
    async def succeed(runtime: Runtime) -> int:
        return 42

    async def fail(runtime: Runtime) -> None:
        raise LookupError("from main")

    assert run_on(succeed) == 42
    with pytest.raises(LookupError, match="from main"):
        run_on(fail)


def test_timers_fire_in_the_order_of_their_times(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> list[str]:
        fired: list[str] = []
        runtime.call_later(30, fired.append, "late")
        runtime.call_later(10, fired.append, "early")
        runtime.call_later(20, fired.append, "cancelled").cancel()
        runtime.call_soon(fired.append, "soon")
        runtime.call_soon(fired.append, "sooner, but cancelled").cancel()
        began_ms = runtime.now_ms()
        await runtime.sleep(40)
        assert runtime.now_ms() - began_ms >= 39
        return fired

    assert run_on(main) == ["soon", "early", "late"]


def test_callbacks_run_in_the_order_of_the_calls(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> list[int]:
        order: list[int] = []
        for number in range(100):
            runtime.call_soon(order.append, number)
        await runtime.sleep(0)
        await runtime.sleep(0)
        return order

    assert run_on(main) == list(range(100))


def test_wall_time_is_of_this_century_and_whole(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> int:
        return runtime.wall_ms()

    wall_ms = run_on(main)
    assert isinstance(wall_ms, int)
    assert 1_600_000_000_000 < wall_ms < 4_000_000_000_000


def test_uuids_are_random_and_fit_for_command_lines(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> list[bytes]:
        return [runtime.uuid() for _ in range(500)]

    uuids = run_on(main)
    assert len(set(uuids)) == 500
    for uuid in uuids:
        assert len(uuid) == 16
        assert uuid[6] >> 4 == 4
        assert uuid[8] >> 6 == 2
        assert not urlsafe_b64encode(uuid).startswith(b"-")


def test_a_future_is_awaited_by_whoever_holds_it(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> str:
        future = runtime.future()
        runtime.call_later(5, future.set_result, "done")
        result: str = await future
        return result

    assert run_on(main) == "done"


def test_a_task_that_is_awaited_may_fail(run_on: RunOn) -> None:
    async def broken(runtime: Runtime) -> None:
        await runtime.sleep(1)
        raise ValueError("expected")

    async def main(runtime: Runtime) -> str:
        try:
            await runtime.spawn(broken(runtime), "broken")
        except ValueError as error:
            await runtime.sleep(10)
            return str(error)
        return "no error"

    assert run_on(main) == "expected"


def test_a_task_that_nobody_awaits_may_fail_and_is_counted(run_on: RunOn) -> None:
    async def broken(runtime: Runtime) -> None:
        await runtime.sleep(1)
        raise ConnectionResetError("a peer's, so not the disk's")

    async def main(runtime: Runtime) -> int:
        tolerate_errors(runtime)
        runtime.spawn(broken(runtime), "broken")
        while not runtime.unhandled_errors:
            await runtime.sleep(1)
        return runtime.unhandled_errors

    assert run_on(main) == 1


def test_work_that_is_kept_running_is_begun_again_until_it_succeeds(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> tuple[int, int]:
        tolerate_errors(runtime)
        attempts = 0

        async def work() -> None:
            nonlocal attempts
            attempts += 1
            if attempts < 3:
                raise LookupError("not yet")

        await keep_running(runtime, work, "work")
        return attempts, runtime.unhandled_errors

    assert run_on(main) == (3, 2)


def tolerate_errors(runtime: Runtime) -> None:
    world = getattr(runtime, "world", None)
    if world is not None:
        world.tolerate_errors = True


def test_a_cancelled_task_is_no_failure(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> bool:
        task = runtime.spawn(_sleep_long(runtime), "sleeper")
        await runtime.sleep(1)
        task.cancel()
        await runtime.sleep(10)
        return task.cancelled()

    assert run_on(main) is True


async def _sleep_long(runtime: Runtime) -> None:
    await runtime.sleep(3_600_000)


def test_background_tasks_end_with_the_main_program(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> str:
        runtime.spawn(_sleep_long(runtime), "sleeper")
        await runtime.sleep(1)
        return "ended"

    assert run_on(main) == "ended"


def test_offloaded_work_returns_or_raises(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> int:
        with pytest.raises(ValueError, match="from a thread"):
            await runtime.offload(fail, "from a thread")
        return await runtime.offload(double, 21)

    assert run_on(main) == 42


def test_jobs_return_or_raise(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> int:
        with pytest.raises(ZeroDivisionError):
            await runtime.job("operator:floordiv", 1, 0)
        result: int = await runtime.job("math:comb", 5, 2)
        return result

    assert run_on(main) == 10


def test_loop_stalls_are_told_once(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> None:
        stalls = runtime.loop_stalls()
        assert stalls.max_ms >= 0
        assert all(sample_ms >= 0 for sample_ms in stalls.samples_ms)
        assert list(runtime.loop_stalls().samples_ms) == []

    run_on(main)


def test_an_oserror_keeps_its_number_through_a_future(run_on: RunOn) -> None:
    async def main(runtime: Runtime) -> int | None:
        try:
            await runtime.offload(_raise_eio)
        except OSError as error:
            return error.errno
        return None

    assert run_on(main) == errno.EIO


def _raise_eio() -> None:
    raise OSError(errno.EIO, "input/output error")
