"""OffsetCommit, OffsetFetch, OffsetDelete: what was acknowledged reads back, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinators.groups.harness import INFO, Groups, subscription
from penstock.coordinators.groups.records import decode_offset_value
from penstock.metadata import difference
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.uuids import ZERO_UUID


@pytest.fixture
def groups() -> Groups:
    driver = Groups()
    driver.create_topic("t", partitions=3)
    return driver


def test_a_committed_offset_reads_back_with_its_metadata_and_epoch(groups: Groups) -> None:
    assert groups.commit(42, metadata="where I was", epoch=7) == ErrorCode.NONE
    for shard in (groups, groups.reloaded()):
        fetched = shard.fetch()
        assert (fetched.committed_offset, fetched.committed_leader_epoch, fetched.metadata) == (42, 7, "where I was")
        assert fetched.error_code == ErrorCode.NONE


def test_the_newest_commit_counts(groups: Groups) -> None:
    groups.commit(5, metadata="old")
    groups.commit(3)
    for shard in (groups, groups.reloaded()):
        assert (shard.fetch().committed_offset, shard.fetch().metadata) == (3, "")


@pytest.mark.parametrize("length", [0, 1, 126, 127, 4_096])
def test_metadata_of_any_allowed_length_is_kept(groups: Groups, length: int) -> None:
    metadata = "ä" * (length // 2) + "x" * (length % 2)
    assert groups.commit(metadata=metadata) == ErrorCode.NONE
    assert groups.reloaded().fetch().metadata == metadata


def test_metadata_that_is_null_reads_back_as_empty(groups: Groups) -> None:
    groups.commit(metadata=None)
    assert groups.fetch().metadata == ""


def test_a_partition_without_a_commit_has_the_offset_minus_one(groups: Groups) -> None:
    groups.commit(5, partition=0)
    for topic, partition, group in (("t", 1, "g"), ("other", 0, "g"), ("t", 0, "nobody")):
        fetched = groups.fetch(topic, partition, group=group)
        assert (fetched.committed_offset, fetched.committed_leader_epoch, fetched.metadata) == (-1, -1, "")
        assert fetched.error_code == ErrorCode.NONE


def test_all_offsets_of_a_group_can_be_asked_for(groups: Groups) -> None:
    groups.create_topic("u")
    for topic, partition, offset in (("t", 2, 20), ("u", 0, 5), ("t", 0, 10)):
        groups.commit(offset, topic=topic, partition=partition)
    groups.commit(99, group="other")
    expected = {("t", 2): 20, ("t", 0): 10, ("u", 0): 5}
    assert groups.fetch_all() == expected
    assert groups.reloaded().fetch_all() == expected
    assert groups.fetch_all("nobody") == {}


def test_partitions_of_one_request_succeed_or_fail_each_for_itself(groups: Groups) -> None:
    request = OffsetCommitRequest(
        "g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(0, 1),
                    OffsetCommitRequestPartition(3, 1),
                    OffsetCommitRequestPartition(1, 1, -1, "x" * 4_097),
                    OffsetCommitRequestPartition(-1, 1),
                ],
            ),
            OffsetCommitRequestTopic(name="gone", partitions=[OffsetCommitRequestPartition(0, 1)]),
        ],
    )
    response = groups.commit_request(request)
    errors = [[(p.partition_index, p.error_code) for p in topic.partitions] for topic in response.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [[(0, 0), (3, unknown), (1, ErrorCode.OFFSET_METADATA_TOO_LARGE), (-1, unknown)], [(0, unknown)]]
    assert groups.fetch_all() == {("t", 0): 1}
    assert len(groups.records) == 1


def test_a_commit_too_large_for_a_batch_is_refused_as_a_whole() -> None:
    groups = Groups(batch_bytes_max=1_000)
    groups.create_topic("t", partitions=20)
    request = OffsetCommitRequest(
        "g",
        topics=[
            OffsetCommitRequestTopic(
                name="t", partitions=[OffsetCommitRequestPartition(n, 1, -1, "x" * 50) for n in range(20)]
            )
        ],
    )
    response = groups.commit_request(request)
    assert {p.error_code for p in response.topics[0].partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert groups.records == []
    assert groups.fetch_all() == {}


# -- who may ---------------------------------------------------------------------------------------------------------


def test_whoever_assigns_itself_commits_without_membership(groups: Groups) -> None:
    assert groups.commit(5) == ErrorCode.NONE
    assert [(g.group_id, g.protocol_type, g.group_state) for g in groups.list()] == [("g", "", "Empty")]


def test_an_administrator_commits_for_an_empty_group_only(groups: Groups) -> None:
    member = groups.stable(1)[0]
    assert groups.commit(5) == ErrorCode.UNKNOWN_MEMBER_ID
    groups.leave(member)
    assert groups.commit(5) == ErrorCode.NONE


def test_a_member_commits_with_its_id_and_generation(groups: Groups) -> None:
    member = groups.stable(1)[0]
    assert groups.commit(5, member_id=member, generation=1) == ErrorCode.NONE
    assert groups.commit(6, member_id=member, generation=0) == ErrorCode.ILLEGAL_GENERATION
    assert groups.commit(6, member_id=member, generation=2) == ErrorCode.ILLEGAL_GENERATION
    assert groups.commit(6, member_id="stranger", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.commit(6, member_id=member) == ErrorCode.ILLEGAL_GENERATION
    assert groups.fetch().committed_offset == 5


def test_members_may_commit_while_others_rejoin_but_not_before_they_know_their_share(groups: Groups) -> None:
    leader, follower = groups.stable(2)
    groups.join(leader)
    assert groups.commit(5, member_id=follower, generation=1) == ErrorCode.NONE
    groups.join(follower)
    assert groups.commit(6, member_id=follower, generation=2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.commit(6, member_id=follower, generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert groups.fetch().committed_offset == 5


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_is_not_there_cannot_commit(groups: Groups, version: int, error: ErrorCode) -> None:
    assert groups.commit(member_id="m", generation=1, version=version) == error
    assert groups.records == []


def test_a_stranger_to_an_empty_group_is_unknown(groups: Groups) -> None:
    groups.commit(1, group="simple")
    assert groups.commit(group="simple", member_id="m", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    groups.leave(groups.stable(1)[0])
    assert groups.commit(member_id="m", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID


# -- topic ids -------------------------------------------------------------------------------------------------------


def by_id(groups: Groups, topic_id: bytes, partition: int = 0) -> tuple[int, int]:
    topic = OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[partition])
    response = groups.fetch_group(OffsetFetchRequestGroup("g", topics=[topic]), version=10)
    assert response.topics[0].topic_id == topic_id
    fetched = response.topics[0].partitions[0]
    return fetched.committed_offset, fetched.error_code


def test_version_10_speaks_of_topics_by_their_ids(groups: Groups) -> None:
    topic_id = groups.create_topic("u")
    assert groups.commit(8, topic="", topic_id=topic_id, version=10) == ErrorCode.NONE
    assert by_id(groups, topic_id) == (8, ErrorCode.NONE)
    assert groups.fetch("u").committed_offset == 8
    assert decode_offset_value(groups.records[-1].value or b"").topic_id == topic_id
    assert by_id(groups.reloaded(), topic_id) == (8, ErrorCode.NONE)
    everything = groups.fetch_group(OffsetFetchRequestGroup("g", topics=None), version=10)
    assert [topic.topic_id for topic in everything.topics] == [topic_id]


def test_an_unknown_topic_id_is_said_to_be_so(groups: Groups) -> None:
    assert groups.commit(topic="", topic_id=b"?" * 16, version=10) == ErrorCode.UNKNOWN_TOPIC_ID
    assert by_id(groups, b"?" * 16) == (-1, ErrorCode.UNKNOWN_TOPIC_ID)


def test_an_offset_of_a_topic_that_was_deleted_is_not_that_of_its_successor(groups: Groups) -> None:
    first = groups.create_topic("u")
    groups.commit(8, topic="", topic_id=first, version=10)
    groups.delete_topic("u")
    second = groups.create_topic("u")
    assert by_id(groups, second) == (-1, ErrorCode.NONE)
    groups.commit(9, topic="", topic_id=second, version=10)
    assert by_id(groups, second) == (9, ErrorCode.NONE)
    assert by_id(groups, first) == (-1, ErrorCode.UNKNOWN_TOPIC_ID)


def test_a_stored_id_that_differs_hides_the_offset(groups: Groups) -> None:
    first = groups.create_topic("u")
    groups.commit(8, topic="", topic_id=first, version=10)
    survivor = groups.reloaded()
    # The deletion happened while no coordinator was there to see it.
    groups.delete_topic("u")
    second = groups.create_topic("u")
    survivor.image = groups.image
    assert by_id(survivor, second) == (-1, ErrorCode.NONE)


def test_offsets_of_topics_without_an_id_are_left_out_of_everything_by_id(groups: Groups) -> None:
    groups.create_topic("u")
    groups.commit(8, topic="u")
    survivor = groups.reloaded()
    groups.delete_topic("u")
    survivor.image = groups.image
    everything = survivor.fetch_group(OffsetFetchRequestGroup("g", topics=None), version=10)
    assert everything.topics == []
    assert survivor.fetch_all() == {("u", 0): 8}


# -- deletion --------------------------------------------------------------------------------------------------------


def test_offsets_of_a_deleted_topic_get_tombstones(groups: Groups) -> None:
    groups.create_topic("u", partitions=2)
    for group in ("g", "h"):
        groups.commit(1, group=group)
        groups.commit(2, topic="u", partition=1, group=group)
    groups.delete_topic("u")
    assert sum(record.value is None for record in groups.records) == 2
    for shard in (groups, groups.reloaded()):
        assert shard.fetch_all("g") == shard.fetch_all("h") == {("t", 0): 1}
        assert shard.shard.offsets.count == 2


def test_offsets_of_a_topic_that_a_snapshot_only_lacks_are_kept(groups: Groups) -> None:
    before = groups.image
    groups.create_topic("u")
    groups.commit(7, topic="u")
    delta = difference(groups.image, before)
    assert [topic.name for topic in delta.topics_deleted] == ["u"]
    groups.shard.on_image(groups.turn(), delta)
    assert groups.fetch_all() == {("u", 0): 7}


def test_a_group_with_fewer_offsets_than_the_deleted_topic_has_partitions_loses_them_too(groups: Groups) -> None:
    groups.create_topic("wide", partitions=100)
    groups.create_topic("wider", partitions=100)
    groups.commit(1, topic="wide", partition=7)
    groups.commit(1, topic="wider", partition=7)
    groups.delete_topic("wide")
    assert groups.fetch_all() == {("wider", 7): 1}


def test_offsets_can_be_deleted_one_by_one(groups: Groups) -> None:
    groups.commit(1, partition=0)
    groups.commit(1, partition=1)
    response = groups.delete_offsets(("t", 0), ("t", 2), ("gone", 0))
    assert response.error_code == ErrorCode.NONE
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in response.topics] == [
        ("t", [(0, 0), (2, 0)]),
        ("gone", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]
    assert sum(record.value is None for record in groups.records) == 1, "none for what was not there"
    for shard in (groups, groups.reloaded()):
        assert shard.fetch_all() == {("t", 1): 1}


def test_offsets_of_a_topic_that_members_are_subscribed_to_cannot_be_deleted(groups: Groups) -> None:
    groups.create_topic("u")
    member = groups.stable(1, protocols=(("range", subscription("t")),))[0]
    groups.commit(1, member_id=member, generation=1)
    groups.commit(1, topic="u", member_id=member, generation=1)
    response = groups.delete_offsets(("t", 0), ("u", 0))
    assert [t.partitions[0].error_code for t in response.topics] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE
    ]  # fmt: skip
    assert groups.fetch_all() == {("t", 0): 1}
    groups.leave(member)
    assert groups.delete_offsets(("t", 0)).topics[0].partitions[0].error_code == ErrorCode.NONE


def test_offsets_of_members_with_unreadable_subscriptions_cannot_be_deleted(groups: Groups) -> None:
    member = groups.stable(1, protocols=(("range", b"?"),))[0]
    groups.commit(1, member_id=member, generation=1)
    assert groups.delete_offsets(("t", 0)).topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_other_kinds_of_members_cannot_be_deleted(groups: Groups) -> None:
    groups.stable(1, protocol_type="connect")
    assert groups.delete_offsets(("t", 0)).error_code == ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_no_group_cannot_be_deleted(groups: Groups) -> None:
    assert groups.delete_offsets(("t", 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.delete_offsets(("t", 0), group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_large_deletions_are_written_in_portions_and_spare_what_is_committed_in_between() -> None:
    groups = Groups(batch_bytes_max=2_000)
    groups.create_topic("t", partitions=100)
    for partition in range(100):
        groups.commit(1, partition=partition)
    groups.take_records()
    answer = groups.call(lambda turn, ticket: groups.shard.delete_group(turn, ticket, "g"))
    first = groups.take_records()
    assert 0 < len(first) < 100
    assert sum(len(record.key) for record in first) < 2_000
    assert not answer.done
    groups.commit(2, partition=99)
    while not answer.done:
        groups.advance_to_next_timer()
    assert groups.fetch_all() == {("t", 99): 2}


def test_a_commit_by_name_stores_the_id_of_the_topic(groups: Groups) -> None:
    """As Kafka 4.3 does: its formatters print the id for clients that know names only."""
    topic = groups.image.topic("t")
    assert topic is not None
    groups.commit(1)
    assert decode_offset_value(groups.records[-1].value or b"").topic_id == topic.topic_id != ZERO_UUID


@given(st.data())
def test_both_forms_of_a_commit_come_to_the_same(data: st.DataObject) -> None:
    twins = (Groups(), Groups())
    for groups in twins:
        groups.create_topic("t", partitions=3)
        (member_id,) = groups.stable()
    generation = twins[0].group.generation
    for _ in range(3):
        request = OffsetCommitRequest(
            data.draw(st.sampled_from(["g", "other", "simple"])),
            data.draw(st.sampled_from([generation, generation + 1, -1])),
            data.draw(st.sampled_from([member_id, "", "nobody"])),
            None,
            -1,
            [
                OffsetCommitRequestTopic(
                    name=data.draw(st.sampled_from(["t", "unknown"])),
                    partitions=[
                        OffsetCommitRequestPartition(index, data.draw(st.integers(0, 9)), -1, "")
                        for index in data.draw(st.lists(st.integers(-1, 3), max_size=4))
                    ],
                )
                for _ in range(data.draw(st.integers(0, 2)))
            ],
        )
        plain = twins[0].commit_request(request)
        answer = twins[1].call(lambda turn, ticket, r=request: twins[1].shard.offset_commit(turn, ticket, INFO, r))
        assert plain == answer.response
        assert twins[0].records == twins[1].records
        assert twins[0].shard.durable_state() == twins[1].shard.durable_state()
