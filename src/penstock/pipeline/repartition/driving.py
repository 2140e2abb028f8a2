"""Drives a repartitioning from phase to phase. Each step is in the ledger before its effects depend on it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.client import EARLIEST, ClientError, ClientSettings, Cluster, TopicPartition
from penstock.pipeline.builtin.replaying import SETTLE_S
from penstock.pipeline.repartition import fence as fencing
from penstock.pipeline.repartition.copying import LEASE_S, RECORDS_PER_CHUNK, Copier
from penstock.pipeline.repartition.groups import Groups
from penstock.pipeline.repartition.ledger import Ledger
from penstock.pipeline.repartition.plan import (
    PARTITIONERS,
    PARTITIONS_MAX,
    GroupMoved,
    Phase,
    RepartitionError,
    RepartitionOrder,
    RepartitionPlan,
    Waypoint,
)
from penstock.pipeline.repartition.topics import Topics
from penstock.pipeline.repartition.translation import translate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

FOLLOW_EVERY_S: Final = 0.3
PAUSE_S: Final = 0.1
STABLE_S: Final = 1.0
"""How long the fenced topic must not grow before it counts as drained: replicas may still be behind."""
GROUP_LOOK_S: Final = 1.0
GROUP_LOOK_MAX_S: Final = 10.0
LAST_CHUNK_S: Final = 10.0
"""The switch begins when the rest can be copied in about this time."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, for whoever watches."""

    phase: Phase
    done: int
    """Offsets of the old topic that are behind the copier."""
    total: int
    per_second: float
    """What the copy does while it copies."""
    incoming_per_second: float = 0.0
    """What producers add meanwhile."""
    waiting_for: tuple[str, ...] = ()
    """Groups that still have members in the old topic."""

    @property
    def left_s(self) -> float | None:
        """Until the copy has caught up; None before the first chunk, or if the producers are as fast as the copy."""
        gained = self.per_second - self.incoming_per_second
        return (self.total - self.done) / gained if gained > 0 else None

    @property
    def falls_behind(self) -> bool:
        return 0 < self.per_second <= self.incoming_per_second


def _always(plan: RepartitionPlan) -> bool:
    return True


def _nothing(*arguments: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a run shall go on."""

    may_switch: Callable[[RepartitionPlan], bool] = _always
    """Asked each time the copy has caught up; False goes on following."""
    announce: Callable[[RepartitionPlan], None] = _nothing
    """Tells producers to write to the new topic. Called at least once, when they may."""
    show: Callable[[Progress], None] = _nothing
    watch: Callable[[str], None] = _nothing
    """Called at each step; tests crash here."""
    stop: threading.Event | None = None
    """Ends the run between two steps; another run goes on."""
    group_wait_s: float | None = None
    """How long to wait for groups to have no members; None: until they have none."""
    producers_stopped: bool = False
    """The operator has stopped the producers; no fence is needed."""
    lease_s: float = LEASE_S
    records_per_chunk: int = RECORDS_PER_CHUNK


class Repartition:
    """One run. After a crash, or on another machine, another run with the same order goes on."""

    def __init__(
        self,
        spark: SparkSession | None,
        bootstrap_servers: str,
        order: RepartitionOrder,
        properties: Mapping[str, str] | None = None,
        wishes: Wishes | None = None,
    ) -> None:
        if order.partitioner not in PARTITIONERS:
            raise RepartitionError(f"partitioner {order.partitioner}: it is one of {', '.join(PARTITIONERS)}")
        self._spark = spark
        self._order = order
        self._properties = {**(properties or {}), "bootstrap.servers": bootstrap_servers}
        self._wishes = wishes or Wishes()
        self._owner = uuid.uuid4().hex
        self._rate = 0.0
        self._incoming = 0.0
        self._seen: tuple[float, int] | None = None
        self._settings = fencing.TopicSettings(self._properties)
        self._groups = Groups(self._properties)
        self._ledger: Ledger
        self._cluster: Cluster
        self._topics: Topics
        self._copier: Copier

    def run(self) -> RepartitionPlan:
        """Goes on until the repartitioning is done, or a wish ends the run earlier."""
        steps = {
            Phase.PREPARING: self._prepare,
            Phase.COPYING: self._copy,
            Phase.FENCING: self._fence,
            Phase.DRAINING: self._drain,
            Phase.SWITCHED: self._move_groups,
        }
        with self._open():
            self._ledger.ensure()
            plan = self._ledger.claim(self._owner, self._begin)
            self._wishes.watch(f"saved {plan.phase}")
            while not (plan.phase.is_over or self._stopped()):
                self._wishes.watch(plan.phase)
                before = plan.phase
                plan = steps[plan.phase](plan)
                if plan.phase is before:
                    break
            return plan

    def abort(self) -> RepartitionPlan | None:
        """Goes back to how it was; None if there is nothing to abort. RepartitionError after the switch."""
        with self._open():
            found = self._ledger.newest() if self._ledger.exists() else None
            if found is None or found.phase is Phase.ABORTED:
                return None
            plan = self._ledger.claim(self._owner, self._begin_abort)
            if plan.fence is not None:
                fencing.lower_fence(self._settings, plan.source, plan.fence)
            if plan.chunk is not None:
                # A task that still writes would create the topic again.
                left_s = min(plan.chunk.leased_until_ms / 1000 - time.time(), LEASE_S) + SETTLE_S
                time.sleep(max(0.0, left_s))
            self._topics.delete(plan.target)
            return self._save(plan.changed(phase=Phase.ABORTED, fence=None, chunk=None))

    # Phases

    def _begin_abort(self, found: RepartitionPlan | None) -> RepartitionPlan:
        assert found is not None
        if found.phase.has_switched:
            raise RepartitionError(
                f"{found.source} was switched to {found.target}: producers may have written there, so there is no "
                f"way back. Repartition {found.target} if it shall have another number of partitions"
            )
        return found.changed(owner=self._owner, phase=Phase.ABORTING)

    def _begin(self, found: RepartitionPlan | None) -> RepartitionPlan:
        order = self._order
        if found is not None and not found.phase.is_over:
            if found.phase is Phase.ABORTING:
                raise RepartitionError(f"the repartitioning of {found.source} is being aborted: run --abort once more")
            if (found.partitions, found.target) != (order.partitions, order.target or found.target):
                raise RepartitionError(
                    f"{found.source} is being repartitioned already, to {found.partitions} partitions in "
                    f"{found.target}: go on with that (--partitions {found.partitions}), or --abort it first"
                )
            return found.changed(owner=self._owner)
        source = self._cluster.topics([order.source])[order.source]
        if found is not None and found.phase is Phase.DONE and self._topics.find(found.target) is not None:
            raise RepartitionError(
                f"{found.source} has been switched to {found.target}: repartition that one, or delete it first"
            )
        now = len(source.partitions)
        if now == order.partitions:
            raise RepartitionError(f"{order.source} already has {now} partitions")
        if now + order.partitions > PARTITIONS_MAX:
            raise RepartitionError(f"{now} and {order.partitions} partitions are more than {PARTITIONS_MAX} together")
        if self._topics.find(order.target_name) is not None:
            raise RepartitionError(f"there is a topic {order.target_name} already: choose another name with --to")
        if not self._wishes.producers_stopped:
            fencing.choose_fence(self._settings, order.source)
        return RepartitionPlan.new(order, self._owner, _now_ms())

    def _prepare(self, plan: RepartitionPlan) -> RepartitionPlan:
        source = self._cluster.topics([plan.source])[plan.source]
        settings, later = self._topics.settings_for_copy(plan.source)
        self._topics.create(plan.target, plan.partitions, len(source.partitions[0].replicas), settings)
        self._wishes.watch("created")
        places = [TopicPartition(plan.source, one.partition) for one in source.partitions]
        listed = self._cluster.list_offsets(dict.fromkeys(places, EARLIEST))
        starts = tuple(listed[place].offset for place in places)
        waypoint = Waypoint(starts, (0,) * plan.partitions)
        return self._save(
            plan.changed(
                phase=Phase.COPYING, starts=starts, positions=starts, waypoints=(waypoint,), later_settings=later
            )
        )

    def _copy(self, plan: RepartitionPlan) -> RepartitionPlan:
        while not self._stopped():
            self._check_partitions(plan)
            ends = self._copier.ends(plan.source, len(plan.positions), committed=True)
            backlog = plan.backlog(ends)
            self._show(plan, ends)
            if plan.chunk is None and backlog <= min(self._wishes.records_per_chunk, self._rate * LAST_CHUNK_S):
                self._wishes.watch("caught up")
                if self._wishes.may_switch(plan):
                    fence = None
                    if not self._wishes.producers_stopped:
                        fence = fencing.choose_fence(self._settings, plan.source)
                    return self._save(plan.changed(phase=Phase.FENCING, fence=fence))
                self._wait(FOLLOW_EVERY_S)
                self._ledger.check()
            if backlog or plan.chunk is not None:
                plan = self._step(plan, ends)
        return plan

    def _fence(self, plan: RepartitionPlan) -> RepartitionPlan:
        fenced_ms = plan.fenced_ms or _now_ms()
        if plan.fence is not None:
            fencing.raise_fence(self._settings, plan.source, plan.fence)
            self._wishes.watch("fence raised")
            fencing.await_fence(self._cluster, plan.source, len(plan.positions))
        return self._save(plan.changed(phase=Phase.DRAINING, fenced_ms=fenced_ms))

    def _drain(self, plan: RepartitionPlan) -> RepartitionPlan:
        quiet_since_s: float | None = None
        told = False
        while True:
            high = self._copier.ends(plan.source, len(plan.positions))
            stable = self._copier.ends(plan.source, len(plan.positions), committed=True)
            self._show(plan, high)
            if plan.chunk is not None or plan.backlog(stable):
                plan = self._step(plan, stable)
                quiet_since_s = None
            elif stable != high:
                if not told:
                    log.warning("%s has open transactions: waiting until they end", plan.source)
                told = True
                time.sleep(FOLLOW_EVERY_S)
            elif quiet_since_s is None:
                quiet_since_s = time.monotonic()
            elif time.monotonic() - quiet_since_s >= STABLE_S:
                break
            else:
                time.sleep(PAUSE_S)
        self._settings.change(plan.target, plan.later_settings)
        self._wishes.watch("drained")
        switch_ends = self._copier.ends(plan.target, plan.partitions)
        return self._save(plan.changed(phase=Phase.SWITCHED, switched_ms=_now_ms(), switch_ends=switch_ends))

    def _move_groups(self, plan: RepartitionPlan) -> RepartitionPlan:
        if not plan.announced:
            self._wishes.announce(plan)
            plan = self._save(plan.changed(announced=True))
        began_s = time.monotonic()
        pause_s = GROUP_LOOK_S
        while True:
            left = {
                name: positions
                for name, positions in self._groups.reading(plan.source).items()
                if name not in plan.groups
            }
            if not left:
                return self._save(plan.changed(phase=Phase.DONE))
            moved = self._move(plan, left)
            plan = self._save(plan.changed(groups={**plan.groups, **moved})) if moved else plan
            waiting = tuple(sorted(left.keys() - moved.keys()))
            self._wishes.show(Progress(plan.phase, sum(plan.positions), sum(plan.positions), 0.0, 0.0, waiting))
            wait_s = self._wishes.group_wait_s
            if waiting and (self._stopped() or (wait_s is not None and time.monotonic() - began_s >= wait_s)):
                return plan
            if waiting:
                pause_s = GROUP_LOOK_S if moved else min(2 * pause_s, GROUP_LOOK_MAX_S)
                self._wait(pause_s)

    def _move(self, plan: RepartitionPlan, left: Mapping[str, dict[int, int]]) -> dict[str, GroupMoved]:
        """Those of the groups that could be moved."""
        moved: dict[str, GroupMoved] = {}
        free: dict[str, dict[int, int]] = {}
        for name, positions in left.items():
            if own := self._groups.positions(name, plan.target):
                note = "had positions in the new topic already; they were left as they are"
                at = tuple(own.get(partition, -1) for partition in range(plan.partitions))
                moved[name] = GroupMoved(positions, at, 0, note)
            elif not self._groups.has_members(name):
                free[name] = positions
        if not free:
            return moved
        assert self._spark is not None
        for name, found in translate(self._spark, self._properties, plan, free).items():
            self._wishes.watch("translated")
            # A consumer that came and went meanwhile has moved the position: look again in the next round.
            if self._groups.positions(name, plan.source) == found.source and self._groups.place(
                name, plan.target, found.target
            ):
                moved[name] = found
        return moved

    # Steps

    def _step(self, plan: RepartitionPlan, ends: tuple[int, ...]) -> RepartitionPlan:
        self._wishes.watch("chunk")
        before, began_s = sum(plan.positions), time.monotonic()
        plan = self._copier.step(plan, ends)
        rate = (sum(plan.positions) - before) / max(time.monotonic() - began_s, 1e-3)
        self._rate = rate if not self._rate else 0.5 * (self._rate + rate)
        return plan

    def _check_partitions(self, plan: RepartitionPlan) -> None:
        for name, wanted in ((plan.source, len(plan.positions)), (plan.target, plan.partitions)):
            found = self._topics.find(name)
            if found is None:
                raise RepartitionError(f"{name} was deleted: `penstock topics repartition {plan.source} --abort`")
            if len(found.partitions) != wanted:
                raise RepartitionError(
                    f"{name} has got {len(found.partitions)} partitions instead of {wanted} meanwhile: --abort, and "
                    "begin again"
                )

    def _show(self, plan: RepartitionPlan, ends: tuple[int, ...]) -> None:
        done, total = sum(plan.positions) - sum(plan.starts), sum(ends) - sum(plan.starts)
        now_s = time.monotonic()
        if self._seen is not None and now_s > self._seen[0]:
            rate = (total - self._seen[1]) / (now_s - self._seen[0])
            self._incoming = rate if not self._incoming else 0.5 * (self._incoming + rate)
        self._seen = (now_s, total)
        self._wishes.show(Progress(plan.phase, min(done, total), total, self._rate, self._incoming))

    def _save(self, plan: RepartitionPlan) -> RepartitionPlan:
        saved = self._ledger.save(plan)
        self._wishes.watch(f"saved {plan.phase}")
        return saved

    def _stopped(self) -> bool:
        return self._wishes.stop is not None and self._wishes.stop.is_set()

    def _wait(self, seconds: float) -> None:
        if self._wishes.stop is not None:
            self._wishes.stop.wait(seconds)
        else:
            time.sleep(seconds)

    @contextmanager
    def _open(self) -> Iterator[None]:
        try:
            with (
                Ledger(self._properties, self._order.source) as self._ledger,
                Cluster(ClientSettings.from_properties(self._properties)) as self._cluster,
            ):
                self._topics = Topics(self._properties, self._cluster)
                if self._spark is not None:
                    self._copier = Copier(
                        self._spark,
                        self._properties,
                        self._ledger,
                        self._cluster,
                        lease_s=self._wishes.lease_s,
                        records_per_chunk=self._wishes.records_per_chunk,
                    )
                yield
        except ClientError as error:
            raise RepartitionError(f"{error}. Run the command again to go on") from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
