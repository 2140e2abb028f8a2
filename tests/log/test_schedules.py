"""Schedules that once broke the log, or would if one line were missing. Most were found by `test_model` and shrunk.

Each runs with several seeds of the disk.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from log.test_model import LogMachine
from penstock.log import NEVER
from penstock.wire.compression import Codec

SEEDS = range(8)


def append(log: LogMachine, count: int = 1, size: int = 20) -> None:
    log.append(count=count, size=size, codec=Codec.NONE, age_ms=0)


def idempotent(log: LogMachine, producer_id: int = 7, *, new_epoch: bool = False) -> None:
    log.append_idempotent(producer_id=producer_id, count=1, new_epoch=new_epoch)


def names_made_by_a_killed_process(log: LogMachine) -> None:
    """The next process synced the records, but not the directory that the first had created."""
    append(log)
    log.be_killed()
    log.flush()
    log.lose_power()


def a_segment_made_by_a_killed_process(log: LogMachine) -> None:
    """A clean stop recorded a segment whose name was never synced."""
    append(log)
    log.flush()
    log.roll()
    log.be_killed()
    log.stop_cleanly(at_once=True)
    log.read_it_all()


def a_snapshot_made_by_a_killed_process(log: LogMachine) -> None:
    """A clean stop relied on a snapshot that it had not written itself."""
    idempotent(log)
    log.flush()
    log.roll()
    log.be_killed()
    log.stop_cleanly(at_once=True)


def a_flush_while_another_is_under_way(log: LogMachine) -> None:
    """A running sync completed flushes that were requested after it had started."""
    idempotent(log)
    log.set_flush(messages=1, ms=NEVER)
    append(log, 2)
    log.stop_cleanly(at_once=True)


def epochs_of_deleted_records(log: LogMachine) -> None:
    """The start offset moved back after a crash, and the epoch of the reappearing records was gone."""
    log.follow(counts=[1, 2, 2], cut=False)
    log.delete_records(share=0.5)
    log.flush()
    log.be_killed()


def a_time_index_that_was_thought_to_be_complete(log: LogMachine) -> None:
    """Records appended after a clean start were considered already indexed."""
    log.follow(counts=[4], cut=False)
    log.truncate(share=0.0)
    log.stop_cleanly(at_once=False)
    log.follow(counts=[4], cut=False)
    log.roll()
    log.flush()
    log.checkpoint()
    log.be_killed()
    log.find_time(share=0.0, shift=1)


def deleted_records_whose_successors_are_lost(log: LogMachine) -> None:
    """The log continued at the start offset, which was then no longer saved."""
    idempotent(log)
    log.flush()
    append(log, 3)
    log.delete_records(share=0.8)
    log.checkpoint()
    log.lose_power()
    log.retain(share=0.1)
    log.checkpoint()
    log.roll()
    log.be_killed()


def a_truncation_of_a_log_that_nobody_wrote_to(log: LogMachine) -> None:
    """A clean stop considered the log unchanged."""
    idempotent(log)
    log.follow(counts=[1], cut=False)
    log.stop_cleanly(at_once=False)
    log.truncate(share=0.5)
    log.stop_cleanly(at_once=False)


def an_index_that_was_synced_with_nobody(log: LogMachine) -> None:
    """A segment was durable before it was rolled, so the recovery point covered an index that was not durable."""
    idempotent(log)
    append(log)
    log.stop_cleanly(at_once=False)
    log.truncate(share=0.5)
    log.roll()
    log.be_killed()
    log.stop_cleanly(at_once=True)
    log.find_time(share=0.0, shift=0)


def an_index_lost_after_a_clean_stop(log: LogMachine) -> None:
    """The index was closed with its segment as if it existed."""
    log.follow(counts=[2, 2, 4, 1], cut=False)
    log.stop_cleanly(at_once=True)
    log.roll()
    log.be_killed()
    log.stop_cleanly(at_once=True)
    log.follow(counts=[4], cut=False)
    log.be_killed()
    log.lose_power()
    log.stop_cleanly(at_once=False)
    log.find_time(share=0.0, shift=-1)


def entries_beyond_a_clean_stop(log: LogMachine) -> None:
    """Entries of lost records stayed in an index that was trusted up to the last clean stop."""
    append(log, 3)
    append(log, 3, 100)
    append(log, 3, 100)
    log.stop_cleanly(at_once=False)
    for _ in range(6):
        append(log, 3, 100)
    log.roll()
    log.lose_power()
    for _ in range(3):
        append(log, 2)
    log.stop_cleanly(at_once=False)
    log.read_it_all()
    log.find_time(share=0.9, shift=0)


def a_log_that_was_cut_and_grew_to_the_size_it_had(log: LogMachine) -> None:
    """The entry of the last clean stop matches the sizes but is wrong."""
    for _ in range(4):
        append(log)
    log.stop_cleanly(at_once=False)
    log.truncate(share=0.5)
    log.new_leader()
    append(log)
    append(log)
    log.flush()
    log.checkpoint()
    log.be_killed()


def a_snapshot_of_a_tail_that_was_cut(log: LogMachine) -> None:
    """It lists producers that did not write the records now in the log."""
    idempotent(log, 7)
    idempotent(log, 7)
    log.stop_cleanly(at_once=False)
    log.truncate(share=0.3)
    for _ in range(3):
        idempotent(log, 8)
    log.flush()
    log.checkpoint()
    log.be_killed()


SCHEDULES: list[Callable[[LogMachine], None]] = [
    names_made_by_a_killed_process,
    a_segment_made_by_a_killed_process,
    a_snapshot_made_by_a_killed_process,
    a_flush_while_another_is_under_way,
    epochs_of_deleted_records,
    a_time_index_that_was_thought_to_be_complete,
    deleted_records_whose_successors_are_lost,
    a_truncation_of_a_log_that_nobody_wrote_to,
    an_index_that_was_synced_with_nobody,
    an_index_lost_after_a_clean_stop,
    entries_beyond_a_clean_stop,
    a_log_that_was_cut_and_grew_to_the_size_it_had,
    a_snapshot_of_a_tail_that_was_cut,
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.__name__)
def test_the_log_survives_schedules_that_once_broke_it(schedule: Callable[[LogMachine], None]) -> None:
    for seed in SEEDS:
        machine = LogMachine()
        machine.begin(seed=seed)
        try:
            schedule(machine)
            machine.read_it_all()
        finally:
            machine.teardown()
