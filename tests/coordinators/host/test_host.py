"""What a host promises, whatever its shard: batches, answers that wait for the high watermark, and clean ends."""

from __future__ import annotations

from typing import Any

import pytest

from coordinators.host.toy import Bench, on_a_bench, refused, said, value
from penstock.coordinators.host import PendingReply, State
from penstock.coordinators.shard import Ticket, TimerKey, Turn
from penstock.metadata import EMPTY_IMAGE, MetadataDelta
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.records import read_header


@on_a_bench()
async def test_all_that_one_turn_of_the_loop_decides_is_one_batch(bench: Bench) -> None:
    asked = [bench.put(a="1"), bench.put(b="2", c="3"), bench.put(d="4")]
    assert bench.partition.batches == []
    assert [said(one) for one in asked] == [None] * 3
    await bench.turn_ends()
    assert bench.partition.keys() == [["a", "b", "c", "d"]]
    assert [said(one) for one in asked] == ["done"] * 3
    await bench.turn_ends()
    bench.put(e="5")
    await bench.turn_ends()
    assert bench.partition.keys() == [["a", "b", "c", "d"], ["e"]]


@on_a_bench()
async def test_with_a_linger_several_turns_share_a_batch(bench: Bench) -> None:
    bench.host.linger_ms = 20
    bench.put(a="1")
    await bench.runtime.sleep(10)
    last = bench.put(b="2")
    assert bench.partition.batches == []
    await bench.runtime.sleep(11)
    assert bench.partition.keys() == [["a", "b"]]
    assert said(last) == "done"


@on_a_bench()
async def test_batches_have_the_codec_of_the_offsets_topic(bench: Bench) -> None:
    bench.host.codec = Codec.LZ4
    bench.put(a="1" * 100)
    await bench.turn_ends()
    assert read_header(bench.partition.batches[0]).codec == Codec.LZ4
    assert bench.partition.keys() == [["a"]]


@on_a_bench(commits_at_once=False)
async def test_an_answer_waits_until_the_high_watermark_passes_what_it_wrote(bench: Bench) -> None:
    first = bench.put(a="1")
    await bench.turn_ends()
    assert len(bench.partition.batches) == 1
    assert said(first) is None
    second = bench.put(b="2")
    await bench.turn_ends()
    bench.partition.high_watermark = 1
    bench.host.on_high_watermark()
    assert (said(first), said(second)) == ("done", None)
    bench.partition.commit()
    assert said(second) == "done"
    assert bench.host.waiting == 0


@on_a_bench(commits_at_once=False)
async def test_a_mere_read_waits_for_what_it_saw(bench: Bench) -> None:
    bench.put(a="1")
    read = bench.get("a")
    await bench.turn_ends()
    assert said(read) is None
    bench.partition.commit()
    assert said(read) == "1"
    assert said(bench.get("a")) == "1", "there is nothing to wait for any more"


@on_a_bench(commits_at_once=False)
async def test_what_was_loaded_is_not_told_before_it_is_committed(bench: Bench) -> None:
    bench.put(a="1")
    await bench.turn_ends()
    bench.host.resign()
    host = bench.new_host()
    await host.load(bench.partition)
    read = bench.get("a")
    await bench.turn_ends()
    assert said(read) is None
    bench.partition.commit()
    assert said(read) == "1"


@on_a_bench()
async def test_answers_may_come_in_a_later_turn_and_wait_for_that_turns_writes(bench: Bench) -> None:
    bench.partition.commits_at_once = False
    parked = [bench.ask(bench.shard.park) for _ in range(3)]
    assert bench.host.waiting == 3
    bench.put(a="1")
    last = bench.ask(bench.shard.unpark)
    await bench.turn_ends()
    assert [said(one) for one in (*parked, last)] == [None] * 4
    bench.partition.commit()
    assert [said(one) for one in (*parked, last)] == ["released"] * 3 + ["done"]


@on_a_bench()
async def test_who_gets_an_answer_may_ask_again_at_once(bench: Bench) -> None:
    """As a connection does with the frames that wait behind the one that was answered."""
    answers: list[Any] = []

    def again(asked: PendingReply) -> None:
        answers.append(said(asked))
        if len(answers) < 300:
            bench.put(**{f"k{len(answers)}": "x"}).then(again)

    bench.put(k0="x").then(again)
    for _ in range(1000):
        await bench.runtime.sleep(0)
    assert answers == ["done"] * 300
    assert bench.partition.end_offset == 300


@on_a_bench()
async def test_many_answers_are_spread_over_turns_of_the_loop(bench: Bench) -> None:
    parked = [bench.ask(bench.shard.park) for _ in range(250)]
    bench.ask(bench.shard.unpark)
    assert 0 < sum(one.is_settled for one in parked) <= 100
    for _ in range(5):
        await bench.turn_ends()
    assert all(said(one) == "released" for one in parked)


@on_a_bench()
async def test_a_decision_is_never_split_over_batches(bench: Bench) -> None:
    bench.partition.batch_bytes_max = 400
    bench.put(a="x" * 100, b="y" * 100)
    bench.put(c="x" * 100, d="y" * 100)
    last = bench.put(e="z")
    await bench.turn_ends()
    assert bench.partition.keys() == [["a", "b"], ["c", "d", "e"]]
    assert all(len(batch) <= 400 for batch in bench.partition.batches)
    assert said(last) == "done"


@on_a_bench()
async def test_records_stand_in_the_order_of_the_decisions_even_if_an_answer_brings_the_next_request(
    bench: Bench,
) -> None:
    bench.partition.batch_bytes_max = 400
    nested: list[PendingReply] = []
    bench.put(a="x" * 150).then(lambda _: nested.append(bench.put(k="second")))
    # It does not fit the batch of the one before, which is therefore written, and answered, first.
    bench.put(k="first", b="y" * 150)
    await bench.turn_ends()
    await bench.turn_ends()
    assert said(nested[0]) == "done"
    stored = [record for batch in bench.partition.batches for record in bench.partition.records(batch)]
    assert [record.value for record in stored if record.key == b"k"] == [b"first", b"second"]
    assert bench.shard.values[b"k"] == b"second"


@on_a_bench()
async def test_a_decision_that_no_batch_could_hold_fails_for_good_and_leaves_nothing(bench: Bench) -> None:
    bench.partition.batch_bytes_max = 400
    other = bench.put(a="1")
    large = bench.put(b="x" * 1000)
    assert said(large) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert said(other) == ErrorCode.NOT_COORDINATOR
    assert bench.host.state is State.CLOSED
    assert isinstance(bench.failures[0], KafkaError)
    await bench.turn_ends()
    assert bench.partition.batches == []


@on_a_bench(commits_at_once=False)
async def test_an_append_that_fails_sends_everyone_away_and_the_next_host_knows_what_was_written(bench: Bench) -> None:
    written = bench.put(a="1")
    parked = bench.ask(bench.shard.park)
    await bench.turn_ends()
    bench.partition.fails = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    lost = bench.put(a="2")
    read = bench.get("a")
    await bench.turn_ends()
    assert [said(one) for one in (written, parked, lost, read)] == [ErrorCode.NOT_COORDINATOR] * 4
    assert bench.shard.is_resigned
    assert bench.failures == [bench.partition.fails]
    assert said(bench.get("a")) == ErrorCode.NOT_COORDINATOR
    bench.partition.fails = None
    await bench.new_host().load(bench.partition)
    bench.partition.commit()
    assert said(bench.get("a")) == "1"


@on_a_bench()
async def test_resignation_answers_all_who_wait_and_forgets_what_is_not_written(bench: Bench) -> None:
    parked = bench.ask(bench.shard.park)
    unwritten = bench.put(a="1")
    bench.ask(bench.shard.timer, "never", 10)
    bench.host.resign()
    assert [said(one) for one in (parked, unwritten)] == [ErrorCode.NOT_COORDINATOR] * 2
    await bench.runtime.sleep(100)
    assert bench.partition.batches == []
    assert bench.shard.fired == []
    assert bench.failures == [], "it was asked to"
    bench.host.resign()


@on_a_bench()
async def test_a_clean_end_writes_and_answers_what_was_decided(bench: Bench) -> None:
    decided = bench.put(a="1")
    parked = bench.ask(bench.shard.park)
    bench.host.close()
    assert (said(decided), said(parked)) == ("done", ErrorCode.NOT_COORDINATOR)
    assert bench.partition.keys() == [["a"]]


@on_a_bench()
async def test_a_shard_that_raises_is_thrown_away_with_what_it_half_did(bench: Bench) -> None:
    bench.put(a="1")
    await bench.turn_ends()
    waiting = bench.ask(bench.shard.park)
    broken = bench.ask(bench.shard.break_down)
    assert isinstance(broken.error, RuntimeError)
    assert broken.answer is None
    assert said(waiting) == ErrorCode.NOT_COORDINATOR
    assert bench.host.state is State.CLOSED
    assert bench.host.has_served
    assert bench.failures == [broken.error]
    await bench.turn_ends()
    await bench.new_host().load(bench.partition)
    assert bench.shard.values == {b"a": b"1"}


@on_a_bench()
async def test_a_timer_that_raises_ends_the_host_too(bench: Bench) -> None:
    def explode(turn: Turn, key: TimerKey) -> None:
        turn.append(b"x", b"y")
        raise RuntimeError("a bug")

    bench.host.decide(lambda turn: turn.set_timer(("t",), 5, explode))
    await bench.runtime.sleep(10)
    assert bench.host.state is State.CLOSED
    assert len(bench.failures) == 1
    assert bench.partition.batches == []


@on_a_bench(commits_at_once=False)
async def test_who_waits_too_long_for_the_high_watermark_is_told_so(bench: Bench) -> None:
    bench.host.write_timeout_ms = 100
    early = bench.put(a="1")
    await bench.runtime.sleep(60)
    late = bench.put(b="2")
    await bench.runtime.sleep(50)
    assert (said(early), said(late)) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    bench.partition.commit()
    assert said(late) == "done"
    assert bench.host.state is State.ACTIVE
    assert said(bench.get("a")) == "1", "what was decided stays decided"


@on_a_bench()
async def test_a_change_of_the_metadata_is_a_decision(bench: Bench) -> None:
    bench.host.on_image(MetadataDelta(EMPTY_IMAGE))
    assert bench.shard.images == 1
    bench.host.resign()
    bench.host.on_image(MetadataDelta(EMPTY_IMAGE))
    assert bench.shard.images == 1


@on_a_bench()
async def test_a_turn_is_over_when_the_decision_is_made(bench: Bench) -> None:
    kept: list[tuple[Turn, Ticket]] = []

    def keep(turn: Turn, ticket: Ticket) -> None:
        kept.append((turn, ticket))

    bench.host.submit(keep, refused)
    ((turn, ticket),) = kept
    with pytest.raises(AssertionError):
        turn.append(b"k", b"v")
    with pytest.raises(AssertionError):
        turn.reply(ticket, value("late"))
