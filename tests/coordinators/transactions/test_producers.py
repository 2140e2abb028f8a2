"""InitProducerId: epochs, fencing, and what happens when epochs run out."""

from __future__ import annotations

import pytest

from coordinators.transactions.harness import FIRST_ID, Producer, Transactions
from penstock.coordinators.transactions.states import State
from penstock.coordinators.transactions.transaction import EPOCH_MAX, LAST_EPOCH
from penstock.wire.errors import ErrorCode

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


@pytest.fixture
def t() -> Transactions:
    return Transactions()


def at_epoch(t: Transactions, epoch: int, *, version: int = 0, name: str = "x") -> Producer:
    """A producer whose id has been in use for long."""
    t.init(name)
    transaction = t.transactions.table.find(name)
    assert transaction is not None
    transaction.producer_epoch = epoch
    transaction.version = version
    t.transactions.table.write(t.turn(), transaction)
    return transaction.producer_id, epoch


def test_a_new_producer_fences_the_old_one(t: Transactions) -> None:
    old = t.started()
    new = t.started()
    assert new == (old[0], old[1] + 1)
    assert t.add(old) is FENCED
    assert t.add(new) is ErrorCode.NONE


def test_a_new_producer_aborts_the_open_transaction_of_the_old_one(t: Transactions) -> None:
    old = t.started()
    t.add(old, 0, 1)
    assert t.init() is CONCURRENT
    assert t.state() == "PrepareAbort"
    assert {marker.producer_epoch for marker in t.markers().values()} == {1}
    assert not any(marker.transaction_result for marker in t.markers().values())
    assert t.init() is CONCURRENT, "the epoch is raised once"
    assert t.describe().producer_epoch == 1
    t.acknowledge()
    assert t.started() == (FIRST_ID, 2)
    assert t.commit(old) is FENCED


def test_a_fence_whose_record_was_lost_does_not_raise_the_epoch_twice(t: Transactions) -> None:
    producer = t.started()
    t.add(producer)
    before = list(t.records)
    assert t.init() is CONCURRENT
    t.records = before
    t.failover()
    assert t.state() == "Ongoing"
    assert t.init() is CONCURRENT
    t.acknowledge()
    assert t.started() == (FIRST_ID, 2)


def test_a_producer_continues_after_an_error_and_a_lost_answer(t: Transactions) -> None:
    producer = t.started()
    after = t.init(known=producer)
    assert after == (FIRST_ID, 1)
    assert t.init(known=producer) == after
    assert isinstance(after, tuple)
    assert t.init(known=after) == (FIRST_ID, 2)
    assert t.init(known=producer) is FENCED
    assert t.init(known=(FIRST_ID + 7, 0)) is FENCED
    assert t.init(known=(FIRST_ID, -1)) is ErrorCode.INVALID_REQUEST
    assert t.init(known=(-1, 0)) is ErrorCode.INVALID_REQUEST
    assert t.init("unknown", known=(77, 3)) == (FIRST_ID + 1, 0), "its id has expired here"


def test_a_fenced_producer_does_not_abort_the_transaction_of_its_successor(t: Transactions) -> None:
    zombie = t.started()
    producer = t.started()
    t.add(producer)
    assert t.init(known=zombie) is FENCED
    assert t.state() == "Ongoing"


@pytest.mark.parametrize(("timeout_ms", "refused"), [(0, True), (-1, True), (900_000, False), (900_001, True)])
def test_timeouts_above_the_maximum_are_refused(t: Transactions, timeout_ms: int, refused: bool) -> None:
    assert (t.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT) == refused


def test_names_that_cannot_be_stored_are_refused(t: Transactions) -> None:
    assert t.init("") is ErrorCode.INVALID_REQUEST
    assert t.init("ä" * 32_768) is ErrorCode.INVALID_REQUEST
    assert t.init("x" * 32_767) == (FIRST_ID, 0)


def test_without_producer_ids_clients_are_told_to_try_again(t: Transactions) -> None:
    t.ids_left = 0
    assert t.init() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert t.listed() == {}
    t.ids_left = 1
    assert t.init() == (FIRST_ID, 0)


# -- epochs run out ----------------------------------------------------------------------------------------------------


def test_the_last_epoch_of_an_id_ends_its_transaction_and_moves_to_a_new_id(t: Transactions) -> None:
    producer = at_epoch(t, LAST_EPOCH)
    t.add(producer)
    after = t.commit(producer)
    assert after == (FIRST_ID + 1, 0)
    (marker,) = t.markers().values()
    assert (marker.producer_id, marker.producer_epoch) == (FIRST_ID, EPOCH_MAX)
    assert isinstance(after, tuple)
    assert t.add(after) is CONCURRENT, "pending changes are looked at before the producer id"
    assert t.commit(after) is CONCURRENT
    assert t.add(producer) is CONCURRENT
    t.acknowledge()
    assert t.commit(producer) == after, "the same request again"
    assert t.describe().producer_id == FIRST_ID + 1
    assert t.add(producer) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert t.add(after) is ErrorCode.NONE
    assert t.commit(producer) is FENCED, "a later transaction"


def test_a_failover_in_the_middle_of_the_move_keeps_both_ids(t: Transactions) -> None:
    producer = at_epoch(t, LAST_EPOCH)
    t.add(producer)
    after = t.commit(producer)
    t.failover()
    assert isinstance(after, tuple)
    assert t.add(after) is CONCURRENT
    (marker,) = t.markers().values()
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_version) == (FIRST_ID, EPOCH_MAX, 2)
    t.acknowledge()
    t.failover()
    assert t.commit(producer) == after


def test_without_a_producer_id_for_the_move_the_transaction_stays_open(t: Transactions) -> None:
    producer = at_epoch(t, LAST_EPOCH)
    t.add(producer)
    t.ids_left = 0
    assert t.commit(producer) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert t.state() == "Ongoing"
    t.ids_left = 1
    assert t.commit(producer) == (FIRST_ID + 1, 0)


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("ids_left", [0, 1_000])
def test_a_producer_with_the_last_epoch_can_be_fenced(t: Transactions, version: int, ids_left: int) -> None:
    producer = at_epoch(t, LAST_EPOCH)
    t.add(producer, version=version)
    t.ids_left = ids_left
    t.advance(TIMED_OUT_MS)
    assert {marker.producer_epoch for marker in t.markers().values()} == {EPOCH_MAX}
    t.acknowledge()
    assert t.state() == "CompleteAbort"
    t.ids_left = 1_000
    for retry in (t.abort(producer), t.init()):
        assert isinstance(retry, ErrorCode) or retry[1] < EPOCH_MAX, "the largest epoch is not for producers"
    assert t.add(producer) in (FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert t.started()[0] > FIRST_ID


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_another_broker_opened_with_the_largest_epoch_can_be_ended(
    t: Transactions, version: int
) -> None:
    producer = at_epoch(t, EPOCH_MAX, version=version)
    transaction = t.transactions.table.find("x")
    assert transaction is not None
    transaction.state = State.ONGOING
    transaction.partitions = {("t", 0): None}
    t.transactions.table.write(t.turn(), transaction)
    t.failover()
    assert t.init() is CONCURRENT
    (marker,) = t.markers().values()
    assert (marker.producer_epoch, marker.transaction_version < 2) == (EPOCH_MAX, True)
    t.acknowledge()
    assert t.started() == (FIRST_ID + 1, 0)
    assert t.add(producer) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_exhausted_id_without_a_transaction_is_replaced(t: Transactions) -> None:
    producer = at_epoch(t, LAST_EPOCH)
    after = t.init(known=producer)
    assert after == (FIRST_ID + 1, 0)
    assert t.init(known=producer) == after, "the same request again"
    assert t.init(known=(FIRST_ID, 5)) is FENCED


TIMED_OUT_MS = 60_000 + 10_000
