"""A controller with brokers, for tests: everything deterministic."""

from __future__ import annotations

from random import Random

from penstock.config import BrokerConfig
from penstock.metadata import (
    EMPTY_IMAGE,
    SUPPORTED_FEATURES,
    Controller,
    Listener,
    MetadataImage,
    NewTopic,
    Registration,
    TopicImage,
    image_records,
)
from penstock.wire.messages.metadata_records import MetadataRecord

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def uuid(number: int) -> bytes:
    return number.to_bytes(16, "little")[::-1][:8] + b"\x40" * 8


def registration(
    broker_id: int, *, incarnation: int = 1, rack: str | None = None, previous_broker_epoch: int = -1
) -> Registration:
    return Registration(
        broker_id,
        CLUSTER_ID,
        b"incarnation" + bytes((0, 0, incarnation, 0, broker_id)),
        (Listener("PLAINTEXT", f"host-{broker_id}", 9092, 0),),
        (b"directory-" + bytes((1, 0, 0, 0, 0, broker_id)),),
        SUPPORTED_FEATURES,
        rack,
        previous_broker_epoch,
    )


class Cluster:
    """`controller` and what it decided, in the order of the log."""

    def __init__(self, brokers: int = 1, *, racks: tuple[str, ...] = (), **settings: str) -> None:
        self.rng = Random(1)
        config = BrokerConfig.resolve({name.replace("_", "."): value for name, value in settings.items()})
        self.controller = Controller(
            EMPTY_IMAGE, cluster_id=CLUSTER_ID, config=config, rng=self.rng, new_uuid=lambda: self.rng.randbytes(16)
        )
        self.log: list[MetadataRecord] = list(self.controller.decide_activation().records)
        for broker_id in range(1, brokers + 1):
            rack = racks[(broker_id - 1) % len(racks)] if racks else None
            self.register(registration(broker_id, rack=rack))

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def register(self, request: Registration, *, fenced: bool = False, session_alive: bool = False) -> int:
        decision = self.controller.decide_register_broker(
            request, len(self.log), fenced=fenced, session_alive=session_alive
        )
        self.log += decision.records
        return decision.reply.broker_epoch

    def create(self, name: str, partitions: int = 1, replication_factor: int = 1, **configs: str) -> TopicImage:
        topic = NewTopic(
            name, partitions, replication_factor, configs=tuple((k.replace("_", "."), v) for k, v in configs.items())
        )
        decision = self.controller.decide_create_topics([topic])
        assert not decision.reply[0].outcome.failed, decision.reply[0].outcome
        self.log += decision.records
        return self.topic(name)

    def topic(self, name: str) -> TopicImage:
        topic = self.image.topic(name)
        assert topic is not None
        return topic


def contents(image: MetadataImage) -> tuple[object, ...]:
    """Everything in an image, comparable."""
    return (*image_records(image), image.topic_count, image.partition_count, sorted(image.collisions.items()))
