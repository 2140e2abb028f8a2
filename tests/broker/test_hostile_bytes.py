"""Bytes of every kind: the answer is an error or a closed connection, and nobody else notices."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random
from struct import pack
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.session import Session, batch, produce_request, run_session, simulated
from penstock.sim.broker import ProtocolClient, request_frame
from penstock.sim.fuzz.frames import INTERESTING, odd_request, random_frame, with_length
from penstock.wire.apis import SERVED, ApiKey
from penstock.wire.codec import Message
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.headers import write_request_header
from penstock.wire.messages.alter_configs import AlterableConfig as ReplacedConfig
from penstock.wire.messages.alter_configs import AlterConfigsRequest
from penstock.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.records import Record, build_batch, write_unsigned_varint

MB = 1 << 20
WORK_SECONDS_MAX = 5.0
"""Of real time, for a request that the slowest machine of a test run should still refuse in a fraction of it."""


async def survives(s: Session) -> None:
    """Another client produces and reads as if nothing had happened."""
    other = await s.connect()
    assert (await s.produce("t", b"fine", client=other)).error_code == 0
    offset = (await s.produce("t", b"still", client=other)).base_offset
    data = await s.fetch("t", offset, client=other)
    assert data.high_watermark == offset + 1
    other.close()


async def is_closed(s: Session, data: bytes, *, saying: str = "") -> None:
    """These bytes end their connection, and the log says why."""
    attacker = await s.connect()
    attacker.frames.send_raw(data)
    began_ms = s.runtime.now_ms()
    await attacker.frames.closed()
    assert s.runtime.now_ms() - began_ms < 5_000, "it need not wait for silence"
    assert saying in s.node.events.said("connection closed", "reason")[-1]


def attack(scenario: Callable[[Session], Any], settings: dict[str, str] | None = None) -> None:
    """Run it, and see that it took neither much memory nor much time."""

    async def with_topic(s: Session) -> None:
        await s.create("t")
        await scenario(s)
        await survives(s)

    began = process_time()
    run_session(with_topic, settings)
    assert process_time() - began < WORK_SECONDS_MAX


# ---- what is no frame


@pytest.mark.parametrize(
    ("data", "saying"),
    [
        (pack(">i", -1), "negative length"),
        (pack(">i", -(1 << 31)) + bytes(50), "negative length"),
        (pack(">i", 0) + bytes(50), "too short"),
        (pack(">i", 7) + bytes(50), "too short"),
        (pack(">i", 8) + pack(">hhi", 3, 0, 1), "header ends early"),
        (pack(">i", 100 * MB + 1) + bytes(50), "socket.request.max.bytes"),
        (pack(">i", (1 << 31) - 1), "socket.request.max.bytes"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), "TLS client on a plaintext port"),
        (b"\x16\x03\x03\x00\x7a\x01\x00\x00\x76\x03\x03" + bytes(200), "TLS client on a plaintext port"),
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "HTTP client"),
        (b"POST /topics HTTP/1.1\r\n\r\n", "HTTP client"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP client"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "socket.request.max.bytes"),
        (b"\xff" * 1000, "negative length"),
    ],
)
@simulated()
async def test_what_is_no_frame_is_closed_with_a_guess_at_what_it_is(s: Session, data: bytes, saying: str) -> None:
    await s.create("t")
    await is_closed(s, data, saying=saying)
    await survives(s)
    assert s.node.served.metrics.refused_frames == 1


@pytest.mark.parametrize("key", [*SERVED, 999, -1])
@simulated()
async def test_a_frame_beyond_what_its_api_may_take_is_refused_before_it_has_come(s: Session, key: int) -> None:
    await s.create("t")
    limit = SERVED[ApiKey(key)].max_frame_bytes if key in SERVED else 4096
    head = pack(">ihhih", limit + 1, key, 4, 1, -1)
    await is_closed(s, head, saying="is over the limit of API" if limit < 100 * MB else "socket.request.max.bytes")
    assert s.node.served.service.receiving_bytes < 100_000
    await survives(s)


@simulated()
async def test_a_frame_that_is_cut_off_by_the_end_of_the_connection_is_nothing(s: Session) -> None:
    await s.create("t")
    frame = with_length(request_frame(produce_request("t", batch(b"x")), 12, 1))
    for cut in range(len(frame)):
        attacker = await s.connect()
        attacker.frames.send_raw(frame[:cut])
        attacker.close()
    await s.until(lambda: s.node.served.service.connection_count == 1)
    assert await s.values("t") == []
    await survives(s)


# ---- what is no request


@pytest.mark.parametrize("key", list(SERVED), ids=lambda key: SERVED[key].name)
@simulated()
async def test_a_request_that_ends_early_is_refused(s: Session, key: ApiKey) -> None:
    """Every prefix of a request, with a length that fits it."""
    ids = {"t": await s.create("t")}
    rng = Random(7)
    for version in {SERVED[key].min_version, SERVED[key].max_version}:
        frame = request_frame(odd_request(key, version, rng, ids), version, 1)
        for cut in range(8, len(frame), 1 if len(frame) < 200 else 7):
            attacker = await s.connect()
            attacker.frames.send(frame[:cut])
            await s.runtime.sleep(2)
            attacker.close()
    if key == ApiKey.DELETE_TOPICS:
        await s.try_create("t")
    await survives(s)


@pytest.mark.parametrize("key", list(SERVED), ids=lambda key: SERVED[key].name)
@simulated()
async def test_counts_and_lengths_without_limits_are_refused(s: Session, key: ApiKey) -> None:
    """An interesting number at every place of the request's body."""
    ids = {"t": await s.create("t")}
    rng = Random(11)
    version = SERVED[key].max_version
    frame = request_frame(odd_request(key, version, rng, ids), version, 1)
    for place in range(8, min(len(frame), 120)):
        for number in INTERESTING[:6]:
            attacker = await s.connect()
            attacker.frames.send(frame[:place] + number + frame[place + len(number) :])
            await s.runtime.sleep(1)
            attacker.close()
    await s.try_create("t")
    await survives(s)


def many(message: Message, version: int) -> bytes:
    return with_length(request_frame(message, version, 1))


def metadata_of_many(count: int) -> bytes:
    out = bytearray()
    write_request_header(out, ApiKey.METADATA, 8, 1, None)
    return with_length(bytes(out) + pack(">i", count) + b"\0\0" * count + b"\0\0\0")


def test_more_elements_than_an_api_may_have_are_refused_before_they_are_made() -> None:
    async def scenario(s: Session) -> None:
        await is_closed(s, metadata_of_many(100_001), saying="exceed the limit of the message")
        await is_closed(s, metadata_of_many(2_000_000), saying="exceed the limit of the message")

    attack(scenario)


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS])
def test_twenty_million_tagged_fields_are_refused(key: ApiKey) -> None:
    """In the header, where every client may send some before anyone knows who it is."""
    count = 20_000_000
    version = SERVED[key].max_version

    async def scenario(s: Session) -> None:
        out = bytearray(pack(">hhih", key, version, 1, -1))
        write_unsigned_varint(out, count)
        room = min(2 * count, SERVED[key].max_frame_bytes - len(out))
        await is_closed(s, with_length(bytes(out) + bytes(room)))

    attack(scenario)


def produce_frame(body: bytes, version: int = 9) -> bytes:
    out = bytearray()
    write_request_header(out, ApiKey.PRODUCE, version, 1, None)
    out += b"\0" if version >= 9 else b"\xff\xff"
    return with_length(bytes(out) + pack(">hi", 1, 1000) + body)


@pytest.mark.parametrize("shape", ["topics", "partitions", "negative", "tags of the partitions", "tags of the topics"])
def test_a_produce_request_of_millions_of_parts_is_refused(shape: str) -> None:
    """Nothing in them but their number: a frame may have 100 MB, and each part costs more than the bytes it takes."""
    tags = bytearray()
    write_unsigned_varint(tags, 100)
    tags += b"\7\0" * 100

    def body() -> bytes:
        if shape == "topics":
            count = 2_000_000
            return pack(">i", count) + (pack(">h", 0) + pack(">i", 0)) * count
        if shape == "negative":
            count = 2_000_000
            return pack(">i", count) + (pack(">h", 0) + pack(">i", -100)) * (count - 1) + pack(">hi", 0, 200_000)
        if shape == "partitions":
            count = 1_000_000
            return pack(">i", 1) + pack(">h", 1) + b"t" + pack(">i", count) + pack(">ii", 9, -1) * count
        count = 50_000
        out = bytearray()
        if shape == "tags of the partitions":
            write_unsigned_varint(out, 2)
            out += b"\2t"
            write_unsigned_varint(out, count + 1)
            out += (pack(">i", 9) + b"\0" + bytes(tags)) * count + b"\0\0"
        else:
            write_unsigned_varint(out, count + 1)
            out += (b"\2x\1" + bytes(tags)) * count + b"\0"
        return bytes(out)

    flexible = shape.startswith("tags")

    async def scenario(s: Session) -> None:
        await is_closed(s, produce_frame(body(), 9 if flexible else 8), saying="Produce")

    attack(scenario)


@pytest.mark.parametrize("length", [b"\xff" * 10, b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x01"])
@simulated()
async def test_a_produce_request_with_an_endless_length_is_refused(s: Session, length: bytes) -> None:
    await s.create("t")
    # One topic, one partition, as nearly all requests have.
    body = b"\2" + b"\2t" + b"\2" + pack(">i", 0) + length + bytes(100)
    await is_closed(s, produce_frame(body), saying="Produce")
    await survives(s)


# ---- small requests, large work


def test_a_small_request_does_not_make_a_large_answer() -> None:
    """A resource or topic that is named again and again is looked at once."""
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="wide")] * 30_000)
    resources = [DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)] * 30_000
    keyed = [
        DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[f"k{number}"])
        for number in range(30_000)
    ]

    async def scenario(s: Session) -> None:
        await s.create("wide", partitions=200)
        for request, version in (
            (metadata, 12),
            (DescribeConfigsRequest(resources=resources, include_documentation=True, include_synonyms=True), 4),
            (DescribeConfigsRequest(resources=keyed), 4),
        ):
            answer = await s.client.frames.request(request_frame(request, version, 1))
            assert len(answer) < MB

    attack(scenario)


def test_a_partition_is_not_searched_as_often_as_it_is_named() -> None:
    entries = [ListOffsetsPartition(partition_index=0, timestamp=1_750_001_000_005)] * 50_000
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=entries)])

    async def scenario(s: Session) -> None:
        for _ in range(5):
            await s.produce("t", *[b"x" * 100] * 100)
        answer = await s.call(request)
        assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}

    attack(scenario)


@pytest.mark.parametrize("kind", ["incremental", "replace"])
def test_many_settings_in_one_request_take_no_more_than_their_number(kind: str) -> None:
    most = SERVED[ApiKey.ALTER_CONFIGS].max_elements
    assert most <= 5_000, "each takes some ten microseconds, and they are decided in one go"
    names = [f"no.such.setting.{number}" for number in range(most - 1)]
    incremental = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=4,
                resource_name="1",
                configs=[AlterableConfig(name=name, config_operation=0, value="1") for name in names],
            )
        ]
    )
    replace = AlterConfigsRequest(
        resources=[
            ReplacedResource(
                resource_type=2, resource_name="t", configs=[ReplacedConfig(name=name, value="1") for name in names]
            )
        ]
    )

    async def scenario(s: Session) -> None:
        (result,) = (await s.call(incremental if kind == "incremental" else replace)).responses
        assert result.error_code != 0

    attack(scenario)


# ---- records


def test_records_that_unfold_beyond_measure_are_refused() -> None:
    bombs = [
        build_batch([Record(timestamp=1_750_001_000_000, value=bytes(50 * MB))], codec=codec)
        for codec in (Codec.GZIP, Codec.ZSTD)
    ]

    async def scenario(s: Session) -> None:
        await s.create("t")
        for bomb in bombs:
            assert len(bomb) < MB
            tracemalloc.start()
            answer = await s.produce("t", records=bomb)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert peak < 20 * MB

    began = process_time()
    run_session(scenario, {"penstock.decompression.request.bytes.max": str(2 * MB)})
    assert process_time() - began < 2 * WORK_SECONDS_MAX


@simulated()
async def test_broken_records_are_refused_wherever_they_are_broken(s: Session) -> None:
    await s.create("t")
    await s.create("looks", **{"message.timestamp.before.max.ms": "100000000000"})
    good = batch(b"some", b"records", producer_id=1, epoch=0, sequence=0)
    answers = set()
    for topic in ("t", "looks"):
        for place in range(8, len(good)):
            if 12 <= place < 16:
                continue  # the leader epoch is the broker's to set
            broken = bytearray(good)
            broken[place] ^= 0x55
            answers.add((await s.produce(topic, records=bytes(broken))).error_code)
    assert ErrorCode.NONE not in answers
    # A flipped bit may make it look like part of a transaction, and the request names no transactional id.
    transactional = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert answers <= {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_REQUEST, transactional}
    await survives(s)


# ---- anything at all


@pytest.mark.parametrize("seed", range(6))
def test_odd_and_broken_requests_harm_nobody(seed: int) -> None:
    rng = Random(seed)

    async def scenario(s: Session) -> None:
        ids = {"t": await s.create("t", partitions=2), "u": await s.create("u")}
        attacker: ProtocolClient | None = None
        for number in range(250):
            if attacker is None or attacker.frames.is_lost or rng.random() < 0.1:
                attacker = await s.connect()
            attacker.frames.send_raw(with_length(random_frame(rng, ids)))
            await s.runtime.sleep(rng.choice((0, 1, 5)))
            if number % 50 == 49:
                await s.runtime.sleep(2_000)
                await s.reconnect()
                result = await s.try_create("t", partitions=2)
                ids["t"] = result.topic_id if result.error_code == 0 else ids["t"]
        await s.reconnect()
        await s.create("mine")
        assert (await s.produce("mine", b"x")).error_code == 0
        assert await s.values("mine") == [b"x"]

    run_session(scenario, seed=seed)


def test_any_sequence_of_frames_leaves_the_broker_alive() -> None:
    @settings(max_examples=40, deadline=None, database=None)
    @given(seeds=st.lists(st.integers(0, 1 << 32), min_size=1, max_size=12), noise=st.binary(max_size=40))
    def attempt(seeds: list[int], noise: bytes) -> None:
        async def scenario(s: Session) -> None:
            ids = {"t": await s.create("t")}
            for seed in seeds:
                attacker = await s.connect()
                attacker.frames.send_raw(with_length(random_frame(Random(seed), ids)))
                attacker.frames.send_raw(noise)
                await s.runtime.sleep(3)
            await s.reconnect()
            await s.try_create("t")
            await survives(s)

        run_session(scenario, stop=False)

    attempt()


def test_a_fetch_of_everything_that_is_not_there_stays_small() -> None:
    parts = [FetchPartition(partition=number, partition_max_bytes=1 << 30) for number in range(50_000)]
    request = FetchRequest(topics=[FetchTopic(topic="nowhere", partitions=parts)], session_epoch=0, max_bytes=1 << 30)

    async def scenario(s: Session) -> None:
        answer = await s.call(request, 12)
        assert len(answer.responses[0].partitions) == 50_000

    attack(scenario)
