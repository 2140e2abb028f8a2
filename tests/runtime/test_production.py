"""How a real process starts, stops and dies. Each test runs a small program of its own."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from asyncio import BaseTransport, BufferedProtocol
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime import production
from penstock.runtime.exits import EXIT_BUG, EXIT_INTERRUPTED, EXIT_STORAGE
from penstock.runtime.production import ProductionRuntime


def start(body: str, root: Path) -> subprocess.Popen[str]:
    program = textwrap.dedent(
        """
        import errno, os, sys
        from penstock.runtime import production

        async def main(runtime):
        {body}

        if __name__ == "__main__":
            print("result:", production.run(main, root=sys.argv[1]), flush=True)
        """
    ).format(body=textwrap.indent(textwrap.dedent(body), "    "))
    script = root / "program.py"
    script.write_text(program)
    return subprocess.Popen(
        [sys.executable, str(script), str(root / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_to_end(body: str, root: Path) -> tuple[int, str, str]:
    with start(body, root) as process:
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err


def test_a_storage_error_ends_the_process_with_its_reason(tmp_path: Path) -> None:
    code, out, err = run_to_end(
        """
        try:
            runtime.fatal("cannot sync the log", OSError(errno.EIO, "input/output error"))
        finally:
            print("unwound")
        """,
        tmp_path,
    )
    assert code == EXIT_STORAGE
    assert "cannot sync the log" in err
    assert "unwound" not in out


def test_a_background_task_that_fails_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    code, out, err = run_to_end(
        """
        async def broken():
            raise ValueError("a bug")

        runtime.spawn(broken(), "the cleaner")
        while not runtime.unhandled_errors:
            await runtime.sleep(1)
        return "still here"
        """,
        tmp_path,
    )
    assert code == 0
    assert out == "result: still here\n"
    assert "background task 'the cleaner' failed" in err
    assert "a bug" in err


def test_a_background_task_under_which_the_disk_fails_ends_the_process(tmp_path: Path) -> None:
    code, out, err = run_to_end(
        """
        async def broken():
            raise OSError(errno.EIO, "input/output error")

        runtime.spawn(broken(), "the cleaner")
        await runtime.sleep(10_000)
        """,
        tmp_path,
    )
    assert code == EXIT_STORAGE
    assert "the disk failed under 'the cleaner'" in err
    assert "result" not in out


def test_an_essential_task_that_fails_ends_the_process(tmp_path: Path) -> None:
    code, out, err = run_to_end(
        """
        async def broken():
            raise ValueError("a bug")

        runtime.spawn_essential(broken(), "the cleaner")
        await runtime.sleep(10_000)
        """,
        tmp_path,
    )
    assert code == EXIT_BUG
    assert "the cleaner" in err
    assert "a bug" in err
    assert "result" not in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_the_program_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    body = """
        stopped = runtime.future()
        runtime.on_stop(lambda: stopped.set_result("stopped"))
        print("ready", flush=True)
        return await stopped
        """
    with start(body, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert out == "result: stopped\n"


def test_a_stop_asked_for_before_anyone_listens_is_not_lost(tmp_path: Path) -> None:
    code, out, _ = run_to_end(
        """
        import signal
        os.kill(os.getpid(), signal.SIGTERM)
        await runtime.sleep(20)
        stopped = runtime.future()
        runtime.on_stop(lambda: stopped.set_result("stopped"))
        return await stopped
        """,
        tmp_path,
    )
    assert (code, out) == (0, "result: stopped\n")


def test_a_second_interrupt_ends_a_process_that_does_not_stop(tmp_path: Path) -> None:
    body = """
        runtime.on_stop(lambda: print("stopping", flush=True))
        print("ready", flush=True)
        await runtime.sleep(60_000)
        """
    with start(body, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == EXIT_INTERRUPTED


def test_settling_keeps_old_objects_from_the_collector(tmp_path: Path) -> None:
    code, out, _ = run_to_end(
        """
        import gc
        runtime.settle()
        return gc.get_freeze_count() > 1000
        """,
        tmp_path,
    )
    assert (code, out) == (0, "result: True\n")


def test_a_stall_of_the_loop_is_measured(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> None:
        runtime.loop_stalls()
        end_ms = runtime.now_ms() + 250
        while runtime.now_ms() < end_ms:
            pass
        await runtime.sleep(1)
        stalls = runtime.loop_stalls()
        assert stalls.max_ms > 100
        assert max(stalls.samples_ms) == stalls.max_ms
        assert runtime.loop_stalls().max_ms < 100

    production.run(main, root=str(tmp_path))


def test_jobs_run_in_a_process_of_low_priority_that_is_replaced_when_it_dies(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> None:
        assert await runtime.job("os:getpriority", os.PRIO_PROCESS, 0) >= 10
        assert (await runtime.job("signal:getitimer", signal.ITIMER_REAL))[1] > 0, "it offers the processor often"
        first = await runtime.job("os:getpid")
        assert first != os.getpid()
        with pytest.raises(Exception, match="terminated abruptly"):
            await runtime.job("os:_exit", 1)
        assert await runtime.job("os:getpid") not in (first, os.getpid())

    production.run(main, root=str(tmp_path))


def test_a_process_without_jobs_ends_and_the_next_job_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(production, "JOB_IDLE_S", 0.05)

    async def main(runtime: ProductionRuntime) -> None:
        first = await runtime.job("os:getpid")
        ended = os.pidfd_open(first)
        try:
            while not select.select([ended], [], [], 0)[0]:
                await runtime.sleep(10)
        finally:
            os.close(ended)
        assert await runtime.job("os:getpid") != first

    production.run(main, root=str(tmp_path))


def test_a_job_does_not_outlive_a_killed_broker(tmp_path: Path) -> None:
    body = """
        print(await runtime.job("os:getpid"), flush=True)
        runtime.job("time:sleep", 60)
        await runtime.sleep(60_000)
        """
    with start(body, tmp_path) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        descriptor = os.pidfd_open(worker)
        try:
            process.kill()
            process.communicate(timeout=30)
            assert _wait_for_exit(descriptor)
        finally:
            os.close(descriptor)


def _wait_for_exit(pid_descriptor: int) -> bool:
    import select

    readable, _, _ = select.select([pid_descriptor], [], [], 20)
    return bool(readable)


def test_answers_are_sent_without_delay(tmp_path: Path) -> None:
    seen: list[int] = []

    class Peer(BufferedProtocol):
        def connection_made(self, transport: BaseTransport) -> None:
            connection: socket.socket = transport.get_extra_info("socket")
            seen.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        def get_buffer(self, sizehint: int) -> Any:
            return bytearray(10)

    async def main(runtime: ProductionRuntime) -> None:
        listener = await runtime.listen("127.0.0.1", 0, Peer)
        await runtime.connect("127.0.0.1", listener.port, Peer)
        while len(seen) < 2:
            await runtime.sleep(1)

    production.run(main, root=str(tmp_path))
    assert seen == [1, 1]


def test_several_connections_are_accepted_in_one_pass_of_the_loop(tmp_path: Path) -> None:
    """A loop that is busy comes round a hundred times in a second: one connection in each would be few."""
    accepted: list[Peer] = []

    class Peer(BufferedProtocol):
        def connection_made(self, transport: BaseTransport) -> None:
            accepted.append(self)

        def get_buffer(self, sizehint: int) -> Any:
            return bytearray(10)

    async def main(runtime: ProductionRuntime) -> int:
        listener = await runtime.listen("127.0.0.1", 0, Peer)
        # The loop stands still meanwhile: the kernel completes these connections by itself.
        clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(16)]
        passes = 0
        while len(accepted) < len(clients):
            await runtime.sleep(0)
            passes += 1
        for client in clients:
            client.close()
        listener.close()
        return passes

    assert production.run(main, root=str(tmp_path)) <= 6


def test_a_runtime_may_live_in_a_thread(tmp_path: Path) -> None:
    async def main(runtime: ProductionRuntime) -> str:
        stopped = runtime.future()
        runtime.on_stop(lambda: stopped.set_result("stopped"))
        runtime.request_stop()
        result: str = await stopped
        return result

    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(production.run(main, root=str(tmp_path))))
    thread.start()
    thread.join(30)
    assert results == ["stopped"]
