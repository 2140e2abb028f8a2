"""Markers of transactions on their way to partition leaders: many in one request, repeated until answered."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from coordinators.support import ShardDriver
from penstock.broker.coordination.courier import PeerCourier
from penstock.broker.net.peers import PeerUnavailable
from penstock.coordinators.shard import PartitionLeader
from penstock.metadata import EMPTY_IMAGE, MetadataImage
from penstock.sim import SimRuntime, World
from penstock.sim.broker import RecordedEvents
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Sent = list[tuple[int, list[int]]]
"""(producer id, partitions) of each marker in a request."""


class Leaders:
    """Other brokers, which answer when they are told."""

    def __init__(self, runtime: SimRuntime) -> None:
        self._runtime = runtime
        self.calls: list[tuple[int, Sent]] = []
        self.fails: list[Exception] = []
        self.takes_ms = 0.0
        self.forgets: list[int] = []
        """Partitions that the next answer does not mention."""

    async def call(self, target: int, request: Message, **options: Any) -> Message:
        assert isinstance(request, WriteTxnMarkersRequest)
        markers = [
            (one.producer_id, [i for topic in one.topics for i in topic.partition_indexes]) for one in request.markers
        ]
        self.calls.append((target, markers))
        await self._runtime.sleep(self.takes_ms)
        if self.fails:
            raise self.fails.pop(0)
        forgotten, self.forgets = self.forgets, []
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(
                    producer_id,
                    [
                        WritableTxnMarkerTopicResult(
                            "t", [WritableTxnMarkerPartitionResult(i, code) for i in partitions if i not in forgotten]
                        )
                    ],
                )
                for producer_id, partitions in markers
            ]
        )


class Post:
    def __init__(self, runtime: SimRuntime) -> None:
        self.runtime = runtime
        self.peers = Leaders(runtime)
        driver = ShardDriver(None)  # type: ignore[arg-type]
        driver.shard = NoShard()  # type: ignore[assignment]
        driver.create_topic("t", partitions=6, replicas=(2,))
        self.image: MetadataImage = driver.image
        self.courier = PeerCourier(runtime, RecordedEvents(), self.peers, lambda: self.image)  # type: ignore[arg-type]
        self.answers: list[tuple[int, int, int]] = []
        """(producer id, partition, error code), as they came."""

    def send(self, producer_id: int, partition: int) -> Any:
        marker = WritableTxnMarker(producer_id=producer_id, topics=[WritableTxnMarkerTopic("t", [partition])])
        return self.courier.send(PartitionLeader("t", partition), WriteTxnMarkersRequest([marker]), self._answered)

    def _answered(self, response: Message) -> None:
        assert isinstance(response, WriteTxnMarkersResponse)
        ((marker),) = response.markers
        ((result),) = marker.topics[0].partitions
        self.answers.append((marker.producer_id, result.partition_index, result.error_code))


class NoShard:
    def on_image(self, turn: object, delta: object) -> None: ...


def posted(scenario: Callable[[Post], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def main(runtime: SimRuntime) -> None:
            await scenario(Post(runtime))

        with World(0) as world:
            world.execute(main)

    test.__name__ = scenario.__name__
    return test


@posted
async def test_markers_of_one_turn_share_a_request_and_a_transaction_has_one_marker(post: Post) -> None:
    for producer_id, partition in ((7, 0), (8, 1), (7, 2)):
        post.send(producer_id, partition)
    await post.runtime.sleep(10)
    assert post.peers.calls == [(2, [(7, [0, 2]), (8, [1])])]
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert post.answers == [(7, 0, error), (8, 1, error), (7, 2, error)], "the shard decides what an error means"


@posted
async def test_what_comes_while_a_request_is_under_way_waits_for_the_next_one(post: Post) -> None:
    post.peers.takes_ms = 100
    post.send(7, 0)
    await post.runtime.sleep(10)
    for producer_id in (8, 9):
        post.send(producer_id, producer_id - 7)
    await post.runtime.sleep(300)
    assert post.peers.calls == [(2, [(7, [0])]), (2, [(8, [1]), (9, [2])])]
    assert len(post.answers) == 3


@posted
async def test_a_request_that_fails_is_repeated_marker_by_marker(post: Post) -> None:
    post.peers.fails = [PeerUnavailable("gone")]
    post.peers.forgets = []
    post.send(7, 0)
    cancelled = post.send(8, 1)
    await post.runtime.sleep(1)
    cancelled.cancel()
    await post.runtime.sleep(200)
    assert post.peers.calls == [(2, [(7, [0]), (8, [1])]), (2, [(7, [0])])]
    assert [answer[:2] for answer in post.answers] == [(7, 0)]


@posted
async def test_a_partition_that_an_answer_leaves_out_is_asked_for_again(post: Post) -> None:
    post.peers.forgets = [1]
    post.send(7, 0)
    post.send(7, 1)
    await post.runtime.sleep(200)
    assert post.peers.calls == [(2, [(7, [0, 1])]), (2, [(7, [1])])]
    assert [answer[:2] for answer in post.answers] == [(7, 0), (7, 1)]


@posted
async def test_without_a_leader_a_marker_waits_and_is_sent_to_whoever_leads_then(post: Post) -> None:
    image, post.image = post.image, EMPTY_IMAGE
    post.send(7, 0)
    await post.runtime.sleep(500)
    assert post.peers.calls == []
    post.image = image
    await post.runtime.sleep(2_000)
    assert post.peers.calls == [(2, [(7, [0])])]
