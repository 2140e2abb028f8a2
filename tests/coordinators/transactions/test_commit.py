"""A transaction from the first partition to the last marker, in both versions."""

from __future__ import annotations

import pytest

from coordinators.transactions.harness import FIRST_ID, OFFSETS, Transactions
from penstock.wire.errors import ErrorCode

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


@pytest.fixture
def t() -> Transactions:
    return Transactions()


def test_a_commit_in_version_2_raises_the_epoch_and_answers_with_it(t: Transactions) -> None:
    producer = t.started()
    assert producer == (FIRST_ID, 0)
    assert t.add(producer, 0, 2) is ErrorCode.NONE
    assert t.state() == "Ongoing"
    assert t.commit(producer) == (FIRST_ID, 1)
    assert t.state() == "PrepareCommit"
    markers = t.markers()
    assert list(markers) == [("t", 0), ("t", 2)]
    for marker in markers.values():
        assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (FIRST_ID, 1, True)
        assert (marker.coordinator_epoch, marker.transaction_version) == (1, 2)
    t.acknowledge()
    assert t.state() == "CompleteCommit"
    assert t.add((FIRST_ID, 1), 0) is ErrorCode.NONE


def test_a_commit_in_version_1_keeps_the_epoch(t: Transactions) -> None:
    producer = t.started()
    assert t.add(producer, 1, version=3) is ErrorCode.NONE
    assert t.add_offsets(producer) is ErrorCode.NONE
    t.commit(producer, version=4)
    markers = t.markers()
    assert list(markers) == [("t", 1), (OFFSETS, 1)]
    assert {(marker.producer_epoch, marker.transaction_version) for marker in markers.values()} == {(0, 0)}
    t.acknowledge()
    assert t.state() == "CompleteCommit"
    assert t.add(producer, 1, version=3) is ErrorCode.NONE
    t.abort(producer, version=4)
    t.acknowledge()
    assert t.state() == "CompleteAbort"


def test_nothing_can_be_added_or_ended_while_markers_are_written(t: Transactions) -> None:
    producer = t.started()
    t.add(producer)
    after = t.commit(producer)
    assert isinstance(after, tuple)
    assert t.add(after) is CONCURRENT
    assert t.add_offsets(after) is CONCURRENT
    assert t.commit(after) is CONCURRENT
    assert t.commit(producer) is CONCURRENT
    assert t.init() is CONCURRENT
    t.acknowledge()
    assert t.add(after) is ErrorCode.NONE


def test_an_end_that_is_sent_again_is_answered_as_the_first_time(t: Transactions) -> None:
    producer = t.started()
    t.add(producer)
    after = t.commit(producer)
    t.acknowledge()
    assert t.commit(producer) == after
    assert t.abort(producer) is ErrorCode.INVALID_TXN_STATE
    assert t.state() == "CompleteCommit"


def test_a_delayed_end_never_decides_a_later_transaction(t: Transactions) -> None:
    producer = t.started()
    t.add(producer)
    after = t.abort(producer)
    assert isinstance(after, tuple)
    t.acknowledge()
    t.add(after)
    assert t.commit(producer) is FENCED
    assert t.abort(producer) is FENCED
    assert t.state() == "Ongoing"
    t.commit(after)
    t.acknowledge()
    assert t.commit(producer) is FENCED


def test_in_version_1_an_end_after_the_end_is_answered_by_the_state(t: Transactions) -> None:
    producer = t.started()
    assert t.commit(producer, version=4) is ErrorCode.INVALID_TXN_STATE
    t.add(producer, version=3)
    t.commit(producer, version=4)
    assert t.commit(producer, version=4) is CONCURRENT
    t.acknowledge()
    assert t.commit(producer, version=4) == producer
    assert t.abort(producer, version=4) is ErrorCode.INVALID_TXN_STATE


def test_a_zombie_of_version_2_does_not_take_its_successors_commit_of_version_1_for_its_own(t: Transactions) -> None:
    zombie = t.started()
    successor = t.started()
    t.add(successor, version=3)
    t.commit(successor, version=4)
    t.acknowledge()
    assert t.commit(zombie) is FENCED


def test_version_2_may_abort_without_a_partition_to_get_a_new_epoch(t: Transactions) -> None:
    producer = t.started()
    assert t.commit(producer) is ErrorCode.INVALID_TXN_STATE
    assert t.abort(producer) == (FIRST_ID, 1)
    assert t.state() == "CompleteAbort"
    assert t.abort(producer) == (FIRST_ID, 1), "the same request again"
    assert t.abort((FIRST_ID, 1)) == (FIRST_ID, 2)
    assert not t.asks


def test_partitions_are_written_once(t: Transactions) -> None:
    producer = t.started()
    t.add(producer, 0, 1)
    t.written()
    assert t.add(producer, 1) is ErrorCode.NONE
    assert t.written() == []
    t.add(producer, 3)
    (record,) = t.written()
    assert record is not None
    assert list(record.partitions) == [("t", 0), ("t", 1), ("t", 3)]


@pytest.mark.parametrize("verify", [False, True])
def test_unknown_ids_and_wrong_epochs_are_refused(t: Transactions, verify: bool) -> None:
    producer_id, epoch = t.started()
    assert t.add((producer_id, epoch), name="y", verify=verify) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert t.add((producer_id + 1, epoch), verify=verify) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert t.add((producer_id, epoch + 1), verify=verify) is FENCED
    assert t.add((producer_id, epoch), name="", verify=verify) is ErrorCode.INVALID_REQUEST
    assert t.commit((producer_id, epoch), name="y") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert t.commit((producer_id, epoch), name="") is ErrorCode.INVALID_REQUEST
    assert t.commit((producer_id + 1, epoch)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert t.commit((producer_id, epoch + 1)) is FENCED
    assert t.state() == "Empty"


def test_versions_that_do_not_know_the_code_are_told_invalid_producer_epoch(t: Transactions) -> None:
    producer_id, _ = t.started()
    old = (producer_id, 7)
    assert t.add(old, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert t.add(old, version=2) is FENCED
    assert t.add_offsets(old, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert t.commit(old, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert t.init(known=old, version=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert t.init(known=old, version=4) is FENCED


def test_verification_knows_the_partitions_of_the_open_transaction(t: Transactions) -> None:
    producer = t.started()
    assert t.add(producer, 0, verify=True) is ErrorCode.TRANSACTION_ABORTABLE
    t.add(producer, 0, version=3)
    t.written()
    assert t.add(producer, 0, verify=True) is ErrorCode.NONE
    assert t.add(producer, 1, verify=True) is ErrorCode.TRANSACTION_ABORTABLE
    assert t.written() == []
    t.commit(producer, version=4)
    assert t.add(producer, 0, verify=True) is CONCURRENT
    t.acknowledge()
    assert t.add(producer, 0, verify=True) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_transaction_keeps_its_version_when_the_level_of_the_cluster_changes() -> None:
    t = Transactions(version=0)
    producer = t.started()
    t.add(producer)
    assert t.commit(producer) == (FIRST_ID, 1)
    t.acknowledge()
    t.failover()
    assert t.commit(producer) == (FIRST_ID, 1)


def test_too_many_open_transactions_and_too_large_ones_are_refused_by_name() -> None:
    t = Transactions(penstock_transactions_open_max=2, penstock_transactional_ids_max=3, batch_bytes_max=400)
    producers = [(name, t.started(name)) for name in ("a", "b", "c")]
    assert t.init("d") is ErrorCode.POLICY_VIOLATION
    codes = [t.add(producer, name=name) for name, producer in producers]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    assert t.add(producers[0][1], *range(100), name="a") is ErrorCode.UNKNOWN_SERVER_ERROR
    t.abort(producers[0][1], name="a")
    t.acknowledge()
    assert t.add(producers[2][1], name="c") is ErrorCode.NONE
