"""The fence: makes a topic read-only, and makes sure of it at every leader.

| cluster | setting | a producer is told |
|---|---|---|
| Penstock | `penstock.read.only=true` | POLICY_VIOLATION |
| Apache Kafka | `max.message.bytes=0` | MESSAGE_TOO_LARGE |

Neither is retried by clients, and both hold for super users as well, as an access rule would not. A setting reaches the
leaders a little after it was made. So each leader is sent a batch with a wrong checksum until it refuses it because of
the fence and not because of the checksum: such a batch is never stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from penstock.client import BrokerError, ClientError, Cluster, librdkafka_properties
from penstock.pipeline.repartition.plan import Fence, RepartitionError
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.records import Record, build_batch

if TYPE_CHECKING:
    from concurrent.futures import Future

READ_ONLY: Final = ("penstock.read.only", "true")
NO_SIZE_IS_SMALL_ENOUGH: Final = ("max.message.bytes", "0")
FENCES: Final = (READ_ONLY, NO_SIZE_IS_SMALL_ENOUGH)
REFUSED_BY_FENCE: Final = frozenset(
    {ErrorCode.POLICY_VIOLATION, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
)
ADMIN_TIMEOUT_S: Final = 30.0
FENCED_WITHIN_S: Final = 120.0
PAUSE_S: Final = 0.05
PROBE_VERSION_MAX: Final = 12
"""From version 13 on Produce names topics by their ids."""
FROM_TOPIC: Final = 1


class TopicSettings:
    """The settings that topics have of their own."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._admin = AdminClient({**librdkafka_properties(properties), "log_level": "0"})

    def read(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found: Any = _result(self._admin.describe_configs([resource])[resource], f"read the settings of {topic}")
        return {
            name: entry.value
            for name, entry in found.items()
            if entry.source == FROM_TOPIC and entry.value is not None and not entry.is_default
        }

    def change(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """Sets these; one whose value is None is removed."""
        if not settings:
            return
        entries = [
            ConfigEntry(
                name,
                "" if value is None else value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _result(self._admin.incremental_alter_configs([resource])[resource], f"change the settings of {topic}")

    def knows(self, topic: str, setting: tuple[str, str]) -> bool:
        """Whether the cluster has such a setting; nothing is changed."""
        entry = ConfigEntry(setting[0], setting[1], incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        try:
            self._admin.incremental_alter_configs([resource], validate_only=True)[resource].result(ADMIN_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.INVALID_CONFIG:
                return False
            raise RepartitionError(f"cannot change the settings of {topic}: {error.args[0].str()}") from None
        return True


def choose_fence(settings: TopicSettings, topic: str) -> Fence:
    """The fence that this cluster has, and what it replaces. Changes nothing."""
    own = settings.read(topic)
    for name, value in FENCES:
        if settings.knows(topic, (name, value)):
            before = own.get(name)
            return Fence(name, value, None if before == value else before)
    raise RepartitionError(
        f"this cluster has no setting that makes {topic} read-only: stop its producers, then add --producers-stopped"
    )


def raise_fence(settings: TopicSettings, topic: str, fence: Fence) -> None:
    settings.change(topic, {fence.setting: fence.value})


def lower_fence(settings: TopicSettings, topic: str, fence: Fence) -> None:
    settings.change(topic, {fence.setting: fence.before})


def await_fence(
    cluster: Cluster,
    topic: str,
    partitions: int,
    *,
    timeout_s: float = FENCED_WITHIN_S,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Returns once the leader of every partition refuses records because of the fence."""
    deadline_s = time.monotonic() + timeout_s
    left = list(range(partitions))
    while left:
        left = [partition for partition in left if not _is_fenced(cluster, topic, partition)]
        if left and time.monotonic() > deadline_s:
            raise RepartitionError(
                f"partition {left[0]} of {topic} still takes records after {timeout_s:.0f} s, though it was made "
                "read-only: look at its leader, then run the command again (or --abort)"
            )
        if left:
            sleep(PAUSE_S)


def _is_fenced(cluster: Cluster, topic: str, partition: int) -> bool:
    batch = bytearray(build_batch([Record(timestamp=0, value=b"is it fenced?")]))
    batch[-1] ^= 1  # no longer what its checksum says: refused in any case
    request = ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, bytes(batch))])],
    )
    try:
        leader = cluster.leader(topic, partition)
        version = min(PROBE_VERSION_MAX, leader.version_of(ProduceRequest))
        answer = leader.call(request, ProduceResponse, version=version)
        code = answer.responses[0].partition_responses[0].error_code
    except BrokerError:
        raise
    except ClientError:
        cluster.forget(topic)  # its leader is gone: ask the next one
        return False
    if code not in REFUSED_BY_FENCE:
        cluster.forget(topic)
    return code in REFUSED_BY_FENCE


def _result(future: Future[Any], doing: str) -> Any:
    try:
        return future.result(ADMIN_TIMEOUT_S)
    except KafkaException as error:
        raise RepartitionError(f"could not {doing}: {error.args[0].str()}") from None
    except TimeoutError:
        raise RepartitionError(f"could not {doing}: no answer within {ADMIN_TIMEOUT_S:.0f} s") from None
