"""Requests of a shard to other brokers: sent when it is safe, answered in turns, repeated by whoever takes over."""

from __future__ import annotations

from coordinators.host.toy import Bench, on_a_bench, said, value
from penstock.coordinators.host import State
from penstock.coordinators.shard import PartitionLeader


@on_a_bench(commits_at_once=False)
async def test_a_request_leaves_only_after_its_records_are_committed(bench: Bench) -> None:
    bench.ask(bench.shard.tell, "bob", "hello")
    await bench.turn_ends()
    assert bench.partition.keys() == [["tell:bob"]]
    assert bench.courier.letters == []
    bench.partition.commit()
    (letter,) = bench.courier.letters
    assert letter.recipient == PartitionLeader("t", 0)
    assert bench.courier.texts() == ["hello"]


@on_a_bench()
async def test_the_answer_is_a_decision(bench: Bench) -> None:
    bench.ask(bench.shard.tell, "bob", "hello")
    await bench.turn_ends()
    bench.courier.letters[0].answer(value("hi"))
    await bench.turn_ends()
    assert bench.shard.answers == [(("bob",), "hi")]
    assert bench.partition.keys() == [["tell:bob"], ["tell:bob"]]
    bench.courier.letters[0].answer(value("hi again"))
    assert len(bench.shard.answers) == 1, "one request, one answer"


@on_a_bench()
async def test_asking_again_replaces_what_was_asked_and_its_answer_is_ignored(bench: Bench) -> None:
    bench.ask(bench.shard.tell, "bob", "hello")
    await bench.turn_ends()
    bench.ask(bench.shard.tell, "bob", "hello again")
    bench.ask(bench.shard.tell, "carol", "hello")
    await bench.turn_ends()
    former, latter, other = bench.courier.letters
    assert (former.is_cancelled, latter.is_cancelled, other.is_cancelled) == (True, False, False)
    former.answer(value("late"))
    latter.answer(value("hi"))
    assert bench.shard.answers == [(("bob",), "hi")]


@on_a_bench(commits_at_once=False)
async def test_a_request_that_was_cancelled_before_its_commit_is_never_sent(bench: Bench) -> None:
    bench.ask(bench.shard.tell, "bob", "hello")
    bench.ask(bench.shard.forget, "bob")
    await bench.turn_ends()
    bench.partition.commit()
    assert bench.courier.letters == []


@on_a_bench(commits_at_once=False)
async def test_a_commit_that_takes_long_answers_the_client_with_an_error_and_still_sends_the_request(
    bench: Bench,
) -> None:
    bench.host.write_timeout_ms = 100
    asked = bench.ask(bench.shard.tell, "bob", "hello")
    await bench.runtime.sleep(200)
    assert asked.is_settled
    assert said(asked) != "noted"
    bench.partition.commit()
    assert bench.courier.texts() == ["hello"]


@on_a_bench(commits_at_once=False)
async def test_whoever_takes_over_repeats_what_was_not_answered_when_that_is_committed(bench: Bench) -> None:
    bench.ask(bench.shard.tell, "bob", "hello")
    bench.ask(bench.shard.tell, "carol", "good day")
    await bench.turn_ends()
    bench.partition.commit()
    told, untold = bench.courier.letters
    told.answer(value("hi"))
    await bench.turn_ends()
    bench.host.resign()
    assert untold.is_cancelled
    untold.answer(value("late"))
    assert bench.shard.answers == [(("bob",), "hi")]
    host = bench.new_host()
    await host.load(bench.partition)
    assert len(bench.courier.letters) == 2, "what was loaded is not committed yet"
    bench.partition.commit()
    assert bench.courier.texts() == ["hello", "good day", "good day"]


@on_a_bench()
async def test_an_answer_that_the_shard_cannot_bear_reloads_it(bench: Bench) -> None:
    bench.ask(bench.shard.tell, "bob", "hello")
    await bench.turn_ends()
    bench.courier.letters[0].answer(bench.courier)  # type: ignore[arg-type]
    assert bench.host.state is State.CLOSED
    assert len(bench.failures) == 1
