"""Ranges of a log with everything that can happen to them, from brokers that do as they are told."""

from __future__ import annotations

import struct

import pytest

from client.scripted import TOPIC, MemoryLog, ScriptedBroker
from penstock.client import (
    BrokerError,
    Cluster,
    Fetched,
    IsolationLevel,
    OffsetOutOfRange,
    PartitionRange,
    ProtocolError,
    RangeUnavailable,
    TopicRecreated,
    UnknownTopic,
    fetch_range,
    fetch_ranges,
)
from penstock.client import cluster as cluster_module
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.records import Record, build_batch, iter_batches, iter_records


def batch(offset: int, count: int = 10, *, value: bytes = b"value") -> bytes:
    return build_batch([Record(timestamp=n, value=value) for n in range(count)], base_offset=offset)


def filled(*brokers: ScriptedBroker, batches: int = 10, partitions: int = 1) -> MemoryLog:
    log = MemoryLog(*brokers, partitions=partitions)
    for partition in range(partitions):
        for index in range(batches):
            log.append(batch(10 * index), partition)
    return log


def offsets(pieces: list[Fetched], start: int, end: int) -> list[int]:
    """The offsets of a range's records, trimmed as a decoder does, after a look at the pieces."""
    found = []
    position = start
    for piece in pieces:
        assert piece.position == position
        assert piece.next_position > position
        position = piece.next_position
        for _, one in iter_batches(piece.records):
            found += [record.offset for record in iter_records(one) if start <= record.offset < end]
    return found


def read(broker: ScriptedBroker, start: int, end: int, **properties: object) -> list[int]:
    with Cluster(broker.settings(**properties)) as cluster:
        return offsets(list(fetch_range(cluster, TOPIC, 0, start, end)), start, end)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_every_version_of_fetch_reads_the_range(version: int) -> None:
    with ScriptedBroker(versions={ApiKey.FETCH: version}) as broker:
        filled(broker)
        assert read(broker, 5, 93) == list(range(5, 93))
        assert {asked for api, asked, _ in broker.asked if api == ApiKey.FETCH} == {version}


def test_a_cluster_without_topic_ids_is_asked_by_name() -> None:
    with ScriptedBroker() as broker:
        filled(broker).topic_id = bytes(16)
        assert read(broker, 0, 100) == list(range(100))
        assert {asked for api, asked, _ in broker.asked if api == ApiKey.FETCH} == {12}


def test_batches_behind_the_range_are_not_handed_out() -> None:
    with ScriptedBroker() as broker:
        filled(broker)
        with Cluster(broker.settings()) as cluster:
            (piece,) = fetch_range(cluster, TOPIC, 0, 12, 25)
        assert [header.base_offset for header, _ in iter_batches(piece.records)] == [10, 20]
        assert (piece.position, piece.next_position, piece.high_watermark) == (12, 30, 100)


def test_small_answers_are_cut_at_whole_batches() -> None:
    size = len(batch(0))
    with ScriptedBroker() as broker:
        filled(broker)
        assert read(broker, 0, 100, max_partition_fetch_bytes=size * 2 + 7) == list(range(100))
        assert len(broker.requests(ApiKey.FETCH)) == 5


def test_a_batch_larger_than_what_was_asked_for_comes_whole() -> None:
    with ScriptedBroker() as broker:
        log = MemoryLog(broker)
        log.append(batch(0, 3, value=bytes(100_000)))
        log.append(batch(3))
        assert read(broker, 0, 13, max_partition_fetch_bytes=1000) == list(range(13))


def test_an_empty_range_asks_nobody() -> None:
    with ScriptedBroker() as broker:
        filled(broker)
        assert read(broker, 7, 7) == []
        assert read(broker, 9, 7) == []
        assert broker.asked == []


# Ends by position


def test_gaps_are_stepped_over() -> None:
    with ScriptedBroker() as broker:
        log = MemoryLog(broker)
        for offset in (0, 30, 90):
            log.append(batch(offset))
        assert read(broker, 15, 95) == [*range(30, 40), *range(90, 95)]


def test_a_range_whose_tail_is_gone_ends_at_the_next_batch() -> None:
    with ScriptedBroker() as broker:
        log = MemoryLog(broker)
        log.append(batch(0))
        log.append(batch(50))
        assert read(broker, 0, 40) == list(range(10))
        assert read(broker, 20, 40) == []


def test_a_range_whose_tail_is_gone_ends_with_the_log() -> None:
    """Everything behind an offset was removed, and nothing was written since: no batch will ever end the range."""
    with ScriptedBroker() as broker:
        log = filled(broker, batches=3)
        log.high_watermark = 100
        assert read(broker, 0, 100) == list(range(30))
        waits = [request.max_wait_ms for request in broker.requests(ApiKey.FETCH)]  # type: ignore[attr-defined]
        assert waits[-1] == 0  # asked again alone, without waiting, before it is believed


def test_a_range_behind_the_log_waits_and_then_says_so() -> None:
    with ScriptedBroker() as broker:
        filled(broker, batches=3)
        with pytest.raises(RangeUnavailable, match="t-0: offsets 30 to 100") as caught:
            read(broker, 0, 100, default_api_timeout_ms=1_000)
        assert caught.value.readable_end == 30


def test_a_range_behind_the_log_is_read_when_the_log_grows() -> None:
    """After a change of leaders the high watermark may be behind for a while."""
    with ScriptedBroker() as broker:
        log = filled(broker)
        log.high_watermark = 50
        fetch = broker.handlers[ApiKey.FETCH]
        answered = 0

        def slowly(request: Message, version: int) -> object:
            nonlocal answered
            answered += 1
            answer = fetch(request, version)
            assert isinstance(answer, FetchResponse)
            if answered < 5:
                answer.responses[0].partitions[0].records = b""
            else:
                log.high_watermark = 100
            return answer

        broker.handlers[ApiKey.FETCH] = slowly  # type: ignore[assignment]
        assert read(broker, 0, 100) == list(range(100))


def test_an_open_transaction_is_named_as_what_holds_a_range_back() -> None:
    with ScriptedBroker() as broker:
        log = filled(broker, batches=3)
        log.last_stable_offset, log.high_watermark = 30, 40
        with Cluster(broker.settings(default_api_timeout_ms=1_000)) as cluster:
            with pytest.raises(RangeUnavailable, match="a transaction that is still open"):
                list(fetch_range(cluster, TOPIC, 0, 0, 40, isolation=IsolationLevel.READ_COMMITTED))
            assert offsets(list(fetch_range(cluster, TOPIC, 0, 0, 40)), 0, 40) == list(range(30))


def test_aborted_transactions_come_with_the_batches() -> None:
    with ScriptedBroker() as broker:
        filled(broker).aborted = [AbortedTransaction(producer_id=5, first_offset=7)]
        with Cluster(broker.settings()) as cluster:
            (piece,) = fetch_range(cluster, TOPIC, 0, 0, 100, isolation=IsolationLevel.READ_COMMITTED)
    assert piece.aborted == ((5, 7),)
    request = broker.requests(ApiKey.FETCH)[0]
    assert isinstance(request, FetchRequest)
    assert request.isolation_level == 1


# What happens to the data


def test_an_offset_before_the_log_says_where_the_log_begins() -> None:
    with ScriptedBroker() as broker:
        filled(broker).start_offset = 20
        with pytest.raises(OffsetOutOfRange) as caught:
            read(broker, 0, 100)
        assert (caught.value.log_start_offset, caught.value.log_end_offset, caught.value.offset) == (20, 100, 0)


def test_an_offset_that_is_out_of_range_for_a_moment_is_asked_for_again() -> None:
    with ScriptedBroker() as broker:
        filled(broker)
        fetch = broker.handlers[ApiKey.FETCH]

        def first_wrong(request: Message, version: int) -> object:
            answer = fetch(request, version)
            assert isinstance(answer, FetchResponse)
            if len(broker.requests(ApiKey.FETCH)) == 1:
                answer.responses[0].partitions[0].error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return answer

        broker.handlers[ApiKey.FETCH] = first_wrong  # type: ignore[assignment]
        assert read(broker, 0, 100) == list(range(100))


def test_a_topic_that_was_created_again_is_not_read_as_the_old_one() -> None:
    with ScriptedBroker() as broker:
        log = filled(broker)
        settings = broker.settings(max_partition_fetch_bytes=1)
        with Cluster(settings) as cluster:
            pieces = fetch_range(cluster, TOPIC, 0, 0, 100)
            next(pieces)
            log.topic_id = b"another topic id"
            with pytest.raises(TopicRecreated, match="t-0: the topic was deleted"):
                list(pieces)
        with Cluster(settings) as cluster, pytest.raises(TopicRecreated):
            list(fetch_range(cluster, TOPIC, 0, 0, 100, topic_id=bytes(15) + b"1"))


def test_a_topic_that_was_deleted_is_said_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "UNKNOWN_TOPIC_TIMEOUT_S", 0.05)
    with ScriptedBroker() as broker:
        log = filled(broker)
        with Cluster(broker.settings(max_partition_fetch_bytes=1)) as cluster:
            pieces = fetch_range(cluster, TOPIC, 0, 0, 100)
            next(pieces)
            log.topic_id, log.exists = b"another topic id", False
            with pytest.raises(UnknownTopic, match="no such topic"):
                list(pieces)


# What happens to the brokers


def test_a_leader_that_moves_is_followed() -> None:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        log = filled(one, two)
        with Cluster(one.settings(max_partition_fetch_bytes=1)) as cluster:
            found = []
            for piece in fetch_range(cluster, TOPIC, 0, 0, 100):
                found.append(piece)
                if len(found) == 3:
                    log.leader, log.leader_epoch = 1 - log.leader, log.leader_epoch + 1
        assert offsets(found, 0, 100) == list(range(100))
        assert len(one.requests(ApiKey.FETCH)) > 2
        assert len(two.requests(ApiKey.FETCH)) > 2


def test_a_leader_that_dies_is_replaced() -> None:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        log = filled(one, two)
        addresses = f"{one.bootstrap},{two.bootstrap}"
        with Cluster(one.settings(bootstrap_servers=addresses, max_partition_fetch_bytes=1)) as cluster:
            pieces = fetch_range(cluster, TOPIC, 0, 0, 100)
            found = [next(pieces), next(pieces)]
            log.leader = 1
            one.stop()
            found += pieces
        assert offsets(found, 0, 100) == list(range(100))


def test_connections_that_break_are_opened_again() -> None:
    with ScriptedBroker() as broker:
        filled(broker)
        with Cluster(broker.settings(max_partition_fetch_bytes=1)) as cluster:
            found = []
            for piece in fetch_range(cluster, TOPIC, 0, 0, 100):
                found.append(piece)
                if len(found) % 3 == 0:
                    broker.drop_connections()
        assert offsets(found, 0, 100) == list(range(100))


def test_an_error_that_does_not_pass_names_topic_and_partition() -> None:
    with ScriptedBroker() as broker:
        filled(broker)
        fetch = broker.handlers[ApiKey.FETCH]

        def forbidden(request: Message, version: int) -> object:
            answer = fetch(request, version)
            assert isinstance(answer, FetchResponse)
            answer.responses[0].partitions[0].error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return answer

        broker.handlers[ApiKey.FETCH] = forbidden  # type: ignore[assignment]
        with pytest.raises(BrokerError, match=r"fetch: t-0: .*TOPIC_AUTHORIZATION_FAILED"):
            read(broker, 0, 100)


def test_a_quota_is_waited_out() -> None:
    with ScriptedBroker() as broker:
        filled(broker)
        fetch = broker.handlers[ApiKey.FETCH]

        def throttled(request: Message, version: int) -> object:
            # As Kafka does it: nothing at all, and how long to stay away.
            return FetchResponse(throttle_time_ms=20) if len(broker.asked) % 2 else fetch(request, version)

        broker.handlers[ApiKey.FETCH] = throttled  # type: ignore[assignment]
        assert read(broker, 0, 100, max_partition_fetch_bytes=1) == list(range(100))


# Several partitions


def test_partitions_of_one_leader_share_a_request_and_take_turns() -> None:
    size = len(batch(0))
    with ScriptedBroker() as broker:
        filled(broker, partitions=3)
        ranges = [PartitionRange(TOPIC, partition, 5 * partition, 100 - partition) for partition in range(3)]
        with Cluster(broker.settings(fetch_max_bytes=size * 2, max_partition_fetch_bytes=size * 2)) as cluster:
            pieces = list(fetch_ranges(cluster, ranges))
            assert sum(len(kept) for kept in cluster._connections.values()) == 1
    for one in ranges:
        found = offsets([piece for piece in pieces if piece.partition == one.partition], one.start, one.end)
        assert found == list(range(one.start, one.end))
    assert {piece.partition for piece in pieces[:3]} == {0, 1, 2}


def test_partitions_that_end_early_do_not_hold_up_the_others() -> None:
    with ScriptedBroker() as broker:
        log = filled(broker, partitions=3)
        log.batches[1] = []
        log.high_watermark = 100
        ranges = [PartitionRange(TOPIC, partition, 0, 100) for partition in range(3)]
        with Cluster(broker.settings()) as cluster:
            pieces = list(fetch_ranges(cluster, ranges))
    assert {piece.partition for piece in pieces} == {0, 2}


def test_an_election_of_one_partition_while_another_leader_dies_is_waited_for() -> None:
    with ScriptedBroker() as first, ScriptedBroker() as second:
        log = filled(first, second, partitions=2)
        log.leaders[1] = 1
        ranges = [PartitionRange(TOPIC, partition, 0, 100) for partition in range(2)]
        answers = 0

        def metadata(request: Message, version: int) -> object:
            nonlocal answers
            answers += 1
            if answers == 2:
                # The first broker is gone; the second took over its partition, and is being replaced in its own.
                log.leaders = {0: 1, 1: -1}
            elif answers > 2:
                log.leaders = {0: 1, 1: 1}
            return log.metadata(request, version)

        second.handlers[ApiKey.METADATA] = metadata  # type: ignore[assignment]
        with Cluster(second.settings()) as cluster:
            cluster.topics([TOPIC])
            first.stop()
            pieces = list(fetch_ranges(cluster, ranges))
    for partition in range(2):
        assert offsets([one for one in pieces if one.partition == partition], 0, 100) == list(range(100))
    assert answers >= 2


def test_what_came_before_an_error_is_handed_out() -> None:
    size = len(batch(0))
    with ScriptedBroker() as broker:
        log = filled(broker)
        with Cluster(broker.settings(max_partition_fetch_bytes=size)) as cluster:
            pieces = fetch_range(cluster, TOPIC, 0, 0, 100, topic_id=log.topic_id)
            first = next(pieces)
            # The answer to the second request is on its way; before the third, the topic is found to be another one.
            recreated = log.metadata(MetadataRequest(), 0)
            recreated.topics[0].topic_id = b"another id of t!"
            broker.handlers[ApiKey.METADATA] = lambda *_: recreated
            cluster.forget(TOPIC)
            second = next(pieces)
            with pytest.raises(TopicRecreated):
                next(pieces)
    assert [(one.position, one.next_position) for one in (first, second)] == [(0, 10), (10, 20)]


def test_an_error_of_one_partition_keeps_nothing_back_of_the_others() -> None:
    with ScriptedBroker() as broker:
        log = filled(broker, partitions=2)
        log.batches[1] = []
        ranges = [PartitionRange(TOPIC, 1, 50, 100), PartitionRange(TOPIC, 0, 0, 100)]
        with Cluster(broker.settings()) as cluster:
            pieces = fetch_ranges(cluster, ranges)
            assert offsets([next(pieces)], 0, 100) == list(range(100))
            with pytest.raises(OffsetOutOfRange):
                next(pieces)


def test_a_partition_is_named_once() -> None:
    twice = [PartitionRange(TOPIC, 0, 0, 5), PartitionRange(TOPIC, 0, 5, 9)]
    with (
        ScriptedBroker() as broker,
        Cluster(broker.settings()) as cluster,
        pytest.raises(ValueError, match="several ranges"),
    ):
        fetch_ranges(cluster, twice)


def test_a_reader_that_stops_early_leaves_no_answer_behind_for_others() -> None:
    with ScriptedBroker() as broker:
        filled(broker)
        with Cluster(broker.settings(max_partition_fetch_bytes=1)) as cluster:
            for _ in fetch_range(cluster, TOPIC, 0, 0, 100):
                break
            assert offsets(list(fetch_range(cluster, TOPIC, 0, 0, 100)), 0, 100) == list(range(100))
            pieces = fetch_range(cluster, TOPIC, 0, 0, 100)
            first = next(pieces)
            assert cluster.topics()  # while an answer to the reader is still on its way
            assert offsets([first, *pieces], 0, 100) == list(range(100))


# Bytes that are no batches


@pytest.mark.parametrize(
    ("position", "format_", "value", "error"),
    [
        (8, ">i", 5, ProtocolError),
        (8, ">i", -100, ProtocolError),
        (23, ">i", -1, ProtocolError),
        (0, ">q", -10, ProtocolError),
        (0, ">q", 2**63 - 1, ProtocolError),
        (16, "b", 1, BrokerError),
    ],
)
def test_headers_that_lie_end_the_reading(position: int, format_: str, value: int, error: type[Exception]) -> None:
    damaged = bytearray(batch(0))
    struct.pack_into(format_, damaged, position, value)
    with ScriptedBroker() as broker:
        log = MemoryLog(broker)
        log.batches[0].append((0, 10, bytes(damaged)))
        with pytest.raises(error, match="t-0"):
            read(broker, 0, 10)


def test_a_broker_that_sends_only_older_batches_does_not_keep_a_reader_forever() -> None:
    with ScriptedBroker() as broker:
        log = MemoryLog(broker)
        log.batches[0].append((0, 100, batch(0)))
        with pytest.raises(ProtocolError, match="got only older ones"):
            read(broker, 50, 100)


def test_an_answer_for_another_partition_is_refused() -> None:
    with ScriptedBroker() as broker:
        filled(broker)
        fetch = broker.handlers[ApiKey.FETCH]

        def another(request: Message, version: int) -> object:
            answer = fetch(request, version)
            assert isinstance(answer, FetchResponse)
            answer.responses[0].partitions[0].partition_index = 9
            return answer

        broker.handlers[ApiKey.FETCH] = another  # type: ignore[assignment]
        with pytest.raises(ProtocolError, match="was not requested"):
            read(broker, 0, 100)
