"""One round: a cluster, a polite client with its own topic, and an attacker.

After every batch of cases:

- no process has ended, no handler has raised an unexpected error, no exception has escaped from a callback;
- the polite client is served, and an independent decoder finds everything in its topic;
- the attacker's topics respond, and every record accepted into them is readable: nothing poisons or blocks a topic;
- the memory of this process (the nodes, and all that is on their disks) stays within a bound.

Forged requests on the controller port may cause an election, so the polite client retries for some time.
"""

from __future__ import annotations

import gc
import resource
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from penstock.sim.broker import KAFKA_PORT, request_frame
from penstock.sim.client import FrameClient
from penstock.sim.cluster import CONTROLLER_PORT, SimCluster
from penstock.sim.fuzz import bodies
from penstock.sim.fuzz.decoder import Unreadable, read_values
from penstock.sim.fuzz.frames import random_frame, with_length
from penstock.sim.fuzz.unfolding import Unfolded, counting_unfolded
from penstock.sim.guard import guarded
from penstock.sim.runtime import SimRuntime
from penstock.sim.trials.clients import ClusterClient, NoLeader, PartitionClient
from penstock.sim.world import World
from penstock.wire.apis import OF_CONTROLLERS, SERVED
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import Record, build_batch

__all__ = ["ROUND_CASES", "Case", "Failure", "Report", "draw_round", "nodes_of", "run_cases", "run_round"]

ROUND_CASES = 4_000
NODES = (1, 3)
BATCH_CASES = 200
AT_ONCE = 8
"""The number of cases sent before the cluster gets a moment to respond, each on its own connection: a case that closes
a shared connection would hide the ones after it."""
MOMENT_MS = 5.0
PATIENCE_MS = 60_000.0
GROWTH_BYTES_MAX = 512 << 20
REQUEST_UNFOLDED_BYTES_MAX = 4 << 20
UNFOLDED_BYTES_MAX = 512 << 20
"""The limit for all requests of a batch of cases. A request of bombs is refused after some tens of megabytes: each of
its batches may be in progress when the first one has used up the request's budget. Without a budget it would decompress
to more than a gigabyte."""
MINE, PACKED, TARGET = "mine", "packed", "target"
THEIRS = ("t", "u", PACKED, TARGET)
PARTITIONS = {MINE: 1, "t": 2, "u": 2, PACKED: bodies.BOMBS_MAX, TARGET: bodies.BOMBS_MAX}
"""The last two have as many partitions as a request has bombs. The first of them decompresses batches to store them in
another codec, as far as they fit; the other one decompresses them whole, to check every record."""
CREATE_VERSION, PRODUCE_VERSION, FETCH_VERSION = 7, 9, 12


class Failure(AssertionError):
    """A check after a batch of cases failed."""


class Case(NamedTuple):
    """Bytes for one port of one node, on a shared connection."""

    node: int
    port: int
    connection: int
    data: bytes
    then_close: bool = False


@dataclass
class Report:
    """The result of a round."""

    cases: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    failure: str = ""


def draw(seed: str, count: int, nodes: int, ids: dict[str, bytes]) -> list[Case]:
    """The cases of a round, determined by its seed alone."""
    rng = Random(seed)
    return [_case(rng, number % AT_ONCE, nodes, ids) for number in range(count)]


def _case(rng: Random, connection: int, nodes: int, ids: dict[str, bytes]) -> Case:
    of_controllers = rng.random() < 0.35
    table, port = (OF_CONTROLLERS, CONTROLLER_PORT) if of_controllers else (SERVED, KAFKA_PORT)
    where = rng.randint(1, nodes), port, connection
    kind = rng.random()
    if kind < 0.12 and not of_controllers:
        return Case(*where, with_length(_produce(rng)))
    frame = random_frame(rng, ids, table=table, harmless=rng.random() < 0.8)
    if kind < 0.9:
        return Case(*where, with_length(frame))
    if kind < 0.94:  # several at once
        more = [random_frame(rng, ids, table=table, harmless=True) for _ in range(rng.randint(2, 5))]
        return Case(*where, b"".join(map(with_length, (frame, *more))))
    if kind < 0.97:  # truncated
        whole = with_length(frame)
        return Case(*where, whole[: rng.randrange(len(whole))], then_close=True)
    if kind < 0.985:  # a length that is not the frame's
        return Case(*where, with_length(frame, rng.choice((0, -1, 7, len(frame) + 1, len(frame) - 1, 1 << 30))))
    return Case(*where, rng.randbytes(rng.choice((1, 4, 30, 300))))


def _produce(rng: Random) -> bytes:
    """Invalid records, or decompression bombs, for topics that exist."""
    topic = rng.choice(THEIRS)
    if rng.random() < 0.01:
        topic = rng.choice((PACKED, TARGET))
        parts = [PartitionProduceData(index=index, records=bomb) for index, bomb in enumerate(bodies.bombs(rng))]
    else:
        parts = [PartitionProduceData(index=rng.choice((0, 0, 1)), records=bodies.any_body(rng))]
    request = ProduceRequest(
        acks=rng.choice((-1, 1, 0)), timeout_ms=500, topic_data=[TopicProduceData(name=topic, partition_data=parts)]
    )
    return request_frame(request, rng.randint(3, PRODUCE_VERSION), rng.randrange(1 << 31))


class Round:
    def __init__(
        self, world: World, nodes: int, settings: Mapping[str, str] | None = None, unfolded: Unfolded | None = None
    ) -> None:
        settings = {
            "auto.create.topics.enable": "false",
            "default.replication.factor": str(min(3, nodes)),
            "offsets.topic.replication.factor": str(min(3, nodes)),
            "offsets.topic.num.partitions": "2",
            "penstock.decompression.request.bytes.max": str(REQUEST_UNFOLDED_BYTES_MAX),
            **(settings or {}),
        }
        self.world = world
        self.cluster = SimCluster(world, nodes, settings)
        self.report = Report()
        self._unfolded = unfolded or Unfolded()
        self.kept: list[bytes] = []
        """The acknowledged records of the polite client, by offset."""
        self._copies = min(3, nodes)
        self._offsets = dict.fromkeys(((topic, index) for topic in THEIRS for index in (0, 1)), 0)
        self._ids: dict[str, bytes] = {}
        self._peak_bytes = 0

    def start(self) -> dict[str, bytes]:
        """Starts the cluster; returns the ids of the attacker's topics."""
        self.cluster.start()
        self.world.execute(self._create, host="polite")
        self._peak_bytes = _peak_bytes()
        return self._ids

    def run(self, cases: Sequence[Case]) -> None:
        for first in range(0, len(cases), BATCH_CASES):
            batch = cases[first : first + BATCH_CASES]
            self.world.execute(partial(self._attack, batch), host="attacker")
            self.report.cases += len(batch)
            self.check()

    # ---- the attacker

    async def _attack(self, cases: Sequence[Case], runtime: SimRuntime) -> None:
        connections: dict[tuple[int, int, int], FrameClient] = {}
        for number, case in enumerate(cases):
            key = case.node, case.port, case.connection
            client = connections.get(key)
            try:
                if client is None or client.is_lost:
                    self._look_at(client)
                    host = self.cluster.node(case.node).name
                    client = connections[key] = await FrameClient.connect(runtime, host, case.port)
                client.send_raw(case.data)
                if case.then_close:
                    client.close()
            except OSError:
                connections.pop(key, None)
                self.report.seen["connection refused"] += 1
            if number % AT_ONCE == AT_ONCE - 1:
                await runtime.sleep(MOMENT_MS)
        await runtime.sleep(10 * MOMENT_MS)
        for client in connections.values():
            self._look_at(client)
            client.abort()

    def _look_at(self, client: FrameClient | None) -> None:
        if client is not None:
            self.report.seen["connection closed"] += client.is_lost
            self.report.seen["answer"] += client.received

    # ---- checks

    def check(self) -> None:
        world = self.world
        world.check()
        for node in self.cluster.nodes:
            if not node.is_alive:
                exit = node.host.exits[-1]
                raise Failure(f"{node.name} ended: {exit.reason} {exit.error!r}")
            for entry in node.events.all:
                if entry.event == "unexpected error":
                    raise Failure(f"{node.name}: {entry.fields['error']} at {entry.fields['trace']}")
            node.events.all.clear()
        grown = _peak_bytes() - self._peak_bytes
        if grown > GROWTH_BYTES_MAX:
            raise Failure(f"memory grew by {grown >> 20} MiB")
        unfolded = self._unfolded.take()
        self.report.seen["megabyte unfolded"] += unfolded >> 20
        if unfolded > UNFOLDED_BYTES_MAX:
            raise Failure(f"{unfolded >> 20} MiB of the attacker's batches were decompressed")
        world.execute(self._check_polite_client, host="polite")
        world.execute(self._write_to_theirs, host="polite")
        world.execute(self._read_theirs, host="polite")
        world.execute(self._create, host="polite")

    async def _create(self, runtime: SimRuntime) -> None:
        """Creates all topics, or those that an attacker has deleted."""
        client = ClusterClient(runtime, self.cluster)
        packed = [CreatableTopicConfig(name="compression.type", value="uncompressed")]
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=PARTITIONS[name],
                replication_factor=self._copies,
                configs=packed if name == PACKED else [],
            )
            for name in (MINE, *THEIRS)
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=30_000)
        for topic in (await client.call(1, request, CREATE_VERSION)).topics:
            if not topic.error_code and topic.name != MINE:
                self._ids[topic.name] = topic.topic_id
                self._offsets.update({(topic.name, index): 0 for index in (0, 1)})

    async def _check_polite_client(self, runtime: SimRuntime) -> None:
        """Produces one record and reads all of them."""
        client = PartitionClient(runtime, self.cluster, MINE, 0)
        until_ms = runtime.now_ms() + PATIENCE_MS
        value = b"polite-%d" % len(self.kept)
        records = build_batch([Record(timestamp=bodies.TIMESTAMP_MS, value=value)])
        entry = PartitionProduceData(index=0, records=records)
        request = ProduceRequest(
            acks=-1, timeout_ms=2_000, topic_data=[TopicProduceData(name=MINE, partition_data=[entry])]
        )
        problem = ""
        while runtime.now_ms() < until_ms:
            try:
                leader = await client.find_leader()
                answer = await client.call(leader, request, PRODUCE_VERSION)
                part = answer.responses[0].partition_responses[0]
                problem = ErrorCode(part.error_code).name
                if not part.error_code:
                    # A record stored without a response comes before it, and is there as well.
                    self.kept += [value] * (part.base_offset + 1 - len(self.kept))
                    break
            except OSError as error:
                problem = repr(error)
            self.report.seen["polite client had to try again"] += 1
            client.doubt()
            await runtime.sleep(200)
        else:
            raise Failure(f"a polite client was not served for {PATIENCE_MS / 1000:.0f} virtual seconds: {problem}")
        try:
            found = [value for _, value in await self._read(client, 0, until_ms)]
        except Unreadable as error:
            raise Failure(f"the polite client's topic cannot be read: {error}") from error
        if found != self.kept:
            raise Failure(f"the polite client's topic has {len(found)} records, {len(self.kept)} were acknowledged")

    async def _write_to_theirs(self, runtime: SimRuntime) -> None:
        """Checks that each of the attacker's topics responds, if only with an error."""
        for topic in THEIRS:
            client = PartitionClient(runtime, self.cluster, topic, 0)
            records = build_batch([Record(timestamp=bodies.TIMESTAMP_MS, value=b"polite")], codec=Codec.GZIP)
            entry = PartitionProduceData(index=0, records=records)
            request = ProduceRequest(
                acks=1, timeout_ms=2_000, topic_data=[TopicProduceData(name=topic, partition_data=[entry])]
            )
            until_ms = runtime.now_ms() + PATIENCE_MS / 2
            while runtime.now_ms() < until_ms:
                try:
                    await client.call(await client.find_leader(), request, PRODUCE_VERSION)
                    break
                except NoLeader:
                    break  # deleted, and not yet recreated
                except OSError:
                    client.doubt()
                    await runtime.sleep(200)
            else:
                raise Failure(f"{topic}-0 no longer responds")

    async def _read_theirs(self, runtime: SimRuntime) -> None:
        """Checks that clients can read everything the broker accepted from an attacker."""
        for (topic, index), offset in self._offsets.items():
            client = PartitionClient(runtime, self.cluster, topic, index)
            try:
                values = await self._read(client, offset, runtime.now_ms() + 2_000.0)
            except Unreadable as error:
                raise Failure(f"{topic}-{index} is poisoned at {offset} or after: {error}") from error
            if values:
                self._offsets[topic, index] = values[-1][0] + 1
                self.report.seen["record of the attacker read"] += len(values)

    async def _read(self, client: PartitionClient, offset: int, until_ms: float) -> list[tuple[int, bytes | None]]:
        """Reads from an offset to the end; returns what it got so far if the topic is gone or no node responds."""
        found: list[tuple[int, bytes | None]] = []
        while client.runtime.now_ms() < until_ms:
            entry = FetchPartition(partition=client.partition, fetch_offset=offset, partition_max_bytes=1 << 24)
            topics = [FetchTopic(topic=client.topic, partitions=[entry])]
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 26, topics=topics)
            try:
                leader = await client.find_leader()
                data = (await client.call(leader, request, FETCH_VERSION)).responses[0].partitions[0]
            except OSError:
                client.doubt()
                await client.runtime.sleep(100)
                continue
            if data.error_code:
                return found
            for value in read_values(bytes(data.records or b"")):
                if value.offset >= offset:
                    found.append((value.offset, value.value))
                    offset = value.offset + 1
            if offset >= data.high_watermark or not data.records:
                return found
        return found


def nodes_of(number: int) -> int:
    """The number of nodes in the cluster of this round."""
    return NODES[number % len(NODES)]


def run_round(number: int, cases: int = ROUND_CASES) -> tuple[Report, float]:
    """Runs round `number`; also returns its CPU time in seconds."""
    began_s = time.process_time()
    report = run_cases(str(number), cases, nodes_of(number))
    gc.collect()
    return report, time.process_time() - began_s


def draw_round(seed: str, count: int, nodes: int) -> list[Case]:
    """The cases that `run_cases` sends for these numbers. (The topics' ids are those of its cluster.)"""
    with guarded(), World(f"fuzz-{seed}") as world:
        return draw(seed, count, nodes, Round(world, nodes).start())


def run_cases(seed: str, cases: int | Sequence[Case], nodes: int, settings: Mapping[str, str] | None = None) -> Report:
    """Runs a whole round. `cases`: how many to draw, or the cases themselves. `settings`: for every node."""
    _forget_peak()
    with guarded(), counting_unfolded() as unfolded, World(f"fuzz-{seed}") as world:
        round = Round(world, nodes, settings, unfolded)
        ids = round.start()
        chosen = draw(seed, cases, nodes, ids) if isinstance(cases, int) else cases
        try:
            round.run(chosen)
        except Exception as error:
            round.report.failure = f"{type(error).__name__}: {error}"
            world.tolerate_errors = True  # already reported: closing the world need not raise it again
        return round.report


def _forget_peak() -> None:
    """Resets the kernel's peak counter (Linux only; elsewhere the first round that grows too much hides later ones)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes() -> int:
    """The peak memory of this process since then."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
