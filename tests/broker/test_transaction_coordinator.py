"""Transactions from the producer to the reader in simulated brokers: killed after every operation, and failing over.

A transaction writes one record to each of two partitions and commits an offset: after a crash either all of that is
there, or nothing, and a transaction whose end was acknowledged is never undone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.clusters import a_cluster, ask, create, fenced, state
from broker.group_session import QUICK, ClassicMember, ConsumerMember, committed, find, settled, stable_group
from broker.session import Session, expect_no_surprise, is_recovered, simulated
from broker.test_metrics import scrape
from broker.transaction_exchanges import (
    Producer,
    add,
    commit_offset,
    find_transactions,
    started,
    state_of,
)
from broker.transaction_exchanges import settled as completed
from broker.transactional import read_committed, send
from penstock.broker.coordination import CoordinatorType
from penstock.broker.coordination import marker_courier as marker_courier_module
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker
from penstock.sim.cluster import SimCluster
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from support.sampling import some

SETTINGS = {**QUICK, "transaction.state.log.num.partitions": "2"}
STRIDE = 8
"""Runs of one test: together they crash at every operation."""


async def ended(s: Session, producer: Producer, committed: bool, name: str = "x", version: int = 5) -> Any:
    """The producer's next id and epoch, or the error. As clients do, it tries again while that may help."""
    while True:
        answer = await s.call(EndTxnRequest(name, *producer, committed), version)
        if answer.error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            break
        await s.runtime.sleep(10)
    return ErrorCode(answer.error_code) if answer.error_code else (answer.producer_id, answer.producer_epoch)


async def wrote(s: Session, producer: Producer, text: bytes, partition: int) -> None:
    """Produce v12: the leader adds the partition."""
    while True:
        answer = await send(
            s, text, partition=partition, producer_id=producer[0], epoch=producer[1], transactional_id="x"
        )
        if answer.error_code != ErrorCode.NOT_ENOUGH_REPLICAS:
            break
        await s.runtime.sleep(20)
    assert answer.error_code == 0, answer


# -- one broker --------------------------------------------------------------------------------------------------------


@simulated(SETTINGS)
async def test_records_and_offsets_of_a_transaction_appear_together(s: Session) -> None:
    await s.create("t", partitions=2)
    await find(s, "g")
    producer = await started(s)
    for committed_, offset in ((False, 5), (True, 9)):
        for partition in (0, 1):
            await wrote(s, producer, b"value", partition)
        assert await commit_offset(s, producer, offset) is ErrorCode.NONE
        assert await read_committed(s) == []
        assert (await committed(s.client, "g")).get(("t", 0)) is None
        producer = await ended(s, producer, committed_)
        await completed(s)
    assert await read_committed(s) == await read_committed(s, partition=1) == [b"value"]
    assert (await committed(s.client, "g"))["t", 0][0] == 9
    found = await scrape(s)
    assert found['penstock_transactions_ended_total{result="commit"}'] == 1
    assert found['penstock_transactions_ended_total{result="abort"}'] == 1
    assert (found["penstock_transactions_open"], found["penstock_transaction_markers_pending"]) == (0, 0)
    assert found["penstock_transaction_duration_ms_count"] == 2


@simulated(SETTINGS)
async def test_whoever_wants_stable_offsets_waits_for_the_marker(s: Session) -> None:
    await s.create("t")
    await find(s, "g")
    producer = await started(s)
    assert await commit_offset(s, producer, 5) is ErrorCode.NONE
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], require_stable=True)
    (part,) = (await s.call(request, 9)).groups[0].topics[0].partitions
    assert (part.error_code, part.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    await ended(s, producer, True)
    await completed(s)
    (part,) = (await s.call(request, 9)).groups[0].topics[0].partitions
    assert (part.error_code, part.committed_offset) == (0, 5)


@simulated(SETTINGS)
async def test_a_member_of_an_old_generation_commits_nothing_through_its_producer(s: Session) -> None:
    await s.create("t")
    await find(s, "g")
    (member,) = await stable_group(s, 1)
    assert isinstance(member, ClassicMember)
    producer = await started(s)
    for generation, member_id, expected in (
        (member.generation - 1, member.id, ErrorCode.ILLEGAL_GENERATION),
        (member.generation, "somebody", ErrorCode.UNKNOWN_MEMBER_ID),
        (member.generation, member.id, ErrorCode.NONE),
        (-1, "", ErrorCode.NONE),
    ):
        code = await commit_offset(s, producer, 5, generation_id=generation, member_id=member_id)
        assert code is expected, (generation, member_id)


@simulated(SETTINGS)
async def test_a_member_with_an_old_epoch_commits_nothing_through_its_producer(s: Session) -> None:
    await s.create("t")
    await find(s, "g")
    member = await ConsumerMember.connect(s, "g", ["t"])
    await settled([member], 1)
    producer = await started(s)
    for epoch, member_id, expected in (
        (member.epoch - 1, member.id, ErrorCode.ILLEGAL_GENERATION),
        (member.epoch + 1, member.id, ErrorCode.ILLEGAL_GENERATION),
        (member.epoch, "somebody", ErrorCode.UNKNOWN_MEMBER_ID),
        (member.epoch, member.id, ErrorCode.NONE),
    ):
        code = await commit_offset(s, producer, 5, generation_id=epoch, member_id=member_id)
        assert code is expected, (epoch, member_id)


@simulated(SETTINGS)
async def test_requests_add_partitions_by_themselves_only_under_version_2(s: Session) -> None:
    await s.create("t", partitions=2)
    await find(s, "g")
    producer = await started(s)
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    assert (await s.call(UpdateFeaturesRequest(feature_updates=[update]), 2)).error_code == 0
    await s.until(lambda: s.node.served.quorum.image.features.get("transaction.version") == 1)
    refused = await send(s, b"value", producer_id=producer[0], epoch=producer[1], transactional_id="x")
    assert refused.error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert await commit_offset(s, producer, 5) is ErrorCode.TRANSACTION_ABORTABLE
    assert await add(s, producer, 0, version=3) == [(0, 0)]
    await wrote(s, producer, b"value", 0)
    assert await ended(s, producer, True, version=4) == (-1, -1)
    assert await completed(s) == "CompleteCommit"
    assert await read_committed(s) == [b"value"]


@simulated(SETTINGS)
async def test_a_topic_that_is_deleted_in_the_middle_of_a_transaction_holds_nothing_up(s: Session) -> None:
    await s.create("t", partitions=2)
    await s.create("short", partitions=1)
    producer = await started(s)
    assert await add(s, producer, 0, version=5) == [(0, 0)]
    assert await add(s, producer, 0, version=5, topic="short") == [(0, 0)]
    await s.delete("short")
    assert await ended(s, producer, True) == (producer[0], producer[1] + 1)
    assert await completed(s) == "CompleteCommit"


@simulated(SETTINGS)
async def test_a_transaction_that_takes_too_long_is_aborted(s: Session) -> None:
    await s.create("t", partitions=2)
    producer = await started(s)
    await wrote(s, producer, b"late", 0)
    await s.runtime.sleep(60_000 + 11_000)
    assert await completed(s) == "CompleteAbort"
    assert await read_committed(s) == []
    answer = await send(s, b"zombie", producer_id=producer[0], epoch=producer[1], sequence=1, transactional_id="x")
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await ended(s, producer, True) is ErrorCode.INVALID_TXN_STATE
    assert await ended(s, producer, False) == (producer[0], producer[1] + 1)


@simulated(SETTINGS)
async def test_hostile_names_are_refused_and_the_broker_goes_on(s: Session) -> None:
    await find_transactions(s)
    answer = await s.call(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1_000), 5)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    other = await s.connect()
    with pytest.raises(ConnectionError):
        # As in Kafka: the protocol has no longer strings.
        await other.call(InitProducerIdRequest(transactional_id="x" * 65_536, transaction_timeout_ms=1_000), 5)
    assert "65536" in s.node.events.said("connection closed", "reason")[-1]
    assert (await started(s, "x" * 32_767))[1] == 0
    assert (await started(s))[1] == 0


@simulated({**SETTINGS, "penstock.transactions.open.max": "3"})
async def test_thousands_of_open_transactions_are_refused_by_name(s: Session) -> None:
    await s.create("t")
    codes = []
    for number in range(5):
        name = f"x{number}"
        ((_, code),) = await add(s, await started(s, name), 0, name=name, version=5)
        codes.append(code)
    assert codes == [0, 0, 0, ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]


@simulated(SETTINGS)
async def test_several_transactions_are_registered_in_one_request(s: Session) -> None:
    await s.create("t", partitions=2)
    producers = {name: await started(s, name) for name in ("a", "b", "c")}
    transactions = [
        AddPartitionsToTxnTransaction(name, *producer, topics=[AddPartitionsToTxnTopic("t", [0])])
        for name, producer in producers.items()
    ]
    transactions[1].producer_epoch = 7
    answer = await s.call(AddPartitionsToTxnRequest(transactions=transactions), 5)
    told = {
        one.transactional_id: one.topic_results[0].results_by_partition[0].partition_error_code
        for one in answer.results_by_transaction
    }
    assert told == {"a": 0, "b": ErrorCode.PRODUCER_FENCED, "c": 0}
    assert [await state_of(s, name) for name in "abc"] == ["Ongoing", "Empty", "Ongoing"]


@simulated(SETTINGS)
async def test_markers_of_many_transactions_travel_in_few_requests(s: Session) -> None:
    await s.create("t", partitions=2)
    producers = {f"x{number}": await started(s, f"x{number}") for number in range(30)}
    for name, producer in producers.items():
        assert await add(s, producer, 0, 1, name=name, version=5) == [(0, 0), (1, 0)]
    clients = [await s.connect() for _ in producers]
    before = s.node.served.metrics.requests[27].requests
    for client, (name, producer) in zip(clients, producers.items(), strict=True):
        client.post(EndTxnRequest(name, *producer, True), 5)
    for name in producers:
        while await state_of(s, name) != "CompleteCommit":
            await s.runtime.sleep(5)
    assert s.node.served.metrics.requests[27].requests - before <= 30
    for client in clients:
        client.close()


# -- killed at every operation -----------------------------------------------------------------------------------------


@dataclass
class History:
    """What was acknowledged, and what was under way when the broker died."""

    committed: list[bytes] = field(default_factory=list)
    unknown: list[bytes] = field(default_factory=list)
    """Transactions whose end was asked for and not acknowledged."""


async def transact(s: Session, history: History, producer: Producer, number: int, *, commits: bool) -> Producer:
    text = b"%d" % number
    for partition in (0, 1):
        await wrote(s, producer, text, partition)
    assert await commit_offset(s, producer, number) is ErrorCode.NONE
    if commits:
        history.unknown.append(text)
    after = await ended(s, producer, commits)
    assert isinstance(after, tuple), after
    if commits:
        history.unknown.remove(text)
        history.committed.append(text)
    return after


async def script(s: Session, history: History) -> None:
    await s.create("t", partitions=2)
    await find(s, "g")
    producer = await started(s)
    for number, commits in ((1, True), (2, False), (3, True)):
        producer = await transact(s, history, producer, number, commits=commits)
    await completed(s)


async def verify(s: Session, history: History) -> None:
    await s.until(lambda: is_recovered(s.node))
    if "t" not in await s.topics() or len((await s.describe("t")).partitions) < 2:
        assert history == History()
        return
    await find(s, "g")
    # A new producer fences the old one: its transaction is committed or aborted by then.
    producer = await started(s)
    await completed(s)
    first, second = await read_committed(s), await read_committed(s, partition=1)
    assert first == second, "all or nothing, in the same order"
    assert first in (history.committed, history.committed + history.unknown)
    offsets = await committed(s.client, "g")
    assert offsets.get(("t", 0), (-1,))[0] == (int(first[-1]) if first else -1)
    await transact(s, history, producer, 9, commits=True)
    await completed(s)
    assert (await read_committed(s))[-1] == b"9"


def crash_at(operation: int | None, *, power_loss: bool, seed: int) -> int:
    """Run the script with a crash in this operation, restart, verify. Returns how many operations the script has."""
    history = History()
    settings = {**SETTINGS, **({"log.flush.interval.messages": "1"} if power_loss else {})}
    with World(f"{seed}-{operation}") as world:
        node = SimBroker(world, settings)
        node.start()
        before = node.host.disk.operations
        if operation is not None:
            node.host.disk.crash_after(operation)

        async def main(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            try:
                await script(s, history)
            except ConnectionError:
                assert node.process.is_dead, node.events.all[-1]

        world.execute(main)
        count = node.host.disk.operations - before
        node.host.disk.cancel_crash()
        node.restart(power_loss=power_loss)

        async def after(runtime: SimRuntime) -> None:
            await verify(await Session.open(runtime, node), history)

        world.execute(after)
        expect_no_surprise(node)
        assert not node.events.named("coordinator restarts")
        node.stop()
    return count


@pytest.mark.parametrize("part", some(range(STRIDE), usual=(0,)))
@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_killed_after_any_operation_a_transaction_is_whole_or_not_there(power_loss: bool, part: int) -> None:
    total = crash_at(None, power_loss=power_loss, seed=0)
    assert total > 20
    for operation in range(1 + part, total + 3, STRIDE):
        crash_at(operation, power_loss=power_loss, seed=part)


# -- three brokers -----------------------------------------------------------------------------------------------------

CLUSTER = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
}


def at_the_coordinator(
    cluster: SimCluster, request: Any, version: int, code_of: Any = lambda answer: answer.error_code
) -> Any:
    """Ask whoever coordinates the id, as clients do: again until it is one that does."""
    while True:
        at = next(node.node_id for node in cluster.live)
        find_request = FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=["x"])
        (found,) = ask(cluster, at, find_request, 4).coordinators
        if found.error_code == ErrorCode.NONE:
            answer = ask(cluster, found.node_id, request, version)
            if code_of(answer) not in (
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.CONCURRENT_TRANSACTIONS,
            ):
                return answer
        cluster.world.run(50)


def test_whoever_takes_over_writes_the_markers_that_the_old_coordinator_could_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_cluster(3, CLUSTER, seed=7) as cluster:
        create(cluster, "t", partitions=3)
        made = at_the_coordinator(cluster, InitProducerIdRequest("x", 60_000), 5)
        producer = (made.producer_id, made.producer_epoch)
        topics = [AddPartitionsToTxnTopic("t", [0, 1, 2])]
        transaction = AddPartitionsToTxnTransaction("x", *producer, topics=topics)
        at_the_coordinator(
            cluster,
            AddPartitionsToTxnRequest(transactions=[transaction]),
            5,
            lambda answer: (
                answer.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code
            ),
        )
        old = state(cluster, "__transaction_state").leader
        with monkeypatch.context() as patch:
            patch.setattr(marker_courier_module.MarkerCourier, "_enqueue", lambda courier, delivery: None)
            answer = at_the_coordinator(cluster, EndTxnRequest("x", *producer, True), 5)
            assert (answer.error_code, answer.producer_epoch) == (0, producer[1] + 1)
            cluster.world.run(2_000)
            cluster.node(old).crash()
        cluster.await_(lambda: cluster.controller() is not None and fenced(cluster, old))

        def described() -> str:
            request = DescribeTransactionsRequest(transactional_ids=["x"])
            answer = at_the_coordinator(cluster, request, 0, lambda answer: answer.transaction_states[0].error_code)
            return str(answer.transaction_states[0].transaction_state)

        while described() != "CompleteCommit":
            cluster.world.run(50)
        assert state(cluster, "__transaction_state").leader != old
        again = at_the_coordinator(cluster, EndTxnRequest("x", *producer, True), 5)
        assert (again.error_code, again.producer_epoch) == (0, producer[1] + 1), "the answer was lost: the same again"
        fenced_one = at_the_coordinator(cluster, EndTxnRequest("x", producer[0], producer[1] - 1, True), 5)
        assert fenced_one.error_code == ErrorCode.PRODUCER_FENCED
