"""A trial of one node whose files are damaged while it is down.

There is no other copy: the node has no replica to fetch from or to be corrected by. So its verdict differs from that of
a cluster. After each of several starts:

- every acknowledged record is served at its offset, or the node or the partition *refuses*: the process ends with a
  reason for the operator, or a fetch gets an error. A log that is shorter than before, or a missing topic, is not a
  refusal: clients would believe it. (A log that was damaged itself may end before the damage.)
- whatever was refused, all bytes of acknowledged records that the damage left on the disk are still on it, under any
  name: nothing is deleted on doubtful evidence, not even by the second start.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.starting import StartRefused
from penstock.sim.host import MAIN_ENDED
from penstock.sim.runtime import SimRuntime
from penstock.sim.trials.clients import PartitionClient
from penstock.sim.trials.damage import Damaged, damage, still_there, torn_end
from penstock.sim.trials.generators import FILES
from penstock.sim.trials.injector import CLIENT_HOST
from penstock.sim.trials.load import FETCH_VERSION, RECORDS_BYTES_MAX, RETRIABLE, Violation
from penstock.sim.trials.schedule import DAMAGE, Kind, Schedule
from penstock.sim.trials.trial import DRAIN_LIMIT_MS, Trial
from penstock.wire.errors import ErrorCode, WireError
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.records import iter_batches, iter_records

__all__ = ["AloneTrial"]

STARTS = 3
"""The number of starts: one start may remove the evidence that the next one needs."""
START_LIMIT_MS = 60_000.0
LINGER_MS = 90_000.0
"""Longer than `file.delete.delay.ms`, so that files marked for removal are removed by then."""
TRIES = 40
TRY_AGAIN_MS = 250.0


class Survey(NamedTuple):
    """The records of a partition that a client can read from its beginning."""

    values: dict[int, bytes]
    refused: str
    """Why reading stopped, if not at the end of the log."""


class AloneTrial(Trial):
    """One node: load, kills, then damage, and several starts that must not make it worse."""

    def __init__(self, schedule: Schedule) -> None:
        assert schedule.nodes == 1
        super().__init__(schedule)
        self.damaged: list[Damaged] = []
        self.surveys: list[Survey] = []

    def _run(self) -> None:
        world, cluster = self.world, self.cluster
        cluster.start()
        world.execute(self._prepare, host=CLIENT_HOST)
        clients = world.host(CLIENT_HOST).start(self._load)
        self._apply_faults(world.now_ms)
        self.injector.end()
        self._until(lambda: cluster.nodes[0].is_alive and cluster.nodes[0].ready, "the node serves")
        for ledger in self.ledgers:
            ledger.over = True
        self._until(lambda: clients.is_dead, "the clients are done", DRAIN_LIMIT_MS)
        clients.result()
        self._end_node()
        left = self._damage()
        for number in range(STARTS):
            self._start_and_judge(number + 1, left)

    def _end_node(self) -> None:
        node = self.cluster.nodes[0]
        match self.schedule.ended_by:
            case Kind.STOP:
                node.stop()
            case Kind.POWER_ALL:
                node.power_loss()
            case _:
                node.crash()

    def _damage(self) -> set[bytes]:
        """Returns the acknowledged values that must stay on the disk: all that are on it afterwards, except those in a
        batch that lost its end. Such a batch looks like a write that was cut short by a crash."""
        disk = self.cluster.nodes[0].host.disk
        for fault in self.schedule.faults:
            if fault.kind in DAMAGE:
                done = damage(disk, fault, FILES.get(fault.path, fault.path), self.world.rng)
                if done is not None:
                    self.damaged.append(done)
                    self.injector.applied.append(fault)
                    self.injector.done[fault.kind] += 1
                    self.injector.seen[f"damaged {fault.path}"] += 1
        left = still_there(disk, [value for ledger in self.ledgers for value in ledger.acknowledged.values()])
        torn = [torn_end(disk.content(one.path)) for one in self.damaged if one.is_log and one.kind is Kind.TEAR]
        return {value for value in left if not any(value in end for end in torn)}

    def _start_and_judge(self, number: int, left: set[bytes]) -> None:
        world, node = self.world, self.cluster.nodes[0]
        said = len(node.events.all)
        node.begin(watched=True)
        until_ms = world.now_ms + START_LIMIT_MS
        while world.now_ms < until_ms and node.is_alive and not node.ready:
            world.run(100.0)
        which = f"start {number} after damage to {', '.join(one.path for one in self.damaged) or 'nothing'}"
        if node.is_alive and node.ready:
            world.run(LINGER_MS)
        if node.is_alive and node.ready:
            world.execute(self._survey, host=CLIENT_HOST)
            self._judge_surveys(which)
            self.outcome.seen["served after damage"] += 1
        elif node.is_alive:
            if not [entry for entry in node.events.all[said:] if entry.level != "INFO"]:
                raise Violation(f"{which}: the node neither serves nor ends, and logs no reason")
            self.outcome.seen["waited after damage"] += 1
        else:
            self._judge_end(which)
            self.outcome.seen["refused after damage"] += 1
        gone = left - still_there(node.host.disk, left)
        if gone:
            raise Violation(f"{which}: {len(gone)} acknowledged records were removed from the disk: {min(gone)!r} …")
        if node.is_alive:
            node.crash()

    def _judge_end(self, which: str) -> None:
        """The process ended by itself: it must give a reason that an operator can act on, not an internal exception."""
        exit = self.cluster.nodes[0].host.exits[-1]
        if exit.reason == MAIN_ENDED and not isinstance(exit.error, StartRefused | OSError):
            raise Violation(f"{which}: the node ended with {exit.error!r} instead of a reason") from exit.error
        if exit.reason.startswith("fatal: background task"):
            raise Violation(f"{which}: {exit.reason}") from exit.error

    # ---- what a client reads

    async def _survey(self, runtime: SimRuntime) -> None:
        self.surveys = [
            await survey(PartitionClient(runtime, self.cluster, ledger.topic, ledger.partition))
            for ledger in self.ledgers
        ]

    def _judge_surveys(self, which: str) -> None:
        for ledger, found in zip(self.ledgers, self.surveys, strict=True):
            if self.cluster.nodes[0].image.partition(ledger.topic, ledger.partition) is None:
                raise Violation(f"{which}: the node serves, but has lost {ledger}")
            own = [one.offset for one in self.damaged if one.is_log and one.directory == str(ledger)]
            cut_at = min(own, default=None)
            for offset, value in ledger.acknowledged.items():
                there = found.values.get(offset)
                if there is not None and there != value and (cut_at is None or offset < cut_at):
                    raise Violation(f"{which}: {ledger}: {value!r} was acknowledged at {offset}, {there!r} is there")
                if there is None and not found.refused and (cut_at is None or offset < cut_at):
                    raise Violation(
                        f"{which}: {ledger} is served as if it ended at {len(found.values)}, but "
                        f"{value!r} was acknowledged at {offset}"
                    )
            self.outcome.seen["partition refused after damage"] += bool(found.refused)


async def survey(client: PartitionClient) -> Survey:
    """Reads from the beginning to the high watermark, or until it is clear that reading is refused."""
    values: dict[int, bytes] = {}
    offset, refused = 0, "no answer"
    for _ in range(TRIES):
        try:
            leader = await client.find_leader()
            answer = await client.call(leader, _fetch(client, offset), FETCH_VERSION)
        except OSError as error:
            refused = str(error)
            client.doubt()
            await client.runtime.sleep(TRY_AGAIN_MS)
            continue
        data = answer.responses[0].partitions[0]
        if data.error_code:
            refused = ErrorCode(data.error_code).name
            if ErrorCode(data.error_code) not in RETRIABLE:
                return Survey(values, refused)
            client.doubt()
            await client.runtime.sleep(TRY_AGAIN_MS)
            continue
        try:
            for _, view in iter_batches(data.records or b""):
                for record in list(iter_records(view, max_decompressed_bytes=RECORDS_BYTES_MAX)):
                    if record.offset >= offset:
                        values[record.offset] = bytes(record.value or b"")
                        offset = record.offset + 1
        except WireError as error:
            return Survey(values, f"a batch that cannot be read: {error}")
        if offset >= data.high_watermark:
            return Survey(values, "")
    return Survey(values, refused)


def _fetch(client: PartitionClient, offset: int) -> FetchRequest:
    entry = FetchPartition(partition=client.partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=client.topic, partitions=[entry])])
