"""A kind of coordinator that has nothing to do with groups runs on the same hosts: killed after every operation, it
tells what it had acknowledged and nothing else, keeps zombies out, and finishes what it owes to other brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker import ledger
from broker.clusters import a_cluster, ask, create, fenced, state
from broker.group_session import QUICK, committed, find, ready
from broker.session import Session, expect_no_surprise, is_recovered, simulated
from penstock.broker.coordination import CoordinatorType
from penstock.broker.coordination.journal import PartitionJournal
from penstock.coordinators import host as host_module
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker
from penstock.sim.cluster import SimCluster
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.sync_group import SyncGroupResponse

STRIDE = 2
"""Runs of one test: together they crash at every operation."""
VERSION = 5
PAID_WITHIN_MS = 600_000


@pytest.fixture(autouse=True)
def _declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ledger.declared(monkeypatch):
        yield


async def ordered(s: Session, verb: str, text: str = "", epoch: int = 0, coordinator_epoch: int = 1) -> Any:
    """What the ledger says, or its error."""
    answer = await s.call(ledger.request_of(verb, text, epoch, coordinator_epoch), VERSION)
    assert isinstance(answer, SyncGroupResponse)
    return ErrorCode(answer.error_code) if answer.error_code else answer.protocol_name


async def opened(s: Session) -> None:
    """The ledger is found and loaded."""
    answer = await s.call(FindCoordinatorRequest(key_type=CoordinatorType.SHARE, coordinator_keys=["ledger"]))
    assert [one.error_code for one in answer.coordinators] == [0], answer
    while await ordered(s, "get", "x") in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        await s.runtime.sleep(10)


@simulated(QUICK)
async def test_it_is_found_and_served_beside_groups(s: Session) -> None:
    await find(s, "g")
    await opened(s)
    assert await ordered(s, "put", "a=1,b=2") == "done"
    assert await ordered(s, "get", "b") == "2"
    assert s.node.served.coordinators.of_type(CoordinatorType.SHARE + 1) is None
    assert s.node.served.coordinators.groups.counts().active > 0


@simulated(QUICK)
async def test_a_zombie_is_refused_by_the_log_and_the_coordinator_goes_on(s: Session) -> None:
    await opened(s)
    assert await ordered(s, "transfer", "a=1", epoch=3) == "done"
    assert await ordered(s, "transfer", "a=2", epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await ordered(s, "commit", epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await ordered(s, "get", "a") == "-", "the transaction is open"
    assert await ordered(s, "commit", epoch=3, coordinator_epoch=5) == "done"
    assert await ordered(s, "get", "a") == "1"
    assert await ordered(s, "commit", epoch=3, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    coordinator = s.node.served.coordinators.of_type(CoordinatorType.SHARE)
    assert coordinator is not None
    assert coordinator.failures == 0
    assert not s.node.events.named("coordinator restarts")


@dataclass
class History:
    """What was acknowledged, and what was under way when the broker died."""

    balances: dict[str, str] = field(default_factory=dict)
    attempted: dict[str, str] = field(default_factory=dict)
    paid: int | None = None
    """An acknowledged order."""

    async def do(self, s: Session, verb: str, text: str = "", epoch: int = 0, **effects: str) -> None:
        self.attempted = effects
        assert await ordered(s, verb, text, epoch) == "done"
        self.balances.update(effects)
        self.attempted = {}


async def script(s: Session, history: History) -> None:
    await s.create("t")
    await find(s, ledger.PAYEE)
    await opened(s)
    await history.do(s, "put", "a=1", a="1")
    await history.do(s, "transfer", "x=1,y=1")
    await history.do(s, "commit", x="1", y="1")
    await history.do(s, "transfer", "x=2,y=2", 1)
    await history.do(s, "put", "a=2,b=2", a="2", b="2")
    assert await ordered(s, "transfer", "x=9,y=9", 0) == ErrorCode.INVALID_PRODUCER_EPOCH
    await history.do(s, "abort", epoch=1)
    await history.do(s, "pay", "7")
    history.paid = 7
    await history.do(s, "transfer", "x=3,y=3", 2)
    await history.do(s, "commit", epoch=2, x="3", y="3")
    await s.until(lambda: s.node.process.is_dead or shard(s.node).balances.get(ledger.PAID) == b"7")


def shard(node: SimBroker) -> ledger.LedgerShard:
    coordinator = node.served.coordinators.of_type(CoordinatorType.SHARE)
    assert coordinator is not None
    return next(host.shard for host in coordinator.hosts())


async def verify(s: Session, history: History) -> None:
    await s.until(lambda: is_recovered(s.node))
    await opened(s)
    for key in ("a", "b", "x", "y"):
        allowed = [history.balances.get(key, "-"), history.attempted.get(key, history.balances.get(key, "-"))]
        assert await ordered(s, "get", key) in allowed, key
    assert await ordered(s, "get", "x") == await ordered(s, "get", "y"), "all or nothing"
    await ready(s, ledger.PAYEE)
    if (await committed(s.client, ledger.PAYEE)).get(("t", 0)) is not None:
        books = [await ordered(s, "get", "order"), await ordered(s, "get", "paid")]
        assert "7" in books, "nobody is paid before that is written down"
    if history.paid is not None:
        # It was owed when the broker died, or had been paid: sooner or later it is, and the books say so.
        while await ordered(s, "get", "paid") == "-":
            await s.runtime.sleep(50)
            assert s.runtime.now_ms() < PAID_WITHIN_MS, "it was forgotten"
        assert (await committed(s.client, ledger.PAYEE))[("t", 0)][0] == history.paid
    assert await ordered(s, "put", "a=5", 0) == "done"


def crash_at(operation: int | None, *, power_loss: bool, seed: int) -> int:
    """Run the script with a crash in this operation, restart, verify. Returns how many operations the script has."""
    history = History()
    settings = {**QUICK, **({"log.flush.interval.messages": "1"} if power_loss else {})}
    with World(f"{seed}-{operation}") as world:
        node = SimBroker(world, settings)
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
        node.restart(power_loss=power_loss)

        async def after(runtime: SimRuntime) -> None:
            await verify(await Session.open(runtime, node), history)

        world.execute(after)
        expect_no_surprise(node)
        assert not node.events.named("coordinator restarts")
        node.stop()
    return count


@pytest.mark.parametrize("part", range(STRIDE))
@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_killed_after_any_operation_it_tells_what_was_acknowledged_and_pays_what_it_owes(
    power_loss: bool, part: int
) -> None:
    total = crash_at(None, power_loss=power_loss, seed=0)
    assert total > 20
    for operation in range(1 + part, total + 3, STRIDE):
        crash_at(operation, power_loss=power_loss, seed=part)


BUGS: dict[str, tuple[Any, str, Any]] = {
    "requests are not repeated after loading": (ledger.LedgerShard, "on_loaded", lambda shard, turn: None),
    "the log is not asked about producers": (PartitionJournal, "check", lambda journal, writer: None),
    "markers are plain batches": (host_module, "CONTROL_FLAG", 0),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead = BUGS[bug]
    monkeypatch.setattr(owner, name, instead)
    try:
        total = crash_at(None, power_loss=True, seed=0)
        for operation in range(1, total):
            crash_at(operation, power_loss=True, seed=0)
    except AssertionError:
        return
    pytest.fail(f"{bug}: nothing was found wrong")


def at_the_ledger(cluster: SimCluster, verb: str, text: str = "", epoch: int = 0) -> Any:
    """Ask whoever coordinates the ledger, as clients do: again until it is one that does."""
    while True:
        at = next(node.node_id for node in cluster.live)
        find = FindCoordinatorRequest(key_type=CoordinatorType.SHARE, coordinator_keys=["ledger"])
        (found,) = ask(cluster, at, find, 4).coordinators
        if found.error_code == ErrorCode.NONE:
            answer = ask(cluster, found.node_id, ledger.request_of(verb, text, epoch), VERSION)
            if answer.error_code not in (
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ):
                return ErrorCode(answer.error_code) if answer.error_code else answer.protocol_name
        cluster.world.run(50)


def test_it_moves_with_its_partition_and_whoever_takes_over_pays_with_a_higher_epoch() -> None:
    settings = {"offsets.topic.num.partitions": "1", "min.insync.replicas": "2"}
    with a_cluster(3, settings, seed=4) as cluster:
        create(cluster, "t")
        ask(cluster, 1, FindCoordinatorRequest(coordinator_keys=[ledger.PAYEE]), 4)
        assert at_the_ledger(cluster, "transfer", "x=1,y=1", 1) == "done"
        epochs = []
        for round_number in range(2):
            old = state(cluster, ledger.TOPIC).leader
            epochs.append(shard(cluster.node(old)).epoch)
            assert at_the_ledger(cluster, "pay", str(10 + round_number)) == "done"
            cluster.node(old).crash()
            cluster.await_(lambda old=old: cluster.controller() is not None and fenced(cluster, old))  # type: ignore[misc]
            while at_the_ledger(cluster, "get", "paid") != str(10 + round_number):
                cluster.world.run(50)
            assert at_the_ledger(cluster, "transfer", "x=9", 0) == ErrorCode.INVALID_PRODUCER_EPOCH
            cluster.node(old).begin()
            cluster.await_ready()
            cluster.await_(lambda: len(state(cluster, ledger.TOPIC).isr) == 3)
        assert at_the_ledger(cluster, "commit", "", 1) == "done"
        assert (at_the_ledger(cluster, "get", "x"), at_the_ledger(cluster, "get", "y")) == ("1", "1")
        epochs.append(shard(cluster.node(state(cluster, ledger.TOPIC).leader)).epoch)
        assert epochs == sorted(set(epochs)), "each coordinator has a higher epoch than the one before"
