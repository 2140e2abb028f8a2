"""The friendly consumer, against brokers."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer as BareConsumer
from confluent_kafka import Message
from confluent_kafka import TopicPartition as BarePartition

from penstock.client import CommitFailed, ConsumeFailed, Consumer, Producer, SettingsError, TopicPartition
from support.waiting import wait_until

BASE_MS = 1_700_000_000_000


def fill(bootstrap: str, topic: str, count: int, partitions: int = 1, *, start: int = 0) -> None:
    """Numbers, in turn to each partition, a second apart."""
    with Producer(bootstrap) as producer:
        for number in range(start, start + count):
            partition = number % partitions
            producer.send(topic, str(number), partition=partition, timestamp_ms=BASE_MS + 1000 * number)


def number(message: Message) -> int:
    return int(message.value() or b"")


def reader(bootstrap: str, topic: str | list[str], group: str | None = None, **settings: Any) -> Consumer:
    group = group or f"g-{uuid.uuid4().hex[:8]}"
    # Rebalances are told with heartbeats, and a seek waits for the fetch that is under way.
    quick = {} if "group_protocol" in settings else {"heartbeat.interval.ms": 200}
    properties = {"auto.offset.reset": "earliest", "fetch.max.wait.ms": 50, **quick}
    return Consumer(bootstrap, topic, group, properties, **settings)


def taken(consumer: Consumer, count: int) -> list[int]:
    found = []
    for message in consumer:
        found.append(number(message))
        if len(found) == count:
            break
    return found


def committed(bootstrap: str, group: str, topic: str, partitions: int = 1) -> list[int]:
    """What the group has committed, asked for with the bare client; -1001 is nothing."""
    consumer = BareConsumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [BarePartition(topic, one) for one in range(partitions)]
        return [one.offset for one in consumer.committed(asked, 20)]
    finally:
        consumer.close()


def test_what_a_loop_has_finished_is_committed_and_nothing_else(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic, group = create_topic(), f"g-{uuid.uuid4().hex}"
    fill(bootstrap, topic, 10)

    with pytest.raises(ZeroDivisionError), reader(bootstrap, topic, group) as consumer:
        print([1 / (number(message) - 4) for message in consumer])
    assert committed(bootstrap, group, topic) == [4]
    with reader(bootstrap, topic, group) as consumer:
        assert taken(consumer, 6) == [4, 5, 6, 7, 8, 9]


def test_the_end_of_the_loop_is_the_end_of_its_last_record(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, group = create_topic(), f"g-{uuid.uuid4().hex}"
    fill(bootstrap, topic, 10)
    with reader(bootstrap, topic, group) as consumer:
        for message in consumer:
            if number(message) == 9:
                consumer.stop()
    assert committed(bootstrap, group, topic) == [10]


def test_a_loop_that_is_stopped_gets_no_more_of_its_batch(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, group = create_topic(), f"g-{uuid.uuid4().hex}"
    fill(bootstrap, topic, 10)
    seen: list[int] = []
    with reader(bootstrap, topic, group) as consumer:
        for message in consumer:
            seen.append(number(message))
            if number(message) == 3:
                consumer.stop()
        assert [number(message) for message in consumer.poll(max_records=2)] == [4, 5]
    assert seen == [0, 1, 2, 3]
    assert committed(bootstrap, group, topic) == [6]


def test_slow_work_is_committed_while_it_goes_on(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, group = create_topic(), f"g-{uuid.uuid4().hex}"
    fill(bootstrap, topic, 10)
    with reader(bootstrap, topic, group, auto_commit_interval_ms=1) as consumer:
        for message in consumer:
            if number(message) == 4:
                wait_until(consumer._commit_is_due)
            if number(message) == 5:
                assert len(consumer._handed.batch) > 6, "in the middle of a batch"
                wait_until(lambda: committed(bootstrap, group, topic) == [5])
                break


def test_a_loop_that_breaks_goes_on_after_its_last_record(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 10)
    with reader(bootstrap, topic) as consumer:
        assert taken(consumer, 3) == [0, 1, 2]
        assert taken(consumer, 3) == [3, 4, 5]
        assert [number(message) for message in consumer.poll(max_records=2)] == [6, 7]
        assert [number(message) for message in consumer.poll()] == [8, 9]


def test_a_poll_gives_as_many_records_as_it_may_and_does_not_wait_for_more(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 25)
    with reader(bootstrap, topic, max_poll_records=10) as consumer:
        sizes: list[int] = []
        while sum(sizes) < 25:
            sizes.append(len(consumer.poll(20)))
        assert max(sizes) <= 10
        assert consumer.poll(0.05) == []


def test_a_poll_says_that_the_one_before_is_done(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, group = create_topic(), f"g-{uuid.uuid4().hex}"
    fill(bootstrap, topic, 20)

    def read_and_fail(consumer: Consumer) -> None:
        got = 0
        while got < 10:
            got += len(consumer.poll(20, max_records=10 - got))
        assert consumer.poll(20)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), reader(bootstrap, topic, group, max_poll_records=10) as consumer:
        read_and_fail(consumer)
    assert committed(bootstrap, group, topic) == [10]


def test_commits_by_hand(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, group = create_topic(), f"g-{uuid.uuid4().hex}"
    fill(bootstrap, topic, 10)
    told: list[object] = []
    with reader(bootstrap, topic, group, enable_auto_commit=False, on_commit=lambda *all: told.append(all)) as consumer:
        for message in consumer:
            if number(message) == 2:
                consumer.commit()
                assert committed(bootstrap, group, topic) == [3]
            if number(message) == 4:
                consumer.commit(message)
                assert consumer.committed() == {TopicPartition(topic, 0): 5}
            if number(message) == 6:
                consumer.commit_async()
                wait_until(lambda: committed(bootstrap, group, topic) == [7])
            if number(message) == 9:
                break
        consumer.poll(0.2)
        wait_until(lambda: consumer.poll(0.01) == [] and bool(told))
        consumer.commit({(topic, 0): 2})
        assert consumer.metrics.value("commit-total") == 4
        assert consumer.metrics.value("commit-latency-max") > 0
    assert committed(bootstrap, group, topic) == [2], "nothing is committed that was not asked for"


def test_a_commit_of_nobodys_is_refused(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    with reader(bootstrap, topic, default_api_timeout_ms=1000) as consumer, pytest.raises(CommitFailed):
        consumer.commit({("there-is-no-such-topic", 0): 5})


def test_a_paused_partition_gives_nothing_and_loses_nothing(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic(2)
    fill(bootstrap, topic, 40, 2)
    seen: list[int] = []
    odd_before: list[int] = []
    with reader(bootstrap, topic) as consumer:
        for message in consumer:
            seen.append(number(message))
            if len(seen) == 3:
                consumer.pause([(topic, 1)])
                odd_before = [one for one in seen if one % 2]
            if len(seen) == 20 + len(odd_before) and len(seen) > 3:
                assert [one for one in seen if one % 2] == odd_before
                assert consumer.lag() == {(topic, 0): 0, (topic, 1): 20 - len(odd_before)}
                consumer.resume()
            if len(seen) == 40:
                break
    assert sorted(seen) == list(range(40))
    assert [one for one in seen if one % 2] == list(range(1, 40, 2))
    assert [one for one in seen if not one % 2] == list(range(0, 40, 2))


def test_seeking_goes_on_elsewhere_and_commits_that(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic, group = create_topic(), f"g-{uuid.uuid4().hex}"
    fill(bootstrap, topic, 10)
    with reader(bootstrap, topic, group) as consumer:
        assert taken(consumer, 5) == [0, 1, 2, 3, 4]
        consumer.seek((topic, 0), 8)
        assert taken(consumer, 2) == [8, 9]
        consumer.seek_to_beginning()
        assert taken(consumer, 2) == [0, 1]
        assert consumer.position((topic, 0)) == 2
        consumer.seek_to_end()
        fill(bootstrap, topic, 1, start=10)
        assert taken(consumer, 1) == [10]
        assert consumer.end_offset((topic, 0)) == 11
        consumer.seek((topic, 0), 3)
        assert taken(consumer, 1) == [3]
    assert committed(bootstrap, group, topic) == [3], "the last record of a loop that breaks is not done"


def test_seeking_by_time(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 10)
    with reader(bootstrap, topic) as consumer:
        assert taken(consumer, 10) == list(range(10))
        when = datetime.fromtimestamp((BASE_MS + 3500) / 1000, UTC)
        assert consumer.seek_to_time(when) == {(topic, 0): 4}
        assert taken(consumer, 2) == [4, 5]
        assert consumer.seek_to_time(BASE_MS + 8000) == {(topic, 0): 8}
        assert taken(consumer, 2) == [8, 9]
        assert consumer.seek_to_time(BASE_MS + 10**9) == {(topic, 0): None}
        fill(bootstrap, topic, 1, start=10)
        assert taken(consumer, 1) == [10]


def test_lag_is_what_was_not_given_out_yet(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 10)
    with reader(bootstrap, topic) as consumer:
        assert taken(consumer, 4) == [0, 1, 2, 3]
        assert consumer.lag() == {(topic, 0): 6}
        assert consumer.position((topic, 0)) == 4
    with Consumer(bootstrap) as alone:
        alone.assign({(topic, 0): 7})
        assert taken(alone, 1) == [7]
        assert alone.lag() == {(topic, 0): 2}


def test_partitions_go_over_to_a_new_member_where_the_old_one_left_them(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    """An orderly rebalance repeats nothing, although the next automatic commit is far away."""
    topic, group = create_topic(2), f"g-{uuid.uuid4().hex}"
    fill(bootstrap, topic, 40, 2)
    told: list[tuple[str, int]] = []
    first = reader(bootstrap, topic, group, on_revoke=lambda gone: told.append(("gone", len(gone))), max_poll_records=5)
    seen: list[Any] = []
    while len(seen) < 20:
        seen += [number(message) for message in first.poll(20)]
    second = reader(bootstrap, topic, group, on_assign=lambda mine: told.append(("mine", len(mine))))
    others: list[int] = []
    while len(second.assignment()) < 1:
        seen += [number(message) for message in first.poll(0.05)]
        others += [number(message) for message in second.poll(0.05)]
    while len(seen) + len(others) < 40:
        seen += [number(message) for message in first.poll(0.05)]
        others += [number(message) for message in second.poll(0.05)]
    first.close()
    second.close()
    assert sorted(seen + others) == list(range(40))
    assert ("gone", 1) in told
    assert ("mine", 1) in told
    assert sum(committed(bootstrap, group, topic, 2)) == 40


def test_the_new_group_protocol_is_a_setting(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 3)
    with reader(bootstrap, topic, group_protocol="consumer") as consumer:
        assert taken(consumer, 3) == [0, 1, 2]
    with pytest.raises(SettingsError, match=r"session\.timeout\.ms"):
        reader(bootstrap, topic, group_protocol="consumer", session_timeout_ms=1000)


def test_topics_by_pattern(bootstrap: str, create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    fill(bootstrap, topic, 3)
    with reader(bootstrap, f"^{topic[:10]}.*") as consumer:
        assert taken(consumer, 3) == [0, 1, 2]


def test_without_an_offset_and_without_a_reset_nothing_is_guessed(
    bootstrap: str, create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    with (
        Consumer(bootstrap, topic, "none", auto_offset_reset="error") as consumer,
        pytest.raises(ConsumeFailed, match=topic),
    ):
        consumer.poll(20)


def test_a_subscription_needs_a_group(bootstrap: str) -> None:
    with pytest.raises(SettingsError, match=r"group\.id"):
        Consumer(bootstrap, "orders")
