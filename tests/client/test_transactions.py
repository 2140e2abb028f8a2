"""`with producer.transaction(consumer):` on real brokers: all or nothing, offsets included."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from penstock.client import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    DeliveryFailed,
    Producer,
    ProducerFenced,
    SettingsError,
    TransactionAborted,
    TransactionError,
)

pytestmark = pytest.mark.timeout(120)

NewTopic = Callable[..., str]


def new_id() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer(bootstrap, transactional_id=new_id(), linger_ms=0) as made:
        yield made


def reader(bootstrap: str, topic: str, group: str | None = None) -> Consumer:
    return Consumer(bootstrap, topic, group or new_id(), auto_offset_reset="earliest", group_instance_id=None)


def values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """The first `count` committed values, from the beginning."""
    found: list[bytes | None] = []
    with reader(bootstrap, topic) as consumer:
        while len(found) < count:
            found += [message.value() for message in consumer.poll(1.0)]
    return found


def poll_some(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        found += [message.value() for message in consumer.poll(1.0, max_records=count - len(found))]
    return found


def test_what_a_block_sends_is_visible_when_it_ends_and_not_if_it_raises(
    bootstrap: str, producer: Producer, create_topic: NewTopic
) -> None:
    topic = create_topic(partitions=2)
    with producer.transaction():
        producer.send(topic, "a", partition=0)
        producer.send(topic, "b", partition=1)
    with suppress(ZeroDivisionError), producer.transaction():
        producer.send(topic, "never", partition=0)
        producer.flush()
        raise ZeroDivisionError
    with producer.transaction() as transaction:
        producer.send(topic, "nor this", partition=0)
        transaction.abort()
    with producer.transaction():
        producer.send(topic, "c", partition=0)
    assert sorted(value or b"" for value in values(bootstrap, topic, 3)) == [b"a", b"b", b"c"]


def test_an_abort_lets_the_consumer_deliver_the_same_records_again(
    bootstrap: str, producer: Producer, create_topic: NewTopic
) -> None:
    source, target, group = create_topic(), create_topic(), new_id()
    with Producer(bootstrap, linger_ms=0) as feeding:
        for number in range(4):
            feeding.send(source, str(number))
    with reader(bootstrap, source, group) as consumer:
        for attempt in range(2):
            seen = poll_some(consumer, 2)
            assert seen == [b"0", b"1"]
            try:
                with producer.transaction(consumer):
                    for value in seen:
                        producer.send(target, value)
                    if attempt == 0:
                        raise KeyError("the first time fails")
            except KeyError:
                assert attempt == 0
        assert consumer.committed() == {(source, 0): 2}
        seen = poll_some(consumer, 2)
        with producer.transaction() as transaction:
            for value in seen:
                producer.send(target, value)
            transaction.send_offsets(consumer)
    with reader(bootstrap, source, group) as successor:
        successor.poll(0)
        assert successor.committed([(source, 0)]) == {(source, 0): 4}
    assert values(bootstrap, target, 4) == [b"0", b"1", b"2", b"3"]


def test_offsets_given_by_the_caller_are_the_ones_committed(
    bootstrap: str, producer: Producer, create_topic: NewTopic
) -> None:
    topic = create_topic()
    with Consumer(bootstrap, group=new_id()) as consumer:
        with producer.transaction() as transaction:
            transaction.send_offsets(consumer, {(topic, 0): 7})
        assert consumer.committed([(topic, 0)]) == {(topic, 0): 7}


def test_a_newer_producer_fences_the_older_one_for_good(bootstrap: str, create_topic: NewTopic) -> None:
    topic, name = create_topic(), new_id()
    with Producer(bootstrap, transactional_id=name, linger_ms=0) as old:

        def overtaken() -> None:
            with old.transaction():
                old.send(topic, "old")
                old.flush()
                with Producer(bootstrap, transactional_id=name, linger_ms=0) as new, new.transaction():
                    new.send(topic, "new")

        with pytest.raises(ProducerFenced):
            overtaken()
        with pytest.raises(ProducerFenced), old.transaction():
            pytest.fail("a fenced producer begins no transaction")
    assert values(bootstrap, topic, 1) == [b"new"]


def test_a_consumer_whose_records_have_an_unknown_fate_delivers_no_more(bootstrap: str, create_topic: NewTopic) -> None:
    source, name = create_topic(), new_id()
    with Producer(bootstrap, linger_ms=0) as feeding:
        feeding.send(source, "0")
        feeding.send(source, "1")
    with (
        Producer(bootstrap, transactional_id=name, linger_ms=0) as old,
        Producer(bootstrap, transactional_id=name, linger_ms=0) as new,
        reader(bootstrap, source) as consumer,
    ):
        poll_some(consumer, 1)

        def overtaken() -> None:
            with old.transaction(consumer):
                old.send(source, "2")
                old.flush()
                new.init_transactions()

        with pytest.raises(ProducerFenced):
            overtaken()
        with pytest.raises(ProducerFenced):
            consumer.poll(0)


def test_a_record_that_is_refused_aborts_the_rest_and_says_that_it_would_fail_again(
    bootstrap: str, producer: Producer, create_topic: NewTopic
) -> None:
    topic, small = create_topic(), create_topic(max_message_bytes="1000")

    def refused() -> None:
        with producer.transaction():
            producer.send(topic, "with it")
            producer.send(small, b"x" * 5000)

    with pytest.raises(TransactionAborted) as caught:
        refused()
    assert caught.value.permanent
    with producer.transaction():
        producer.send(topic, "alone")
    assert values(bootstrap, topic, 1) == [b"alone"]
    producer.flush()  # an aborted transaction's records are not reported a second time


def test_a_delivery_that_the_block_waited_for_ends_as_an_abort_too(
    bootstrap: str, producer: Producer, create_topic: NewTopic
) -> None:
    small = create_topic(max_message_bytes="1000")
    with pytest.raises(TransactionAborted) as caught, producer.transaction():
        producer.send(small, b"x" * 5000).result()
    assert isinstance(caught.value.__cause__, DeliveryFailed)


def test_wrong_uses_are_refused_by_name(bootstrap: str, producer: Producer, create_topic: NewTopic) -> None:
    with Producer(bootstrap) as plain, pytest.raises(SettingsError, match=r"transactional\.id"), plain.transaction():
        pytest.fail("no transaction without an id")
    with producer.transaction(), pytest.raises(TransactionError, match="already open"), producer.transaction():
        pytest.fail("not two at a time")
    with (
        Consumer(bootstrap) as groupless,
        pytest.raises(SettingsError, match=r"group\.id"),
        producer.transaction(groupless),
    ):
        pytest.fail("no offsets without a group")


def test_the_same_with_asyncio(bootstrap: str, create_topic: NewTopic) -> None:
    source, target = create_topic(), create_topic()
    with Producer(bootstrap, linger_ms=0) as feeding:
        for number in range(3):
            feeding.send(source, str(number))

    async def copy() -> None:
        async with (
            AsyncProducer(bootstrap, transactional_id=new_id(), linger_ms=0) as producer,
            AsyncConsumer(bootstrap, source, new_id(), auto_offset_reset="earliest") as consumer,
        ):
            copied = attempt = 0
            while copied < 3:
                messages = await consumer.poll(1.0, max_records=2)
                attempt += bool(messages)
                try:
                    async with producer.transaction(consumer):
                        for message in messages:
                            await producer.send(target, message.value())
                        if attempt == 1:
                            raise KeyError
                except KeyError:
                    attempt += 1
                else:
                    copied += len(messages)
            assert await consumer.committed() == {(source, 0): 3}

    asyncio.run(copy())
    assert values(bootstrap, target, 3) == [b"0", b"1", b"2"]
