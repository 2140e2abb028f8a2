"""Followers copy from leaders; acks=all waits for all in-sync replicas; uncommitted records are not readable."""

from __future__ import annotations

from typing import Any

import pytest

from broker.replicas import TOPIC_ID, Client, Replicas, replicated
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

MIN_2 = {"min.insync.replicas": "2"}


def test_followers_copy_what_the_leader_gets_and_acks_all_waits_for_them() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        for number in range(20):
            answer = await client.produce(1, b"%d" % number)
            assert (answer.error_code, answer.base_offset) == (0, number)
            assert all(node.log.end_offset == number + 1 for node in cluster.nodes.values())
        assert await client.values(1) == [b"%d" % number for number in range(20)]
        # What is committed reaches the followers with their next answer.
        await client.until(lambda: all(node.partition.high_watermark == 20 for node in cluster.nodes.values()))

    replicated(scenario)


def test_a_commit_is_a_matter_of_round_trips_not_of_waits() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"first")
        began_ms = client.runtime.now_ms()
        for _ in range(50):
            await client.produce(1, b"x")
        # A handful of network latencies each (0.2–0.5 ms, now and then 20), never the half second a fetch may wait.
        assert client.runtime.now_ms() - began_ms < 50 * 15

    replicated(scenario)


def test_acks_all_does_not_succeed_while_an_in_sync_replica_lacks_the_records() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        cluster.world.network.cut("node1", "node3")
        cluster.without_controller.append(1)
        answer = await client.produce(1, b"b", timeout_ms=5000)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        data = await client.fetch(1, 0)
        assert data.high_watermark == 1
        assert await client.values(1) == [b"a"]
        # Asked for beyond the high watermark there is nothing, and no error.
        data = await client.fetch(1, 1)
        assert (data.error_code, bytes(data.records or b"")) == (0, b"")

    replicated(scenario)


def test_a_follower_that_stays_behind_leaves_the_isr_and_comes_back() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        cluster.world.network.cut("node1", "node3")
        began_ms = client.runtime.now_ms()
        answer = await client.produce(1, b"b")
        took_ms = client.runtime.now_ms() - began_ms
        assert answer.error_code == 0
        assert 1500 < took_ms < 3000
        assert cluster.state.isr == (1, 2)
        cluster.world.network.heal_all()
        await client.until(lambda: cluster.state.isr == (1, 2, 3))
        assert cluster[3].log.end_offset == 2
        assert cluster.altered == [(1, 2), (1, 2, 3)]
        assert len(cluster[1].events.named("ISR shrunk")) == len(cluster[1].events.named("ISR expanded")) == 1

    replicated(scenario)


def test_an_idle_follower_keeps_its_place() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        await client.runtime.sleep(60_000)
        await client.produce(1, b"b")
        await client.runtime.sleep(60_000)
        assert cluster.altered == []

    replicated(scenario)


def test_a_fenced_follower_joins_when_it_is_not_fenced_any_more_though_it_asks_for_nothing() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        cluster.fence(3)
        cluster.set_isr(1, 2)
        await client.produce(1, b"b")
        await client.runtime.sleep(10_000)
        assert cluster.state.isr == (1, 2)
        assert cluster[3].log.end_offset == 2
        cluster.fence(3, fenced=False)
        assert await client.until(lambda: cluster.state.isr == (1, 2, 3)) < 100

    replicated(scenario)


def test_a_refused_proposal_is_made_again_later_and_not_all_the_time() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        cluster.set_isr(1, 2)
        cluster.refusing = True
        await client.produce(1, b"a")
        await client.runtime.sleep(10_000)
        refusals = len(cluster[1].events.named("ISR change refused"))
        assert 2 <= refusals <= 12
        cluster.refusing = False
        assert await client.until(lambda: cluster.state.isr == (1, 2, 3)) < 2000

    replicated(scenario)


def test_a_replica_that_is_taken_away_while_it_is_proposed_does_not_join() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        cluster.set_isr(1, 2)
        cluster.without_controller = [1]
        await client.produce(1, b"a")
        leader = cluster[1].partition.leader
        await client.until(lambda: leader.proposed == (1, 2, 3))
        cluster.eager = False
        cluster.set_replicas(1, 2)
        cluster.without_controller = []
        await client.runtime.sleep(1_000)
        assert cluster.altered == []
        cluster.eager = True
        cluster.all_hear()
        await client.until(lambda: leader.replicas == (1, 2))
        assert leader.maximal_isr == cluster.state.isr == (1, 2)
        assert (await client.produce(1, b"b")).error_code == 0

    replicated(scenario)


# ---- min.insync.replicas


def test_below_the_minimum_acks_all_is_refused_and_acks_1_is_not() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        for node in (2, 3):
            cluster[node].crash()
            cluster.fence(node)
        cluster.set_isr(1)
        await client.runtime.sleep(10)
        assert (await client.produce(1, b"b")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await client.produce(1, b"c", acks=1)).error_code == 0
        # It is in the log and not committed: the only replica that has it may yet be lost.
        assert await client.values(1) == [b"a"]
        for node in (2, 3):
            cluster.reregister(node)
            cluster[node].start()
        await client.until(lambda: len(cluster.state.isr) == 3)
        await client.until(lambda: cluster[1].partition.high_watermark == 2)
        assert await client.values(1) == [b"a", b"c"]
        assert (await client.produce(1, b"d")).error_code == 0

    replicated(scenario, topic=MIN_2)


def test_waiting_producers_get_an_error_when_the_isr_falls_below_the_minimum() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        cluster.world.network.isolate("node2")
        cluster.world.network.isolate("node3")
        began_ms = client.runtime.now_ms()
        answer = await client.produce(1, b"b")
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert client.runtime.now_ms() - began_ms < 4000
        assert (await client.fetch(1)).high_watermark == 1

    replicated(scenario, topic=MIN_2)


# ---- leader changes


def test_a_new_leader_has_all_that_was_acknowledged() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        for number in range(10):
            await client.produce(1, b"%d" % number)
        cluster[1].crash()
        cluster.elect(2, 2, 3)
        assert await client.until(lambda: cluster[2].partition.leader is not None) < 50
        began_ms = client.runtime.now_ms()
        assert (await client.produce(2, b"10")).error_code == 0
        # The other follower asks its new leader at once, though it may have a fetch waiting there.
        assert client.runtime.now_ms() - began_ms < 100
        assert await client.values(2) == [b"%d" % number for number in range(11)]
        cluster.reregister(1)
        cluster[1].start()
        await client.until(lambda: cluster[1].ready and cluster[1].partition.log is not None)
        await client.until(lambda: len(cluster.state.isr) == 3)
        assert cluster[1].log.end_offset == 11

    replicated(scenario)


def test_a_follower_fetch_that_arrives_before_the_leader_knows_its_role_waits() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        cluster[1].crash()
        cluster.eager = False
        cluster.elect(2, 2, 3)
        cluster[3].hear()
        await client.runtime.sleep(3000)
        cluster[2].hear()
        await client.until(lambda: cluster[2].partition.leader is not None)
        began_ms = client.runtime.now_ms()
        assert (await client.produce(2, b"b")).error_code == 0
        assert client.runtime.now_ms() - began_ms < 100

    replicated(scenario)


def test_a_tail_that_only_the_old_leader_had_is_cut_off() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        cluster.world.network.cut("node1", "node2")
        cluster.world.network.cut("node1", "node3")
        for number in range(5):
            assert (await client.produce(1, b"lost %d" % number, acks=1)).error_code == 0
        cluster.eager = False
        cluster.elect(2, 2, 3)
        cluster[2].hear()
        cluster[3].hear()
        await client.until(lambda: cluster[2].partition.leader is not None)
        assert (await client.produce(2, b"b")).error_code == 0
        # The old leader does not know yet. It may go on serving, but nothing new becomes visible there.
        assert await client.values(1) == [b"a"]
        cluster.world.network.heal_all()
        cluster[1].hear()
        cluster.eager = True
        await client.until(lambda: len(cluster.state.isr) == 3)
        assert cluster[1].epochs == cluster[2].epochs
        assert await client.values(2) == [b"a", b"b"]
        cluster.elect(1)
        await client.until(lambda: cluster[1].partition.leader is not None)
        assert await client.values(1) == [b"a", b"b"]
        assert len(cluster[1].events.named("truncated")) == 1

    replicated(scenario)


def test_a_follower_that_had_to_cut_hears_of_the_high_watermark_though_nothing_else_happens() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        cluster.world.network.cut("node1", "node2")
        cluster.world.network.cut("node1", "node3")
        await client.produce(1, b"lost", acks=1)
        cluster.eager = False
        cluster.elect(2, 2, 3)
        cluster[2].hear()
        cluster[3].hear()
        await client.until(lambda: cluster[2].partition.leader is not None)
        await client.produce(2, b"b")
        await client.runtime.sleep(1000)
        cluster.world.network.heal_all()
        cluster[1].hear()
        cluster.eager = True
        await client.until(lambda: cluster[1].partition.high_watermark == 2, limit_ms=3000)

    replicated(scenario)


def test_waiting_producers_of_a_leader_that_resigns_are_sent_to_the_new_one() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        cluster.world.network.cut("node1", "node3")
        waiting = client.runtime.spawn(client.produce(1, b"b"), "producer")
        await client.runtime.sleep(100)
        cluster.elect(2, 1, 2)
        answer = await waiting
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    replicated(scenario)


def test_a_leader_cut_from_the_controller_acknowledges_nothing_that_the_next_one_lacks() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        cluster.eager = False
        cluster.without_controller.append(1)
        cluster.elect(2, 2, 3)
        cluster[2].hear()
        cluster[3].hear()
        await client.until(lambda: cluster[3].partition.follower.leader_id == 2)
        answer = await client.produce(1, b"zombie", timeout_ms=8000)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert await client.values(1) == [b"a"]
        assert (await client.produce(2, b"b")).error_code == 0
        assert await client.values(2) == [b"a", b"b"]

    replicated(scenario)


# ---- duplicates


def test_a_duplicate_is_acknowledged_when_the_original_is_committed_and_not_before() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        once: dict[str, Any] = {"producer_id": 7, "epoch": 0, "sequence": 0}
        cluster.world.network.cut("node1", "node3")
        first = await client.produce(1, b"a", timeout_ms=500, **once)
        assert first.error_code == ErrorCode.REQUEST_TIMED_OUT
        for acks in (-1, 1):
            again = await client.produce(1, b"a", timeout_ms=300, acks=acks, **once)
            assert again.error_code == ErrorCode.REQUEST_TIMED_OUT
        cluster.world.network.heal_all()
        again = await client.produce(1, b"a", **once)
        assert (again.error_code, again.base_offset) == (0, 0)
        assert cluster[1].log.end_offset == 1

    replicated(scenario)


def test_a_retry_across_a_leader_change_is_recognised_by_the_new_leader() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        for number in range(8):
            await client.produce(1, b"%d" % number, producer_id=7, epoch=0, sequence=number)
        cluster[1].crash()
        cluster.elect(3, 2, 3)
        await client.until(lambda: cluster[3].partition.leader is not None)
        again = await client.produce(3, b"7", producer_id=7, epoch=0, sequence=7)
        assert (again.error_code, again.base_offset) == (0, 7)
        answer = await client.produce(3, b"8", producer_id=7, epoch=0, sequence=8)
        assert (answer.error_code, answer.base_offset) == (0, 8)

    replicated(scenario)


# ---- sizes, starts, syncs


def test_a_record_of_ten_megabytes_is_copied_though_fetches_are_limited_to_less() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        large = bytes(10_000_000)
        assert (await client.produce(1, large)).error_code == 0
        assert (await client.produce(1, b"small")).error_code == 0
        assert all(node.log.end_offset == 2 for node in cluster.nodes.values())

    replicated(scenario, {"message.max.bytes": "10485760"})


def test_a_follower_that_is_far_behind_catches_up() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        cluster[3].crash()
        cluster.set_isr(1, 2)
        for number in range(300):
            await client.produce(1, bytes(20_000), acks=1 if number % 10 else -1)
        cluster.reregister(3)
        cluster[3].start()
        await client.until(lambda: len(cluster.state.isr) == 3)
        assert cluster[3].log.end_offset == 300
        assert cluster[3].log.size_bytes == cluster[1].log.size_bytes

    replicated(scenario, {"log.segment.bytes": "1048576"})


def test_a_follower_whose_next_record_was_deleted_goes_on_where_the_leaders_log_starts() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        cluster[3].crash()
        cluster.set_isr(1, 2)
        for _ in range(30):
            await client.produce(1, bytes(20_000))
        leader = cluster[1]
        leader.log.trimmer.advance_start_offset(20)
        cluster.reregister(3)
        cluster[3].start()
        await client.until(lambda: len(cluster.state.isr) == 3)
        assert (cluster[3].log.start_offset, cluster[3].log.end_offset) == (20, 31)
        # And those that were in sync follow its start, too.
        await client.produce(1, b"z")
        await client.until(lambda: cluster[2].log.start_offset == 20)

    replicated(scenario)


def test_deleted_records_are_gone_on_every_replica_before_that_is_answered() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        for _ in range(10):
            await client.produce(1, b"x")
        await client.until(lambda: all(node.partition.high_watermark == 10 for node in cluster.nodes.values()))
        began_ms = client.runtime.now_ms()
        result = await delete_before(client, 4)
        assert (result.error_code, result.low_watermark) == (0, 4)
        assert client.runtime.now_ms() - began_ms < 200
        assert all(node.log.start_offset == 4 for node in cluster.nodes.values())
        cluster.world.network.cut("node1", "node3")
        cluster.without_controller.append(1)
        result = await delete_before(client, 6)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT

    replicated(scenario)


async def delete_before(client: Client, offset: int) -> Any:
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    answer = await client.call(1, DeleteRecordsRequest(topics=[topic], timeout_ms=3000), 2)
    return answer.topics[0].partitions[0]


def test_with_flush_on_a_follower_vouches_only_for_what_it_has_synced() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        for number in range(10):
            assert (await client.produce(1, b"%d" % number)).error_code == 0
            assert all(node.log.durable_end >= number + 1 for node in cluster.nodes.values())
        # All lose power at once: what was acknowledged is there.
        for node in cluster.nodes.values():
            node.crash(power_loss=True)
        for node in cluster.nodes.values():
            node.start()
        await client.until(lambda: all(node.ready for node in cluster.nodes.values()))
        await client.until(lambda: cluster[1].partition.leader is not None)
        await client.until(lambda: cluster[1].partition.high_watermark == 10)
        client.reconnect()
        assert await client.values(1) == [b"%d" % number for number in range(10)]

    replicated(scenario, topic={"flush.messages": "1"})


def test_a_broker_that_starts_again_knows_what_was_committed() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        for number in range(10):
            await client.produce(1, b"%d" % number)
        await client.runtime.sleep(3000)
        cluster[2].host.stop()
        process = cluster[2].host.process
        assert process is not None
        await client.until(lambda: process.is_dead)
        cluster.world.network.isolate("node2")
        cluster[2].start()
        await client.until(lambda: cluster[2].ready)
        assert cluster[2].partition.high_watermark == 10

    replicated(scenario)


def test_an_idle_partition_costs_a_fetch_nothing() -> None:
    """One request waits at the leader for half a second at a time, whatever the number of idle partitions."""

    async def scenario(client: Client, cluster: Replicas) -> None:
        await client.produce(1, b"a")
        await client.runtime.sleep(1000)
        served = cluster[1].service.metrics.requests[1].requests
        await client.runtime.sleep(10_000)
        assert cluster[1].service.metrics.requests[1].requests - served <= 2 * 10_000 / 500 + 4

    replicated(scenario)


# ---- other replicas, other topics


def test_a_replica_that_is_taken_away_goes_and_one_that_is_added_copies_everything() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        for number in range(10):
            await client.produce(1, b"%d" % number)
        cluster.set_replicas(1, 2)
        await client.until(lambda: cluster[3].log is None)
        assert cluster[3].manager.held == 0
        assert not cluster[3].runtime.disk.exists("t-0")
        assert (await client.produce(1, b"10")).error_code == 0
        cluster.set_replicas(1, 2, 3)
        await client.until(lambda: len(cluster.state.isr) == 3)
        assert cluster[3].log.end_offset == 11

    replicated(scenario)


def test_a_topic_that_was_made_anew_while_a_follower_was_down_is_copied_from_its_beginning() -> None:
    """Also after a clean stop: the directory has the name of the new topic and the records of the old one."""

    async def scenario(client: Client, cluster: Replicas) -> None:
        for number in range(10):
            await client.produce(1, b"old %d" % number)
        cluster[3].host.stop()
        process = cluster[3].host.process
        assert process is not None
        await client.until(lambda: process.is_dead)
        cluster.recreate()
        await client.until(lambda: cluster[1].partition.leader is not None and cluster[1].log.end_offset == 0)
        cluster.set_isr(1, 2)
        await client.produce(1, b"new")
        cluster.reregister(3)
        cluster[3].start()
        await client.until(lambda: len(cluster.state.isr) == 3)
        assert cluster[3].log.end_offset == 1
        cluster.elect(3)
        await client.until(lambda: cluster[3].partition.leader is not None)
        assert await client.values(3) == [b"new"]

    replicated(scenario)


def test_a_topic_that_is_deleted_while_it_is_copied_is_gone_everywhere() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        loads = [client.runtime.spawn(client.produce(1, bytes(100_000)), "load") for _ in range(10)]
        await client.runtime.sleep(2)
        cluster.delete()
        for load in loads:
            answer = await load
            assert answer.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await client.until(lambda: all(not node.manager.table.by_name for node in cluster.nodes.values()))

    replicated(scenario)


# ---- forged replicas


def replica_fetch(replica: int, epoch: int, *, leader_epoch: int = 0, offset: int = 0) -> FetchRequest:
    entry = FetchPartition(
        partition=0, current_leader_epoch=leader_epoch, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=epoch),
        session_epoch=-1,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[entry])],
    )


@pytest.mark.parametrize(
    ("replica", "epoch", "error"),
    [
        (9, 109, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (3, 102, ErrorCode.STALE_BROKER_EPOCH),
        (3, -1, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_who_is_no_broker_is_not_taken_for_a_replica(replica: int, epoch: int, error: ErrorCode) -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        cluster.world.network.cut("node1", "node3")
        await client.produce(1, b"a", acks=1)
        answer = await (await client.to(1)).call(replica_fetch(replica, epoch, offset=1), 17)
        assert (answer.error_code, answer.responses) == (error, [])
        assert (await client.fetch(1)).high_watermark == 0

    replicated(scenario)


def test_an_old_version_cannot_speak_for_a_replica() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        request = replica_fetch(3, 103)
        request.replica_state, request.replica_id = None, 3
        answer = await (await client.to(1)).call(request, 13)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

    replicated(scenario)


def test_a_broker_that_is_no_replica_of_the_partition_is_told_so() -> None:
    async def scenario(client: Client, cluster: Replicas) -> None:
        cluster.broker_epochs[9] = 109
        cluster.record(cluster._registration(9))
        await client.runtime.sleep(10)
        answer = await (await client.to(1)).call(replica_fetch(9, 109), 17)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    replicated(scenario)
