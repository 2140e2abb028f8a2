"""The transactional part of a trial: its topic, its clients, and the account at the end."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from penstock.sim.cluster import SimCluster
from penstock.sim.runtime import SimRuntime
from penstock.sim.trials.clients import ClusterClient, PartitionClient
from penstock.sim.trials.load import Violation
from penstock.sim.trials.schedule import TRANSACTION_TOPIC
from penstock.sim.trials.transaction_ledger import TransactionLedger
from penstock.sim.trials.transactions import TIMEOUT_MS, CommittedReader, OffsetReader, TransactionalWriter
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

__all__ = ["TransactionalLoad"]

CREATE_VERSION = 7
PARTITIONS: Final = 2
GROUP: Final = "x-group"
WRITERS: Final = {"w1": 1, "w2": 2, "w3": 2}
"""The transactional ids, and the generation of the protocol that each uses."""
FAILOVER_MS: Final = 20_000
"""A broker session, an election and the loading of a coordinator, with some room."""


class TransactionalLoad:
    def __init__(self, cluster: SimCluster, pause_ms: float) -> None:
        self._cluster = cluster
        self._pause_ms = pause_ms
        self.ledger = TransactionLedger(TRANSACTION_TOPIC, PARTITIONS)
        self._slots = {name: slot for slot, name in enumerate(WRITERS)}

    async def prepare(self, client: ClusterClient, copies: int) -> None:
        topic = CreatableTopic(name=TRANSACTION_TOPIC, num_partitions=PARTITIONS, replication_factor=copies)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        (result,) = (await client.call(client.any_broker(), request, CREATE_VERSION)).topics
        assert result.error_code == 0, result

    def jobs(self, runtime: SimRuntime) -> list[Coroutine[Any, Any, None]]:
        jobs: list[Coroutine[Any, Any, None]] = []
        for name, generation in WRITERS.items():
            client, slot = ClusterClient(runtime, self._cluster), self._slots[name]
            writer = TransactionalWriter(client, self.ledger, name, GROUP, slot, generation, self._pause_ms)
            jobs.append(writer.run())
        jobs += [self._reader(runtime, partition).run() for partition in range(PARTITIONS)]
        jobs.append(self._offsets(runtime).run())
        return jobs

    async def check(self, runtime: SimRuntime) -> None:
        """Reads everything that is committed, once no transaction is open any more, and compares."""
        deadline_ms = runtime.now_ms() + TIMEOUT_MS + FAILOVER_MS
        found: dict[int, list[bytes]] = {}
        for partition in range(PARTITIONS):
            while (values := await self._reader(runtime, partition).read_to_the_end()) is None:
                self._still_in_time(runtime, deadline_ms, f"{TRANSACTION_TOPIC}-{partition}")
                await runtime.sleep(200)
            found[partition] = values
        offsets: dict[str, int] | None = None
        while offsets is None:
            try:
                offsets = await self._offsets(runtime).final()
            except OSError:
                offsets = None
            if offsets is None:
                self._still_in_time(runtime, deadline_ms, f"the offsets of {GROUP}")
                await runtime.sleep(200)
        self.ledger.check(found, offsets)

    @staticmethod
    def _still_in_time(runtime: SimRuntime, deadline_ms: float, where: str) -> None:
        if runtime.now_ms() > deadline_ms:
            raise Violation(f"a transaction in {where} hangs for longer than its timeout and a failover")

    def _reader(self, runtime: SimRuntime, partition: int) -> CommittedReader:
        client = PartitionClient(runtime, self._cluster, TRANSACTION_TOPIC, partition)
        return CommittedReader(client, self.ledger, self._pause_ms)

    def _offsets(self, runtime: SimRuntime) -> OffsetReader:
        return OffsetReader(ClusterClient(runtime, self._cluster), self.ledger, GROUP, self._slots)
