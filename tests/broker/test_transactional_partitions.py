"""Transactions at a partition leader: verification, markers, the last stable offset, and what readers see."""

from __future__ import annotations

import pytest

from broker.session import LATEST, Session, batch, measured, records_of, simulated
from broker.transactional import (
    ScriptedCoordinator,
    committed_fetch,
    committed_values,
    end,
    marker_request,
    read_committed,
    send,
    transactional,
    transactional_request,
)
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.wire.records import seal


async def begun(s: Session) -> ScriptedCoordinator:
    await s.create("t", partitions=3)
    return ScriptedCoordinator(s)


@simulated()
async def test_committed_records_are_seen_when_their_marker_is_written(s: Session) -> None:
    await begun(s)
    await s.produce("t", b"before")
    assert (await send(s, b"one", b"two")).base_offset == 1
    await s.produce("t", b"after")
    assert await s.values("t") == [b"before", b"one", b"two", b"after"]
    assert await read_committed(s) == [b"before"]
    assert await end(s, committed=True) == ErrorCode.NONE
    assert await read_committed(s) == [b"before", b"one", b"two", b"after"]


@simulated()
async def test_aborted_records_are_listed_for_readers_of_committed_records(s: Session) -> None:
    await begun(s)
    await send(s, b"one", b"two")
    await send(s, b"kept", producer_id=8, transactional_id="other")
    assert await end(s, committed=False) == ErrorCode.NONE
    assert await read_committed(s) == []
    assert await end(s, committed=True, producer_id=8) == ErrorCode.NONE
    assert await read_committed(s) == [b"kept"]
    data = await s.fetch("t", 0, isolation_level=1)
    assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions] == [(7, 0)]
    assert not (await s.fetch("t", 0)).aborted_transactions
    assert [record.value for record in records_of(await s.fetch("t", 0))][:3] == [b"one", b"two", b"kept"]


@simulated()
async def test_every_answer_tells_the_last_stable_offset(s: Session) -> None:
    await begun(s)
    await s.produce("t", b"before")
    await send(s, b"one")
    for isolation_level in (0, 1):
        data = await s.fetch("t", 0, isolation_level=isolation_level)
        assert (data.high_watermark, data.last_stable_offset) == (2, 1)
    assert await end(s, committed=True) == ErrorCode.NONE
    data = await s.fetch("t", 0)
    assert (data.high_watermark, data.last_stable_offset) == (3, 3)


async def listed(s: Session, timestamp: int, isolation_level: int) -> int:
    entry = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name="t", partitions=[entry])]
    )
    result = (await s.call(request)).topics[0].partitions[0]
    assert result.error_code == 0
    return int(result.offset)


@simulated()
async def test_list_offsets_ends_before_an_open_transaction_for_readers_of_committed_records(s: Session) -> None:
    await begun(s)
    await s.produce("t", b"before")
    await send(s, b"one")
    assert (await listed(s, LATEST, 0), await listed(s, LATEST, 1)) == (2, 1)
    assert (await listed(s, 1_750_001_000_000, 1), await listed(s, 1_750_001_000_001, 1)) == (0, -1)
    assert await end(s, committed=True) == ErrorCode.NONE
    assert (await listed(s, LATEST, 0), await listed(s, LATEST, 1)) == (3, 3)


@simulated()
async def test_a_waiting_reader_of_committed_records_is_woken_by_the_last_stable_offset_alone(s: Session) -> None:
    await begun(s)
    await send(s, b"one")
    reader = await s.connect()
    request = committed_fetch("t", 0, max_wait_ms=60_000, min_bytes=1)
    waiting = s.runtime.spawn(reader.call(request, 12), "reader")
    partition = s.node.served.manager.table.by_name[b"t"][0]
    await s.until(lambda: bool(partition.committed_waiters))
    (waiter,) = partition.committed_waiters or ()
    woken: list[int] = []
    look = type(waiter).advanced
    try:
        type(waiter).advanced = lambda self: (woken.append(1), look(self))[1]  # type: ignore[assignment]
        for number in range(5):
            await s.produce("t", b"plain %d" % number)
        assert not woken
        assert partition.committed_waiters
        assert await end(s, committed=True) == ErrorCode.NONE
        answer = await waiting
        assert woken == [1]
    finally:
        type(waiter).advanced = look  # type: ignore[method-assign]
    values, _ = committed_values(answer.responses[0].partitions[0], 0)
    assert values[0] == b"one"
    assert len(values) == 6


@simulated()
async def test_the_coordinator_is_asked_once_in_a_transaction(s: Session) -> None:
    coordinator = await begun(s)
    await send(s, b"one", version=11)
    await send(s, b"two", sequence=1, version=11)
    assert coordinator.verified == [("ledger", 7, 0, True, [("t", [0])])]
    await end(s, committed=True)
    await send(s, b"three", sequence=2, version=11)
    assert len(coordinator.asked) == 2


@simulated()
async def test_a_batch_that_the_coordinator_does_not_know_is_refused(s: Session) -> None:
    coordinator = await begun(s)
    for answered, told in (
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
    ):
        coordinator.answers = [answered]
        assert (await send(s, b"one")).error_code == told, answered
    for version, told in ((10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)):
        coordinator.answers = [ErrorCode.TRANSACTION_ABORTABLE]
        assert (await send(s, b"one", version=version)).error_code == told
    coordinator.has_coordinator = False
    assert (await send(s, b"one")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert await s.values("t") == []


@simulated()
async def test_batches_behind_one_that_waits_for_the_coordinator_wait_too(s: Session) -> None:
    coordinator = await begun(s)
    coordinator.is_held = True
    clients = [await s.connect() for _ in range(3)]
    first = s.runtime.spawn(send(s, b"one", client=clients[0]), "first")
    await s.until(lambda: bool(coordinator.asked))
    second = s.runtime.spawn(s.produce("t", b"plain", client=clients[1]), "second")
    elsewhere = await s.produce("t", b"elsewhere", partition=1, client=clients[2])
    assert elsewhere.base_offset == 0
    assert await s.values("t") == []
    coordinator.release()
    assert ((await first).base_offset, (await second).base_offset) == (0, 1)
    assert await s.values("t") == [b"one", b"plain"]


@simulated()
async def test_questions_to_one_coordinator_share_a_request(s: Session) -> None:
    coordinator = await begun(s)
    coordinator.is_held = True
    clients = [await s.connect() for _ in range(4)]
    waiting = [s.runtime.spawn(send(s, b"first", client=clients[0]), "first")]
    await s.until(lambda: bool(coordinator.asked))
    for number in (1, 2):
        one = send(s, b"x", partition=number, client=clients[number])
        waiting.append(s.runtime.spawn(one, f"{number}"))
    other = send(s, b"y", producer_id=9, transactional_id="other", partition=1, client=clients[3])
    waiting.append(s.runtime.spawn(other, "other"))
    await s.runtime.sleep(100)
    coordinator.release()
    assert [(await one).error_code for one in waiting] == [0, 0, 0, 0]
    assert len(coordinator.asked) == 2
    assert coordinator.verified[1:] == [
        ("ledger", 7, 0, False, [("t", [1, 2])]),
        ("other", 9, 0, False, [("t", [1])]),
    ]


@simulated()
async def test_produce_adds_partitions_only_under_version_2_of_transactions(s: Session) -> None:
    coordinator = await begun(s)
    await send(s, b"one", version=12)
    await send(s, b"one", partition=1, version=11)
    lower = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    answer = await s.call(UpdateFeaturesRequest(timeout_ms=5_000, feature_updates=[lower]), 1)
    assert answer.error_code == 0, answer
    await send(s, b"one", partition=2, version=12)
    assert [verify_only for _, _, _, verify_only, _ in coordinator.verified] == [False, True, True]


@simulated()
async def test_a_marker_voids_a_verification_that_is_under_way(s: Session) -> None:
    """The answer may be that of a transaction that has been aborted meanwhile: the batch would open one that hangs."""
    coordinator = await begun(s)
    coordinator.is_held = True
    client = await s.connect()
    waiting = s.runtime.spawn(send(s, b"late", client=client), "late")
    await s.until(lambda: bool(coordinator.asked))
    assert await end(s, committed=False) == ErrorCode.NONE
    coordinator.answers = [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]
    coordinator.release()
    assert (await waiting).error_code == ErrorCode.INVALID_TXN_STATE
    assert len(coordinator.asked) == 2, "the first answer may be that of the aborted transaction"
    assert (await s.fetch("t", 0)).last_stable_offset == 1


@simulated()
async def test_a_batch_that_arrives_while_the_last_transaction_is_completed_is_appended(s: Session) -> None:
    """The marker is written while the coordinator is asked about the next transaction."""
    coordinator = await begun(s)
    await send(s, b"one")
    coordinator.is_held = True
    client = await s.connect()
    waiting = s.runtime.spawn(send(s, b"two", epoch=1, client=client), "next")
    await s.until(lambda: len(coordinator.asked) == 2)
    assert await end(s, committed=True, epoch=1, transaction_version=2) == ErrorCode.NONE
    coordinator.release()
    assert (await waiting).error_code == 0
    assert await end(s, committed=True, epoch=2, transaction_version=2) == ErrorCode.NONE
    assert await read_committed(s) == [b"one", b"two"]


@simulated()
async def test_a_newer_epoch_voids_a_verification_that_is_under_way(s: Session) -> None:
    coordinator = await begun(s)
    coordinator.is_held = True
    clients = [await s.connect() for _ in range(2)]
    old = s.runtime.spawn(send(s, b"old", client=clients[0]), "old")
    await s.until(lambda: bool(coordinator.asked))
    new = s.runtime.spawn(send(s, b"new", epoch=1, client=clients[1]), "new")
    await s.runtime.sleep(100)
    coordinator.release()
    assert (await old).error_code == ErrorCode.INVALID_TXN_STATE
    assert (await new).error_code == 0
    assert await s.values("t") == [b"new"]


@simulated()
async def test_a_fenced_producer_learns_that_it_may_recover(s: Session) -> None:
    """The check of the epoch comes before that of the verification (KAFKA-19690)."""
    coordinator = await begun(s)
    await send(s, b"one")
    assert await end(s, committed=True, epoch=1, transaction_version=2) == ErrorCode.NONE
    asked = len(coordinator.asked)
    assert (await send(s, b"late", sequence=1)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(coordinator.asked) == asked


@simulated()
async def test_a_later_batch_is_not_appended_before_an_earlier_one_that_must_be_retried(s: Session) -> None:
    coordinator = await begun(s)
    coordinator.answers = [ErrorCode.NOT_COORDINATOR]
    assert (await send(s, b"one", version=11)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    answer = await send(s, b"two", sequence=1, version=11)
    assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await send(s, b"one", version=11)).error_code == 0
    assert (await send(s, b"two", sequence=1, version=11)).error_code == 0
    assert await s.values("t") == [b"one", b"two"]


@simulated()
async def test_a_concurrent_transaction_is_waited_for_before_the_producer_must_retry(s: Session) -> None:
    coordinator = await begun(s)
    coordinator.answers = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    assert (await send(s, b"one")).error_code == 0
    assert len(coordinator.asked) == 3
    coordinator.answers = [ErrorCode.CONCURRENT_TRANSACTIONS] * 100
    assert (await send(s, b"one", partition=1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


@simulated()
async def test_a_retried_batch_of_a_transaction_is_a_duplicate(s: Session) -> None:
    coordinator = await begun(s)
    first = await send(s, b"one")
    again = await send(s, b"one")
    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    await end(s, committed=True)
    again = await send(s, b"one")
    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    assert len(coordinator.asked) == 1


# ---- markers


@simulated()
async def test_a_marker_with_an_old_epoch_is_refused(s: Session) -> None:
    await begun(s)
    await send(s, b"one", epoch=3)
    assert await end(s, committed=True, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await s.fetch("t", 0)).last_stable_offset == 0
    assert await end(s, committed=True, epoch=3) == ErrorCode.NONE


@simulated()
async def test_a_marker_of_version_2_needs_a_newer_epoch_unless_it_repeats_the_last(s: Session) -> None:
    """KIP-1228: a delayed marker must not end a later transaction. KAFKA-19999: a repeated one must succeed."""
    await begun(s)
    await send(s, b"one", epoch=3)
    version_2 = {"transaction_version": 2}
    assert await end(s, committed=True, epoch=3, **version_2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await s.fetch("t", 0)).last_stable_offset == 0
    assert await end(s, committed=True, epoch=4, **version_2) == ErrorCode.NONE
    assert await end(s, committed=True, epoch=4, **version_2) == ErrorCode.NONE
    assert (await send(s, b"two", epoch=4)).error_code == 0
    assert await end(s, committed=True, epoch=4, **version_2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await read_committed(s) == [b"one"]
    assert await end(s, committed=True, epoch=5, **version_2) == ErrorCode.NONE
    assert await read_committed(s) == [b"one", b"two"]


@simulated()
async def test_a_marker_of_an_earlier_coordinator_is_refused(s: Session) -> None:
    await begun(s)
    await send(s, b"one")
    assert await end(s, committed=True, coordinator_epoch=5) == ErrorCode.NONE
    await send(s, b"two", sequence=1)
    assert await end(s, committed=False, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await end(s, committed=True, coordinator_epoch=5) == ErrorCode.NONE
    assert await read_committed(s) == [b"one", b"two"]


@simulated()
async def test_a_marker_for_an_unknown_producer_is_accepted(s: Session) -> None:
    await begun(s)
    assert await end(s, committed=False, producer_id=99) == ErrorCode.NONE
    assert (await s.fetch("t", 0)).last_stable_offset == 1


@simulated()
async def test_a_marker_answers_for_each_partition(s: Session) -> None:
    await begun(s)
    answer = await s.call(marker_request(0, 1, 5, committed=True))
    (topic,) = answer.markers[0].topics
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
        (0, 0),
        (1, 0),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await end(s, committed=True, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@simulated({"max.message.bytes": "1000"})
async def test_a_marker_is_written_whatever_the_largest_message_of_the_topic_is(s: Session) -> None:
    await s.create("small", max_message_bytes="70")
    ScriptedCoordinator(s)
    assert await end(s, committed=True, topic="small") == ErrorCode.NONE


# ---- what operators see


@simulated()
async def test_open_transactions_are_described_and_measured(s: Session) -> None:
    await begun(s)
    await s.produce("t", b"before")
    await send(s, b"one", b"two", epoch=3)
    await send(s, b"ended", producer_id=8, transactional_id="other")
    assert await end(s, committed=True, producer_id=8, coordinator_epoch=6) == ErrorCode.NONE
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    (part,) = (await s.call(request)).topics[0].partitions
    assert [
        (one.producer_id, one.producer_epoch, one.last_sequence, one.coordinator_epoch, one.current_txn_start_offset)
        for one in part.active_producers
    ] == [(7, 3, 1, -1, 1), (8, 0, 0, 6, -1)]
    assert measured(s.node, "penstock_partition_transactions_open") == 1
    assert measured(s.node, "penstock_last_stable_offset_lag_max") == 4
    late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    assert measured(s.node, late) == 0
    await s.runtime.sleep(900_000 + 300_001)
    await s.reconnect()
    assert measured(s.node, late) == 1
    assert await end(s, committed=False, epoch=3) == ErrorCode.NONE
    assert (measured(s.node, late), measured(s.node, "penstock_partition_transactions_open")) == (0, 0)


@simulated()
async def test_a_restart_keeps_open_and_aborted_transactions(s: Session) -> None:
    await begun(s)
    await send(s, b"aborted")
    await end(s, committed=False)
    await send(s, b"open", producer_id=8, transactional_id="other")
    for _ in range(2):
        await s.restarted()
        data = await s.fetch("t", 0, isolation_level=1)
        assert (data.high_watermark, data.last_stable_offset) == (3, 2)
        assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions] == [(7, 0)]
    assert await end(s, committed=True, producer_id=8) == ErrorCode.NONE
    assert await read_committed(s) == [b"open"]


# ---- bad input


@simulated(
    {
        "listeners": "CLIENTS://broker:9092,NODES://broker:9095",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,NODES:PLAINTEXT",
        "inter.broker.listener.name": "NODES",
    }
)
async def test_a_marker_from_a_listener_for_clients_is_refused(s: Session) -> None:
    await begun(s)
    await send(s, b"one")
    assert await end(s, committed=True) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (await s.fetch("t", 0)).last_stable_offset == 0


@simulated()
async def test_a_transactional_batch_needs_a_transactional_id(s: Session) -> None:
    coordinator = await begun(s)
    answer = await s.call(transactional_request("t", transactional(b"x"), transactional_id=None), 12)
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    nobody = transactional(b"x", producer_id=-1, epoch=-1, sequence=-1)
    (part,) = (await s.call(transactional_request("t", nobody), 12)).responses[0].partition_responses
    assert part.error_code == ErrorCode.INVALID_RECORD
    assert not coordinator.asked
    assert await s.values("t") == []


@simulated()
async def test_a_plain_batch_inside_a_transaction_is_refused(s: Session) -> None:
    await begun(s)
    await send(s, b"one")
    plain = batch(b"x", producer_id=7, epoch=0, sequence=1)
    assert (await s.produce("t", records=plain)).error_code == ErrorCode.INVALID_TXN_STATE
    assert await end(s, committed=True) == ErrorCode.NONE


@pytest.mark.parametrize("length", [32_768, 65_536])
@simulated()
async def test_a_transactional_id_that_is_too_long_is_refused(s: Session, length: int) -> None:
    coordinator = await begun(s)
    answer = await s.call(transactional_request("t", transactional(b"x"), transactional_id="x" * length), 12)
    (part,) = answer.responses[0].partition_responses
    assert part.error_code == ErrorCode.INVALID_REQUEST
    assert "too long" in part.error_message
    assert not coordinator.asked


@simulated()
async def test_a_client_cannot_write_a_control_batch(s: Session) -> None:
    await begun(s)
    await send(s, b"one")
    forged = bytearray(transactional(b"x", sequence=1))
    forged[22] |= 0x20
    seal(forged)
    request = transactional_request("t", bytes(forged))
    (part,) = (await s.call(request, 12)).responses[0].partition_responses
    assert part.error_code == ErrorCode.INVALID_RECORD
    assert (await s.fetch("t", 0)).last_stable_offset == 0


@simulated()
async def test_batches_of_two_producers_in_one_request_are_refused(s: Session) -> None:
    await begun(s)
    request = transactional_request("t", transactional(b"x"))
    other = transactional_request("t", transactional(b"y", producer_id=8), 1).topic_data[0]
    request.topic_data[0].partition_data += other.partition_data
    parts = (await s.call(request, 12)).responses[0].partition_responses
    assert [part.error_code for part in parts] == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert measured(s.node, "penstock_unexpected_errors_total") == 0
