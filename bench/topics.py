"""Topics on a broker that is measured, whichever it is: they are there, or gone, before anything is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from support.server_process import ServerFailed, ServerProcess, admin_client

ADMIN_TIMEOUT_S = 120
FILES_GONE_TIMEOUT_S = 10
PARTITIONS_PER_REQUEST = 1000


def create_topics(
    bootstrap: str,
    partitions_by_topic: Mapping[str, int],
    timeout_s: float = ADMIN_TIMEOUT_S,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Creates them and waits until every partition answers."""
    client = admin_client(bootstrap)
    topics = [
        NewTopic(name, num_partitions=count, replication_factor=replication_factor, config=dict(config or {}))
        for name, count in partitions_by_topic.items()
    ]
    request: list[NewTopic] = []
    in_request = 0
    for topic in topics:
        if request and in_request + topic.num_partitions > PARTITIONS_PER_REQUEST:
            _create(client, request, timeout_s)
            request, in_request = [], 0
        request.append(topic)
        in_request += topic.num_partitions
    _create(client, request, timeout_s)
    await_partitions(bootstrap, partitions_by_topic, timeout_s)


def await_partitions(
    bootstrap: str, partitions_by_topic: Mapping[str, int], timeout_s: float = ADMIN_TIMEOUT_S
) -> dict[tuple[str, int], int]:
    """The end offset of each partition, once all have one to tell."""
    deadline_s = time.monotonic() + timeout_s
    ends: dict[tuple[str, int], int] = {}
    missing = [(name, number) for name, count in partitions_by_topic.items() for number in range(count)]
    while missing:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        # A new client each time: librdkafka's may go on with the leaders that it saw before the partitions had any.
        client = admin_client(bootstrap)
        answers = client.list_offsets({TopicPartition(*key): latest for key in missing}, request_timeout=30)
        for partition, future in answers.items():
            with suppress(KafkaException):
                ends[partition.topic, partition.partition] = future.result().offset
        missing = [key for key in missing if key not in ends]
        if missing and time.monotonic() > deadline_s:
            raise ServerFailed(f"{len(missing)} partitions are missing after {timeout_s:.0f} s, such as {missing[0]}")
        if missing:
            time.sleep(0.05)
    return ends


def delete_topic(broker: ServerProcess, name: str) -> None:
    """Deletes it and waits until its files are gone, so that they do not trouble what is measured next."""
    client = admin_client(broker.bootstrap)
    for future in client.delete_topics([name], operation_timeout=ADMIN_TIMEOUT_S).values():
        future.result(ADMIN_TIMEOUT_S)
    deadline_s = time.monotonic() + FILES_GONE_TIMEOUT_S
    while any(broker.data_dir.rglob(f"{name}-*")) and time.monotonic() < deadline_s:
        time.sleep(0.05)


def _create(client: AdminClient, topics: list[NewTopic], timeout_s: float) -> None:
    futures = client.create_topics(topics, operation_timeout=timeout_s, request_timeout=timeout_s)
    for future in futures.values():
        future.result(timeout_s)
