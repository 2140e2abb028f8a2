"""Helpers of the tests of transactions at partition leaders: a scripted coordinator, producers, markers and readers."""

from __future__ import annotations

from typing import Any

from broker.session import Session, fetch_request, produce_request
from penstock.sim.broker import ProtocolClient
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from penstock.wire.messages.fetch import PartitionData
from penstock.wire.messages.produce import PartitionProduceResponse
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from penstock.wire.records import ControlRecordType, Record, build_batch, iter_batches, iter_records, parse_control_key

TRANSACTIONAL_ID = "ledger"


class ScriptedCoordinator:
    """Answers what partition leaders ask, at once or when told (`penstock.broker.produce.verifying.Coordination`)."""

    def __init__(self, session: Session) -> None:
        assert session.node.broker is not None
        self._runtime = session.node.broker.node.runtime
        self.asked: list[AddPartitionsToTxnRequest] = []
        self.answers: list[ErrorCode] = []
        """The next answers; NONE when there are no more."""
        self.is_held = False
        self.has_coordinator = True
        session.node.broker.verifier.coordination = self

    def broker_of(self, transactional_id: str) -> int:
        return 1 if self.has_coordinator else -1

    async def ask(self, broker_id: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.asked.append(request)
        while self.is_held:
            await self._runtime.sleep(5)
        code = self.answers.pop(0) if self.answers else ErrorCode.NONE
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                                for index in topic.partitions
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
                for transaction in request.transactions
            ]
        )

    def release(self) -> None:
        """Answer everything that is held back."""
        self.is_held = False

    @property
    def verified(self) -> list[tuple[str, int, int, bool, list[tuple[str, list[int]]]]]:
        """(transactional id, producer, epoch, verify only, partitions) of each transaction that was asked about."""
        return [
            (
                one.transactional_id,
                one.producer_id,
                one.producer_epoch,
                one.verify_only,
                [(topic.name, topic.partitions) for topic in one.topics],
            )
            for request in self.asked
            for one in request.transactions
        ]


def transactional(*values: bytes, producer_id: int = 7, epoch: int = 0, sequence: int = 0) -> bytes:
    return build_batch(
        [Record(timestamp=1_750_001_000_000 + number, key=b"k", value=value) for number, value in enumerate(values)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def transactional_request(
    topic: str, records: bytes, partition: int = 0, *, transactional_id: str | None = TRANSACTIONAL_ID, acks: int = -1
) -> Any:
    request = produce_request(topic, records, partition, acks)
    request.transactional_id = transactional_id
    return request


async def send(
    s: Session,
    *values: bytes,
    topic: str = "t",
    partition: int = 0,
    producer_id: int = 7,
    epoch: int = 0,
    sequence: int = 0,
    version: int = 12,
    client: ProtocolClient | None = None,
    transactional_id: str = TRANSACTIONAL_ID,
) -> PartitionProduceResponse:
    """Produce inside a transaction."""
    records = transactional(*values, producer_id=producer_id, epoch=epoch, sequence=sequence)
    request = transactional_request(topic, records, partition, transactional_id=transactional_id)
    answer = await (client or s.client).call(request, version)
    return answer.responses[0].partition_responses[0]


def marker_request(
    *partitions: int,
    committed: bool,
    topic: str = "t",
    producer_id: int = 7,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=committed,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions) or [0])],
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
            )
        ]
    )


async def end(s: Session, *partitions: int, committed: bool, version: int = 2, **marker: Any) -> ErrorCode:
    """Write a marker to partitions of one topic; the error of the first."""
    answer = await s.call(marker_request(*partitions, committed=committed, **marker), version)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


async def read_committed(s: Session, offset: int = 0, topic: str = "t", partition: int = 0) -> list[bytes]:
    """The values that a consumer with isolation.level=read_committed shows, from an offset to the last stable one."""
    found: list[bytes] = []
    while True:
        data = await s.fetch(topic, offset, partition=partition, isolation_level=1)
        assert data.error_code == 0, data.error_code
        values, following = committed_values(data, offset)
        found += values
        if following == offset:
            assert offset == data.last_stable_offset
            return found
        offset = following


def committed_values(data: PartitionData, offset: int) -> tuple[list[bytes], int]:
    """What a consumer makes of an answer: the values that it shows, and the offset that it asks for next."""
    waiting = sorted(data.aborted_transactions or [], key=lambda one: one.first_offset)
    aborted: set[int] = set()
    values: list[bytes] = []
    for header, view in iter_batches(data.records or b""):
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborted.add(waiting.pop(0).producer_id)
        records = list(iter_records(view))
        if header.is_control:
            if records and parse_control_key(records[0].key) == ControlRecordType.ABORT:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            values += [record.value or b"" for record in records if record.offset >= offset]
        offset = max(offset, header.next_offset)
    return values, offset


def committed_fetch(topic: str, offset: int, **options: Any) -> Any:
    return fetch_request(topic, offset, isolation_level=1, **options)
