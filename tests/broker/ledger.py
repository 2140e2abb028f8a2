"""A second, tiny kind of coordinator, in a real broker: accounts in the partitions of `__share_group_state`.

It shows that hosts know nothing of groups, and uses all that a transaction coordinator will need: plain records,
records in the name of a producer with markers that end them, and orders to another broker (it has the account's balance
committed as the offset of a group, by the broker that leads the group's partition).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from penstock.broker import coordination
from penstock.broker.apis import sync_group
from penstock.broker.coordination import KINDS, CoordinatorType, Kind
from penstock.broker.coordination.kind import WriteSettings
from penstock.broker.net.request import Request
from penstock.broker.node import Node
from penstock.config import BrokerConfig
from penstock.coordinators.host import PendingReply
from penstock.coordinators.partitioning import partition_of
from penstock.coordinators.shard import (
    CoordinatorEpoch,
    EndMarker,
    Key,
    PartitionLeader,
    Producer,
    ProducerEpoch,
    ProducerId,
    RequestInfo,
    Ticket,
    Turn,
    Writer,
)
from penstock.coordinators.turn import Pair
from penstock.metadata import CONSUMER_OFFSETS, MetadataDelta, NewTopic
from penstock.wire.codec import Message
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

TOPIC = "__share_group_state"
PRODUCER = ProducerId(77)
PAYEE = "payee"
ORDER, PAID = b"order", b"paid"
PAY_KEY = ("pay",)
RETRY_MS = 100.0


class LedgerShard:
    """Account → balance. A transfer takes effect with its marker."""

    def __init__(self) -> None:
        self.balances: dict[bytes, bytes] = {}
        self.open: dict[int, dict[bytes, bytes]] = {}
        self.epoch = -1

    # ---- the interface

    def replay(self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None) -> None:
        if producer_id >= 0:
            assert value is not None
            self.open.setdefault(producer_id, {})[key] = value
        elif value is None:
            self.balances.pop(key, None)
        else:
            self.balances[key] = value

    def replay_end_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        written = self.open.pop(producer_id, {})
        if committed:
            self.balances.update(written)

    def on_loaded(self, turn: Turn) -> None:
        self.epoch = turn.coordinator_epoch
        if ORDER in self.balances:
            self._pay(turn, PAY_KEY)

    def on_image(self, turn: Turn, delta: MetadataDelta) -> None: ...

    def on_resigned(self) -> None:
        self.balances.clear()

    # ---- requests

    def serve(self, turn: Turn, ticket: Ticket, info: RequestInfo, order: Order) -> None:
        match order.verb:
            case "put":
                for key, value in order.records():
                    self.balances[key] = value
                    turn.append(key, value)
            case "transfer":
                assert isinstance(order.claim, Producer)
                self.open.setdefault(order.claim.id, {}).update(order.records())
                turn.append_as(order.claim, order.records())
            case "commit" | "abort":
                assert isinstance(order.claim, EndMarker)
                self.replay_end_marker(order.claim.producer.id, order.claim.producer.epoch, order.claim.committed)
                turn.end_transaction(order.claim)
            case "pay":
                # Note that the payee is to get this much, and see to it however often this broker dies.
                self.balances[ORDER] = order.text.encode()
                turn.append(ORDER, self.balances[ORDER])
                self._pay(turn, PAY_KEY)
            case "get":
                turn.reply(ticket, said(self.balances.get(order.text.encode(), b"-").decode()))
                return
        turn.reply(ticket, said("done"))

    def _pay(self, turn: Turn, key: Key) -> None:
        topic, paid_in = turn.image.topic(CONSUMER_OFFSETS), turn.image.topic("t")
        assert topic is not None
        assert paid_in is not None
        commit = OffsetCommitRequestPartition(partition_index=0, committed_offset=int(self.balances[ORDER]))
        request = OffsetCommitRequest(
            group_id=PAYEE,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name="t", topic_id=paid_in.topic_id, partitions=[commit])],
        )
        leader = PartitionLeader(CONSUMER_OFFSETS, partition_of(PAYEE, len(topic.partitions)))
        turn.ask(key, leader, request, self._paid)

    def _paid(self, turn: Turn, key: Key, answer: Message) -> None:
        assert isinstance(answer, OffsetCommitResponse)
        if answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
            turn.set_timer(key, RETRY_MS, self._pay)
            return
        self.balances[PAID] = self.balances.pop(ORDER)
        turn.append(PAID, self.balances[PAID])
        turn.append(ORDER, None)


class LedgerKind(Kind[LedgerShard]):
    key_type: CoordinatorType = CoordinatorType.SHARE
    topic: str = TOPIC

    def new_topic(self, config: BrokerConfig, live_brokers: int) -> NewTopic:
        return NewTopic(TOPIC, 1, min(3, live_brokers), (), (("cleanup.policy", "compact"),))

    def partition_of(self, key: str, partition_count: int) -> int:
        return len(key) % partition_count

    def new_shard(self, config: BrokerConfig, batch_bytes_max: int) -> LedgerShard:
        return LedgerShard()

    def configure(self, shard: LedgerShard, config: BrokerConfig, batch_bytes_max: int) -> None: ...

    def write_settings(self, config: BrokerConfig) -> WriteSettings:
        return WriteSettings(Codec.NONE, -1.0, 5_000.0)

    def is_concerned(self, delta: MetadataDelta) -> bool:
        return False

    def count(self, records: list[Pair]) -> None: ...


class Order(NamedTuple):
    """A request to the ledger, as it is read from the one that carries it."""

    verb: str
    text: str
    claim: Writer | None

    def records(self) -> list[tuple[bytes, bytes]]:
        """From `a=1,b=2`."""
        pairs = (pair.split("=") for pair in self.text.split(","))
        return [(key.encode(), value.encode()) for key, value in pairs]


def request_of(verb: str, text: str, epoch: int = 0, coordinator_epoch: int = 1) -> SyncGroupRequest:
    """SyncGroup carries requests to the ledger in these tests: it has room for some strings and a number."""
    return SyncGroupRequest(
        group_id="ledger",
        member_id=verb,
        generation_id=epoch,
        protocol_type=text,
        group_instance_id=str(coordinator_epoch),
    )


def serve(node: Node, request: Request, body: SyncGroupRequest) -> PendingReply:
    claim: Writer | None = None
    producer = Producer(PRODUCER, ProducerEpoch(body.generation_id))
    if body.member_id == "transfer":
        claim = producer
    elif body.member_id in ("commit", "abort"):
        coordinator_epoch = CoordinatorEpoch(int(body.group_instance_id or 0))
        claim = EndMarker(producer, body.member_id == "commit", coordinator_epoch)
    order = Order(body.member_id, body.protocol_type or "", claim)
    ledger = node.coordination.of_type(CoordinatorType.SHARE)
    assert ledger is not None
    return ledger.ask("ledger", LedgerShard.serve, request, order, refused, claim=claim)


def refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def said(text: str) -> SyncGroupResponse:
    return SyncGroupResponse(protocol_name=text)


@contextmanager
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Brokers that start meanwhile have a ledger beside their groups."""
    with monkeypatch.context() as patch:
        patch.setattr(coordination, "KINDS", (*KINDS, LedgerKind))
        patch.setattr(sync_group, "serve", serve)
        yield
