"""Markers until all partitions have theirs, failover, timeouts, expiry, lists, and what ids at rest cost."""

from __future__ import annotations

import sys

import pytest

from coordinators.transactions.harness import FIRST_ID, TIMEOUT_MS, Transactions
from penstock.coordinators.transactions.listing import Filter
from penstock.coordinators.transactions.states import FROM, State
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.list_transactions import ListTransactionsRequest

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
SCAN_MS = 10_000
HOUR_MS = 3_600_000
WEEK_MS = 604_800_000


@pytest.fixture
def t() -> Transactions:
    return Transactions()


# -- markers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ],
)
def test_markers_are_repeated_until_every_partition_has_its_own(t: Transactions, error: ErrorCode) -> None:
    producer = t.started()
    t.add(producer, 0, 1)
    t.commit(producer)
    t.acknowledge(error)
    assert (t.state(), list(t.markers())) == ("PrepareCommit", [])
    t.advance(100)
    assert list(t.markers()) == [("t", 0)]
    t.acknowledge(error)
    t.advance(100)
    t.acknowledge()
    assert t.state() == "CompleteCommit"
    assert t.transactions.config.counts.markers == 0


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_a_partition_with_a_newer_epoch_has_nothing_to_end(t: Transactions, error: ErrorCode) -> None:
    producer = t.started()
    t.add(producer, 0, 1)
    t.commit(producer)
    t.acknowledge(error)
    assert t.state() == "CompleteCommit"


def test_partitions_deleted_in_the_middle_of_a_transaction_need_no_marker(t: Transactions) -> None:
    t.create_topic("short", partitions=1)
    producer = t.started()
    t.add(producer, 0)
    t.add(producer, 0, topic="short")
    t.commit(producer)
    assert list(t.markers()) == [("t", 0), ("short", 0)]
    t.delete_topic("short")
    assert list(t.markers()) == [("t", 0)]
    t.acknowledge()
    assert t.state() == "CompleteCommit"


def test_a_topic_that_was_deleted_before_the_end_or_during_a_failover_holds_nothing_up(t: Transactions) -> None:
    for name in ("first", "second"):
        t.create_topic(name, partitions=1)
    producer = t.started()
    t.add(producer, 0, topic="first")
    t.delete_topic("first")
    after = t.commit(producer)
    assert t.state() == "CompleteCommit"
    assert isinstance(after, tuple)
    t.add(after, 0, topic="second")
    t.commit(after)
    t.acknowledge(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    t.delete_topic("second")
    assert t.state() == "CompleteCommit"


def test_the_next_coordinator_sends_all_markers_again(t: Transactions) -> None:
    producer = t.started()
    t.add(producer, 0, 1)
    t.abort(producer)
    (first, *_) = t.asks
    t._acknowledge(first, ErrorCode.NONE)
    t.failover()
    assert t.state() == "PrepareAbort"
    assert list(t.markers()) == [("t", 0), ("t", 1)]
    t.acknowledge()
    assert t.state() == "CompleteAbort"


def test_the_answer_of_a_partition_comes_too_late_after_the_transaction_is_complete(t: Transactions) -> None:
    t.create_topic("short", partitions=1)
    producer = t.started()
    t.add(producer, 0, topic="short")
    t.commit(producer)
    t.acknowledge(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    t.delete_topic("short")
    t.advance(100)
    assert t.state() == "CompleteCommit"


# -- timeouts and expiry -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 5])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(t: Transactions, version: int) -> None:
    producer = t.started()
    t.add(producer, version=version)
    t.advance(TIMEOUT_MS - SCAN_MS)
    assert t.state() == "Ongoing"
    t.advance(2 * SCAN_MS)
    assert t.state() == "PrepareAbort"
    (marker,) = t.markers().values()
    assert (marker.producer_epoch, marker.transaction_result) == (1, False)
    t.acknowledge()
    assert t.commit(producer, version=4 if version == 3 else 5) in (FENCED, ErrorCode.INVALID_TXN_STATE)
    assert t.add(producer, version=version) is FENCED
    assert t.transactions.config.counts.timed_out == 1


def test_a_producer_of_version_2_learns_its_new_epoch_by_aborting_what_timed_out(t: Transactions) -> None:
    producer = t.started()
    t.add(producer)
    t.advance(TIMEOUT_MS + SCAN_MS)
    t.acknowledge()
    assert t.commit(producer) is ErrorCode.INVALID_TXN_STATE
    assert t.abort(producer) == (FIRST_ID, 1)


def test_timeouts_go_on_after_a_failover(t: Transactions) -> None:
    producer = t.started()
    t.add(producer)
    t.advance(TIMEOUT_MS - SCAN_MS)
    t.failover()
    t.advance(2 * SCAN_MS)
    assert t.state() == "PrepareAbort"


def test_many_that_time_out_at_once_are_aborted_in_portions(t: Transactions) -> None:
    for number in range(250):
        name = f"x{number}"
        t.add(t.started(name), name=name)
    t.advance(TIMEOUT_MS + SCAN_MS)
    assert set(t.listed().values()) == {"PrepareAbort"}
    assert t.transactions.config.counts.open == 0


def test_ids_that_are_not_used_any_more_are_forgotten(t: Transactions) -> None:
    for name in ("old", "busy", "open"):
        t.started(name)
    t.add((FIRST_ID + 2, 0), name="open", version=3)
    t.advance(WEEK_MS - HOUR_MS)
    t.started("busy")
    t.written()
    t.advance(2 * HOUR_MS)
    assert "old" not in t.listed()
    assert "busy" in t.listed()
    assert t.transactions.config.counts.ids == 2
    assert None in t.written(), "a tombstone"
    t.failover()
    assert "old" not in t.listed()
    assert t.started("old") == (FIRST_ID + 3, 0)


# -- lists -------------------------------------------------------------------------------------------------------------


def test_a_transaction_is_described(t: Transactions) -> None:
    producer = t.started()
    t.add(producer, 0, 3)
    told = t.describe()
    assert (told.error_code, told.transaction_state, told.transaction_timeout_ms) == (0, "Ongoing", TIMEOUT_MS)
    assert (told.producer_id, told.producer_epoch) == producer
    assert told.transaction_start_time_ms == t.wall_ms
    assert [(topic.topic, topic.partitions) for topic in told.topics] == [("t", [0, 3])]
    assert t.describe("y").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert t.describe("").error_code == ErrorCode.INVALID_REQUEST


def test_lists_are_filtered_by_state_id_duration_and_pattern(t: Transactions) -> None:
    for name in ("bank-1", "bank-2", "shop-1"):
        t.started(name)
    t.add((FIRST_ID + 1, 0), name="bank-2")
    assert t.listed() == {"bank-1": "Empty", "bank-2": "Ongoing", "shop-1": "Empty"}
    assert t.listed(state_filters=["Ongoing"]) == {"bank-2": "Ongoing"}
    assert t.listed(state_filters=["Nonsense"]) == {}
    assert list(t.listed(producer_id_filters=[FIRST_ID, FIRST_ID + 2])) == ["bank-1", "shop-1"]
    assert sorted(t.listed(transactional_id_pattern="bank-.*")) == ["bank-1", "bank-2"]
    assert t.listed(transactional_id_pattern="bank") == {}, "the whole name"
    t.advance(5_000)
    assert "bank-2" in t.listed(duration_filter=4_999)
    assert "bank-2" not in t.listed(duration_filter=5_000)
    with pytest.raises(KafkaError) as refused:
        Filter.of(ListTransactionsRequest(transactional_id_pattern="("))
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


# -- state -------------------------------------------------------------------------------------------------------------


def test_every_state_has_a_way_in_and_prepared_transactions_only_complete() -> None:
    assert list(FROM) != []
    assert set(FROM) == set(State)
    for prepared, complete in (
        (State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
        (State.PREPARE_ABORT, State.COMPLETE_ABORT),
    ):
        assert [state for state, before in FROM.items() if prepared in before] == [complete]


def test_counters_follow_a_shard_that_is_discarded(t: Transactions) -> None:
    counts = t.transactions.config.counts
    producer = t.started()
    t.add(producer, 0, 1)
    t.started("y")
    assert (counts.ids, counts.open, counts.markers) == (2, 1, 0)
    t.failover()
    assert (counts.ids, counts.open, counts.markers) == (2, 1, 0)
    t.commit(producer)
    assert (counts.ids, counts.open, counts.markers) == (2, 0, 2)
    t.failover()
    assert (counts.ids, counts.open, counts.markers) == (2, 0, 2)
    t.acknowledge()
    assert (counts.ids, counts.open, counts.markers, counts.committed) == (2, 0, 0, 1)


def test_an_id_at_rest_is_small(t: Transactions) -> None:
    producer = t.started()
    t.add(producer, 0, 1)
    t.commit(producer)
    t.acknowledge()
    table = t.transactions.table
    assert not table.active
    (packed,) = table.resting.values()
    assert sys.getsizeof(packed) <= 80
