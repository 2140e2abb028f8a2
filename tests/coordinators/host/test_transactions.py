"""What a host does for shards that take part in transactions: batches by producer, markers, and zombies kept out."""

from __future__ import annotations

from itertools import chain
from typing import Any

from coordinators.host.toy import Bench, on_a_bench, producer, refused, said
from penstock.coordinators.host import State
from penstock.coordinators.shard import Ticket, Turn
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import ControlRecordType, parse_control_key, read_header


def shapes(bench: Bench) -> list[tuple[Any, ...]]:
    """Each batch: producer id, producer epoch, its keys, or how it ends a transaction."""
    found: list[tuple[Any, ...]] = []
    for batch in bench.partition.batches:
        header = read_header(batch)
        keys: list[Any] = [record.key for record in bench.partition.records(batch)]
        if header.is_control:
            keys = [ControlRecordType(parse_control_key(key)).name for key in keys]
        assert header.is_transactional == (header.producer_id >= 0)
        found.append((header.producer_id, header.producer_epoch, *keys))
    return found


@on_a_bench()
async def test_each_producer_has_its_own_batches_in_the_order_of_the_decisions(bench: Bench) -> None:
    asked = [
        bench.put(a="1"),
        bench.put_as(producer(5, 2), b="2"),
        bench.put_as(producer(5, 2), c="3", plain="4"),
        bench.put(d="5"),
        bench.put_as(producer(6), e="6"),
    ]
    await bench.turn_ends()
    assert [said(one) for one in asked] == ["done"] * 5
    assert shapes(bench) == [(-1, -1, b"a"), (5, 2, b"b"), (5, 2, b"c"), (-1, -1, b"plain", b"d"), (6, 0, b"e")]


@on_a_bench()
async def test_a_marker_is_a_batch_of_its_own_and_what_it_ends_is_read_back(bench: Bench) -> None:
    bench.put_as(producer(5), a="1", b="2")
    bench.put_as(producer(6), c="3")
    ended = [bench.end(producer(5), committed=True), bench.end(producer(6), committed=False)]
    await bench.turn_ends()
    assert [said(one) for one in ended] == ["done"] * 2
    assert shapes(bench) == [(5, 0, b"a", b"b"), (6, 0, b"c"), (5, 0, "COMMIT"), (6, 0, "ABORT")]
    (marker,) = bench.partition.records(bench.partition.batches[2])
    assert marker.value is not None
    assert int.from_bytes(marker.value[2:6]) == 7, "the epoch of the coordinator that sent it"
    await bench.new_host().load(bench.partition)
    assert bench.shard.values == {b"a": b"1", b"b": b"2"}
    assert bench.shard.open == {}


@on_a_bench()
async def test_two_markers_of_one_producer_are_two_batches(bench: Bench) -> None:
    bench.end(producer(5), committed=True)
    bench.end(producer(5), committed=True)
    await bench.turn_ends()
    assert shapes(bench) == [(5, 0, "COMMIT")] * 2


@on_a_bench()
async def test_a_shard_knows_the_offsets_of_what_it_writes(bench: Bench) -> None:
    bench.put(a="1", b="2")
    offsets: list[int] = []
    writer = producer(5)

    def note(turn: Turn, ticket: Ticket) -> None:
        for _ in range(2):
            offsets.append(turn.end_offset)
            turn.append_as(writer, [(b"k", b"v")])
            offsets.append(turn.end_offset)
            turn.append(b"p", b"v")

    bench.host.submit(note, refused, writer)
    await bench.turn_ends()
    keys = [*chain.from_iterable(bench.partition.keys())]
    assert offsets == [2, 3, 4, 5]
    assert [keys[offset] for offset in offsets] == ["k", "p", "k", "p"]


@on_a_bench()
async def test_a_zombie_is_refused_with_the_logs_error_and_harms_nobody(bench: Bench) -> None:
    bench.put_as(producer(5, 3), a="1")
    await bench.turn_ends()
    parked = bench.ask(bench.shard.park)
    pending = bench.put(b="2")
    open_before = {number: list(records) for number, records in bench.shard.open.items()}
    assert said(bench.put_as(producer(5, 2), a="zombie")) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert said(bench.end(producer(5, 2), committed=True)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.shard.open == open_before, "the shard was never asked"
    await bench.turn_ends()
    assert said(pending) == "done"
    assert said(parked) is None
    assert bench.host.state is State.ACTIVE
    assert bench.failures == []
    assert shapes(bench) == [(5, 3, b"a"), (-1, -1, b"b")]


@on_a_bench(commits_at_once=False)
async def test_a_zombie_is_told_from_what_its_successor_wrote_a_moment_ago(bench: Bench) -> None:
    """Nothing of it was in the log when the zombie came."""
    first = bench.put_as(producer(5, 3), a="1")
    assert said(bench.put_as(producer(5, 2), a="zombie")) == ErrorCode.INVALID_PRODUCER_EPOCH
    bench.partition.commit()
    assert said(first) == "done"


@on_a_bench()
async def test_answers_of_what_is_written_before_a_check_leave_even_if_the_check_fails(bench: Bench) -> None:
    first = bench.put_as(producer(5, 3), a="1")
    bench.put_as(producer(5, 2), a="zombie")
    assert said(first) == "done"


@on_a_bench()
async def test_an_append_that_fails_after_the_check_reloads_the_shard(bench: Bench) -> None:
    """The shard has decided, and the log has it not."""
    bench.put_as(producer(5), a="1")
    bench.partition.fails = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await bench.turn_ends()
    assert bench.host.state is State.CLOSED
    assert bench.failures == [bench.partition.fails]


@on_a_bench()
async def test_a_shard_may_write_only_for_whom_the_log_was_asked_about(bench: Bench) -> None:
    writer = producer(6)
    sneaky = bench.host.submit(lambda turn, ticket: turn.append_as(writer, []), refused, producer(5))
    assert isinstance(sneaky.error, AssertionError)
    bench.new_host().loaded()
    assert isinstance(bench.ask(lambda turn, ticket: turn.append_as(writer, [])).error, AssertionError)


@on_a_bench()
async def test_the_largest_batch_of_a_decision_must_fit_not_their_sum(bench: Bench) -> None:
    bench.partition.batch_bytes_max = 400
    fits = bench.put_as(producer(5), a="x" * 250, plain="y" * 250)
    await bench.turn_ends()
    assert said(fits) == "done"
    assert said(bench.put_as(producer(5), b="x" * 400)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.host.state is State.CLOSED


@on_a_bench()
async def test_writing_no_records_changes_nothing(bench: Bench) -> None:
    writer = producer(5)

    def mixed(turn: Turn, ticket: Ticket) -> None:
        turn.append(b"a", b"1")
        turn.append_as(writer, [])
        turn.append_as(writer, [(b"b", b"2")])
        turn.append_all([])

    bench.host.submit(mixed, refused, writer)
    bench.put_as(writer, c="3")
    await bench.turn_ends()
    assert shapes(bench) == [(-1, -1, b"a"), (5, 0, b"b"), (5, 0, b"c")]


@on_a_bench()
async def test_a_host_that_is_loading_or_closed_does_not_ask_its_log(bench: Bench) -> None:
    bench.put_as(producer(5, 3), a="1")
    await bench.turn_ends()
    bench.host.resign()
    assert said(bench.put_as(producer(5, 2), a="2")) == ErrorCode.NOT_COORDINATOR
    bench.new_host()
    assert said(bench.put_as(producer(5, 2), a="2")) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@on_a_bench()
async def test_the_leader_epoch_is_the_coordinators_epoch(bench: Bench) -> None:
    assert bench.shard.epoch == 1
    bench.partition.leader_epoch = 4
    await bench.new_host().load(bench.partition)
    assert bench.shard.epoch == 4
