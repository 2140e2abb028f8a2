"""Members come, go and die while records pour in: none is lost, none skipped, none repeated after its commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from clients.groups.group import Group, Kind, Load

PARTITIONS = 6

NEEDS = {"kafkajs": [pytest.mark.needs_npm], "java": [pytest.mark.needs_maven]}


def kinds(*wanted: Kind, marks: tuple[pytest.MarkDecorator, ...] = ()) -> list[object]:
    return [pytest.param(kind, id=str(kind), marks=[*NEEDS.get(kind.client, []), *marks]) for kind in wanted]


@pytest.mark.parametrize(
    "kind",
    [
        *kinds(
            Kind("librdkafka", "cooperative-sticky"),
            Kind("librdkafka", "uniform", protocol="consumer"),
            Kind("kafka_python", "sticky"),
            Kind("aiokafka", "roundrobin"),
            Kind("kafkajs", "its own"),
        ),
        *kinds(
            Kind("librdkafka", "range"),
            Kind("librdkafka", "roundrobin"),
            Kind("kafka_python", "range"),
            Kind("kafka_python", "roundrobin"),
            Kind("kafka_python", "cooperative-sticky"),
            Kind("aiokafka", "range"),
            Kind("aiokafka", "sticky"),
            Kind("java", "uniform", protocol="consumer"),
            Kind("java", "range"),
            Kind("java", "cooperative-sticky"),
            marks=(pytest.mark.compat,),
        ),
    ],
)
def test_members_come_go_and_die_and_every_record_is_processed(
    kind: Kind, bootstrap: str, new_topic: Callable[..., str], group_id: str, tmp_path: Path
) -> None:
    topic = new_topic(PARTITIONS)
    with Load(bootstrap, topic, PARTITIONS) as load, Group(bootstrap, topic, tmp_path, name=group_id) as group:
        ledger = group.ledger
        group.start("a", kind)
        group.start("b", kind)
        ledger.wait_shared("ab", PARTITIONS)
        group.start("c", kind)
        ledger.wait_shared("abc", PARTITIONS)
        group.stop("a")
        ledger.wait_shared("bc", PARTITIONS)
        group.kill("b")
        group.start("d", kind)
        ledger.wait_shared("cd", PARTITIONS)
        acknowledged = load.stop()
        ledger.wait_processed(acknowledged)
        group.stop_all()
    ledger.verify(acknowledged)
    assert ledger.committed == load.ends()
    assert committed(bootstrap, group_id) == load.ends()


@pytest.mark.parametrize("assignor", ["range", pytest.param("roundrobin", marks=pytest.mark.compat)])
def test_clients_of_different_libraries_share_one_group(
    assignor: str, bootstrap: str, new_topic: Callable[..., str], group_id: str, tmp_path: Path
) -> None:
    topic = new_topic(PARTITIONS)
    clients = ("librdkafka", "kafka_python", "aiokafka")
    with Load(bootstrap, topic, PARTITIONS) as load, Group(bootstrap, topic, tmp_path, name=group_id) as group:
        for client in clients:
            group.start(client, Kind(client, assignor))
        group.ledger.wait_shared(clients, PARTITIONS)
        group.stop("kafka_python")
        group.ledger.wait_shared(("librdkafka", "aiokafka"), PARTITIONS)
        acknowledged = load.stop()
        group.ledger.wait_processed(acknowledged)
        group.stop_all()
    group.ledger.verify(acknowledged)
    assert committed(bootstrap, group_id) == load.ends()


def test_a_group_moves_to_the_new_protocol_and_back_while_it_works(
    bootstrap: str, new_topic: Callable[..., str], group_id: str, tmp_path: Path
) -> None:
    """A rolling restart: classic members are replaced one by one by members of the new protocol, and back again."""
    topic = new_topic(PARTITIONS)
    classic, consumer = Kind("librdkafka", "range"), Kind("librdkafka", "uniform", protocol="consumer")
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def group_type() -> str:
        listed = admin.list_consumer_groups().result(60).valid
        return next(str(group.type.name) for group in listed if group.group_id == group_id)

    with Load(bootstrap, topic, PARTITIONS) as load, Group(bootstrap, topic, tmp_path, name=group_id) as group:
        group.start("a", classic)
        group.start("b", classic)
        group.ledger.wait_shared("ab", PARTITIONS)
        assert group_type() == "CLASSIC"
        group.stop("a")
        group.start("c", consumer)
        group.ledger.wait_shared("bc", PARTITIONS)
        assert group_type() == "CONSUMER"
        group.stop("b")
        group.start("d", consumer)
        group.ledger.wait_shared("cd", PARTITIONS)
        group.stop("c")
        group.start("e", classic)
        group.ledger.wait_shared("de", PARTITIONS)
        group.stop("d")
        group.ledger.wait_shared("e", PARTITIONS)
        assert group_type() == "CLASSIC"
        acknowledged = load.stop()
        group.ledger.wait_processed(acknowledged)
        group.stop_all()
    group.ledger.verify(acknowledged)
    assert committed(bootstrap, group_id) == load.ends()


def committed(bootstrap: str, group_id: str) -> dict[int, int]:
    """What the broker says is committed, by partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = ConsumerGroupTopicPartitions(group_id)
    answer = admin.list_consumer_group_offsets([asked])[group_id].result(60)
    return {partition.partition: partition.offset for partition in answer.topic_partitions}
