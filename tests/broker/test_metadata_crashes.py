"""Crash at every disk operation while topics, settings and producer ids change: acknowledged changes are kept, others
are kept completely or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.session import TOPIC, Session, expect_no_surprise, is_recovered
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.metadata import MetadataRequest

# So small that a snapshot of the metadata is taken on the way.
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "700"}
STRIDE = 3
"""Runs of one test: together they crash at every operation."""

State = dict[str, tuple[int, dict[str, str]]]
"""Topic: number of partitions, settings."""


@dataclass
class History:
    """The changes that the broker acknowledged, and those in progress when it crashed."""

    acknowledged: State = field(default_factory=dict)
    attempted: State | None = None
    values: dict[str, list[bytes]] = field(default_factory=dict)
    attempted_value: bytes | None = None
    producer_ids: list[int] = field(default_factory=list)

    async def step(self, state: State, change: Callable[[], Awaitable[Any]]) -> None:
        self.attempted = state
        await change()
        self.acknowledged, self.attempted = state, None


async def script(s: Session, history: History) -> None:
    """All operations that write metadata, with records in between."""

    async def two_topics() -> None:
        wanted = [
            CreatableTopic(name="a", num_partitions=2, replication_factor=1),
            CreatableTopic(
                name="b",
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="retention.ms", value="7")],
            ),
        ]
        for result in (await s.call(CreateTopicsRequest(topics=wanted))).topics:
            assert result.error_code == 0

    async def wider() -> None:
        topics = [CreatePartitionsTopic(name="b", count=3, assignments=None)]
        (result,) = (await s.call(CreatePartitionsRequest(topics=topics))).results
        assert result.error_code == 0

    state: State = {}

    def now(name: str, entry: tuple[int, dict[str, str]] | None) -> State:
        nonlocal state
        state = {key: value for key, value in state.items() if key != name}
        if entry is not None:
            state[name] = entry
        return state

    state = {"a": (2, {}), "b": (1, {"retention.ms": "7"})}
    await history.step(state, two_topics)
    await record(s, history, "a", b"first of a")
    history.producer_ids.append(await s.producer_id())
    await history.step(now("a", (2, {"flush.messages": "1"})), lambda: s.alter("a", flush_messages="1"))
    await record(s, history, "a", b"second of a")
    await history.step(now("b", (3, {"retention.ms": "7"})), wider)
    await history.step(now("a", None), lambda: s.delete("a"))
    history.values.pop("a", None)
    await history.step(now("a", (1, {"flush.messages": "1"})), lambda: s.create("a", 1, flush_messages="1"))
    await record(s, history, "a", b"another a")
    history.producer_ids.append(await s.producer_id())
    changed = {"segment.ms": "9"}
    await history.step(now("b", (3, changed)), lambda: s.alter("b", retention_ms=None, segment_ms="9"))
    await history.step(now("b", None), lambda: s.delete("b"))


async def record(s: Session, history: History, topic: str, value: bytes) -> None:
    history.attempted_value = value
    answer = await s.produce(topic, value)
    assert answer.error_code == 0, answer
    if history.acknowledged[topic][1].get("flush.messages") == "1":
        history.values.setdefault(topic, []).append(value)
    history.attempted_value = None


async def state_of(s: Session) -> State:
    image = s.node.served.quorum.image
    found: State = {}
    for topic in (await s.call(MetadataRequest(topics=None))).topics:
        assert [part.partition_index for part in topic.partitions] == list(range(len(topic.partitions)))
        assert all(part.error_code == 0 and part.leader_id == 1 for part in topic.partitions)
        found[topic.name] = (len(topic.partitions), dict(image.config(TOPIC, topic.name)))
    return found


async def verify(s: Session, history: History) -> None:
    await s.until(lambda: is_recovered(s.node))
    found = await state_of(s)
    assert found in (history.acknowledged, history.attempted)
    for name, (partitions, _) in found.items():
        for partition in range(partitions):
            assert (await s.produce(name, b"after", partition=partition)).error_code == 0
    if found == history.acknowledged:
        for topic, values in history.values.items():
            stored = (await s.values(topic))[:-1]
            allowed = [values, [*values, history.attempted_value]]
            assert [value for value in stored if value in values] == values, "what was acknowledged is there"
            known = {b"first of a", b"second of a"} if b"another a" not in values else {b"another a"}
            assert set(stored) <= known | {history.attempted_value}, allowed
    ids = [await s.producer_id() for _ in range(2)]
    assert len({*history.producer_ids, *ids}) == len(history.producer_ids) + len(ids), "no id is given twice"


def crash_at(operation: int | None, *, power_loss: bool, seed: int) -> int:
    """Run the script with a crash in this operation, restart, verify. Returns the number of operations in the
    script."""
    history = History()
    with World(f"{seed}-{operation}") as world:
        node = SimBroker(world, SETTINGS)
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
        if operation is None:
            assert node.events.named("metadata snapshot")
        node.restart(power_loss=power_loss)

        async def after(runtime: SimRuntime) -> None:
            await verify(await Session.open(runtime, node), history)

        world.execute(after)
        expect_no_surprise(node)
        node.stop()
    return count


@pytest.mark.parametrize("part", range(STRIDE))
@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_a_crash_at_any_operation_leaves_the_metadata_whole(power_loss: bool, part: int) -> None:
    total = crash_at(None, power_loss=power_loss, seed=0)
    assert total > 60
    for operation in range(1 + part, total + 5, STRIDE):
        crash_at(operation, power_loss=power_loss, seed=part)


def test_producer_ids_are_never_given_twice_however_often_it_crashes() -> None:
    given: list[int] = []
    with World(5) as world:
        node = SimBroker(world)
        node.start()
        for round_number in range(6):

            async def main(runtime: SimRuntime) -> None:
                s = await Session.open(runtime, node)
                given.extend([await s.producer_id() for _ in range(3)])

            world.execute(main)
            if round_number % 3 == 2:
                node.stop()
                node.start()
            else:
                node.restart(power_loss=round_number % 2 == 1)
        assert len(set(given)) == len(given) == 18


def test_a_block_of_producer_ids_is_used_up_before_the_next_is_asked_for() -> None:
    with World(6) as world:
        node = SimBroker(world)
        node.start()

        async def main(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            offset = node.served.quorum.image.offset
            found = [await s.producer_id() for _ in range(1001)]
            assert found == list(range(found[0], found[0] + 1001))
            assert node.served.quorum.image.offset - offset == 2

        world.execute(main)
