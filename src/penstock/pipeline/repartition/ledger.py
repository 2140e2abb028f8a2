"""The ledger: the plan of each repartitioning, in a compacted topic of the cluster itself.

It survives the machine that runs the copy, and its log decides which run may go on (`claims`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.client import (
    EARLIEST,
    LATEST,
    ClientError,
    ClientSettings,
    Cluster,
    TopicPartition,
    fetch_range,
    librdkafka_properties,
)
from penstock.pipeline.markers import MarkerTopic
from penstock.pipeline.repartition.claims import Claim, Claims, claim_in
from penstock.pipeline.repartition.plan import RepartitionError, RepartitionPlan, TakenOver, decode, encode
from penstock.pipeline.topic_errors import MarkerError
from penstock.wire.records import iter_batches, iter_records

LEDGER_TOPIC: Final = "__penstock_repartitions"
WRITE_TIMEOUT_S: Final = 60.0
RECORD_BYTES_MAX: Final = 16 << 20


class Ledger:
    """The records of one source topic."""

    def __init__(self, properties: Mapping[str, str], source: str, topic: str = LEDGER_TOPIC) -> None:
        self._properties = dict(properties)
        self._source = source
        self._topic = topic
        self._cluster = Cluster(ClientSettings.from_properties(properties))
        self._producer: Producer | None = None
        self._position: int | None = None
        self._claims = Claims()
        self._claim: Claim | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._cluster.close()

    def ensure(self) -> None:
        """Creates the ledger if it is not there."""
        try:
            MarkerTopic(self._properties, self._topic).ensure()
        except MarkerError as error:
            raise RepartitionError(f"the ledger of repartitionings: {error}") from None

    def exists(self) -> bool:
        return bool(self._cluster.existing_topics([self._topic]))

    def newest(self) -> RepartitionPlan | None:
        """The plan that holds; None if there is none."""
        self._read_on()
        return self._claims.plan

    def claim(self, owner: str, begin: Callable[[RepartitionPlan | None], RepartitionPlan]) -> RepartitionPlan:
        """Takes the repartitioning over: `begin` makes the run's plan of the one that it finds.

        It may be called again, if the run before has written something meanwhile.
        """
        found = self.newest()
        self._claim = claim = self._claims.next_claim(owner)
        while True:
            plan = begin(found)
            self._write(claim.key(self._source), encode(plan))
            self.check()
            inherited = self._claims.inherited(claim)
            if inherited == found:
                break
            found = inherited
        for old in self._claims.superseded(claim):
            self._write(old.key(self._source), None)
        return plan

    def save(self, plan: RepartitionPlan) -> RepartitionPlan:
        """Writes the plan, and makes sure that no other run has taken over. Raises TakenOver if one has."""
        assert self._claim is not None, "claim it first"
        self._write(self._claim.key(self._source), encode(plan))
        self.check()
        return plan

    def check(self) -> None:
        """Raises TakenOver if another run has."""
        self._read_on()
        if self._claims.highest != self._claim:
            raise TakenOver(
                f"another run goes on with the repartitioning of {self._source}: this one stops "
                f"(`penstock topics repartition {self._source} --status` shows it)"
            )

    def _read_on(self) -> None:
        place = TopicPartition(self._topic, 0)
        if self._position is None:
            self._position = self._cluster.list_offsets({place: EARLIEST})[place].offset
        end = self._cluster.list_offsets({place: LATEST})[place].offset
        if self._position >= end:
            return
        for fetched in fetch_range(self._cluster, self._topic, 0, self._position, end):
            for _, batch in iter_batches(fetched.records):
                for record in iter_records(batch, max_decompressed_bytes=RECORD_BYTES_MAX):
                    if record.key is None or not self._position <= record.offset < end:
                        continue
                    if (claim := claim_in(bytes(record.key), self._source)) is not None:
                        plan = None if record.value is None else decode(bytes(record.value))
                        self._claims.see(record.offset, claim, plan)
        self._position = end

    def _write(self, key: bytes, value: bytes | None) -> None:
        if self._producer is None:
            settings = {
                **librdkafka_properties(self._properties),
                "enable.idempotence": "true",
                "delivery.timeout.ms": str(int(WRITE_TIMEOUT_S * 1000)),
                "message.max.bytes": str(RECORD_BYTES_MAX),
                "compression.type": "lz4",
                "linger.ms": "0",
                "log_level": "0",
            }
            self._producer = Producer(settings)
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: object) -> None:
            if error is not None:
                failed.append(error)

        try:
            self._producer.produce(self._topic, value, key, 0, on_delivery=delivered)
            left = self._producer.flush(WRITE_TIMEOUT_S + 5)
        except KafkaException as error:
            raise RepartitionError(f"cannot write to {self._topic}: {error.args[0].str()}") from None
        if left or failed:
            reason = failed[0].str() if failed else "no broker took it in time"
            raise RepartitionError(f"cannot write to {self._topic}: {reason}. Run the command again to go on")


def read_plan(properties: Mapping[str, str], source: str) -> RepartitionPlan | None:
    """The plan of a topic's repartitioning; None if it never had one."""
    try:
        with Ledger(properties, source) as ledger:
            return ledger.newest() if ledger.exists() else None
    except ClientError as error:
        raise RepartitionError(str(error)) from None
