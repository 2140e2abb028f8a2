"""Requests that meet a topic, or a part of a log, on its way out: nobody is hurt, and the broker least of all."""

from __future__ import annotations

from random import Random

import pytest

from broker.session import Session, batch, fetch_request, produce_request, run_session
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

GONE = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_OUT_OF_RANGE,
}
T = 1_750_001_000_000


@pytest.mark.parametrize("seed", range(6))
def test_cold_readers_of_a_topic_that_is_deleted_are_told(seed: int) -> None:
    rng = Random(seed)

    async def scenario(s: Session) -> None:
        s.node.host.disk.cold_read_probability = 0.7
        for _ in range(4):
            await s.create("t", **{"internal.segment.bytes": "2000", "file.delete.delay.ms": "0"})
            for _ in range(20):
                assert (await s.produce("t", bytes(300))).error_code == 0
            readers = [await s.connect() for _ in range(12)]
            answers = []
            for number, reader in enumerate(readers):
                if number % 3 == 2:
                    entry = ListOffsetsPartition(partition_index=0, timestamp=rng.choice((T, -3)))
                    topics = [ListOffsetsTopic(name="t", partitions=[entry])]
                    answers.append(reader.send(ListOffsetsRequest(replica_id=-1, topics=topics), 10))
                else:
                    answers.append(reader.send(fetch_request("t", rng.randrange(20), max_wait_ms=50, min_bytes=1), 12))
            await s.runtime.sleep(rng.random() * 2)
            await s.delete("t")
            for answer in answers:
                response = await answer
                found = response.responses if hasattr(response, "responses") else response.topics
                assert found[0].partitions[0].error_code in GONE
            for reader in readers:
                reader.close()

    run_session(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_cold_readers_of_segments_that_are_removed_are_told(seed: int) -> None:
    rng = Random(seed)

    async def scenario(s: Session) -> None:
        s.node.host.disk.cold_read_probability = 0.7
        await s.create("t", **{"internal.segment.bytes": "2000", "file.delete.delay.ms": "0"})
        for round_number in range(6):
            for _ in range(20):
                assert (await s.produce("t", bytes(300))).error_code == 0
            readers = [await s.connect() for _ in range(8)]
            low, high = 20 * round_number, 20 * round_number + 20
            answers = [reader.send(fetch_request("t", rng.randrange(low, high)), 12) for reader in readers]
            entry = DeleteRecordsPartition(partition_index=0, offset=-1)
            await s.call(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[entry])]))
            partition = s.node.served.manager.table.find(b"t", 0)
            retained = partition.log.trimmer.retain(s.node.process.wall_ms(), partition.leader.high_watermark)
            s.node.process.runtime.spawn(retained, "retention")
            for answer in answers:
                data = (await answer).responses[0].partitions[0]
                assert data.error_code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)
            for reader in readers:
                reader.close()

    run_session(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_producers_of_a_topic_that_comes_and_goes_are_told(seed: int) -> None:
    rng = Random(seed)

    async def scenario(s: Session) -> None:
        producers = [await s.connect() for _ in range(5)]
        for _ in range(6):
            await s.create("t", flush_messages=rng.choice(("1", "1000")))
            answers = [
                producer.send(produce_request("t", batch(b"%d" % number)), 12)
                for number in range(10)
                for producer in producers
            ]
            await s.runtime.sleep(rng.random() * 5)
            await s.delete("t")
            for answer in answers:
                (part,) = (await answer).responses[0].partition_responses
                assert part.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    run_session(scenario, seed=seed)
