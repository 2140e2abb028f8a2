"""The seven scenarios of Apache Kafka's simulation of its quorum (`RaftEventSimulationTest`), on our core.

Each runs with up to five voters and five observers while values are appended continuously. The checker of
`penstock.sim.raft.cluster` verifies every step: one leader per epoch, epochs and high watermarks that never go back, a
majority behind every high watermark, the same committed data everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from penstock.raft import messages as m
from penstock.raft.types import ReplicaKey, Role, Voter, VoterSet
from penstock.sim.raft.cluster import Cluster, Disk, Node, directory

__all__ = ["SCENARIOS", "run_kafka"]

VOTERS_MAX, OBSERVERS_MAX = 5, 5
APPEND_EVERY_MS = 25
ENTRIES = 10
"""How far all nodes must advance before it counts as progress."""


class Run:
    """A cluster to which values are appended."""

    def __init__(self, seed: int, voters_min: int) -> None:
        self.rng = Random(f"kafka-{seed}")
        self.voters = self.rng.randint(voters_min, VOTERS_MAX)
        self.cluster = Cluster(seed, self.voters, self.rng.randint(0, OBSERVERS_MAX))
        self.cluster.start_all()
        self._append()

    def _append(self) -> None:
        leader = self.cluster.leader
        if leader is not None:
            self.cluster.propose(leader)
        self.cluster.at(self.cluster.now + APPEND_EVERY_MS, self._append)

    @property
    def nodes(self) -> list[Node]:
        return list(self.cluster.nodes.values())

    def leader(self) -> Node:
        self.cluster.run_until(lambda: self.cluster.leader is not None)
        leader = self.cluster.leader
        assert leader is not None
        return leader

    def settle(self) -> None:
        """Waits until every live node follows one leader and has advanced."""
        self.progress(self.nodes)

    def progress(self, nodes: Iterable[Node], beyond: int | None = None) -> None:
        """Waits until all of these nodes know a higher commit offset."""
        up = [node for node in nodes if node.up]
        target = (self.cluster.committed_end if beyond is None else beyond) + ENTRIES
        self.cluster.run_until(lambda: all(_reached(node) >= target for node in up))

    def new_leader(self, old: Node) -> Node:
        """Waits until another node leads a newer epoch."""
        assert old.id
        epoch = max(self.cluster.leaders)
        self.cluster.run_until(lambda: (leader := self.cluster.leader) is not None and _epoch(leader) > epoch)
        return self.leader()


def _reached(node: Node) -> int:
    return node.core.high_watermark if node.core is not None else -1


def _epoch(node: Node) -> int:
    return node.core.epoch if node.core is not None else -1


def can_elect_initial_leader(seed: int) -> Cluster:
    run = Run(seed, 1)
    run.leader()
    run.settle()
    return run.cluster


def can_elect_new_leader_after_old_leader_failure(seed: int) -> Cluster:
    run = Run(seed, 3)
    run.settle()
    old = run.leader()
    run.cluster.crash(old, power_loss=run.rng.random() < 0.5)
    run.new_leader(old)
    run.progress(run.nodes)
    return run.cluster


def can_recover_after_all_nodes_killed(seed: int) -> Cluster:
    run = Run(seed, 1)
    run.settle()
    committed = run.cluster.committed_end
    for node in run.nodes:
        run.cluster.crash(node, power_loss=run.rng.random() < 0.5)
    run.cluster.run(run.rng.randrange(3000))
    for node in run.nodes:
        node.start()
    run.progress(run.nodes, committed)
    return run.cluster


def can_elect_new_leader_after_old_leader_partitioned_away(seed: int) -> Cluster:
    run = Run(seed, 3)
    run.settle()
    old = run.leader()
    run.cluster.isolate(old.id)
    run.new_leader(old)
    others = [node for node in run.nodes if node is not old]
    run.progress(others)
    run.cluster.heal()
    run.progress(run.nodes)
    assert old.core is not None
    return run.cluster


def can_make_progress_if_majority_is_reachable(seed: int) -> Cluster:
    """Nodes beyond the majority are cut off, with observers on either side; the leader may be in the minority."""
    run = Run(seed, 1)
    run.settle()
    cluster = run.cluster
    voters = list(range(1, run.voters + 1))
    run.rng.shuffle(voters)
    reachable = voters[: run.voters // 2 + 1]
    reachable += [node.id for node in run.nodes if node.id > run.voters and run.rng.random() < 0.5]
    away = [node.id for node in run.nodes if node.id not in reachable]
    cluster.cut |= {(a, b) for a in reachable for b in away} | {(b, a) for a in reachable for b in away}
    run.progress(cluster.nodes[node_id] for node_id in reachable)
    end = cluster.committed_end
    assert all(_reached(cluster.nodes[node_id]) <= end for node_id in away)
    cluster.heal()
    run.progress(run.nodes)
    return cluster


def can_make_progress_after_back_to_back_leader_failures(seed: int) -> Cluster:
    run = Run(seed, 3)
    run.settle()
    for _ in range(run.rng.randint(2, 5)):
        old = run.leader()
        run.cluster.crash(old, power_loss=run.rng.random() < 0.5)
        run.new_leader(old)
        old.start()
        if run.rng.random() < 0.5:
            run.progress(run.nodes)
    run.progress(run.nodes)
    return run.cluster


def can_recover_from_single_node_committed_data_loss(seed: int) -> Cluster:
    """A voter loses its log and knows it; or its whole disk, and is another replica from then on (KIP-853)."""
    run = Run(seed, 3)
    run.settle()
    cluster = run.cluster
    node = cluster.nodes[run.rng.randint(1, run.voters)]
    cluster.crash(node, power_loss=True)
    if run.rng.random() < 0.5:
        node.disk.rot(run.rng)
        node.start()
        run.progress(run.nodes)
        cluster.run_until(lambda: node.core is not None and not node.core.hard.suspect)
        return cluster
    gone = node.disk.key
    key = ReplicaKey(node.id, directory(node.id, 1))
    node.disk = Disk(key, VoterSet())
    cluster.epochs[node.id] = 0
    node.start()
    run.progress(run.nodes)
    _replace(run, gone, key)
    run.progress(run.nodes)
    return cluster


def _replace(run: Run, gone: ReplicaKey, key: ReplicaKey) -> None:
    """Replaces a voter, one change at a time; retries after a refusal or a change of leader."""
    operation = 0

    def voters() -> VoterSet | None:
        leader = run.cluster.leader
        return None if leader is None or leader.core is None else leader.core.voter_set

    for _ in range(60):
        known = voters()
        leader = run.cluster.leader
        if known is not None and leader is not None and leader.core is not None:
            operation += 1
            if gone in known:
                leader.step(m.RemoveVoter(operation, gone))
            elif key not in known and leader.core.role is Role.LEADER:
                leader.step(m.AddVoter(operation, Voter(key.id, key.directory_id)))
            else:
                return
        run.cluster.run(500)
    raise AssertionError(f"seed {run.cluster.seed}: the lost voter was never replaced")


SCENARIOS: dict[str, Callable[[int], Cluster]] = {
    scenario.__name__: scenario
    for scenario in (
        can_elect_initial_leader,
        can_elect_new_leader_after_old_leader_failure,
        can_recover_after_all_nodes_killed,
        can_elect_new_leader_after_old_leader_partitioned_away,
        can_make_progress_if_majority_is_reachable,
        can_make_progress_after_back_to_back_leader_failures,
        can_recover_from_single_node_committed_data_loss,
    )
}


def run_kafka(seed: int) -> Cluster:
    """Runs one of the scenarios, chosen by the seed."""
    return list(SCENARIOS.values())[seed % len(SCENARIOS)](seed)
