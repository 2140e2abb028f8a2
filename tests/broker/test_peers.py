"""Requests from node to node: versions, time-outs, broken connections, back-off, and who the controller is."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from broker.session import Session, records_of
from penstock.broker.net.peer_connection import ANSWER_BYTES_MAX, GROW_BYTES, PeerConnection, PeerUnavailable
from penstock.broker.net.peers import ControllerLocation, Peers
from penstock.runtime import BufferedProtocol
from penstock.sim import SimRuntime, World
from penstock.sim.broker import KAFKA_PORT, SimBroker
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.vote import VoteRequest

ADDRESS = ("broker", KAFKA_PORT)


def scenario(world: World, main: Any) -> Any:
    async def run(runtime: SimRuntime) -> Any:
        peers = Peers(runtime, 7)
        try:
            return await main(runtime, peers)
        finally:
            peers.close()

    return world.execute(run)


async def failure(call: Coroutine[Any, Any, Any]) -> PeerUnavailable:
    with pytest.raises(PeerUnavailable) as failed:
        await call
    return failed.value


def test_many_requests_share_a_connection_and_each_gets_its_own_answer() -> None:
    with World(1) as world:
        SimBroker(world).start()

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            answers = [
                runtime.spawn(peers.call(ADDRESS, DescribeClusterRequest(), timeout_ms=1_000), "a"),
                runtime.spawn(peers.call(ADDRESS, MetadataRequest(topics=None), timeout_ms=1_000), "b"),
                runtime.spawn(peers.call(ADDRESS, DescribeClusterRequest(), timeout_ms=1_000), "c"),
            ]
            one, two, three = [await answer for answer in answers]
            assert one.cluster_id == two.cluster_id == three.cluster_id
            assert len(runtime.process.transports) == 1

        scenario(world, main)


def test_a_broker_is_found_by_its_id() -> None:
    with World(1) as world:
        SimBroker(world).start()

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            peers.broker_address = {1: ADDRESS}.get
            assert (await peers.call(1, DescribeClusterRequest(), timeout_ms=1_000)).controller_id == 1
            assert "node 2 is not known" in (await failure(peers.call(2, MetadataRequest(), timeout_ms=9))).reason

        scenario(world, main)


def test_a_request_that_the_peer_does_not_support_is_not_sent() -> None:
    with World(1) as world:
        SimBroker(world).start()

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            with pytest.raises(KafkaError) as refused:
                await peers.call(ADDRESS, VoteRequest(), timeout_ms=1_000)
            assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
            assert "speaks no version of Vote" in refused.value.message
            assert (await peers.exchange(ADDRESS, MetadataRequest(), version=9, timeout_ms=1_000)).version == 9

        scenario(world, main)


def test_a_refused_connection_is_distinguished_from_silence() -> None:
    with World(1) as world:
        world.host("broker")

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            began_ms = runtime.now_ms()
            refused = await failure(peers.call(ADDRESS, MetadataRequest(), timeout_ms=5_000))
            assert (refused.refused, refused.sent) == (True, False)
            assert runtime.now_ms() - began_ms < 100
            world.network.cut("client", "broker")
            silent = await failure(peers.call(ADDRESS, MetadataRequest(), timeout_ms=500))
            assert (silent.refused, silent.sent) == (False, False)
            unknown = await failure(peers.call(("nowhere", 1), MetadataRequest(), timeout_ms=500))
            assert not unknown.refused

        scenario(world, main)


def test_a_peer_that_is_down_is_not_asked_again_and_again_without_pause() -> None:
    with World(1) as world:
        world.host("broker")

        async def main(runtime: SimRuntime, peers: Peers) -> int:
            attempts = 0
            until_ms = runtime.now_ms() + 10_000
            while runtime.now_ms() < until_ms:
                await failure(peers.call(ADDRESS, MetadataRequest(), timeout_ms=5_000))
                attempts += 1
            return attempts

        assert 15 < scenario(world, main) < 40


def test_a_request_without_an_answer_ends_its_connection_and_the_next_one_gets_a_new_one() -> None:
    with World(1) as world:
        node = SimBroker(world)
        node.start()

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            await peers.call(ADDRESS, MetadataRequest(), timeout_ms=1_000)
            node.host.pause()
            late = await failure(peers.call(ADDRESS, MetadataRequest(), timeout_ms=300))
            assert "did not answer within 300 ms" in late.reason
            assert late.sent
            node.host.resume()
            await peers.call(ADDRESS, MetadataRequest(), timeout_ms=1_000)

        scenario(world, main)


def test_a_peer_that_says_nothing_is_given_up_long_before_the_time_is_up() -> None:
    with World(1) as world:
        broker = SimBroker(world)
        broker.start()

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            await peers.call(ADDRESS, DescribeClusterRequest(), timeout_ms=1_000)
            world.network.cut("broker", runtime.process.host.name)
            began_ms = runtime.now_ms()
            request = DescribeClusterRequest()
            error = await failure(peers.call(ADDRESS, request, timeout_ms=30_000, silence_ms=2_000))
            assert "has said nothing for 2000 ms" in error.reason
            assert 1_999 < runtime.now_ms() - began_ms < 2_100
            world.network.heal_all()
            began_ms = runtime.now_ms()
            await peers.call(ADDRESS, DescribeClusterRequest(), timeout_ms=1_000)
            assert runtime.now_ms() - began_ms < 100

        scenario(world, main)


def test_a_large_answer_on_a_slow_link_is_not_silence() -> None:
    with World(1) as world:
        node = SimBroker(world)
        node.start()

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            session = await Session.open(runtime, node)
            topic_id = await session.create("t")
            for _ in range(8):
                assert (await session.produce("t", bytes(100_000))).error_code == 0
            await peers.call(ADDRESS, DescribeClusterRequest(), timeout_ms=1_000)
            world.network.link(node.name, runtime.process.host.name).bytes_per_ms = 60
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
            request = FetchRequest(
                max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])]
            )
            began_ms = runtime.now_ms()
            answer = await peers.call(ADDRESS, request, timeout_ms=60_000, silence_ms=6_000)
            assert len(answer.responses[0].partitions[0].records) > 800_000
            assert runtime.now_ms() - began_ms > 8_000

        scenario(world, main)


def test_a_process_that_stood_still_reads_what_came_before_it_gives_a_peer_up() -> None:
    with World(1) as world:
        SimBroker(world).start()

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            await peers.call(ADDRESS, DescribeClusterRequest(), timeout_ms=1_000)
            # The answer comes while this process is stopped.
            host = runtime.process.host
            call = runtime.spawn(
                peers.call(ADDRESS, DescribeClusterRequest(), timeout_ms=30_000, silence_ms=2_000), "call"
            )
            runtime.call_later(0, host.pause)
            world.after(5_000, host.resume)
            assert (await call).controller_id == 1

        scenario(world, main)


def test_a_crash_ends_what_waits_and_a_restart_is_found() -> None:
    with World(1) as world:
        node = SimBroker(world)
        node.start()

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            session = await Session.open(runtime, node)
            wanted = [FetchTopic(topic_id=await session.create("t"), partitions=[FetchPartition(partition=0)])]
            parked = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=wanted)
            waits = runtime.spawn(failure(peers.call(ADDRESS, parked, timeout_ms=90_000, channel="f")), "parked")
            await runtime.sleep(50)
            # What is parked on one channel holds up nobody on another.
            await peers.call(ADDRESS, MetadataRequest(), timeout_ms=1_000)
            node.host.kill()
            assert (await waits).sent
            node.begin()
            while True:
                try:
                    await peers.call(ADDRESS, MetadataRequest(), timeout_ms=1_000)
                    break
                except PeerUnavailable:
                    await runtime.sleep(10)

        scenario(world, main)


def test_a_large_answer_arrives_whole() -> None:
    with World(1) as world:
        node = SimBroker(world, {"message.max.bytes": "8000000"})
        node.start()
        value = bytes(range(256)) * 20_000

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            session = await Session.open(runtime, node)
            topic_id = await session.create("t")
            assert (await session.produce("t", value)).error_code == 0
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
            request = FetchRequest(
                max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])]
            )
            answer = await peers.call(ADDRESS, request, timeout_ms=10_000)
            (part,) = answer.responses[0].partitions
            assert [record.value for record in records_of(part)] == [value]
            await peers.call(ADDRESS, MetadataRequest(), timeout_ms=1_000)

        scenario(world, main)


# -- peers that say what cannot be ------------------------------------------------------------------------------------


class Hostile(BufferedProtocol):
    """Answers whatever comes with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._buffer = bytearray(65536)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(self._answer)


VERSIONS = b"\0\0\0\0\0\0"
"""How an answer to the first request of a connection begins: correlation id and error code."""


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((ANSWER_BYTES_MAX + 1).to_bytes(4, "big"), id="too long"),
        pytest.param(b"\xff\xff\xff\xff", id="a negative length"),
        pytest.param(b"\0\0\0\3abc", id="no correlation id"),
        pytest.param(b"\0\0\0\x0b" + VERSIONS + b"\xff\xff\xff\xff\x0f", id="four billion elements"),
        pytest.param(b"\0\0\0\6" + VERSIONS, id="cut short"),
    ],
)
def test_an_answer_that_is_none_ends_the_connection_at_once(answer: bytes) -> None:
    with World(1) as world:

        async def serve(runtime: SimRuntime) -> None:
            await runtime.listen("broker", KAFKA_PORT, lambda: Hostile(answer))
            await runtime.sleep(60_000)

        world.host("broker").start(serve)
        world.run(10)

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            began_ms = runtime.now_ms()
            failed = await failure(peers.call(ADDRESS, MetadataRequest(), timeout_ms=30_000))
            assert not failed.refused
            assert runtime.now_ms() - began_ms < 1_000

        scenario(world, main)


def test_an_announced_length_takes_no_memory_before_the_bytes_come() -> None:
    connection = PeerConnection("peer", lambda _: None)
    said = ANSWER_BYTES_MAX.to_bytes(4, "big") + bytes(100)
    connection.get_buffer(-1)[: len(said)] = said
    connection.buffer_updated(len(said))
    assert len(connection.get_buffer(-1)) <= GROW_BYTES


def test_a_peer_that_answers_nothing_is_asked_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.net.peer_channel.PENDING_MAX", 10)
    with World(1) as world:
        node = SimBroker(world)
        node.start()

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            await peers.call(ADDRESS, MetadataRequest(), timeout_ms=1_000)
            node.host.pause()
            waiting = [
                runtime.spawn(failure(peers.call(ADDRESS, MetadataRequest(), timeout_ms=5_000)), "call")
                for _ in range(10)
            ]
            await runtime.sleep(1)
            one_more = await failure(peers.call(ADDRESS, MetadataRequest(), timeout_ms=5_000))
            assert one_more.reason.endswith("has 10 requests to answer already")
            assert not one_more.sent
            for one in waiting:
                assert (await one).sent
            node.host.resume()

        scenario(world, main)


# -- the controller --------------------------------------------------------------------------------------------------


def test_a_request_finds_the_controller_when_there_is_one() -> None:
    with World(1) as world:

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            where: list[ControllerLocation | None] = [None]
            peers.controller_location = lambda: where[0]

            async def answer(request: Message, version: int) -> AllocateProducerIdsResponse:
                return AllocateProducerIdsResponse(producer_id_start=5)

            peers.local_controller = answer
            request = AllocateProducerIdsRequest(broker_id=1)
            found = runtime.spawn(peers.controller_call(request, timeout_ms=10_000), "call")
            await runtime.sleep(1_000)
            assert not found.done()
            began_ms = runtime.now_ms()
            where[0] = ControllerLocation(7, ("", 0))
            peers.controller_changed()
            assert (await found).producer_id_start == 5
            assert runtime.now_ms() - began_ms < 5

        scenario(world, main)


def test_without_a_controller_time_runs_out() -> None:
    with World(1) as world:
        world.host("broker")

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            peers.controller_location = lambda: ControllerLocation(1, ADDRESS)
            began_ms = runtime.now_ms()
            with pytest.raises(KafkaError) as refused:
                await peers.controller_call(AllocateProducerIdsRequest(), timeout_ms=2_000)
            assert refused.value.code == ErrorCode.NOT_CONTROLLER
            assert "found no active controller: node 1" in refused.value.message
            assert 2_000 <= runtime.now_ms() - began_ms < 3_000

        scenario(world, main)


def test_a_controller_that_stands_still_is_left_when_another_takes_over() -> None:
    with World(1) as world:
        node = SimBroker(world)
        node.start()

        async def main(runtime: SimRuntime, peers: Peers) -> None:
            where = [ControllerLocation(1, ADDRESS)]
            peers.controller_location = lambda: where[0]
            node.host.pause()
            call = runtime.spawn(peers.controller_call(AllocateProducerIdsRequest(), timeout_ms=30_000), "call")
            await runtime.sleep(500)

            async def answer(request: Message, version: int) -> AllocateProducerIdsResponse:
                return AllocateProducerIdsResponse(producer_id_start=9)

            peers.local_controller = answer
            where[0] = ControllerLocation(7, ("", 0))
            peers.controller_changed()
            assert (await call).producer_id_start == 9
            node.host.resume()

        scenario(world, main)
