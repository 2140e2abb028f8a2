"""Cases of offsets: how fast they are committed, and how long a coordinator needs to load many of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from uuid import uuid4

from bench import processes
from bench.client import LoadFailed
from bench.groups_client import (
    NOT_YET,
    RETRY_S,
    VERSIONS,
    Connection,
    Repeater,
    all_of,
    await_coordinator,
    closing,
    encode_frame,
    open_many,
    run,
    within,
)
from bench.groups_members import GroupShape, join_alone, leave_classic
from bench.model import Better, Case, Metric, Sample, Side, Target
from bench.runner import Bench
from bench.topics import create_topics, delete_topic
from penstock.wire.apis import ApiKey
from penstock.wire.codec import decode
from penstock.wire.errors import ErrorCode
from penstock.wire.headers import read_response_header
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from support.server_process import ServerProcess

# Kafka reads a connection's next request when the last one is answered: many connections keep it busy.
_CONNECTIONS = 200
_IN_FLIGHT_MAX = 4
_ONE_BY_ONE = 500
_COMMITTED_OFFSET = 123_456
_FRAME_LENGTH_BYTES = 4
_TIMEOUT_S = 300

_LOAD_TOPIC = "bench-offsets-load"
_LOAD_CONNECTIONS = 8
_OFFSETS_TOPIC_PARTITIONS = 50
_PING_EVERY_S = 0.005
_CHECKED_GROUPS = 5


class Commits(Case):
    """Members of many groups commit as fast as they can, a few requests in flight for each."""

    under_load = True

    def __init__(self, partitions: int, requests: int) -> None:
        self.name = f"commits-{partitions}"
        self.title = f"OffsetCommit of {partitions} partition{'s' if partitions > 1 else ''} to a request"
        self._topic = f"bench-{self.name}"
        self._partitions = partitions
        self._requests = requests
        self.metrics = (
            Metric("commits_per_s", "requests", "/s", Better.HIGHER, digits=0),
            Metric("offsets_per_s", "offsets", "/s", Better.HIGHER, digits=0),
            Metric("broker_cpu_us_each", "broker CPU for a request", "µs", Better.LOWER),
            Metric("broker_cores", "broker cores", "", Better.LOWER, digits=2),
            Metric("client_cores", "client cores", "", Better.LOWER, digits=2),
            Metric("alone_ms", "a request when it is the only one (mean)", "ms", Better.LOWER, digits=3),
        )
        self.targets = (
            Target("commits_per_s", 1.0, Better.HIGHER),
            Target("broker_cpu_us_each", 1.0, Better.LOWER),
            Target("alone_ms", 1.0, Better.LOWER),
        )

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "requests": bench.scaled(self._requests),
            "partitions_per_request": self._partitions,
            "groups": bench.scaled(_CONNECTIONS),
            "connections": bench.scaled(_CONNECTIONS),
            "in_flight_for_each": _IN_FLIGHT_MAX,
            "requests_one_by_one": bench.scaled(_ONE_BY_ONE),
        }

    def prepare(self, bench: Bench, side: Side) -> None:
        create_topics(self._broker(bench, side).bootstrap, {self._topic: self._partitions})

    def clean_up(self, bench: Bench, side: Side) -> None:
        delete_topic(self._broker(bench, side), self._topic)

    def sample(self, bench: Bench, side: Side) -> Sample:
        broker = self._broker(bench, side)
        connections = bench.scaled(_CONNECTIONS)
        each = max(1, bench.scaled(self._requests) // connections)
        load = commit(broker, self._topic, self._partitions, connections, each, bench.scaled(_ONE_BY_ONE))
        return run(within(load, _TIMEOUT_S))

    def _broker(self, bench: Bench, side: Side) -> ServerProcess:
        broker = bench.shared(side)
        assert broker is not None
        return broker


async def commit(
    broker: ServerProcess, topic: str, partitions: int, connections: int, requests_each: int, one_by_one: int
) -> Sample:
    """Groups of one member each commit side by side; then one of them goes on alone."""
    shape = GroupShape("classic", 1, topic, partitions, 0, 0)
    run_id = uuid4().hex[:12]
    group_ids = [f"bench-commits-{run_id}-{number}" for number in range(connections)]
    with closing(await open_many(broker.bootstrap, connections)) as members:
        await await_coordinator(members[0], group_ids[0])
        joined = await all_of(
            [join_alone(member, group_id, shape) for member, group_id in zip(members, group_ids, strict=True)]
        )
        requests = [
            encode_frame(ApiKey.OFFSET_COMMIT, commit_request(group_id, topic, partitions, member_id, generation))
            for group_id, (member_id, generation) in zip(group_ids, joined, strict=True)
        ]
        elapsed_s, broker_cpu_s, client_cpu_s = await _repeat(broker, requests, requests_each, _IN_FLIGHT_MAX)
        alone_s, _, _ = await _repeat(broker, requests[:1], one_by_one, 1)
        await all_of(
            [
                leave_classic(member, group_id, [member_id])
                for member, group_id, (member_id, _) in zip(members, group_ids, joined, strict=True)
            ]
        )
    count = requests_each * connections
    return {
        "commits_per_s": count / elapsed_s,
        "offsets_per_s": count * partitions / elapsed_s,
        "broker_cpu_us_each": broker_cpu_s * 1e6 / count,
        "broker_cores": broker_cpu_s / elapsed_s,
        "client_cores": client_cpu_s / elapsed_s,
        "alone_ms": alone_s * 1000 / one_by_one,
    }


async def _repeat(
    broker: ServerProcess, requests: list[bytes], count: int, in_flight_max: int
) -> tuple[float, float, float]:
    """Each request `count` times over a connection of its own: seconds, and CPU seconds of broker and client."""
    repeaters = [await Repeater.open(broker.bootstrap, request, count, in_flight_max) for request in requests]
    try:
        begun_s, broker_before_s = time.monotonic(), processes.fine_cpu_s(broker.pid)
        client_before_s = time.process_time()
        for repeater in repeaters:
            repeater.go()
        answers = [await repeater.ended for repeater in repeaters]
        elapsed_s = time.monotonic() - begun_s
        client_cpu_s = time.process_time() - client_before_s
        broker_cpu_s = processes.fine_cpu_s(broker.pid) - broker_before_s
    finally:
        for repeater in repeaters:
            repeater.close()
    for answer in answers:
        _check_committed(answer)
    return elapsed_s, broker_cpu_s, client_cpu_s


class OffsetsLoad(Case):
    """A restart with many offsets, beside one with hardly any: the difference is what loading them takes."""

    name = "offsets-load"
    warmup_samples = 0
    metrics = (
        Metric("load_s", "loading them: the difference of the next two", "s", Better.LOWER, digits=2),
        Metric("restart_s", "start to every group's offsets, with all", "s", Better.LOWER, digits=2),
        Metric("restart_empty_s", "start to every group's offsets, with few", "s", Better.LOWER, digits=2),
        Metric("ping_ms", "longest wait of another client meanwhile", "ms", Better.LOWER),
        Metric("first_fetch_ms", "first fetch of all offsets of a group", "ms", Better.LOWER, digits=2),
        Metric("rss_mb", "memory then (RSS)", "MB", Better.LOWER, digits=0),
        Metric("cpu_s", "CPU from the start until then", "s", Better.LOWER, digits=2),
        Metric("commit_offsets_per_s", "committing them before", "/s", Better.HIGHER, digits=0),
    )
    targets = (
        Target("load_s", 1.0, Better.LOWER),
        Target("restart_s", 1.0, Better.LOWER),
        Target("rss_mb", 0.5, Better.LOWER),
    )

    def __init__(self, groups: int = 1000, partitions: int = 1000) -> None:
        self._groups = groups
        self._partitions = partitions
        self.title = f"restart with {groups * partitions:,} committed offsets"

    def settings(self, bench: Bench) -> Mapping[str, object]:
        return {
            "offsets": self._groups * bench.scaled(self._partitions),
            "groups": self._groups,
            "partitions": bench.scaled(self._partitions),
            "stop": "clean",
            "ping": f"ApiVersions every {_PING_EVERY_S * 1000:g} ms",
        }

    def sample(self, bench: Bench, side: Side) -> Sample:
        partitions = bench.scaled(self._partitions)
        group_ids = [f"bench-load-{number}" for number in range(self._groups)]
        probes = list(_one_of_each_shard(group_ids))
        with bench.fresh(side) as broker:
            broker.start()
            create_topics(broker.bootstrap, {_LOAD_TOPIC: partitions})
            run(within(_commit_all(broker.bootstrap, probes, 1), _TIMEOUT_S))
            broker.stop()
            empty_s, _ = _restart(broker, probes)
            begun_s = time.monotonic()
            run(within(_commit_all(broker.bootstrap, group_ids, partitions), _TIMEOUT_S))
            commit_s = time.monotonic() - begun_s
            broker.stop()
            restart_s, ping_s = _restart(broker, probes)
            cpu_s = processes.cpu_s(broker.pid)
            rss_mb = processes.memory(broker.pid).rss_mb
            first_fetch_s = run(within(_check_all_there(broker.bootstrap, group_ids, partitions), _TIMEOUT_S))
        return {
            "load_s": max(0.0, restart_s - empty_s),
            "restart_s": restart_s,
            "restart_empty_s": empty_s,
            "ping_ms": ping_s * 1000,
            "first_fetch_ms": first_fetch_s * 1000,
            "rss_mb": rss_mb,
            "cpu_s": cpu_s,
            "commit_offsets_per_s": len(group_ids) * partitions / commit_s,
        }


def commit_request(
    group_id: str, topic: str, partitions: int, member_id: str = "", generation: int = -1
) -> OffsetCommitRequest:
    """Without a member id it is the commit of a consumer that only stores its offsets in the group."""
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[OffsetCommitRequestPartition(number, _COMMITTED_OFFSET) for number in range(partitions)],
            )
        ],
    )


async def commit_once(connection: Connection, request: OffsetCommitRequest) -> None:
    while True:
        answer = await connection.ask(ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse)
        error_code = _error_of(answer)
        if error_code == ErrorCode.NONE:
            return
        if error_code not in NOT_YET:
            raise LoadFailed(f"OffsetCommit: {ErrorCode(error_code).name}")
        await asyncio.sleep(RETRY_S)


def _check_committed(answer: bytes) -> None:
    version = VERSIONS[ApiKey.OFFSET_COMMIT]
    frame = answer[_FRAME_LENGTH_BYTES:]
    _, position = read_response_header(frame, ApiKey.OFFSET_COMMIT, version)
    error_code = _error_of(decode(OffsetCommitResponse, version, frame, position)[0])
    if error_code:
        raise LoadFailed(f"OffsetCommit: {ErrorCode(error_code).name}")


def _error_of(answer: OffsetCommitResponse) -> int:
    return next((one.error_code for topic in answer.topics for one in topic.partitions if one.error_code), 0)


async def _commit_all(bootstrap: str, group_ids: list[str], partitions: int) -> None:
    with closing(await open_many(bootstrap, _LOAD_CONNECTIONS)) as connections:
        await await_coordinator(connections[0], group_ids[0])

        async def commit_share(number: int, connection: Connection) -> None:
            for group_id in group_ids[number::_LOAD_CONNECTIONS]:
                await commit_once(connection, commit_request(group_id, _LOAD_TOPIC, partitions))

        await all_of([commit_share(number, connection) for number, connection in enumerate(connections)])


def _restart(broker: ServerProcess, probes: list[str]) -> tuple[float, float]:
    """Seconds from the spawn of the process until every shard tells its offsets, and the longest wait for a ping."""
    begun_s = time.monotonic()
    broker.start(wait=False)
    ready_s, ping_s = run(within(_until_loaded(broker.bootstrap, probes), _TIMEOUT_S))
    return ready_s - begun_s, ping_s


async def _until_loaded(bootstrap: str, probes: list[str]) -> tuple[float, float]:
    connection = await _connect(bootstrap)
    other = await _connect(bootstrap)
    longest_s = 0.0

    async def ping() -> None:
        nonlocal longest_s
        # The first answer comes when the broker has started, which is not what another client waits for here.
        await other.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse)
        while True:
            begun_s = time.monotonic()
            await other.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse)
            longest_s = max(longest_s, time.monotonic() - begun_s)
            await asyncio.sleep(_PING_EVERY_S)

    pinging = asyncio.create_task(ping())
    try:
        missing = probes
        answered = False
        while missing:
            # One at a time until it is there, then all others: asking is not to slow down what is waited for.
            asked = missing if answered else missing[:1]
            groups = [fetch_group(group_id, 1) for group_id in asked]
            answer = await connection.ask(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=groups), OffsetFetchResponse)
            found = {group.group_id for group in answer.groups if _is_loaded(group)}
            missing = [group_id for group_id in missing if group_id not in found]
            answered = not answered and bool(found)
            if not found:
                await asyncio.sleep(RETRY_S)
        return time.monotonic(), longest_s
    finally:
        pinging.cancel()
        connection.close()
        other.close()


def _is_loaded(group: OffsetFetchResponseGroup) -> bool:
    if group.error_code in NOT_YET:
        return False
    if group.error_code:
        raise LoadFailed(f"OffsetFetch: {ErrorCode(group.error_code).name}")
    if group.topics[0].partitions[0].committed_offset != _COMMITTED_OFFSET:
        raise LoadFailed(f"the offsets of {group.group_id} are gone after the restart")
    return True


async def _connect(bootstrap: str) -> Connection:
    """As soon as the broker listens."""
    while True:
        try:
            return await Connection.open(bootstrap)
        except OSError:
            await asyncio.sleep(_PING_EVERY_S)


async def _check_all_there(bootstrap: str, group_ids: list[str], partitions: int) -> float:
    """Every offset of a few groups must be back; returns the seconds that the first of them took."""
    first_s = 0.0
    with closing([await Connection.open(bootstrap)]) as (connection,):
        for group_id in group_ids[:_CHECKED_GROUPS]:
            request = OffsetFetchRequest(groups=[fetch_group(group_id, partitions)])
            begun_s = time.monotonic()
            answer = await connection.ask(ApiKey.OFFSET_FETCH, request, OffsetFetchResponse)
            first_s = first_s or time.monotonic() - begun_s
            offsets = [one.committed_offset for topic in answer.groups[0].topics for one in topic.partitions]
            if offsets != [_COMMITTED_OFFSET] * partitions:
                raise LoadFailed(f"{group_id} has other offsets after the restart than were committed")
    return first_s


def fetch_group(group_id: str, partitions: int) -> OffsetFetchRequestGroup:
    topics = [OffsetFetchRequestTopics(name=_LOAD_TOPIC, partition_indexes=list(range(partitions)))]
    return OffsetFetchRequestGroup(group_id=group_id, topics=topics)


def _one_of_each_shard(group_ids: list[str]) -> Iterator[str]:
    """A group for every partition of the offsets topic that has one."""
    found: dict[int, str] = {}
    for group_id in group_ids:
        found.setdefault(_java_hash(group_id) % _OFFSETS_TOPIC_PARTITIONS, group_id)
    yield from found.values()


def _java_hash(text: str) -> int:
    """Java's String.hashCode without its sign, which is how Kafka picks a group's partition."""
    number = 0
    for character in text:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    return number & 0x7FFFFFFF
