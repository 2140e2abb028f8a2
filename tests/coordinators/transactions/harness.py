"""A transaction shard and producers that speak to it in one line each."""

from __future__ import annotations

from typing import TypeVar, cast

from coordinators.support import Logged, ShardDriver
from penstock.coordinators.shard import Key, PartitionLeader, RequestInfo
from penstock.coordinators.transactions import TransactionConfig, TransactionShard
from penstock.coordinators.transactions.config import replace
from penstock.coordinators.transactions.listing import Filter
from penstock.coordinators.transactions.records import decoded, transactional_id_of
from penstock.coordinators.transactions.transaction import Transaction
from penstock.metadata import TRANSACTION_VERSION
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages import metadata_records as r
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.describe_transactions import TransactionState
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

FIRST_ID = 1_000
TIMEOUT_MS = 60_000
OFFSETS = "__consumer_offsets"

M = TypeVar("M", bound=Message)
Producer = tuple[int, int]
"""A producer's id and epoch."""
NOBODY: Producer = (-1, -1)


class Transactions(ShardDriver):
    """Producers name themselves by (id, epoch); the transactional id is `x` unless told."""

    def __init__(self, shard: TransactionShard | None = None, *, version: int = 2, **settings: object) -> None:
        self.ids_left = 1_000_000
        self.next_id = FIRST_ID
        config = replace(TransactionConfig(), **settings)
        self.transactions = shard or TransactionShard(config, self.take_id)
        super().__init__(self.transactions)
        self.create_topic("t", partitions=4)
        self.create_topic(OFFSETS, partitions=2)
        self.change_metadata(r.FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=version))
        if shard is None:
            self.transactions.on_loaded(self.turn())

    def take_id(self) -> int | None:
        if not self.ids_left:
            return None
        self.ids_left -= 1
        self.next_id += 1
        return self.next_id - 1

    def failover(self) -> None:
        """Another coordinator takes over: a fresh shard loads the log."""
        self.transactions.on_resigned()
        shard = TransactionShard(self.transactions.config, self.take_id)
        self.shard = self.transactions = shard
        self.timers.clear()
        self.asks.clear()
        for record in self.records:
            shard.replay(record.offset, -1, -1, record.key, record.value)
        shard.on_loaded(self.turn())

    # -- producers ---------------------------------------------------------------------------------------------------

    def init(
        self, name: str = "x", known: Producer = NOBODY, *, timeout_ms: int = TIMEOUT_MS, version: int = 5
    ) -> Producer | ErrorCode:
        request = InitProducerIdRequest(name, timeout_ms, *known)
        response = self._ask(InitProducerIdResponse, self.transactions.init_producer_id, version, request)
        assert not response.error_code or (response.producer_id, response.producer_epoch) == NOBODY
        return (
            ErrorCode(response.error_code) if response.error_code else (response.producer_id, response.producer_epoch)
        )

    def started(self, name: str = "x") -> Producer:
        """A producer with a new epoch."""
        producer = self.init(name)
        assert isinstance(producer, tuple), producer
        return producer

    def add(
        self,
        producer: Producer,
        *partitions: int,
        name: str = "x",
        version: int = 5,
        verify: bool = False,
        topic: str = "t",
    ) -> ErrorCode:
        """The error of the first partition."""
        request = AddPartitionsToTxnTransaction(
            name, *producer, verify, [AddPartitionsToTxnTopic(topic, list(partitions or (0,)))]
        )
        result = self._ask(AddPartitionsToTxnResult, self.transactions.add_partitions, version, request)
        assert result.transactional_id == name
        return ErrorCode(result.topic_results[0].results_by_partition[0].partition_error_code)

    def add_offsets(self, producer: Producer, *, name: str = "x", version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(name, *producer, "g")
        answer = self.call(
            lambda turn, ticket: self.transactions.add_offsets(
                turn, ticket, RequestInfo(version, "client", "/127.0.0.1"), request, (OFFSETS, 1)
            )
        )
        return ErrorCode(cast(AddOffsetsToTxnResponse, answer.response).error_code)

    def end(self, producer: Producer, committed: bool, *, name: str = "x", version: int = 5) -> Producer | ErrorCode:
        """The producer's next id and epoch, or the error."""
        request = EndTxnRequest(name, *producer, committed)
        response = self._ask(EndTxnResponse, self.transactions.end_txn, version, request)
        return (
            ErrorCode(response.error_code) if response.error_code else (response.producer_id, response.producer_epoch)
        )

    def commit(self, producer: Producer, *, name: str = "x", version: int = 5) -> Producer | ErrorCode:
        return self.end(producer, True, name=name, version=version)

    def abort(self, producer: Producer, *, name: str = "x", version: int = 5) -> Producer | ErrorCode:
        return self.end(producer, False, name=name, version=version)

    # -- administration ----------------------------------------------------------------------------------------------

    def describe(self, name: str = "x") -> TransactionState:
        return self._ask(TransactionState, self.transactions.describe, 0, name)

    def state(self, name: str = "x") -> str:
        return self.describe(name).transaction_state

    def listed(self, **filters: object) -> dict[str, str]:
        wanted = Filter.of(ListTransactionsRequest(**filters))  # type: ignore[arg-type]
        answer = self.call(lambda turn, ticket: self.transactions.list_transactions(turn, ticket, wanted))
        states = cast(ListTransactionsResponse, answer.response).transaction_states
        return {one.transactional_id: one.transaction_state for one in states}

    # -- partition leaders -------------------------------------------------------------------------------------------

    def markers(self) -> dict[tuple[str, int], WritableTxnMarker]:
        """The markers that are under way, by partition."""
        found = {}
        for recipient, request, _ in self.asks.values():
            assert isinstance(recipient, PartitionLeader)
            assert isinstance(request, WriteTxnMarkersRequest)
            (marker,) = request.markers
            assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [
                (recipient.topic, [recipient.partition])
            ]
            found[recipient.topic, recipient.partition] = marker
        return found

    def acknowledge(self, *errors: ErrorCode) -> None:
        """The leaders answer all markers under way, the first of them with these errors."""
        codes = list(errors)
        for key in list(self.asks):
            self._acknowledge(key, codes.pop(0) if codes else ErrorCode.NONE)

    def _acknowledge(self, key: Key, code: ErrorCode) -> None:
        recipient, request, _ = self.asks[key]
        assert isinstance(recipient, PartitionLeader)
        assert isinstance(request, WriteTxnMarkersRequest)
        result = WritableTxnMarkerPartitionResult(recipient.partition, code)
        topic = WritableTxnMarkerTopicResult(recipient.topic, [result])
        marker = WritableTxnMarkerResult(request.markers[0].producer_id, [topic])
        self.answer(key, WriteTxnMarkersResponse([marker]))

    # -- records -----------------------------------------------------------------------------------------------------

    def written(self) -> list[Transaction | None]:
        """What was written since this was last asked; None is a tombstone. The records stay for a failover."""
        seen, self.seen = getattr(self, "seen", 0), len(self.records)
        return [self.decoded(record) for record in self.records[seen:]]

    @staticmethod
    def decoded(record: Logged) -> Transaction | None:
        name = transactional_id_of(record.key)
        assert name is not None
        return None if record.value is None else decoded(name, record.value)

    def _ask(self, kind: type[M], method: object, version: int, request: object) -> M:
        info = RequestInfo(version, "client", "/127.0.0.1")
        answer = self.call(lambda turn, ticket: method(turn, ticket, info, request))  # type: ignore[operator]
        assert isinstance(answer.response, kind)
        return answer.response
