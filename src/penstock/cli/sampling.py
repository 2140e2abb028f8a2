"""Samples a live topic for the impact report: the distribution of its keys, and its consumers."""

from __future__ import annotations

import time
from collections.abc import Iterator

from penstock.cli import exit_codes
from penstock.cli.connection import Cluster
from penstock.cli.errors import CliError
from penstock.cli.impact import DependentGroup

FETCH_RECORDS = 1000
FETCH_TIMEOUT_S = 0.5


def newest_keys(cluster: Cluster, topic: str, partitions: int, limit: int) -> Iterator[tuple[bytes | None, int]]:
    """Key and partition of up to `limit` of the newest records, the same number from each partition."""
    from penstock.cli.library import KafkaException, TopicPartition

    if limit == 0:
        return
    share = -(-limit // partitions)
    consumer = cluster.consumer({"enable.partition.eof": True})
    try:
        assigned = []
        ends: dict[int, int] = {}
        for partition in range(partitions):
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=cluster.timeout_s)
            if first < end:
                assigned.append(TopicPartition(topic, partition, max(first, end - share)))
                ends[partition] = end
        consumer.assign(assigned)
        deadline_s = time.monotonic() + cluster.timeout_s
        while ends and time.monotonic() < deadline_s:
            for message in consumer.consume(FETCH_RECORDS, FETCH_TIMEOUT_S):
                place, offset = message.partition(), message.offset()
                assert place is not None
                assert offset is not None
                # A topic that is written to faster than it is read has no end: what came later does not count.
                end = ends.get(place, 0)
                if message.error() is not None or offset >= end - 1:
                    ends.pop(place, None)
                if message.error() is None and offset < end:
                    yield message.key(), place
    except KafkaException as error:
        raise cluster.failure(error.args[0], f"read the newest records of {topic}") from None
    finally:
        consumer.close()


def dependent_groups(cluster: Cluster, topic: str) -> tuple[list[DependentGroup], str]:
    """The groups that have a position in the topic; or, where the cluster cannot tell, the reason."""
    try:
        reading = [group for group, topics in topics_of_groups(cluster).items() if topic in topics]
        if not reading:
            return [], ""
        described = cluster.admin.describe_consumer_groups(reading, request_timeout=cluster.timeout_s)
        groups = []
        for name, future in described.items():
            group = cluster.wait(future, f"describe the group {name}")
            groups.append(DependentGroup(name=name, state=group.state.name.lower(), members=len(group.members)))
        return groups, ""
    except CliError as error:
        if error.code == exit_codes.UNREACHABLE:
            raise
        return [], error.message


def topics_of_groups(cluster: Cluster) -> dict[str, frozenset[str]]:
    """Each consumer group, and the topics in which it has a position."""
    from penstock.cli.library import ConsumerGroupTopicPartitions

    admin = cluster.admin
    listed = cluster.wait(admin.list_consumer_groups(request_timeout=cluster.timeout_s), "list the groups")
    if listed.errors and not listed.valid:
        error = listed.errors[0]
        raise cluster.failure(getattr(error, "args", [error])[0], "list the groups")
    found = {}
    for name in sorted(group.group_id for group in listed.valid):
        # One group per request is all the library takes.
        futures = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=cluster.timeout_s
        )
        position = cluster.wait(futures[name], f"ask for the positions of {name}")
        found[name] = frozenset(str(place.topic) for place in position.topic_partitions or [])
    return found
