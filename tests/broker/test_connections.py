"""Connections: the order of answers, pieces of frames, silence, limits, slow readers, and the time before the broker is
ready."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from broker.group_session import QUICK, commit_request, find
from broker.session import (
    BROKER,
    Session,
    batch,
    expect_no_surprise,
    fetch_request,
    produce_request,
    records_of,
    run_session,
    simulated,
)
from penstock.broker import limits
from penstock.sim import FrameClient, SimRuntime, World
from penstock.sim.broker import KAFKA_PORT, ProtocolClient, SimBroker, request_frame
from penstock.sim.client import LENGTH_BYTES
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

MB = 1 << 20


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(LENGTH_BYTES, "big") + frame


async def refuses(s: Session) -> bool:
    """Whether a new connection is closed without an answer."""
    try:
        client = await s.connect()
        await client.call(ApiVersionsRequest(), 0)
    except ConnectionError:
        return True
    client.close()
    return False


# ---- order


@simulated()
async def test_pipelined_requests_are_answered_in_order(s: Session) -> None:
    await s.create("t")
    answers: list[Any] = []
    for number in range(100):
        answers.append(s.client.send(produce_request("t", batch(b"%d" % number)), 12))
        if number % 7 == 0:
            answers.append(s.client.send(MetadataRequest(topics=None), 12))
        if number % 11 == 0:
            answers.append(s.client.send(fetch_request("t", number), 12))
    for answer in answers:
        await answer  # which checks that it is the one that is due
    assert await s.values("t") == [b"%d" % number for number in range(100)]


@simulated()
async def test_produce_overlaps_produce_and_everything_else_waits_for_it(s: Session) -> None:
    await s.create("t", flush_messages="1")
    s.node.host.disk.slowness = 100.0
    began_ms = s.runtime.now_ms()
    produced = [s.client.send(produce_request("t", batch(b"%d" % number)), 12) for number in range(50)]
    fetched = s.client.send(fetch_request("t", 0, partition_max_bytes=MB), 12)
    for number, answer in enumerate(produced):
        assert (await answer).responses[0].partition_responses[0].base_offset == number
    took_ms = s.runtime.now_ms() - began_ms
    assert took_ms < 1500, "fifty syncs of 50 to 150 ms, one after the other, would take longer"
    (part,) = (await fetched).responses[0].partitions
    assert len(records_of(part)) == 50, "the fetch was served after all that stood before it"


@simulated(QUICK)
async def test_commits_overlap_commits_and_everything_else_waits_for_them(s: Session) -> None:
    await s.create("t", 50)
    await find(s)
    await s.call(
        IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(2, "__consumer_offsets", [AlterableConfig("flush.messages", 0, "1")])]
        )
    )
    s.node.host.disk.slowness = 100.0
    began_ms = s.runtime.now_ms()
    committed = [s.client.send(commit_request("g", {("t", number): (number + 1, "")}), 9) for number in range(50)]
    fetched = s.client.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 9)
    for number, answer in enumerate(committed):
        (result,) = (await answer).topics[0].partitions
        assert (result.partition_index, result.error_code) == (number, 0)
    took_ms = s.runtime.now_ms() - began_ms
    assert took_ms < 1500, "fifty syncs of 50 to 150 ms, one after the other, would take longer"
    (group,) = (await fetched).groups
    assert len(group.topics[0].partitions) == 50, "the fetch was served after all that stood before it"


@simulated()
async def test_a_long_poll_holds_back_only_its_own_connection(s: Session) -> None:
    await s.create("t")
    other = await s.connect()
    waiting = s.client.send(fetch_request("t", max_wait_ms=5_000, min_bytes=1), 12)
    behind = s.client.send(MetadataRequest(topics=None), 12)
    began_ms = s.runtime.now_ms()
    await other.call(MetadataRequest(topics=None), 12)
    assert s.runtime.now_ms() - began_ms < 100
    assert not behind.has_come
    await waiting
    await behind
    assert s.runtime.now_ms() - began_ms >= 4_900


@simulated()
async def test_acks_0_gets_no_answer_and_keeps_its_place(s: Session) -> None:
    await s.create("t", flush_messages="1")
    first = s.client.send(produce_request("t", batch(b"1")), 12)
    for _ in range(10):
        s.client.post(produce_request("t", batch(b"0"), acks=0), 12)
    last = s.client.send(produce_request("t", batch(b"2")), 12)
    assert (await first).responses[0].partition_responses[0].base_offset == 0
    assert (await last).responses[0].partition_responses[0].base_offset == 11
    assert await s.values("t") == [b"1", *[b"0"] * 10, b"2"]


@pytest.mark.parametrize(
    "request_", [produce_request("nowhere", batch(b"x"), acks=0), produce_request("t", batch(b"x")[:-1], acks=0)]
)
@simulated()
async def test_an_error_with_acks_0_closes_the_connection(s: Session, request_: Any) -> None:
    """It is all that such a client can be told."""
    await s.create("t")
    other = await s.connect()
    other.post(request_, 12)
    await other.frames.closed()
    assert await s.values("t") == []


@simulated()
async def test_more_than_may_be_pipelined_waits_in_the_socket(s: Session) -> None:
    await s.create("t")
    waiting = s.client.send(fetch_request("t", max_wait_ms=3_000, min_bytes=1), 12)
    behind = [s.client.send(produce_request("t", batch(bytes(20_000))), 12) for _ in range(100)]
    await s.runtime.sleep(1_000)
    held = s.node.served.service.receiving_bytes
    assert held <= 4 * limits.RECEIVE_AHEAD_BYTES_MAX, held
    await waiting
    for number, answer in enumerate(behind):
        assert (await answer).responses[0].partition_responses[0].base_offset == number


# ---- pieces


@simulated()
async def test_a_frame_may_be_split_anywhere(s: Session) -> None:
    await s.create("t")
    stream = framed(request_frame(produce_request("t", batch(b"x")), 12, 1))
    stream += framed(request_frame(MetadataRequest(topics=None), 12, 2))
    for cut in range(1, len(stream)):
        s.client.frames.send_raw(stream[:cut])
        await s.runtime.sleep(1)
        s.client.frames.send_raw(stream[cut:])
        assert (await s.client.frames.receive())[:4] == pack(">i", 1)
        assert (await s.client.frames.receive())[:4] == pack(">i", 2)
    assert len(await s.records("t")) == len(stream) - 1


@simulated()
async def test_bytes_may_come_one_by_one(s: Session) -> None:
    await s.create("t")
    stream = framed(request_frame(produce_request("t", batch(b"x")), 12, 1))
    for byte in stream:
        s.client.frames.send_raw(bytes([byte]))
        await s.runtime.sleep(0.7)
    assert (await s.client.frames.receive())[:4] == pack(">i", 1)
    assert await s.values("t") == [b"x"]


@pytest.mark.parametrize("size", [3_000, 4_000, 5_000, 70_000, 300_000, 5 * MB])
@simulated({"message.max.bytes": str(10 * MB)})
async def test_frames_of_any_size_go_through_the_same_connection(s: Session, size: int) -> None:
    await s.create("t")
    answers = [s.client.send(produce_request("t", batch(bytes(size), b"end")), 12) for _ in range(3)]
    answers += [s.client.send(produce_request("t", batch(b"small")), 12) for _ in range(3)]
    for answer in answers:
        assert (await answer).responses[0].partition_responses[0].error_code == 0
    assert [len(value) for value in await s.values("t")] == [size, 3] * 3 + [5] * 3
    await s.runtime.sleep(25_000)
    assert s.node.served.service.receiving_bytes <= limits.RECEIVE_BUFFER_START_BYTES, "an idle connection is small"


# ---- silence


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 9, 15])
@simulated()
async def test_half_a_request_and_then_silence_is_closed(s: Session, cut: int) -> None:
    other = await s.connect()
    other.frames.send_raw(framed(request_frame(MetadataRequest(topics=None), 12, 1))[:cut])
    began_ms = s.runtime.now_ms()
    await other.frames.closed()
    assert limits.REQUEST_SILENCE_MS <= s.runtime.now_ms() - began_ms < limits.REQUEST_SILENCE_MS + 15_000
    assert "silent" in s.node.events.said("connection closed", "reason")[-1]
    await s.call(MetadataRequest(topics=None))


@simulated({"connections.max.idle.ms": "60000"})
async def test_an_idle_connection_is_closed_and_one_that_waits_is_not(s: Session) -> None:
    await s.create("t")
    busy, waiting, idle = await s.connect(), await s.connect(), await s.connect()
    poll = waiting.send(fetch_request("t", max_wait_ms=200_000, min_bytes=1), 12)
    began_ms = s.runtime.now_ms()
    closed_ms = 0.0
    while not poll.has_come:
        await busy.call(ApiVersionsRequest(), 0)
        await s.runtime.sleep(5_000)
        if idle.frames.is_lost and not closed_ms:
            closed_ms = s.runtime.now_ms()
    assert 60_000 <= closed_ms - began_ms < 80_000
    assert (await poll).error_code == 0
    await s.reconnect()


@simulated({"connections.max.idle.ms": "60000"})
async def test_a_reader_that_takes_nothing_for_so_long_is_closed_too(s: Session) -> None:
    await s.create("t")
    for _ in range(10):
        await s.produce("t", bytes(900_000))
    stuck = await s.connect()
    assert stuck.frames.transport is not None
    stuck.frames.transport.pause_reading()
    stuck.post(fetch_request("t", partition_max_bytes=20 * MB), 12)
    await s.runtime.sleep(1_000)
    assert s.node.served.service.connection_count == 2
    for _ in range(20):
        await s.runtime.sleep(5_000)
        await s.call(ApiVersionsRequest(), 0)
    assert s.node.served.service.connection_count == 1


# ---- limits


@simulated({"max.connections": "5"})
async def test_connections_beyond_the_limit_are_refused_and_others_unharmed(s: Session) -> None:
    others = [await s.connect() for _ in range(4)]
    for other in others:
        await other.call(ApiVersionsRequest(), 0)
    assert await refuses(s)
    for client in (s.client, *others):
        await client.call(ApiVersionsRequest(), 0)
    assert "max.connections=5" in s.node.events.said("connection refused", "limit")[-1]
    others[0].close()
    await s.runtime.sleep(50)
    assert not await refuses(s), "there is room again"
    assert s.node.served.metrics.connections_refused == 1


@simulated({"max.connections.per.ip": "3", "max.connections.per.ip.overrides": "friend:10"})
async def test_one_address_has_its_own_limit_and_some_have_another(s: Session) -> None:
    for _ in range(2):
        await (await s.connect()).call(ApiVersionsRequest(), 0)
    assert await refuses(s)
    await s.call(ApiVersionsRequest(), 0)
    friends: list[ProtocolClient] = []
    refused: list[bool] = []

    async def friend(runtime: SimRuntime) -> None:
        for _ in range(11):
            client = await ProtocolClient.connect(runtime, s.node)
            try:
                await client.call(ApiVersionsRequest(), 0)
                friends.append(client)
            except ConnectionError:
                refused.append(True)

    process = s.world.host("friend").start(friend)
    await s.until(lambda: process.is_dead)
    assert (len(friends), len(refused)) == (10, 1)
    await s.runtime.sleep(100)
    assert s.node.served.service.connection_count == 3, "the friend is gone, and counted out"


@simulated({"max.connection.creation.rate": "10", "quota.window.num": "2"})
async def test_connections_are_made_no_faster_than_allowed(s: Session) -> None:
    await s.runtime.sleep(2_000)
    outcomes = [await refuses(s) for _ in range(30)]
    assert 10 <= outcomes.count(False) <= 20
    await s.runtime.sleep(1_100)
    assert not await refuses(s)
    await s.call(ApiVersionsRequest(), 0)


@simulated()
async def test_limits_change_at_run_time(s: Session) -> None:
    others = [await s.connect() for _ in range(3)]
    assert (await s.alter("1", BROKER, max_connections="4")).error_code == 0
    assert await refuses(s)
    assert (await s.alter("1", BROKER, max_connections=None)).error_code == 0
    assert not await refuses(s)
    for other in others:
        await other.call(ApiVersionsRequest(), 0)


@simulated({"socket.request.max.bytes": "100000", "queued.max.request.bytes": "200000"})
async def test_requests_that_arrive_share_a_budget_and_all_get_through(s: Session) -> None:
    """Each needs half of it, and none has enough while all hold a part."""
    await s.create("t")
    clients = [await s.connect() for _ in range(20)]
    frames = [framed(request_frame(produce_request("t", batch(bytes(90_000))), 12, 1)) for _ in clients]
    for part in range(9):
        for client, frame in zip(clients, frames, strict=True):
            client.frames.send_raw(frame[part * 10_000 : (part + 1) * 10_000])
        await s.runtime.sleep(20)
        assert s.node.served.service.receiving_bytes < 200_000 + 100_000 + 100_000
    began_ms = s.runtime.now_ms()
    for client, frame in zip(clients, frames, strict=True):
        client.frames.send_raw(frame[90_000:])
    for client in clients:
        await client.frames.receive()
    assert s.runtime.now_ms() - began_ms < 20_000
    assert len(await s.records("t")) == len(clients)


@simulated({"socket.request.max.bytes": "100000", "queued.max.request.bytes": "200000"})
async def test_busy_connections_do_not_keep_others_from_the_budget(s: Session) -> None:
    """A connection keeps its buffer between requests, unless someone else has none."""
    await s.create("t")
    began_ms = s.runtime.now_ms()
    busy = [await s.connect() for _ in range(6)]
    for _ in range(10):
        for client in busy:
            await client.call(produce_request("t", batch(bytes(60_000))), 12)
    assert s.runtime.now_ms() - began_ms < 2_000
    assert s.node.served.service.receiving_bytes < 200_000 + 100_000


# ---- slow readers


@simulated()
async def test_a_reader_that_never_reads_holds_next_to_nothing(s: Session) -> None:
    held = await bytes_held_for_those_who_do_not_read(s)
    assert min(held) <= 2 * limits.SEND_HIGH_WATER_BYTES
    assert max(held) <= limits.SENDFILE_PIECE_BYTES + 2 * limits.SEND_HIGH_WATER_BYTES, "a piece read from the device"


@simulated()
async def test_without_a_direct_socket_a_reader_that_never_reads_holds_one_chunk(s: Session) -> None:
    s.node.served.service.direct_socket = lambda transport: None
    held = await bytes_held_for_those_who_do_not_read(s)
    assert max(held) <= limits.SEND_CHUNK_BYTES + limits.SEND_HIGH_WATER_BYTES
    assert max(held) > 2 * limits.SEND_HIGH_WATER_BYTES, "this is the other way of sending"


async def bytes_held_for_those_who_do_not_read(s: Session) -> list[int]:
    await s.create("t", **{"max.message.bytes": str(10 * MB)})
    for _ in range(10):
        await s.produce("t", bytes(5 * MB))
    readers = [await s.connect() for _ in range(5)]
    for reader in readers:
        assert reader.frames.transport is not None
        reader.frames.transport.pause_reading()
        for _ in range(3):
            reader.post(fetch_request("t", partition_max_bytes=50 * MB), 12)
    await s.runtime.sleep(5_000)
    sizes = [end.get_write_buffer_size() for end in s.node.process.transports.values()]
    held = [size for size in sizes if size]
    assert len(held) == len(readers)
    began_ms = s.runtime.now_ms()
    await s.produce("t", b"x")
    assert s.runtime.now_ms() - began_ms < 100, "others do not notice"
    assert readers[0].frames.transport is not None
    readers[0].frames.transport.resume_reading()
    assert len(await readers[0].frames.receive()) > 40 * MB, "and who reads at last gets it all"
    return held


@simulated({"internal.segment.bytes": "100000", "log.retention.check.interval.ms": "1000"})
async def test_a_slow_reader_keeps_what_it_was_promised_when_its_segment_is_removed(s: Session) -> None:
    await s.create("t", **{"internal.segment.bytes": "1000000", "file.delete.delay.ms": "0", "retention.ms": "-1"})
    values = [bytes([number]) * 90_000 for number in range(30)]
    for value in values:
        await s.produce("t", value)
    reader = await s.connect()
    assert reader.frames.transport is not None
    reader.frames.transport.pause_reading()
    answer = reader.send(fetch_request("t", partition_max_bytes=20 * MB), 12)
    await s.runtime.sleep(100)
    await s.alter("t", **{"retention.bytes": "1"})
    log = s.node.served.manager.table.find(b"t", 0).log
    await s.until(lambda: log.start_offset >= 20)
    await s.runtime.sleep(5_000)
    reader.frames.transport.resume_reading()
    (part,) = (await answer).responses[0].partitions
    found = [record.value for record in records_of(part)]
    assert found == values[: len(found)]
    assert found


# ---- before and after


def test_requests_that_come_before_the_broker_is_ready_wait() -> None:
    with World(1) as world:
        node = SimBroker(world)
        node.start()

        async def fill(runtime: SimRuntime) -> None:
            s = await Session.open(runtime, node)
            await s.create("t", partitions=20)

        world.execute(fill)
        node.host.kill()
        node.host.disk.slowness = 300.0
        node.begin()

        async def early(runtime: SimRuntime) -> float:
            while True:
                try:
                    client = ProtocolClient(await FrameClient.connect(runtime, node.name, KAFKA_PORT))
                    break
                except ConnectionError:
                    await runtime.sleep(1)
            assert not node.ready
            began_ms = runtime.now_ms()
            answer = await client.call(MetadataRequest(topics=None), 12)
            assert node.ready
            assert len(answer.topics[0].partitions) == 20
            return runtime.now_ms() - began_ms

        assert world.execute(early) > 100
        expect_no_surprise(node)


def test_a_broker_that_stops_answers_what_is_under_way() -> None:
    async def scenario(s: Session) -> None:
        await s.create("t", flush_messages="1")
        s.node.host.disk.slowness = 100.0
        reader = await s.connect()
        reader.post(fetch_request("t", max_wait_ms=60_000, min_bytes=1 << 20), 12)
        produced = [s.client.send(produce_request("t", batch(b"%d" % number)), 12) for number in range(10)]
        await s.runtime.sleep(5)
        s.node.host.stop()
        began_ms = s.runtime.now_ms()
        for answer in produced:
            assert (await answer).responses[0].partition_responses[0].error_code == 0
        await reader.frames.closed()
        await s.until(lambda: s.node.process.is_dead)
        assert s.runtime.now_ms() - began_ms < 5_000
        s.node.process.result()

    node = run_session(scenario)
    assert node.events.named("stopped")


@pytest.mark.parametrize("seed", range(5))
def test_a_client_that_was_too_far_ahead_is_read_again_when_there_is_room(seed: int) -> None:
    """Its buffer is full when it is let on: nothing may be read into it before the frames in it are served."""

    async def scenario(s: Session) -> None:
        await s.create("t", flush_messages="1")
        await s.create("busy", compression_type="zstd")
        clients = [await s.connect() for _ in range(4)]
        answers = []
        for number in range(120):
            client = clients[number % 4]
            if number % 10 == 0:
                answers.append(client.send(fetch_request("t", max_wait_ms=20, min_bytes=1 << 20), 12))
            size = s.runtime.rng.choice((10, 1_000, 50_000))
            client.post(produce_request("busy", batch(bytes(size)), acks=0), 12)
            answers.append(client.send(produce_request("t", batch(bytes(size))), 12))
        for answer in answers:
            await answer
        await s.until(lambda: s.node.served.manager.table.find(b"busy", 0).log.end_offset == 120)

    run_session(scenario, seed=seed)


# ---- fairness


def slow_requests(s: Session, cost_ms: float) -> list[int]:
    """From now on every request takes so long, by the broker's clock. Returns the connections served, in order."""
    service = s.node.served.service
    now_ms, serve = service.now_ms, service.serve
    late_ms = 0.0
    order: list[int] = []

    def slow_serve(connection: Any, start: int, end: int) -> None:
        nonlocal late_ms
        late_ms += cost_ms
        order.append(connection.number)
        serve(connection, start, end)

    def clock() -> float:
        return now_ms() + late_ms

    service.serve = slow_serve  # type: ignore[method-assign]
    service.now_ms = service.turns._now_ms = service.turns._cpu_ms = clock
    return order


@simulated()
async def test_a_client_with_one_request_is_served_among_those_that_pipeline_hundreds(s: Session) -> None:
    greedy = [await s.connect() for _ in range(20)]
    polite = await s.connect()
    order = slow_requests(s, 0.1)
    answers = [client.send(ApiVersionsRequest(), 0) for client in greedy for _ in range(300)]
    await s.until(lambda: len(order) > 200)
    began = len(order)
    await polite.call(ApiVersionsRequest(), 0)
    polite_number = max(set(order), key=lambda number: -order.count(number))
    assert order.count(polite_number) == 1
    assert order.index(polite_number) - began < 200, "two passes of the loop at most"
    for answer in answers:
        await answer


@simulated({"auto.create.topics.enable": "false"})
async def test_large_requests_are_served_in_slices_and_small_ones_between(s: Session) -> None:
    topics = [MetadataRequestTopic(name=f"nowhere-{number}") for number in range(20_000)]
    await s.create("t", 500)
    clients = [await s.connect() for _ in range(8)]
    runtime = s.node.served._runtime
    now_ms, late_ms, slices = runtime.now_ms, 0.0, 0

    def clock() -> float:
        nonlocal late_ms, slices
        late_ms += 0.05
        slices += 1
        return now_ms() + late_ms

    runtime.now_ms = clock  # type: ignore[method-assign]
    try:
        large = [client.send(MetadataRequest(topics=topics), 12) for client in clients]
        everything = await s.client.call(MetadataRequest(topics=None), 12)
        assert not large[-1].has_come, "a small request is not behind all the large ones"
        assert len(everything.topics[0].partitions) == 500
        for answer in large:
            found = (await answer).topics
            assert [topic.name for topic in found] == [topic.name for topic in topics]
            assert {topic.error_code for topic in found} == {3}
    finally:
        runtime.now_ms = now_ms  # type: ignore[method-assign]


@simulated()
async def test_clients_that_leave_large_answers_unread_are_closed_when_memory_is_short(
    s: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LARGE_ANSWER_BYTES", 8 * 1024)
    s.world.network.socket_buffer_bytes = 4 * 1024
    await s.create("t", 500)
    budget = s.node.served.service.answer_budget
    budget._most = 60_000
    stuck = [await s.connect() for _ in range(30)]
    for client in stuck:
        assert client.frames.transport is not None
        client.frames.transport.pause_reading()
        client.post(MetadataRequest(topics=None), 12)
    await s.runtime.sleep(5_000)
    assert 0 < budget.used <= 60_000
    answer = s.client.send(MetadataRequest(topics=None), 12)
    await s.runtime.sleep(20 * limits.ANSWER_SILENCE_MS)
    assert len((await answer).topics[0].partitions) == 500
    assert budget.used <= 60_000
    assert s.node.served.service.connection_count < 10
    assert "memory was short" in s.node.events.said("connection closed", "reason")[-1]


@simulated({"socket.request.max.bytes": "10000000", "queued.max.request.bytes": "40000000"})
async def test_requests_that_never_end_neither_exceed_the_budget_nor_stop_others(s: Session) -> None:
    await s.create("t")
    declared = pack(">ihhih", 9_000_000, 0, 9, 1, -1)
    service = s.node.served.service
    greedy = [await s.connect() for _ in range(12)]
    for client in greedy:
        client.frames.send_raw(declared + bytes(3_000_000))
        await s.runtime.sleep(5)
        assert service.receiving_bytes <= 40_000_000
    began_ms = s.runtime.now_ms()
    for _ in range(5):
        await s.produce("t", bytes(500_000))
    assert s.runtime.now_ms() - began_ms < 1_000, "ordinary requests go on"
    large = await s.connect()
    answer = large.send(produce_request("t", batch(bytes(2_000_000))), 12)
    await s.runtime.sleep(10 * limits.RECEIVE_STALL_MS)
    assert answer.has_come, "those that send nothing more were closed"
    assert "memory" in " ".join(s.node.events.said("connection closed", "reason"))
    assert service.receiving_bytes <= 40_000_000
