"""Requests of coordinators to other brokers: sent again until they are answered, to whoever leads by then."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

from coordinators.support import ShardDriver
from penstock.broker.coordination.courier import RETRY_MAX_MS, PeerCourier
from penstock.broker.net.peers import PeerUnavailable
from penstock.coordinators.shard import BrokerId, PartitionLeader
from penstock.metadata import EMPTY_IMAGE, MetadataImage
from penstock.sim import SimRuntime, World
from penstock.sim.broker import RecordedEvents
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode, KafkaError
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class Neighbours:
    """Other brokers, of which some answer."""

    def __init__(self, runtime: SimRuntime) -> None:
        self._runtime = runtime
        self.calls: list[tuple[float, int]] = []
        self.fails: list[Exception] = []
        self.takes_ms = 0.0

    async def call(self, target: int, request: Message, **options: Any) -> Message:
        self.calls.append((self._runtime.now_ms(), target))
        await self._runtime.sleep(self.takes_ms)
        if self.fails:
            raise self.fails.pop(0)
        return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


class Post:
    def __init__(self, runtime: SimRuntime) -> None:
        self.runtime = runtime
        self.peers = Neighbours(runtime)
        self.events = RecordedEvents()
        self.image: MetadataImage = EMPTY_IMAGE
        self.courier = PeerCourier(runtime, self.events, self.peers, lambda: self.image)  # type: ignore[arg-type]
        self.answers: list[Message] = []

    def send(self, recipient: BrokerId | PartitionLeader) -> Any:
        return self.courier.send(recipient, HeartbeatRequest(), self.answers.append)


def posted(scenario: Callable[[Post], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def main(runtime: SimRuntime) -> None:
            await scenario(Post(runtime))

        with World(0) as world:
            world.execute(main)

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


@posted
async def test_an_answer_is_an_answer_whatever_error_it_carries(post: Post) -> None:
    post.send(BrokerId(2))
    await post.runtime.sleep(10)
    assert [target for _, target in post.peers.calls] == [2]
    assert len(post.answers) == 1


@posted
async def test_what_fails_on_the_way_is_sent_again_after_pauses_that_grow_up_to_a_limit(post: Post) -> None:
    post.peers.fails = [PeerUnavailable("gone") for _ in range(9)]
    post.peers.fails.append(KafkaError(ErrorCode.UNSUPPORTED_VERSION, "an older release"))
    post.send(BrokerId(2))
    await post.runtime.sleep(20_000)
    assert len(post.answers) == 1
    times = [at_ms for at_ms, _ in post.peers.calls]
    pauses = [after - before for before, after in pairwise(times)]
    assert len(pauses) == 10
    assert pauses == sorted(pauses)
    assert pauses[0] < 50
    assert pauses[-1] == RETRY_MAX_MS
    assert post.events.named("coordinator repeats a request")


@posted
async def test_a_request_to_a_leader_waits_for_one_and_follows_the_leadership(post: Post) -> None:
    post.send(PartitionLeader("t", 0))
    await post.runtime.sleep(1_000)
    assert post.peers.calls == [], "there is no such topic yet"
    post.peers.fails = [PeerUnavailable("gone")]
    post.image = led_by(3)
    await post.runtime.sleep(1_001)
    assert [target for _, target in post.peers.calls] == [3]
    post.image = led_by(4)
    await post.runtime.sleep(1_001)
    assert [target for _, target in post.peers.calls] == [3, 4]
    assert len(post.answers) == 1


@posted
async def test_what_was_cancelled_is_neither_repeated_nor_answered(post: Post) -> None:
    post.peers.fails = [PeerUnavailable("gone")]
    post.send(BrokerId(2)).cancel()
    late = post.send(BrokerId(3))
    post.peers.takes_ms = 10
    await post.runtime.sleep(25)
    late.cancel()
    await post.runtime.sleep(5_000)
    assert post.answers == []
    assert {target for _, target in post.peers.calls} == {3}


def led_by(broker: int) -> MetadataImage:
    driver = ShardDriver(Deaf())  # type: ignore[arg-type]
    driver.create_topic("t", 1, replicas=(broker,))
    return driver.image


class Deaf:
    def on_image(self, turn: object, delta: object) -> None: ...
