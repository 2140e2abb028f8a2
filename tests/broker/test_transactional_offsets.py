"""Markers in `__consumer_offsets`: the group coordinator writes them, and with them pending offsets take effect."""

from __future__ import annotations

import pytest

from broker.group_session import QUICK, committed, find
from broker.session import Session, simulated
from broker.transaction_exchanges import commit_offset, settled, started
from broker.transactional import end, marker_request
from penstock.coordinators.partitioning import partition_of
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.end_txn import EndTxnRequest

OFFSETS = "__consumer_offsets"


async def pending(s: Session, offset: int = 5) -> tuple[tuple[int, int], int]:
    """A transaction that has committed an offset of group g: its producer, and the partition of the group."""
    await s.create("t", partitions=2)
    await find(s, "g")
    producer = await started(s)
    assert await commit_offset(s, producer, offset) is ErrorCode.NONE
    topic = s.node.served.quorum.image.topic(OFFSETS)
    assert topic is not None
    return producer, partition_of("g", len(topic.partitions))


async def offset_of(s: Session) -> int | None:
    found = (await committed(s.client, "g")).get(("t", 0))
    return None if found is None else found[0]


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("power_loss", [False, True])
@simulated({**QUICK, "log.flush.interval.messages": "1"})
async def test_pending_offsets_and_their_fate_outlive_the_broker(
    s: Session, is_committed: bool, power_loss: bool
) -> None:
    producer, _ = await pending(s)
    await s.restarted(power_loss=power_loss)
    assert await offset_of(s) is None
    request = EndTxnRequest("x", *producer, is_committed)
    while (await s.call(request, 5)).error_code:
        await s.runtime.sleep(20)
    assert await settled(s) == ("CompleteCommit" if is_committed else "CompleteAbort")
    expected = 5 if is_committed else None
    assert await offset_of(s) == expected
    await s.restarted(power_loss=power_loss)
    assert await offset_of(s) == expected


@simulated(QUICK)
async def test_an_outdated_marker_does_not_decide_over_offsets(s: Session) -> None:
    (producer_id, epoch), index = await pending(s)

    async def marked(is_committed: bool, epoch: int, coordinator_epoch: int = 5, version: int = 0) -> ErrorCode:
        return await end(
            s,
            index,
            committed=is_committed,
            topic=OFFSETS,
            producer_id=producer_id,
            epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )

    assert await marked(True, epoch - 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await marked(True, epoch, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await offset_of(s) is None
    assert await marked(True, epoch + 1, version=2) == ErrorCode.NONE
    assert await offset_of(s) == 5
    assert await marked(True, epoch + 1, version=2) == ErrorCode.NONE, "a repetition"
    assert await marked(False, epoch + 1, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await offset_of(s) == 5


@simulated(QUICK)
async def test_a_marker_for_a_partition_without_a_coordinator_is_to_be_sent_elsewhere(s: Session) -> None:
    await pending(s)
    answer = await s.call(marker_request(99, committed=True, topic=OFFSETS))
    assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await end(s, 0, committed=True, topic="__transaction_state") == ErrorCode.INVALID_TOPIC_EXCEPTION
