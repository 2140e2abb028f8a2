"""What an application does with a group through kafka-python."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from clients.groups.librdkafka import produce

pytestmark = pytest.mark.filterwarnings("ignore")
WAIT_TIMEOUT_S = 60
# kafka-python 3.0 begins joining a group anew with every poll: one that is too short never gets there, with any broker.
POLL_TIMEOUT_MS = 500


@contextmanager
def consumer(bootstrap: str, group_id: str, **settings: object) -> Iterator[KafkaConsumer]:
    config = {
        "session_timeout_ms": 3_000,
        "heartbeat_interval_ms": 200,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 50,
        "metadata_max_age_ms": 300,
    }
    made = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group_id, **{**config, **settings})
    with closing(made):
        yield made


def read_until(reader: KafkaConsumer, condition: Callable[[list[str]], bool]) -> list[str]:
    values: list[str] = []
    deadline_s = time.monotonic() + WAIT_TIMEOUT_S
    while not condition(values):
        assert time.monotonic() < deadline_s, (values, reader.assignment())
        for records in reader.poll(timeout_ms=POLL_TIMEOUT_MS).values():
            values += [record.value.decode() for record in records]
    return values


def test_auto_commit_lets_the_next_one_go_on(bootstrap: str, new_topic: Callable[..., str], group_id: str) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    produce(bootstrap, topic, *(str(n) for n in range(10)))
    auto = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    with consumer(bootstrap, group_id, **auto) as first:
        first.subscribe([topic])
        assert len(read_until(first, lambda values: len(values) == 10)) == 10
        read_until(first, lambda _: first.committed(partition) == 10)
    produce(bootstrap, topic, "next")
    with consumer(bootstrap, group_id, **auto) as second:
        second.subscribe([topic])
        assert read_until(second, bool) == ["next"]


def test_seek_pause_resume_positions_and_lag(bootstrap: str, new_topic: Callable[..., str], group_id: str) -> None:
    topic = new_topic(2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for partition in (0, 1):
        produce(bootstrap, topic, *(f"{partition}:{n}" for n in range(5)), partition=partition)
    with consumer(bootstrap, group_id) as reader:
        reader.subscribe([topic])
        read_until(reader, lambda values: len(values) == 10)
        assert (reader.position(zero), reader.position(one)) == (5, 5)
        reader.pause(one)
        assert reader.paused() == {one}
        for partition in (0, 1):
            produce(bootstrap, topic, f"{partition}:5", partition=partition)
        assert read_until(reader, bool) == ["0:5"]
        reader.resume(one)
        assert read_until(reader, bool) == ["1:5"]
        reader.seek(zero, 3)
        assert read_until(reader, lambda values: len(values) == 3) == ["0:3", "0:4", "0:5"]
        reader.commit({zero: OffsetAndMetadata(2, "half way", -1)})
        assert reader.committed(zero, metadata=True)[:2] == (2, "half way")
        assert reader.committed(one) is None
        assert reader.end_offsets([zero])[zero] - reader.committed(zero) == 4
        assert reader.highwater(zero) == 6


def test_a_pattern_picks_up_topics_that_are_created_later(bootstrap: str, group_id: str) -> None:
    prefix = f"orders-{uuid.uuid4().hex[:8]}"
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_topics([NewTopic(f"{prefix}-eu", 1, 1)])
        with consumer(bootstrap, group_id) as reader:
            reader.subscribe(pattern=f"^{prefix}-.*")
            read_until(reader, lambda _: reader.assignment() == {TopicPartition(f"{prefix}-eu", 0)})
            admin.create_topics([NewTopic(f"{prefix}-us", 1, 1)])
            produce(bootstrap, f"{prefix}-us", "hello")
            assert read_until(reader, bool) == ["hello"]
            assert len(reader.assignment()) == 2


def test_groups_are_listed_described_reset_and_deleted(
    bootstrap: str, new_topic: Callable[..., str], group_id: str
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    produce(bootstrap, topic, "a", "b", "c")
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        with consumer(bootstrap, group_id, client_id="worker-1") as reader:
            reader.subscribe([topic])
            read_until(reader, lambda values: len(values) == 3)
            reader.commit()
            described = admin.describe_groups([group_id])[group_id]
            assert described["group_state"] == "Stable"
            (member,) = described["members"]
            assert (member["client_id"], member["client_host"]) == ("worker-1", "/127.0.0.1")
        assert group_id in [group["group_id"] for group in admin.list_groups(states_filter=["Empty"])]
        assert group_id not in [group["group_id"] for group in admin.list_groups(states_filter=["Stable"])]
        assert admin.list_group_offsets({group_id: [partition]})[group_id][partition].offset == 3
        admin.alter_group_offsets(group_id, {partition: OffsetAndMetadata(1, "", -1)})
        with consumer(bootstrap, group_id) as reader:
            reader.subscribe([topic])
            assert read_until(reader, lambda values: len(values) == 2) == ["b", "c"]
        admin.delete_group_offsets(group_id, [partition])
        assert admin.list_group_offsets({group_id: None})[group_id] == {}
        admin.delete_groups([group_id])
        assert group_id not in [group["group_id"] for group in admin.list_groups()]
