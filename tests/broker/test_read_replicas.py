"""Consumers that read from a replica near to them (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from broker.cluster_load import ClusterClient, high_watermark
from broker.clusters import ask
from broker.reassigning import SETTINGS, is_at, move, place, state_now
from broker.session import expect_no_surprise, fetch_request, records_of
from penstock.config import RACK_AWARE_SELECTOR
from penstock.sim import SimRuntime, World
from penstock.sim.cluster import SimCluster
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_cluster import DescribeClusterRequest

VALUES = [b"%d" % number for number in range(10)]


@contextmanager
def racks(*names: str | None, seed: str, selector: str | None = RACK_AWARE_SELECTOR) -> Iterator[SimCluster]:
    with World(seed) as world:
        cluster = SimCluster(world, len(names), SETTINGS)
        for node, rack in zip(cluster.nodes, names, strict=True):
            own: Mapping[str, str] = {"broker.rack": rack} if rack else {}
            chosen = {"replica.selector.class": selector} if selector else {}
            node.settings = {**node.settings, **own, **chosen}
        cluster.start()
        yield cluster
        for node in cluster.nodes:
            expect_no_surprise(node)


def filled(cluster: SimCluster, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
    place(cluster, replicas)

    async def main(runtime: SimRuntime) -> None:
        client = ClusterClient(runtime, cluster)
        for value in VALUES:
            result = await client.produce(value)
            assert result is not None
            assert result.error_code == 0
        await client.until(lambda: {high_watermark(cluster.node(replica)) for replica in replicas} == {len(VALUES)})

    cluster.world.execute(main)


def fetch(cluster: SimCluster, node: int, offset: int = 0, *, version: int = 12, **options: Any) -> Any:
    answer = ask(cluster, node, fetch_request("t", offset, **options), version)
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


def test_a_leader_sends_a_consumer_to_the_replica_in_its_rack() -> None:
    with racks("a", "b", "c", seed="sent") as cluster:
        filled(cluster)
        for rack, node in (("b", 2), ("c", 3)):
            told = fetch(cluster, 1, rack_id=rack, max_wait_ms=60_000, min_bytes=1)
            assert (told.error_code, told.preferred_read_replica, told.high_watermark) == (0, node, len(VALUES))
            assert not told.records
            near = fetch(cluster, node, rack_id=rack)
            assert (near.error_code, near.preferred_read_replica, near.high_watermark) == (0, -1, len(VALUES))
            assert [record.value for record in records_of(near)] == VALUES


@pytest.mark.parametrize("rack", ["a", "elsewhere", ""])
def test_others_stay_with_the_leader(rack: str) -> None:
    with racks("a", "b", "c", seed="stay") as cluster:
        filled(cluster)
        told = fetch(cluster, 1, rack_id=rack)
        assert told.preferred_read_replica == -1
        assert [record.value for record in records_of(told)] == VALUES


@pytest.mark.parametrize("selector", [None, "org.apache.kafka.common.replica.LeaderSelector"])
def test_without_the_selector_all_stay_with_the_leader(selector: str | None) -> None:
    with racks("a", "b", "c", seed="none", selector=selector) as cluster:
        filled(cluster)
        told = fetch(cluster, 1, rack_id="b")
        assert told.preferred_read_replica == -1
        assert [record.value for record in records_of(told)] == VALUES


def test_a_session_is_told_of_the_replica_each_time_it_asks_the_leader() -> None:
    with racks("a", "b", "c", seed="session") as cluster:
        filled(cluster)

        async def main(runtime: SimRuntime) -> None:
            client = await cluster.connect(runtime, 1)
            first = await client.call(fetch_request("t", 0, rack_id="b", session_epoch=0), 12)
            assert first.responses[0].partitions[0].preferred_read_replica == 2
            again = fetch_request("t", 0, rack_id="b", session_id=first.session_id, session_epoch=1)
            again.topics = []
            answer = await client.call(again, 12)
            assert answer.responses[0].partitions[0].preferred_read_replica == 2
            client.close()

        cluster.world.execute(main)


def test_a_consumer_that_does_not_know_of_this_is_not_served_by_followers() -> None:
    with racks("a", "b", "c", seed="old") as cluster:
        filled(cluster)
        assert fetch(cluster, 2, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetch(cluster, 2, version=11).error_code == 0


def test_a_follower_serves_what_it_knows_to_be_committed() -> None:
    with racks("a", "b", "c", seed="committed") as cluster:
        filled(cluster)
        end = len(VALUES)
        at_end = fetch(cluster, 2, end)
        assert (at_end.error_code, at_end.high_watermark, bool(at_end.records)) == (0, end, False)
        assert fetch(cluster, 2, end + 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        epoch = state_now(cluster).leader_epoch
        assert fetch(cluster, 2, leader_epoch=epoch).error_code == 0
        assert fetch(cluster, 2, leader_epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert fetch(cluster, 2, 3, last_fetched_epoch=epoch).error_code == 0


def test_a_consumer_that_waits_at_a_follower_hears_of_a_record_within_milliseconds() -> None:
    """Followers are told of a new high watermark at once if consumers may wait for it there."""
    with racks("a", "b", "c", seed="soon") as cluster:
        filled(cluster)

        async def main(runtime: SimRuntime) -> None:
            reader = await cluster.connect(runtime, 2)
            writer = ClusterClient(runtime, cluster)
            waiting = runtime.spawn(
                reader.call(fetch_request("t", len(VALUES), max_wait_ms=60_000, min_bytes=1, rack_id="b"), 12), "reader"
            )
            await runtime.sleep(2_000)
            result = await writer.produce(b"new")
            assert result.error_code == 0
            began_ms = runtime.now_ms()
            answer = await waiting
            assert runtime.now_ms() - began_ms < 50
            assert [record.value for record in records_of(answer.responses[0].partitions[0])] == [b"new"]
            reader.close()

        cluster.world.execute(main)


def test_consumers_are_not_sent_to_replicas_out_of_sync_or_out_of_service() -> None:
    with racks("a", "b", "c", seed="out") as cluster:
        filled(cluster)
        cluster.node(2).crash()
        cluster.await_(lambda: 2 not in state_now(cluster).isr)
        cluster.await_images()
        told = fetch(cluster, 1, rack_id="b")
        assert told.preferred_read_replica == -1
        assert [record.value for record in records_of(told)] == VALUES


def test_a_reader_of_a_follower_that_is_moved_away_is_sent_on() -> None:
    with racks("a", "b", "c", "d", seed="moved") as cluster:
        filled(cluster)

        async def main(runtime: SimRuntime) -> None:
            client = ClusterClient(runtime, cluster)
            reader = await cluster.connect(runtime, 2)
            waiting = runtime.spawn(
                reader.call(fetch_request("t", len(VALUES), max_wait_ms=60_000, min_bytes=1), 12), "reader"
            )
            await runtime.sleep(100)
            began_ms = runtime.now_ms()
            assert await move(client, (1, 4, 3)) == 0
            await client.until(lambda: is_at(cluster, (1, 4, 3)))
            answer = await waiting
            assert runtime.now_ms() - began_ms < 10_000
            assert answer.responses[0].partitions[0].error_code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH,
            )  # fmt: skip
            reader.close()

        cluster.world.execute(main)


def test_racks_are_told_and_new_partitions_spread_over_them() -> None:
    with racks("a", "a", "b", None, seed="spread") as cluster:
        described = ask(cluster, 1, DescribeClusterRequest(), 1)
        assert [broker.rack for broker in described.brokers] == ["a", "a", "b", None]
