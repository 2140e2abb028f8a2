"""Records of consumer groups: Kafka's layout, and what becomes of logs that others wrote."""

from __future__ import annotations

import pytest

from coordinators.consumer.harness import CONFIG, GROUP, Cluster, Consumer, owned_by_all, rounds
from penstock.coordinators.groups import GroupShard
from penstock.coordinators.groups.config import replace
from penstock.coordinators.groups.consumer import records
from penstock.coordinators.groups.consumer.group import ConsumerGroup
from penstock.coordinators.groups.consumer.member import CurrentAssignment, MemberState
from penstock.wire.errors import ErrorCode, WireError
from penstock.wire.messages import consumer_group_records as r

TOPIC = bytes(range(16))


@pytest.mark.parametrize(
    ("key", "encoded"),
    [
        (records.group_key("g"), "0003 0001 67"),
        (records.partition_metadata_key("g"), "0004 0001 67"),
        (records.member_key("g", "m"), "0005 0001 67 0001 6d"),
        (records.target_epoch_key("g"), "0006 0001 67"),
        (records.target_key("g", "m"), "0007 0001 67 0001 6d"),
        (records.current_key("g", "m"), "0008 0001 67 0001 6d"),
        (records.regex_key("g", "a.*"), "0010 0001 67 0003 612e2a"),
    ],
)
def test_keys_are_laid_out_as_kafkas(key: bytes, encoded: str) -> None:
    assert key == bytes.fromhex(encoded)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (records.group_value(5, 0), "0000 00000005 00"),
        (records.group_value(5, 1), "0000 00000005 01 00 08 0000000000000001"),
        (records.target_epoch_value(5, 7), "0000 00000005 01 00 08 0000000000000007"),
        (records.target_value({TOPIC: (1, 2)}), f"0000 02 {TOPIC.hex()} 03 00000001 00000002 00 00"),
        (
            records.current_value(CurrentAssignment(3, 2, MemberState.UNREVOKED_PARTITIONS, {}, {TOPIC: {4: 2}})),
            f"0000 00000003 00000002 01 01 02 {TOPIC.hex()} 02 00000004 01 00 05 02 00000002 00",
        ),
        (records.regex_value(("a", "b"), 1, 2), "0000 03 02 61 02 62 0000000000000001 0000000000000002 00"),
    ],
)
def test_values_are_laid_out_as_kafkas(value: bytes, encoded: str) -> None:
    assert value == bytes.fromhex(encoded)


def test_a_value_of_a_version_that_is_not_known_is_not_passed_over() -> None:
    with pytest.raises(WireError, match="version 1"):
        r.decode_value(r.ConsumerGroupMetadataValue, bytes.fromhex("0001 00000005 00"))


def test_assignments_of_kafka_before_4_3_have_no_epochs_and_get_the_members() -> None:
    value = r.encode_value(
        r.ConsumerGroupCurrentMemberAssignmentValue(7, 6, 0, [r.CurrentTopicPartitions(TOPIC, [1, 2])], [])
    )
    assert records.current_assignment(value).assigned == {TOPIC: {1: 7, 2: 7}}


def test_a_state_that_is_not_known_fences_the_member_until_it_starts_again() -> None:
    cluster = Cluster(orders=2)
    consumer = Consumer(cluster, "a")
    consumer.join()
    rounds([consumer])
    current = cluster.group.members["a"].current
    value = r.ConsumerGroupCurrentMemberAssignmentValue(current.epoch, current.previous_epoch, 9, [], [])
    cluster.driver.turn().append(records.current_key(GROUP, "a"), r.encode_value(value))
    cluster.restart()
    assert consumer.beat(topic_partitions=consumer._topic_partitions()).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    rounds([consumer])
    assert len(consumer.owned) == 2


def test_a_record_of_kafka_4_0_is_taken_back_with_the_next_epoch() -> None:
    cluster = Cluster(orders=2)
    consumer = Consumer(cluster, "a")
    consumer.join()
    cluster.driver.turn().append(records.partition_metadata_key(GROUP), b"\x00\x00\x01\x00")
    cluster.restart()
    cluster.driver.add_partitions("orders", 1)
    rounds([consumer])
    key = records.partition_metadata_key(GROUP)
    assert [record.value for record in cluster.driver.records if record.key == key] == [b"\x00\x00\x01\x00", None]


def test_a_compacted_log_gives_the_same_state() -> None:
    cluster = Cluster(orders=5)
    consumers = [Consumer(cluster, f"m{number}") for number in range(4)]
    for consumer in consumers:
        consumer.join()
        rounds(consumers, 2)
    consumers[0].leave()
    rounds(consumers)
    newest = {record.key: record for record in cluster.driver.records}
    compacted = sorted((record for record in newest.values() if record.value is not None), key=lambda r: r.offset)
    assert len(compacted) < len(cluster.driver.records) / 2
    shard = GroupShard(CONFIG)
    cluster.driver.reload(shard, compacted)
    assert shard.durable_state() == cluster.shard.durable_state()


def test_tombstones_of_what_is_not_there_mean_nothing() -> None:
    shard = GroupShard(CONFIG)
    for key in (
        records.group_key("g"),
        records.member_key("g", "m"),
        records.target_epoch_key("g"),
        records.target_key("g", "m"),
        records.current_key("g", "m"),
        records.regex_key("g", "x"),
    ):
        shard.replay(0, -1, -1, key, None)
    assert shard.groups == {}


def test_a_target_that_is_too_large_for_one_batch_is_written_in_portions() -> None:
    config = replace(CONFIG, batch_bytes_max=8_000, group_consumer_assignment_interval_ms=1_000)
    cluster = Cluster(config, orders=100)
    consumers = [Consumer(cluster, f"m{number}") for number in range(100)]
    for consumer in consumers:
        consumer.join()
    cluster.advance(1_000)
    cluster.driver.take_records()
    consumers[0].beat()
    portion = cluster.driver.take_records()
    assert sum(len(record.key) + len(record.value or b"") + 32 for record in portion) < config.batch_bytes_max
    assert cluster.group.assignment_epoch == 1, "not before all is written"
    # Whoever is slow, leaves or joins in between does no harm.
    consumers[7].leave()
    consumers[1].beat()
    cluster.advance(0)
    assert cluster.group.target_update is None
    assert cluster.group.assignment_epoch == 100
    rounds(consumers, 6)
    assert len(owned_by_all(consumers)) == 100
    assert cluster.group.state == "Stable"


def test_a_crash_while_a_target_is_being_written_costs_nothing_but_time() -> None:
    config = replace(CONFIG, batch_bytes_max=8_000, group_consumer_assignment_interval_ms=1_000)
    cluster = Cluster(config, orders=100)
    consumers = [Consumer(cluster, f"m{number}") for number in range(100)]
    for consumer in consumers:
        consumer.join()
    cluster.advance(1_000)
    consumers[0].beat()
    assert cluster.group.target_update is not None
    cluster.restart()
    rounds(consumers, 6)
    assert len(owned_by_all(consumers)) == 100
    assert isinstance(cluster.group, ConsumerGroup)
    assert cluster.group.state == "Stable"
