"""Creates and deletes topics through any node, and checks the results."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.metadata import MetadataImage
from penstock.sim.trials.clients import ClusterClient
from penstock.sim.trials.load import Ledger, Violation
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import Record, build_batch

__all__ = ["Topics"]

AT_ONCE = 3
CREATE_VERSION, DELETE_VERSION, PRODUCE_VERSION = 7, 6, 12
OPERATION_TIMEOUT_MS = 5_000


@dataclass
class Topics:
    """One administrator with a few topic names.

    A request without a response may be carried out later, even much later: its name is not used again, and nothing is
    known about it. An error does not tell what happened either: a node that forwards a request resends it if the first
    response is lost, and then learns that the topic already exists.
    """

    client: ClusterClient
    ledger: Ledger
    pause_ms: float
    copies: int
    known: dict[str, bytes | None] = field(default_factory=dict)
    """Name: the topic's id, or None if it was deleted."""
    in_use: list[str] = field(default_factory=list)
    created: int = 0
    deleted: int = 0
    names: int = 0

    async def run(self) -> None:
        rng = self.client.runtime.rng
        while not self.ledger.over:
            while len(self.in_use) < AT_ONCE:
                self.names += 1
                self.in_use.append(f"c{self.names}")
            name = rng.choice(self.in_use)
            topic_id = self.known.pop(name, None)
            try:
                done = await (self._create(name) if topic_id is None else self._delete(name, topic_id))
                if done and topic_id is None:
                    await self._write_to(name)
            except OSError:
                done = name in self.known
            if not done:
                self.in_use.remove(name)
            await self.client.runtime.sleep(rng.uniform(0, 4 * self.pause_ms))

    async def _create(self, name: str) -> bool:
        """Creates a topic; returns whether the result is known."""
        partitions = self.client.runtime.rng.choice((1, 2))
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=self.copies)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=OPERATION_TIMEOUT_MS)
        (result,) = (await self.client.call(self.client.any_broker(), request, CREATE_VERSION)).topics
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE:
            self.known[name] = result.topic_id
            self.created += 1
        return code is ErrorCode.NONE

    async def _delete(self, name: str, topic_id: bytes) -> bool:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=OPERATION_TIMEOUT_MS)
        (result,) = (await self.client.call(self.client.any_broker(), request, DELETE_VERSION)).responses
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE:
            if result.topic_id != topic_id:
                raise Violation(f"topic {name} was created as {topic_id.hex()}, but deleted as {result.topic_id.hex()}")
            self.known[name] = None
            self.deleted += 1
        return code is ErrorCode.NONE

    async def _write_to(self, name: str) -> None:
        """Writes to the topic, so that there is something to delete and replicas fetch it."""
        records = build_batch([Record(timestamp=self.client.runtime.wall_ms(), value=name.encode())])
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
        await self.client.call(
            self.client.any_broker(), ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), PRODUCE_VERSION
        )

    def check(self, image: MetadataImage, where: str) -> None:
        for name, topic_id in self.known.items():
            topic = image.topic(name)
            found = None if topic is None else topic.topic_id
            if found != topic_id:
                raise Violation(f"{where}: topic {name} should be {topic_id!r}, but is {found!r}")
