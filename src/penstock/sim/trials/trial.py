"""One trial: a cluster starts, clients start, faults happen and heal, and the ledgers are compared with the logs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from penstock.sim.cluster import SimCluster
from penstock.sim.guard import guarded
from penstock.sim.runtime import SimRuntime
from penstock.sim.trials.clients import ClusterClient, PartitionClient
from penstock.sim.trials.coverage import count_events
from penstock.sim.trials.groups import ClassicMember, ConsumerMember, Group
from penstock.sim.trials.injector import CLIENT_HOST, Injector
from penstock.sim.trials.load import Ledger, Producer, Reader, Violation
from penstock.sim.trials.moves import Moves
from penstock.sim.trials.schedule import DAMAGE, LOAD_TOPIC, Fault, Kind, Schedule
from penstock.sim.trials.topics import Topics
from penstock.sim.trials.transactional_load import TransactionalLoad
from penstock.sim.trials.verdict import (
    check_ledger,
    check_logs_agree,
    check_metadata_agrees,
    check_no_unexpected_errors,
    is_healed,
)
from penstock.sim.trials.watch import Watch
from penstock.sim.world import START_MS, World
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

__all__ = ["Outcome", "Trial"]

LOOK_EVERY_MS = 100.0
HEAL_LIMIT_MS = 180_000.0
DRAIN_LIMIT_MS = 120_000.0
CREATE_VERSION = 7
COPIES_MAX = 3


@dataclass
class Outcome:
    """The result of a trial."""

    seed: int
    seen: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    applied: tuple[Fault, ...] = ()
    acknowledged: int = 0
    read: int = 0
    commits: int = 0
    events: int = 0
    virtual_ms: float = 0.0
    digest: str = ""
    failure: str = ""
    """Why it failed; empty if it did not."""


class Trial:
    """Runs a schedule. Raises on failure: `Violation`, or whatever the simulated world raises."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.outcome = Outcome(schedule.seed)
        self.ledgers = [Ledger(LOAD_TOPIC, index) for index in range(schedule.partitions)]
        self.groups: list[Group] = []
        self.topics: Topics | None = None
        self.moves: Moves | None = None
        self.transactions: TransactionalLoad | None = None

    def run(self) -> Outcome:
        schedule, outcome = self.schedule, self.outcome
        # The world guards each of its runs, and a trial has hundreds: one guard around all of them is cheaper.
        with guarded(), World(f"trial-{schedule.seed}") as world:
            self.world = world
            self.cluster = SimCluster(world, schedule.nodes, schedule.settings, roles=schedule.roles or None)
            self.injector = Injector(self.cluster)
            if schedule.transactions:
                self.transactions = TransactionalLoad(self.cluster, schedule.pause_ms)
            for ledger in self.ledgers:
                ledger.rotten = self.injector.rotten
            self.watch = Watch(self.cluster)
            try:
                self._run()
            finally:
                self._count(outcome)
        return outcome

    def _run(self) -> None:
        world, cluster = self.world, self.cluster
        cluster.start()
        world.execute(self._prepare, host=CLIENT_HOST)
        clients = world.host(CLIENT_HOST).start(self._load)
        self._apply_faults(world.now_ms)
        self.injector.end()
        self._until(lambda: all(node.is_alive and node.ready for node in cluster.nodes), "every node serves")
        for ledger in self.ledgers:
            ledger.over = True
        if self.transactions is not None:
            self.transactions.ledger.over = True
        self._until(lambda: clients.is_dead, "the clients are done", DRAIN_LIMIT_MS)
        clients.result()
        self._replace_rotten_disks()
        self._until(lambda: is_healed(cluster), "all replicas are in sync")
        world.execute(self._read_all, host=CLIENT_HOST)
        if self.transactions is not None:
            world.execute(self.transactions.check, host=CLIENT_HOST)
        self._check()

    def _replace_rotten_disks(self) -> None:
        """Bit rot below a recovery point is found only when it is read, perhaps never. It must not have reached another
        replica: so after the disk is replaced everything must be in order, and no bit may differ."""
        for node_id in self.injector.rotten():
            replace = Fault(0, Kind.WIPE, node_id)
            self.outcome.seen["rotten disk replaced"] += 1
            self._until(lambda replace=replace: self.injector.apply(replace), "a rotten disk may be replaced")
            self._until(lambda node_id=node_id: node_id not in self.injector.pending, "its node is back")

    @property
    def _copies(self) -> int:
        return min(COPIES_MAX, sum(node.is_broker for node in self.cluster.nodes))

    async def _prepare(self, runtime: SimRuntime) -> None:
        client = ClusterClient(runtime, self.cluster)
        partitions = self.schedule.partitions
        topic = CreatableTopic(name=LOAD_TOPIC, num_partitions=partitions, replication_factor=self._copies)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        (result,) = (await client.call(client.any_broker(), request, CREATE_VERSION)).topics
        assert result.error_code == 0, result
        if self.transactions is not None:
            await self.transactions.prepare(client, self._copies)

    async def _load(self, runtime: SimRuntime) -> None:
        cluster, pause_ms = self.cluster, self.schedule.pause_ms
        jobs = []
        for ledger in self.ledgers:

            def client(ledger: Ledger = ledger) -> PartitionClient:
                return PartitionClient(runtime, cluster, ledger.topic, ledger.partition)

            jobs += [Producer(client(), ledger, pause_ms).run() for _ in range(1 + (len(self.ledgers) == 1))]
            jobs.append(Reader(client(), ledger, pause_ms).run())
        if self.schedule.topics:
            self.topics = Topics(ClusterClient(runtime, cluster), self.ledgers[0], pause_ms, self._copies)
            jobs.append(self.topics.run())
        if self.schedule.moves:
            self.moves = Moves(ClusterClient(runtime, cluster), self.ledgers[0], pause_ms)
            jobs.append(self.moves.run())
        if self.transactions is not None:
            jobs += self.transactions.jobs(runtime)
        if self.schedule.groups:
            for name, kind in (("classic", ClassicMember), ("consumer", ConsumerMember)):
                group = Group(name, LOAD_TOPIC, self.ledgers[0])
                self.groups.append(group)
                jobs += [kind(ClusterClient(runtime, cluster), group, slot, pause_ms).run() for slot in range(2)]
        tasks = [runtime.spawn(job, f"client {number}") for number, job in enumerate(jobs)]
        for task in tasks:
            await task

    def _apply_faults(self, began_ms: float) -> None:
        """Applies the faults at their times; restarts processes that end."""
        for fault in self.schedule.faults:
            if fault.kind not in DAMAGE:
                self._pass(began_ms + fault.at_ms)
                self.injector.apply(fault)
        self._pass(began_ms + self.schedule.length_ms)

    def _pass(self, until_ms: float) -> None:
        """Lets time pass, and checks the invariants now and then."""
        world = self.world
        while world.now_ms < until_ms:
            next_ms = min(until_ms, world.now_ms + LOOK_EVERY_MS, max(world.now_ms + 1, self.injector.next_ms()))
            world.run(next_ms - world.now_ms)
            self.injector.tick()
            self.watch.look()
            world.check()

    def _until(self, condition: object, what: str, limit_ms: float = HEAL_LIMIT_MS) -> None:
        assert callable(condition)
        until_ms = self.world.now_ms + limit_ms
        while not condition():
            if self.world.now_ms > until_ms:
                raise Violation(f"timed out waiting until {what}\n{self._state()}")
            self._pass(self.world.now_ms + LOOK_EVERY_MS)

    def _state(self) -> str:
        lines = [
            f"  {node.name}: alive {node.is_alive}, ready {node.ready}, exits {node.host.exits[-2:]}"
            for node in self.cluster.nodes
        ]
        controller = self.cluster.controller()
        if controller is not None:
            lines.append(f"  controller {controller.name}")
            for topic in controller.image.topics():
                lines += [f"  {topic.name}-{index}: {state}" for index, state in enumerate(topic.partitions)]
        return "\n".join(lines)

    async def _read_all(self, runtime: SimRuntime) -> None:
        for ledger in self.ledgers:
            reader = Reader(PartitionClient(runtime, self.cluster, ledger.topic, ledger.partition), ledger, 1.0)
            check_ledger(ledger, await reader.read_to_the_end())
        for group in self.groups:
            client = ClusterClient(runtime, self.cluster)
            for _ in range(200):
                try:
                    await group.check(client)
                    break
                except OSError:
                    await runtime.sleep(100)
            else:
                raise Violation(f"group {group.name} has no coordinator")

    def _check(self) -> None:
        cluster = self.cluster
        self.watch.look()
        check_metadata_agrees(cluster)
        image = cluster.nodes[0].image
        for topic in image.topics():
            for index in range(len(topic.partitions)):
                check_logs_agree(cluster, topic.name, index)
        if self.topics is not None:
            self.topics.check(image, cluster.nodes[0].name)
        check_no_unexpected_errors(cluster, storage_faults=self.injector.storage_faults)

    def _count(self, outcome: Outcome) -> None:
        outcome.seen += self.watch.seen + self.injector.seen + count_events(self.cluster)
        for ledger in self.ledgers:
            outcome.seen += ledger.seen
        if self.transactions is not None:
            outcome.seen += self.transactions.ledger.seen
        outcome.faults = Counter({kind.value: count for kind, count in self.injector.done.items()})
        outcome.applied = tuple(self.injector.applied)
        outcome.acknowledged = sum(len(ledger.acknowledged) for ledger in self.ledgers)
        outcome.read = sum(len(ledger.read) for ledger in self.ledgers)
        outcome.commits = sum(group.commits for group in self.groups)
        if self.topics is not None:
            outcome.seen["topic created"] += self.topics.created
            outcome.seen["topic deleted"] += self.topics.deleted
        if self.moves is not None:
            outcome.seen["move begun"] += self.moves.begun
            outcome.seen["move cancelled"] += self.moves.cancelled
        outcome.events = self.world.events
        outcome.virtual_ms = self.world.now_ms - START_MS
        outcome.digest = self.world.digest()
