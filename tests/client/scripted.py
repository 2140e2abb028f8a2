"""A broker that says what a test wants it to say: one thread, real sockets, the real codec, a log in memory."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeAlias

from penstock.client import ClientSettings
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Limits, Message, decode_whole, encode
from penstock.wire.errors import ErrorCode
from penstock.wire.headers import read_request_header, write_response_header
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from penstock.wire.schema import versions_of

Answer: TypeAlias = Message | bytes | None
"""A message, raw bytes (the size included), or nothing: the connection is closed."""
Handler: TypeAlias = Callable[[Message, int], Answer]

REQUESTS: dict[ApiKey, type[Message]] = {
    ApiKey.FETCH: FetchRequest,
    ApiKey.LIST_OFFSETS: ListOffsetsRequest,
    ApiKey.METADATA: MetadataRequest,
    ApiKey.FIND_COORDINATOR: FindCoordinatorRequest,
    ApiKey.SASL_HANDSHAKE: SaslHandshakeRequest,
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateRequest,
}
TOPIC = "t"
TOPIC_ID = b"topic id of t..."


class ScriptedBroker:
    """Answers with what `handlers` return; requests that came are kept in `asked`."""

    def __init__(
        self, handlers: dict[ApiKey, Handler] | None = None, *, versions: dict[ApiKey, int] | None = None
    ) -> None:
        self.handlers = handlers or {}
        self.asked: list[tuple[ApiKey, int, Message]] = []
        self._newest = {key: versions_of(cls)[-1] for key, cls in REQUESTS.items()} | (versions or {})
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closing = False

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def settings(self, **properties: object) -> ClientSettings:
        """Settings of a client that is impatient, as tests are."""
        quick = {
            "bootstrap.servers": self.bootstrap,
            "retry.backoff.ms": 1,
            "retry.backoff.max.ms": 5,
            "fetch.max.wait.ms": 60,
            "request.timeout.ms": 2000,
            "default.api.timeout.ms": 2000,
        }
        return ClientSettings.from_properties(
            quick | {name.replace("_", "."): value for name, value in properties.items()}
        )

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._closing = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join()

    def drop_connections(self) -> None:
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def requests(self, api: ApiKey) -> list[Message]:
        return [request for key, _, request in self.asked if key == api]

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EOFError):
            while True:
                (size,) = struct.unpack(">i", _exactly(connection, 4))
                answer = self._answer(_exactly(connection, size))
                if answer is None:
                    return
                connection.sendall(answer)

    def _answer(self, frame: bytes) -> bytes | None:
        header = read_request_header(frame)
        api = ApiKey(header.api_key)
        answer: Answer
        if api == ApiKey.API_VERSIONS:
            handler = self.handlers.get(api)
            answer = handler(ApiVersionsResponse(), header.api_version) if handler else self._api_versions()
        else:
            request = decode_whole(
                REQUESTS[api], header.api_version, frame, header.body_position, limits=Limits(max_elements=10_000)
            )
            self.asked.append((api, header.api_version, request))
            answer = self.handlers[api](request, header.api_version)
        if not isinstance(answer, Message):
            return answer
        out = bytearray(4)
        version = 0 if api == ApiKey.API_VERSIONS and answer.error_code else header.api_version  # type: ignore[attr-defined]
        write_response_header(out, api, version, header.correlation_id)
        encode(answer, version, out)
        struct.pack_into(">i", out, 0, len(out) - 4)
        return bytes(out)

    def _api_versions(self) -> ApiVersionsResponse:
        keys = [ApiVersion(api_key=key, min_version=0, max_version=newest) for key, newest in self._newest.items()]
        return ApiVersionsResponse(api_keys=[*keys, ApiVersion(api_key=ApiKey.API_VERSIONS, max_version=4)])


class MemoryLog:
    """Partitions of one topic as lists of batches, led by one of some scripted brokers."""

    def __init__(self, *brokers: ScriptedBroker, partitions: int = 1, topic: str = TOPIC) -> None:
        self.brokers = brokers
        self.topic = topic
        self.leader = 0
        self.leaders: dict[int, int] = {}
        """Of partitions that another broker leads than `leader`."""
        self.leader_epoch = 0
        self.topic_id = TOPIC_ID
        self.exists = True
        self.batches: list[list[tuple[int, int, bytes]]] = [[] for _ in range(partitions)]
        """(base offset, next offset, bytes) of each batch."""
        self.start_offset = 0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.aborted: list[AbortedTransaction] = []
        self.aborted_until: dict[tuple[int, int], int] = {}
        """(producer id, first offset) → where the marker is, for those that are not told to whoever reads behind it."""
        for index, broker in enumerate(brokers):
            broker.handlers.setdefault(ApiKey.METADATA, self.metadata)
            broker.handlers.setdefault(ApiKey.LIST_OFFSETS, self.list_offsets)
            broker.handlers.setdefault(ApiKey.FETCH, self._fetch_from(index))

    def append(self, batch: bytes, partition: int = 0) -> None:
        base_offset, _, _, _, _, _, delta = struct.unpack_from(">qiibIhi", batch)
        self.batches[partition].append((base_offset, base_offset + delta + 1, batch))

    def end(self, partition: int) -> int:
        if self.high_watermark is not None:
            return self.high_watermark
        return self.batches[partition][-1][1] if self.batches[partition] else 0

    def metadata(self, request: Message, version: int) -> MetadataResponse:
        topic = MetadataResponseTopic(
            name=self.topic,
            topic_id=self.topic_id,
            error_code=ErrorCode.NONE if self.exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=self.leaders.get(index, self.leader),
                    leader_epoch=self.leader_epoch,
                    replica_nodes=[0],
                    isr_nodes=[0],
                )
                for index in range(len(self.batches))
            ],
        )
        brokers = [
            MetadataResponseBroker(node_id=index, host="127.0.0.1", port=broker.port)
            for index, broker in enumerate(self.brokers)
        ]
        return MetadataResponse(brokers=brokers, topics=[topic])

    def list_offsets(self, request: Message, version: int) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        (topic,) = request.topics
        found = [
            ListOffsetsPartitionResponse(
                partition_index=one.partition_index,
                offset=self.start_offset if one.timestamp == -2 else self.end(one.partition_index),
            )
            for one in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=self.topic, partitions=found)])

    def _fetch_from(self, node: int) -> Handler:
        def fetch(request: Message, version: int) -> FetchResponse:
            assert isinstance(request, FetchRequest)
            left_bytes = request.max_bytes
            found = []
            (topic,) = request.topics
            for one in topic.partitions:
                data = self._partition(node, one.partition, one.fetch_offset, min(left_bytes, one.partition_max_bytes))
                data.aborted_transactions = self._aborted(one.fetch_offset) if request.isolation_level else None
                if version >= 13 and topic.topic_id != self.topic_id:
                    data = PartitionData(error_code=ErrorCode.UNKNOWN_TOPIC_ID, partition_index=one.partition)
                left_bytes = max(0, left_bytes - len(data.records or b""))
                found.append(data)
            return FetchResponse(
                responses=[FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=found)]
            )

        return fetch

    def _aborted(self, offset: int) -> list[AbortedTransaction]:
        until = self.aborted_until
        return [one for one in self.aborted if until.get((one.producer_id, one.first_offset), offset) >= offset]

    def _partition(self, node: int, partition: int, offset: int, max_bytes: int) -> PartitionData:
        data = PartitionData(
            partition_index=partition,
            high_watermark=self.end(partition),
            last_stable_offset=self.end(partition) if self.last_stable_offset is None else self.last_stable_offset,
            log_start_offset=self.start_offset,
        )
        if node != self.leaders.get(partition, self.leader):
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not self.start_offset <= offset <= self.end(partition):
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            records = b"".join(batch for _, after, batch in self.batches[partition] if after > offset)
            whole = next((len(batch) for _, after, batch in self.batches[partition] if after > offset), 0)
            data.records = records[: max(max_bytes, whole)]
        return data


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data
