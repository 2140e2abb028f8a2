"""Random faults and operations on a simulated cluster, all from one seed, and its recovery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from penstock.raft import messages as m
from penstock.raft.types import RaftConfig, ReplicaKey, Voter, VoterSet
from penstock.sim.raft.cluster import Cluster, Disk, Node, directory


class Chaos:
    """Performs an action every few virtual milliseconds."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # Faults have their own random source: a change in the protocol does not change the schedule of faults.
        self.rng = Random(cluster.seed ^ 0x5EED)
        self.generations = dict.fromkeys(cluster.nodes, 0)
        self.operation = 0

    def storm(self, steps: int) -> None:
        """Leaders and candidates repeatedly lose power at the worst moments."""
        actions = ((self.propose, 25), (self.crash_busy, 12), (self.restart, 25), (self.isolate, 4), (self.heal, 12))
        self.act(actions, steps, (1, 2, 5, 20, 60))

    def run(self, steps: int) -> None:
        """All kinds of faults, at a rate at which the cluster mostly works."""
        actions = (
            (self.propose, 40),
            (self.take_snapshot, 4),
            (self.crash, 4),
            (self.restart, 8),
            (self.pause, 2),
            (self.isolate, 2),
            (self.cut_one_way, 2),
            (self.heal, 6),
            (self.resign, 1),
            (self.rot, 1),
            (self.wipe, 1),
            (self.add_voter, 5),
            (self.remove_voter, 2),
        )
        self.act(actions, steps, (1, 5, 20, 100, 500))

    def act(self, actions: Sequence[tuple[Callable[[], None], int]], steps: int, waits_ms: Sequence[int]) -> None:
        choices = [action for action, weight in actions for _ in range(weight)]
        for _ in range(steps):
            self.rng.choice(choices)()
            self.cluster.run(self.rng.choice(waits_ms))

    def recover(self) -> None:
        """Stops the faults: a leader must appear and commit something new, and every node must receive it."""
        cluster = self.cluster
        cluster.heal()
        cluster.loss = 0.0
        for node in cluster.nodes.values():
            if not node.up:
                node.start()

        def committing() -> bool:
            leader = cluster.leader
            return leader is not None and cluster.propose(leader)

        target = len(cluster.acknowledged) + 1
        cluster.run_until(committing)
        for _ in range(80):
            if len(cluster.acknowledged) >= target:
                break
            cluster.run(500)
            if cluster.leader is not None:
                cluster.propose(cluster.leader)
        assert len(cluster.acknowledged) >= target, f"seed {cluster.seed}: no progress after the faults ended"
        end = cluster.committed_end

        def caught_up() -> bool:
            cores = [node.core for node in cluster.nodes.values()]
            return all(core is not None and core.high_watermark >= end and not core.hard.suspect for core in cores)

        cluster.run_until(caught_up)

    # -- actions -----------------------------------------------------------------------------------------------------

    def some(self, *, up: bool) -> Node | None:
        nodes = [node for node in self.cluster.nodes.values() if node.up is up]
        return self.rng.choice(nodes) if nodes else None

    def propose(self) -> None:
        node = self.some(up=True)
        if self.cluster.leader is not None and self.rng.random() < 0.8:
            node = self.cluster.leader
        if node is not None:
            self.cluster.propose(node)

    def take_snapshot(self) -> None:
        node = self.some(up=True)
        if node is not None and node.take_snapshot():
            self.cluster.seen["snapshot taken"] += 1

    def crash(self) -> None:
        node = self.some(up=True)
        if node is not None:
            power_loss = self.rng.random() < 0.5
            self.cluster.crash(node, power_loss=power_loss)
            self.cluster.seen["power loss" if power_loss else "kill"] += 1

    def crash_busy(self) -> None:
        """Crashes a node that leads, stands for election, or has just voted."""
        busy = [node for node in self.cluster.nodes.values() if node.core is not None and node.core.hard.voted]
        if busy:
            self.cluster.crash(self.rng.choice(busy), power_loss=True)
            self.cluster.seen["power loss"] += 1

    def restart(self) -> None:
        node = self.some(up=False)
        if node is not None:
            node.start()

    def pause(self) -> None:
        node = self.some(up=True)
        if node is not None:
            node.paused_until = self.cluster.now + self.rng.choice((300, 1000, 5000))
            self.cluster.seen["pause"] += 1

    def isolate(self) -> None:
        self.cluster.isolate(self.rng.choice(sorted(self.cluster.nodes)))

    def cut_one_way(self) -> None:
        a, b = self.rng.choices(sorted(self.cluster.nodes), k=2)
        self.cluster.cut.add((a, b))

    def heal(self) -> None:
        self.cluster.heal()

    def resign(self) -> None:
        if self.cluster.leader is not None:
            self.cluster.leader.step(m.Resign())

    def rot(self) -> None:
        """At most one log at a time loses synced data: a corrupt minority."""
        if self.would_lose_majority():
            return
        node = self.some(up=False)
        if node is not None:
            node.disk.rot(self.rng)
            self.cluster.seen["corrupt log"] += 1

    def wipe(self) -> None:
        """A node comes back with an empty disk, hence as another replica; the old one stays in the voter set."""
        if self.would_lose_majority():
            return
        node = self.some(up=False)
        if node is None:
            return
        self.generations[node.id] += 1
        key = ReplicaKey(node.id, directory(node.id, self.generations[node.id]))
        node.disk = Disk(key, VoterSet())
        self.cluster.epochs[node.id] = 0
        self.cluster.seen["wiped disk"] += 1

    def would_lose_majority(self) -> bool:
        """Whether another replica that loses its data could leave too few that have it."""
        if any(node.disk.hard.suspect for node in self.cluster.nodes.values()):
            return True
        leader = self.cluster.leader
        if leader is None or leader.core is None:
            return True
        keys = [node.disk.key for node in self.cluster.nodes.values()]
        # A voter that is being added may still be rejected.
        sets = (leader.core.voter_set, leader.core.log.voter_set_at(leader.core.high_watermark))
        return any(len(voters) < 3 or any(key not in keys for key in voters.keys) for voters in sets)

    def add_voter(self) -> None:
        leader = self.cluster.leader
        node = self.some(up=True)
        if leader is not None and node is not None:
            self.operation += 1
            leader.step(m.AddVoter(self.operation, Voter(node.id, node.disk.key.directory_id)))

    def remove_voter(self) -> None:
        leader = self.cluster.leader
        if leader is None or leader.core is None:
            return
        voters = leader.core.voter_set
        keys = [node.disk.key for node in self.cluster.nodes.values()]
        gone = [key for key in voters.keys if key not in keys]
        # Remove voters whose disks are gone first; keep at least three, since a smaller quorum survives too little.
        if gone or len(voters) > 3:
            self.operation += 1
            leader.step(m.RemoveVoter(self.operation, gone[0] if gone else self.rng.choice(voters.keys)))


IMPATIENT = RaftConfig(
    election_timeout_ms=40,
    fetch_timeout_ms=60,
    election_backoff_max_ms=20,
    request_timeout_ms=50,
    retry_backoff_ms=2,
    fetch_max_wait_ms=20,
    probe_interval_ms=10,
    late_event_ms=10,
)


def run_storm(seed: int, steps: int = 400) -> Cluster:
    cluster = Cluster(seed, Random(seed).choice((3, 3, 5)), config=IMPATIENT)
    cluster.start_all()
    chaos = Chaos(cluster)
    chaos.storm(steps)
    chaos.recover()
    return cluster


def run_chaos(seed: int, steps: int = 120) -> Cluster:
    rng = Random(seed)
    voters, observers = rng.choice((1, 2, 3, 3, 3, 4, 5)), rng.choice((0, 0, 1, 1, 2, 5))
    cluster = Cluster(seed, voters, observers, loss=rng.choice((0.0, 0.02, 0.1)))
    cluster.start_all()
    chaos = Chaos(cluster)
    chaos.run(steps)
    chaos.recover()
    cluster.seen["voter change"] += sum(1 for result in cluster.results if result.error == 0)
    return cluster
