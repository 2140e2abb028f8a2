"""Clients that take all they can get: the greedy side of `bench.fairness` and `bench.memory`.

    python -m bench.greed BOOTSTRAP pipelined-metadata

runs one kind until its standard input is closed, and prints "ready" once it is at it. Each kind is a number of
connections and the bytes that each sends, as fast as the broker takes them. Answers are read and thrown away, or left
unread. Everything runs on one thread: it is the broker that should be busy.
"""

from __future__ import annotations

import resource
import selectors
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from uuid import uuid4

from bench import wire
from penstock.sim.broker import CLIENT_ID, request_frame
from penstock.wire.apis import api_named
from penstock.wire.codec import Message
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import Record, build_batch

FETCHED_PARTITIONS = 90_000
MANY_TOPICS = "bench-many"
"""Topics of this name and a number have the many partitions that large requests are about."""
CHUNK_BYTES = 1 << 20
BLOCK_BYTES = 256 * 1024
READS_PER_TURN_MAX = 64


@dataclass(frozen=True, slots=True)
class Greed:
    """One kind of greedy clients."""

    title: str
    connections: int
    requests: Callable[[], bytes]
    """What each connection sends, again and again."""
    differs: bool = False
    """What is sent is never the same again: `requests` is called each time."""
    repeats: bool = True
    reads: bool = True
    receive_buffer_bytes: int | None = None


def frame(request: Message, version: int | None = None, client_id: str | None = CLIENT_ID) -> bytes:
    name = type(request).__name__.removesuffix("Request")
    body = request_frame(request, api_named(name).max_version if version is None else version, 1, client_id)
    return len(body).to_bytes(4, "big") + body


def pipelined(request: Message, version: int | None = None) -> bytes:
    one = frame(request, version)
    return one * max(1, BLOCK_BYTES // len(one))


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def produce_begun(declared_bytes: int, sent_bytes: int) -> bytes:
    """The beginning of a Produce request that never ends."""
    return Struct(">ihhih").pack(declared_bytes, 0, 9, 1, -1).ljust(sent_bytes, b"\0")


def many_topics(count: int) -> list[str]:
    return [f"{MANY_TOPICS}-{number}" for number in range(count)]


def metadata_of(names: int) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in many_topics(names)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def offsets_of(topics: int, partitions: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name, asked) for name in many_topics(topics)])


def committed_of(topics: int, partitions: int) -> OffsetFetchRequest:
    asked = [
        OffsetFetchRequestTopics(name=name, partition_indexes=list(range(partitions))) for name in many_topics(topics)
    ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("greedy", topics=asked)])


def configs_of(topics: int) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[DescribeConfigsResource(2, name, None) for name in many_topics(topics)],
        include_synonyms=True,
        include_documentation=True,
    )


def join_request() -> bytes:
    """Joins a group as a new member each time; the first answer of each only gives it its id."""
    protocols = [JoinGroupRequestProtocol("range", bytes(64))]
    find = frame(FindCoordinatorRequest(key_type=0, coordinator_keys=["greedy"]), 4)
    join = frame(JoinGroupRequest("greedy", 30_000, 60_000, "", None, "consumer", protocols), 7)
    return find + join * 1_000


def commit_request() -> bytes:
    """Commits offsets for a thousand groups of its own, with all the metadata that an offset may have."""
    prefix = uuid4().hex
    asked = [OffsetCommitRequestPartition(index, 1, committed_metadata="m" * 4_000) for index in range(10)]
    topics = [OffsetCommitRequestTopic(name=f"{MANY_TOPICS}-0", partitions=asked)]
    commits = [frame(OffsetCommitRequest(f"{prefix}-{number}", topics=topics), 8) for number in range(1_000)]
    return frame(FindCoordinatorRequest(key_type=0, coordinator_keys=["greedy"]), 4) + b"".join(commits)


def all_offsets_request() -> bytes:
    """Commits 1,000 offsets with all the metadata that an offset may have, and asks for them again and again."""
    asked = [OffsetCommitRequestPartition(index, 1, committed_metadata="m" * 4_000) for index in range(100)]
    commits = [
        frame(OffsetCommitRequest("greedy-offsets", topics=[OffsetCommitRequestTopic(name=name, partitions=asked)]), 8)
        for name in many_topics(10)
    ]
    fetch = frame(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("greedy-offsets", topics=None)]), 9)
    find = frame(FindCoordinatorRequest(key_type=0, coordinator_keys=["greedy-offsets"]), 4)
    return find + b"".join(commits) + fetch * 100


def session_request() -> bytes:
    """A full fetch that opens an incremental session (KIP-227) over 1,000 partitions."""
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(100)]
    topics = [FetchTopic(topic=name, partitions=asked) for name in many_topics(10)]
    return frame(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_epoch=0, topics=topics), 11)


def fetch_request(topics: int, partitions: int) -> FetchRequest:
    """A full fetch without a session, that is answered at once."""
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(partitions)]
    wanted = [FetchTopic(topic=name, partitions=asked) for name in many_topics(topics)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_epoch=-1, topics=wanted)


ALL_TOPICS = MetadataRequest(topics=None)

KINDS: dict[str, Greed] = {
    "pipelined-versions": Greed("200 connections of pipelined ApiVersions", 200, lambda: wire.api_versions() * 20_000),
    "pipelined-metadata": Greed(
        "200 connections of pipelined Metadata of one topic",
        200,
        lambda: pipelined(MetadataRequest(topics=[MetadataRequestTopic(name="bench-polite")])),
    ),
    "all-topics": Greed("20 connections that ask for all topics", 20, lambda: pipelined(ALL_TOPICS)),
    "named-topics": Greed("20 connections that ask for 1,000 topics by name", 20, lambda: frame(metadata_of(1_000))),
    "unknown-topics": Greed(
        "20 connections that ask for 50,000 topics that are not there", 20, lambda: frame(metadata_of(50_000))
    ),
    "list-offsets": Greed("20 connections of ListOffsets of 90,000 partitions", 20, lambda: frame(offsets_of(900, 99))),
    "fetches": Greed("20 connections of Fetch of 90,000 partitions", 20, lambda: frame(fetch_request(900, 99), 11)),
    "unread-fetches": Greed(
        "200 connections of Fetch of 90,000 partitions that read nothing",
        200,
        lambda: frame(fetch_request(900, 99), 11),
        reads=False,
        receive_buffer_bytes=4096,
    ),
    "offset-fetch": Greed(
        "20 connections of OffsetFetch of 90,000 offsets", 20, lambda: frame(committed_of(900, 99), 9)
    ),
    "unread-offsets": Greed(
        "200 connections that ask for 1,000 offsets with metadata and read nothing",
        200,
        all_offsets_request,
        reads=False,
        receive_buffer_bytes=4096,
    ),
    "configs": Greed("10 connections of DescribeConfigs of 1,000 topics", 10, lambda: frame(configs_of(1_000))),
    "joins": Greed("200 connections that join one group again and again", 200, join_request),
    "commits": Greed("5 connections that commit offsets for a thousand groups each", 5, commit_request, differs=True),
    "unread-topics": Greed(
        "200 connections that ask for all topics and read nothing",
        200,
        lambda: pipelined(ALL_TOPICS),
        reads=False,
        receive_buffer_bytes=4096,
    ),
    "unread-records": Greed(
        "200 consumers that ask for 50 MB and read nothing",
        200,
        lambda: wire.fetch_request("bench-filled", max_bytes=50_000_000),
        reads=False,
        receive_buffer_bytes=4096,
    ),
    "records": Greed(
        "50 consumers that read the same 50 MB again and again",
        50,
        lambda: wire.fetch_request("bench-filled", max_bytes=50_000_000) * 10,
    ),
    "half-open": Greed(
        "3,000 connections with half a request", 3_000, lambda: half(frame(ALL_TOPICS)), repeats=False, reads=False
    ),
    "idle": Greed("5,000 idle connections", 5_000, wire.api_versions, repeats=False),
    "half-produced": Greed(
        "100 connections with 20 MB of a produce request of 100 MB",
        100,
        lambda: produce_begun(100_000_000, 20_000_000),
        repeats=False,
        reads=False,
    ),
    "nearly-produced": Greed(
        "100 connections with 20 MB of a produce request of 21 MB",
        100,
        lambda: produce_begun(21_000_000, 20_000_000),
        repeats=False,
        reads=False,
    ),
    "sessions": Greed(
        "1,000 fetch sessions of 1,000 partitions each", 1_000, session_request, repeats=False, reads=False
    ),
    "churn": Greed("connections that are made and closed again", 0, bytes),
}

LIMITED_CLIENT = "greedy"
"""The client id that `bench.quotas` sets quotas for."""


def limited_produce() -> bytes:
    batch = build_batch([Record(timestamp=1_750_000_000_000, value=bytes(100_000))])
    data = [TopicProduceData(name="bench-greedy", partition_data=[PartitionProduceData(index=0, records=batch)])]
    return frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data), 9, LIMITED_CLIENT) * 10


def limited_fetch() -> bytes:
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)]
    topics = [FetchTopic(topic="bench-filled", partitions=asked)]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, session_epoch=-1, topics=topics)
    return frame(request, 11, LIMITED_CLIENT) * 100


def limited_metadata() -> bytes:
    one = frame(MetadataRequest(topics=[MetadataRequestTopic(name="bench-polite")]), None, LIMITED_CLIENT)
    return one * (BLOCK_BYTES // len(one))


LIMITED: dict[str, Greed] = {
    "limited-produce": Greed("one producer that sends as fast as it can", 1, limited_produce),
    "limited-fetch": Greed("one consumer that asks as fast as it can", 1, limited_fetch),
    "limited-metadata": Greed("one client of pipelined Metadata", 1, limited_metadata),
}
"""The greedy clients of `bench.quotas`."""


@dataclass(slots=True)
class Client:
    socket: socket.socket
    unsent: memoryview


class Greedy:
    """The connections of one kind, under way."""

    def __init__(self, bootstrap: str, kind: Greed) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._kind = kind
        self._block = memoryview(kind.requests())
        self._selector = selectors.DefaultSelector()
        self._scratch = bytearray(CHUNK_BYTES)
        for _ in range(kind.connections):
            self._add()

    def _add(self) -> None:
        connection = socket.socket()
        if self._kind.receive_buffer_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._kind.receive_buffer_bytes)
        connection.connect(self._address)
        connection.setblocking(False)
        self._selector.register(
            connection, selectors.EVENT_READ | selectors.EVENT_WRITE, Client(connection, self._next_block())
        )

    def _next_block(self) -> memoryview:
        return memoryview(self._kind.requests()) if self._kind.differs else self._block

    def step(self, timeout_s: float) -> None:
        """Send and receive what is possible."""
        if not self._kind.connections:
            with suppress(OSError), socket.create_connection(self._address, timeout=5):
                pass
            return
        for key, events in self._selector.select(timeout_s):
            client: Client = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    self._send(client)
                if events & selectors.EVENT_READ:
                    self._receive(client)
            except BlockingIOError:
                continue
            except OSError:
                # The broker has had enough of it. Others go on.
                self._selector.unregister(client.socket)
                client.socket.close()

    def _send(self, client: Client) -> None:
        while True:
            if not client.unsent:
                if not self._kind.repeats:
                    self._selector.modify(client.socket, selectors.EVENT_READ, client)
                    return
                client.unsent = self._next_block()
            client.unsent = client.unsent[client.socket.send(client.unsent[:CHUNK_BYTES]) :]

    def _receive(self, client: Client) -> None:
        if not self._kind.reads:
            self._selector.modify(client.socket, selectors.EVENT_WRITE, client)
            return
        if not client.socket.recv_into(self._scratch):
            raise ConnectionResetError


def steps(bootstrap: str, kind: Greed) -> Iterator[None]:
    greedy = Greedy(bootstrap, kind)
    while True:
        greedy.step(0.05)
        yield


def main() -> None:
    bootstrap, name = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ends = selectors.DefaultSelector()
    ends.register(sys.stdin, selectors.EVENT_READ)
    begun = False
    for _ in steps(bootstrap, (KINDS | LIMITED)[name]):
        if not begun:
            print("ready", flush=True)
            begun = True
        if ends.select(0):
            return


if __name__ == "__main__":
    main()
