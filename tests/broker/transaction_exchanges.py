"""Conversations about transactions, one per API, for `test_every_version`; and helpers of other tests."""

from __future__ import annotations

from typing import Any

from broker.group_session import committed, find
from broker.session import Session
from penstock.broker.coordination import CoordinatorType
from penstock.wire.apis import ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TIMEOUT_MS = 60_000
RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
Producer = tuple[int, int]


async def find_transactions(s: Session, *names: str) -> None:
    """The topic exists, and its coordinators are found."""
    request = FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=list(names or ("x",)))
    answer = await s.call(request, 4)
    assert [one.error_code for one in answer.coordinators] == [0] * len(request.coordinator_keys), answer


async def started(s: Session, name: str = "x", version: int = 5) -> Producer:
    """A transactional producer, as a client starts it: it looks for its coordinator and tries again."""
    await find_transactions(s, name)
    while True:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
        answer = await s.call(request, version)
        if answer.error_code not in RETRIABLE:
            assert answer.error_code == 0, answer
            return answer.producer_id, answer.producer_epoch
        await s.runtime.sleep(20)


async def add(s: Session, producer: Producer, *partitions: int, name: str = "x", version: int = 3, **more: Any) -> Any:
    """(partition, error code) of each."""
    topics = [AddPartitionsToTxnTopic(name=more.pop("topic", "t"), partitions=list(partitions))]
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        )
        results = (await s.call(request, version)).results_by_topic_v3_and_below
    else:
        transaction = AddPartitionsToTxnTransaction(name, *producer, topics=topics, **more)
        answer = await s.call(AddPartitionsToTxnRequest(transactions=[transaction]), version)
        assert answer.error_code == 0
        (result,) = answer.results_by_transaction
        assert result.transactional_id == name
        results = result.topic_results
    return [(one.partition_index, one.partition_error_code) for topic in results for one in topic.results_by_partition]


async def state_of(s: Session, name: str = "x") -> str:
    (state,) = (await s.call(DescribeTransactionsRequest(transactional_ids=[name]), 0)).transaction_states
    assert isinstance(state.transaction_state, str)
    return state.transaction_state or ErrorCode(state.error_code).name


async def settled(s: Session, name: str = "x") -> str:
    """The state when all markers are written."""
    while (state := await state_of(s, name)).startswith("Prepare"):
        await s.runtime.sleep(10)
    return state


# -- conversations -----------------------------------------------------------------------------------------------------


async def add_partitions_to_txn(s: Session, version: int, topic_id: bytes) -> None:
    producer = await started(s)
    assert await add(s, producer, 0, 1, version=version) == [(0, 0), (1, 0)]
    not_attempted, unknown = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await add(s, producer, 0, 7, version=version) == [(0, not_attempted), (7, unknown)]
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert await add(s, (producer[0], 9), 0, version=version) == [(0, fenced)]
    if version >= 4:
        assert await add(s, producer, 1, version=version, verify_only=True) == [(1, 0)]
    assert await state_of(s) == "Ongoing"


async def add_offsets_to_txn(s: Session, version: int, topic_id: bytes) -> None:
    producer = await started(s)
    answer = await s.call(AddOffsetsToTxnRequest("x", *producer, "g"), version)
    while answer.error_code in RETRIABLE:
        answer = await s.call(AddOffsetsToTxnRequest("x", *producer, "g"), version)
    assert answer.error_code == 0
    (state,) = (await s.call(DescribeTransactionsRequest(transactional_ids=["x"]), 0)).transaction_states
    assert [topic.topic for topic in state.topics] == ["__consumer_offsets"]


async def end_txn(s: Session, version: int, topic_id: bytes) -> None:
    producer = await started(s)
    assert await add(s, producer, 0, 1, version=5 if version >= 5 else 3) == [(0, 0), (1, 0)]
    answer = await s.call(EndTxnRequest("x", *producer, True), version)
    assert answer.error_code == 0
    after = (producer[0], producer[1] + 1) if version >= 5 else (-1, -1)
    assert (answer.producer_id, answer.producer_epoch) == after
    unknown = await s.call(EndTxnRequest("y", *producer, True), version)
    assert unknown.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await settled(s) == "CompleteCommit"


async def describe_transactions(s: Session, version: int, topic_id: bytes) -> None:
    assert await state_of(s) == "NOT_COORDINATOR"
    producer = await started(s)
    await add(s, producer, 1)
    answer = await s.call(DescribeTransactionsRequest(transactional_ids=["x", "y"]), version)
    known, unknown = answer.transaction_states
    assert (known.error_code, known.transactional_id, known.transaction_state) == (0, "x", "Ongoing")
    assert (known.producer_id, known.producer_epoch, known.transaction_timeout_ms) == (*producer, TIMEOUT_MS)
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [("t", [1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def list_transactions(s: Session, version: int, topic_id: bytes) -> None:
    await started(s, "y")
    producer = await started(s)
    await add(s, producer, 1)
    answer = await s.call(ListTransactionsRequest(state_filters=["Ongoing", "Odd"]), version)
    assert (answer.error_code, answer.unknown_state_filters) == (0, ["Odd"])
    listed = [(one.transactional_id, one.producer_id, one.transaction_state) for one in answer.transaction_states]
    assert listed == [("x", producer[0], "Ongoing")]
    if version >= 1:
        assert (await s.call(ListTransactionsRequest(duration_filter=3_600_000), version)).transaction_states != listed
    if version >= 2:
        odd = await s.call(ListTransactionsRequest(transactional_id_pattern="["), version)
        assert odd.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        only = await s.call(ListTransactionsRequest(transactional_id_pattern="[x]"), version)
        assert [one.transactional_id for one in only.transaction_states] == ["x"]


async def txn_offset_commit(s: Session, version: int, topic_id: bytes) -> None:
    await find(s, "g")
    producer = await started(s)
    if version < 5:
        unverified = await commit_offset(s, producer, 5, version=version)
        assert unverified is (ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE)
        assert (await s.call(AddOffsetsToTxnRequest("x", *producer, "g"), 4)).error_code == 0
    assert await commit_offset(s, producer, 5, version=version) is ErrorCode.NONE
    assert await commit_offset(s, producer, 5, version=version, partition=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await committed(s.client, "g")).get(("t", 0)) is None, "not before the transaction commits"
    assert (await s.call(EndTxnRequest("x", *producer, True), 5 if version >= 5 else 4)).error_code == 0
    assert await settled(s) == "CompleteCommit"
    assert (await committed(s.client, "g"))["t", 0][0] == 5


async def commit_offset(
    s: Session, producer: Producer, offset: int, *, version: int = 5, partition: int = 0, **member: Any
) -> ErrorCode:
    """The error of the partition."""
    commit = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    topic = TxnOffsetCommitRequestTopic(name="t", partitions=[commit])
    while True:
        answer = await s.call(TxnOffsetCommitRequest("x", "g", *producer, topics=[topic], **member), version)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code not in RETRIABLE:
            return code
        await s.runtime.sleep(20)


TRANSACTION_EXCHANGES = {
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    ApiKey.END_TXN: end_txn,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
}
