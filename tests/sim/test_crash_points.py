"""Crashing at every operation of a workload, and again during recovery: the pattern that tests of the log use."""

from __future__ import annotations

from contextlib import suppress

import pytest

from penstock.sim import SimDisk, SimRuntime, SimulatedCrash, run


class Journal:
    """Appends numbers to a file, synced, with a checkpoint now and then, and remembers what it has promised."""

    def __init__(self) -> None:
        self.promised = 0

    async def main(self, runtime: SimRuntime) -> None:
        disk = runtime.disk
        disk.mkdir("d")
        await disk.sync_dir("")
        file = disk.open("d/log", create=True)
        await disk.sync_dir("d")
        for number in range(await self.recover(runtime), 6):
            file.pwrite(b"%d" % number, number)
            await file.sync()
            self.promised = number + 1
            if number % 2:
                await disk.replace_bytes("d/checkpoint", b"%d" % self.promised)

    async def recover(self, runtime: SimRuntime) -> int:
        file = runtime.disk.open("d/log", create=True)
        whole = 0
        for position, byte in enumerate(file.read(100, 0)):
            if byte != ord(b"%d" % position):
                break
            whole = position + 1
        assert whole >= self.promised, "a promised number is lost"
        if whole < file.size():
            file.truncate(whole)
        await file.sync()
        if runtime.disk.exists("d/checkpoint"):
            assert int(runtime.disk.read_bytes("d/checkpoint")) <= whole, "the checkpoint is ahead of the log"
        return whole


def operations_of_the_whole_workload() -> int:
    disk = SimDisk(0)
    run(Journal().main, disk=disk)
    return disk.operations


OPERATIONS = operations_of_the_whole_workload()


def test_the_workload_has_many_operations() -> None:
    assert OPERATIONS > 25


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_at_any_operation_and_during_recovery_keeps_the_promise(power_loss: bool) -> None:
    for operation in range(1, OPERATIONS + 1):
        for again in range(1, 6):
            journal = Journal()
            disk = SimDisk(operation * 10 + again)
            disk.crash_after(operation)
            with pytest.raises(SimulatedCrash):
                run(journal.main, seed=operation, disk=disk)
            disk.restart(power_loss=power_loss)
            disk.crash_after(again)
            with suppress(SimulatedCrash):
                run(journal.main, seed=operation, disk=disk)
            disk.restart(power_loss=power_loss)
            run(journal.main, seed=operation, disk=disk)
            assert disk.content("d/log") == b"012345"


def test_a_broken_promise_is_found_by_some_crash() -> None:
    """Without the sync, some acknowledged number is lost by a power loss at some operation."""
    acknowledged: list[int] = []

    async def forgetful(runtime: SimRuntime) -> None:
        file = runtime.disk.open("log", create=True)
        await runtime.disk.sync_dir("")
        for number in range(6):
            file.pwrite(b"%d" % number, number)
            acknowledged.append(number)

    lost = 0
    for operation in range(3, 9):
        acknowledged.clear()
        disk = SimDisk(operation)
        disk.crash_after(operation)
        with suppress(SimulatedCrash):
            run(forgetful, seed=operation, disk=disk)
        disk.restart(power_loss=True)
        expected = b"".join(b"%d" % number for number in acknowledged)
        lost += not disk.content("log").startswith(expected)
    assert lost > 0


def test_nothing_runs_after_the_crash() -> None:
    log: list[str] = []

    async def main(runtime: SimRuntime) -> None:
        file = runtime.disk.open("a", create=True)
        runtime.call_later(1, log.append, "timer")
        try:
            file.pwrite(b"x", 0)
        finally:
            log.append("finally")
            try:
                runtime.disk.unlink("a")
            finally:
                log.append("unlink tried")

    disk = SimDisk(0)
    disk.crash_after(2)
    with pytest.raises(SimulatedCrash):
        run(main, disk=disk)
    assert log == ["finally", "unlink tried"]
    disk.restart(power_loss=False)
    assert disk.namespace.find("a") is not None


def test_a_write_crashes_between_two_pages() -> None:
    async def main(runtime: SimRuntime) -> None:
        runtime.disk.open("a", create=True).pwrite(b"x" * 20_000, 0)

    sizes = set()
    for seed in range(50):
        disk = SimDisk(seed)
        disk.crash_after(2)
        with pytest.raises(SimulatedCrash):
            run(main, disk=disk)
        sizes.add(len(disk.content("a")))
    assert sizes <= {0, 4096, 8192, 12288, 16384, 20_000}
    assert len(sizes) > 3


def test_a_crash_in_offloaded_code_ends_the_process() -> None:
    async def main(runtime: SimRuntime) -> None:
        await runtime.offload(runtime.disk.mkdir, "a")

    disk = SimDisk(0)
    disk.crash_after(1)
    with pytest.raises(SimulatedCrash):
        run(main, disk=disk)


def test_a_cancelled_crash_does_not_happen() -> None:
    async def main(runtime: SimRuntime) -> None:
        runtime.disk.mkdir("a")

    disk = SimDisk(0)
    disk.crash_after(1)
    disk.cancel_crash()
    run(main, disk=disk)
    assert disk.operations == 1
