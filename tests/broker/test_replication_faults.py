"""Fast leader changes, crashes that lose unsynced records, and cut links: under load.

An idempotent producer with acks=all retries, a reader follows it, and the controller's news reach each node late. In
the end every acknowledged record is stored once, in order, at its acknowledged offset; every record that was read is
stored; and the logs are equal below the high watermark.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.replicas import TOPIC, Client, Replicas, replicated
from broker.session import records_of
from penstock.wire.errors import ErrorCode

FAULTS_MS = 30_000
RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


class Run:
    def __init__(self, client: Client, cluster: Replicas) -> None:
        self.client = client
        self.cluster = cluster
        self.rng = client.runtime.rng
        self.over = False
        self.acknowledged: dict[int, bytes] = {}
        self.read: dict[int, bytes] = {}
        self.known = 0
        """How much of the controller's history the producer has heard of. It never goes back."""
        self.lost_power: int | None = None
        self.retries = 0
        self.elections = 0
        self.power_losses = 0
        cluster.eager = False

    # ---- load

    async def produce(self) -> None:
        sequence = 0
        while not self.over:
            value = b"%06d" % sequence
            answer = await self.attempt(value, sequence)
            if answer is not None and not answer.error_code:
                assert answer.base_offset not in self.acknowledged, "one offset, two records"
                self.acknowledged[answer.base_offset] = value
                sequence += 1
                await self.client.runtime.sleep(self.rng.uniform(0, 60))
            else:
                assert answer is None or answer.error_code in RETRIABLE, answer
                self.retries += 1
                await self.client.runtime.sleep(self.rng.uniform(1, 100))

    async def attempt(self, value: bytes, sequence: int) -> Any:
        # Clients hear of leaders late, too: now and then they ask one that is not any more.
        self.known = self.rng.randint(self.known, len(self.cluster.history) - 1)
        state = self.cluster.history[self.known][1].partition(TOPIC, 0)
        if state is None or state.leader < 0:
            return None
        node = state.leader
        try:
            answer = await self.client.produce(node, value, timeout_ms=1500, producer_id=7, epoch=0, sequence=sequence)
        except OSError:
            return None
        if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # It does not know yet that another leads, which has taken what came before this.
            assert self.cluster[node].partition.leader_epoch < self.cluster.state.leader_epoch
            return None
        return answer

    async def consume(self, reader: Client) -> None:
        offset = 0
        while not self.over:
            node = self.cluster.state.leader if self.rng.random() < 0.8 else self.rng.choice(list(self.cluster.nodes))
            try:
                # A node that lost its power answers nothing and closes nothing.
                data = await reader.fetch(node, offset, patience_ms=2_000, max_wait_ms=100, min_bytes=1)
            except OSError:
                await reader.runtime.sleep(50)
                continue
            found = [record for record in records_of(data) if record.offset >= offset] if not data.error_code else []
            for record in found:
                assert record.offset < data.high_watermark
                self.read[record.offset] = record.value or b""
                offset = record.offset + 1
            await reader.runtime.sleep(self.rng.uniform(1, 100))

    # ---- faults

    async def misbehave(self) -> None:
        until_ms = self.client.runtime.now_ms() + FAULTS_MS
        while self.client.runtime.now_ms() < until_ms:
            await self.rng.choice((self.change_leader, self.change_leader, self.cut, self.crash, self.hear))()
            await self.client.runtime.sleep(self.rng.choice((5, 50, 500, 1500)))

    def alive(self) -> list[int]:
        return [node.node_id for node in self.cluster.nodes.values() if node.ready]

    async def hear(self) -> None:
        for node in self.cluster.nodes.values():
            if self.rng.random() < 0.7:
                node.hear()

    async def change_leader(self) -> None:
        state = self.cluster.state
        able = [node for node in state.isr if node in self.alive()]
        if not able:
            return
        leader = self.rng.choice(able)
        isr = list(state.isr)
        # Sometimes the old one is taken for dead.
        if state.leader in isr and state.leader != leader and len(isr) > 2 and self.rng.random() < 0.5:
            isr.remove(state.leader)
        self.elections += 1
        self.cluster.elect(leader, *isr)
        await self.hear()

    async def cut(self) -> None:
        one, two = self.rng.sample(list(self.cluster.nodes), 2)
        self.cluster.world.network.cut(f"node{one}", f"node{two}", one_way=self.rng.random() < 0.3)
        await self.client.runtime.sleep(self.rng.uniform(100, 4000))
        self.cluster.world.network.heal_all()

    async def crash(self) -> None:
        state = self.cluster.state
        alive = self.alive()
        if len(alive) < 2:
            return
        node = self.rng.choice(alive)
        others = [replica for replica in state.isr if replica != node]
        power_loss = self.lost_power in (None, node) and bool(others) and self.rng.random() < 0.6
        if self.lost_power is not None and others == [self.lost_power]:
            return  # the only other one may have lost what this one has
        if power_loss:
            self.lost_power = node
            self.power_losses += 1
        self.cluster[node].crash(power_loss=power_loss)
        await self.client.runtime.sleep(self.rng.uniform(50, 3000))
        self.cluster.reregister(node)
        self.cluster[node].start()
        await self.client.until(lambda: self.cluster[node].ready)
        await self.hear()
        if power_loss:
            self.client.runtime.spawn(self.wait_for_return(node), "return")

    async def wait_for_return(self, node: int) -> None:
        while node not in self.cluster.state.isr:
            await self.client.runtime.sleep(20)
        if self.lost_power == node:
            self.lost_power = None

    # ---- the end

    async def settle(self) -> None:
        cluster = self.cluster
        cluster.world.network.heal_all()
        cluster.eager = True
        cluster.all_hear()
        if cluster.state.leader < 0:
            cluster.elect(cluster.state.isr[0])
        await self.client.until(lambda: len(cluster.state.isr) == 3, limit_ms=120_000)
        self.over = True
        await self.client.runtime.sleep(3000)
        nodes = list(cluster.nodes.values())
        await self.client.until(lambda: len({node.partition.high_watermark for node in nodes}) == 1)
        await self.client.until(lambda: len({node.log.end_offset for node in nodes}) == 1)

    async def check(self) -> None:
        final = await self.client.values(self.cluster.state.leader)
        assert len(dict.fromkeys(final)) == len(final), "a record is there twice"
        for offset, value in self.acknowledged.items():
            assert final[offset] == value, f"{value!r} was acknowledged at {offset}"
        assert list(self.acknowledged) == sorted(self.acknowledged)
        for offset, value in self.read.items():
            assert final[offset] == value, f"{value!r} was read at {offset}"
        logs = [await contents(node.log) for node in self.cluster.nodes.values()]
        assert logs[0] == logs[1] == logs[2]


async def contents(log: Any) -> bytes:
    data = b""
    for segment in log.segments:
        if segment.has_file:  # a segment without records has none
            data += segment.file.read(segment.size_bytes, 0)
    return data


def run(seed: int, topic: dict[str, str] | None = None) -> tuple[Run, Replicas]:
    runs: list[Run] = []

    async def scenario(client: Client, cluster: Replicas) -> None:
        this = Run(client, cluster)
        runs.append(this)
        producer = client.runtime.spawn(this.produce(), "producer")
        consumer = client.runtime.spawn(this.consume(Client(client.runtime, cluster)), "consumer")
        await this.misbehave()
        await this.settle()
        await producer
        await consumer
        client.reconnect()
        await this.check()

    cluster = replicated(scenario, seed=f"faults-{seed}", topic={"min.insync.replicas": "2", **(topic or {})})
    return runs[0], cluster


@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost_doubled_or_moved(seed: int) -> None:
    this, _ = run(seed)
    assert len(this.acknowledged) > 20
    assert this.read


def test_with_flush_on_too() -> None:
    this, _ = run(100, {"flush.messages": "1"})
    assert this.acknowledged


def test_a_seed_tells_the_whole_story() -> None:
    digests = []
    for _ in range(2):
        _, cluster = run(300)
        digests.append(cluster.world.digest())
    assert digests[0] == digests[1]


def test_the_faults_are_worth_the_name() -> None:
    runs = [run(seed) for seed in range(203, 208)]
    assert sum(this.elections for this, _ in runs) > 10
    assert sum(this.retries for this, _ in runs) > 10
    assert sum(this.power_losses for this, _ in runs) > 0
    truncations = sum(len(node.events.named("truncated")) for _, cluster in runs for node in cluster.nodes.values())
    shrinks = sum(len(node.events.named("ISR shrunk")) for _, cluster in runs for node in cluster.nodes.values())
    assert truncations > 0
    assert shrinks > 0
