"""The same requests to the pure shard and to a real broker, with answers that can be compared."""

from __future__ import annotations

import select
import socket
from abc import ABC, abstractmethod
from itertools import count
from struct import Struct

from coordinators.groups.harness import Groups
from coordinators.support import Answer
from penstock.coordinators.groups import RequestInfo
from penstock.wire.apis import ApiKey
from penstock.wire.codec import Message, decode, encode
from penstock.wire.headers import has_tagged_response_header, write_request_header
from penstock.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

CLIENT_ID = "client"
WAIT_MS = 300
ANSWER_TIMEOUT_MS = 20_000
_SIZE = Struct(">i")

APIS: dict[type[Message], tuple[ApiKey, type[Message]]] = {
    MetadataRequest: (ApiKey.METADATA, MetadataResponse),
    FindCoordinatorRequest: (ApiKey.FIND_COORDINATOR, FindCoordinatorResponse),
    JoinGroupRequest: (ApiKey.JOIN_GROUP, JoinGroupResponse),
    SyncGroupRequest: (ApiKey.SYNC_GROUP, SyncGroupResponse),
    HeartbeatRequest: (ApiKey.HEARTBEAT, HeartbeatResponse),
    LeaveGroupRequest: (ApiKey.LEAVE_GROUP, LeaveGroupResponse),
    OffsetCommitRequest: (ApiKey.OFFSET_COMMIT, OffsetCommitResponse),
    OffsetFetchRequest: (ApiKey.OFFSET_FETCH, OffsetFetchResponse),
    OffsetDeleteRequest: (ApiKey.OFFSET_DELETE, OffsetDeleteResponse),
    DescribeGroupsRequest: (ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse),
    ListGroupsRequest: (ApiKey.LIST_GROUPS, ListGroupsResponse),
    DeleteGroupsRequest: (ApiKey.DELETE_GROUPS, DeleteGroupsResponse),
}


class Reply(ABC):
    """An answer that may still be due."""

    @property
    @abstractmethod
    def waits(self) -> bool:
        """It does not come at once."""

    @property
    @abstractmethod
    def response(self) -> Message:
        """It comes, sooner or later."""


class World(ABC):
    @abstractmethod
    def send(self, request: Message, version: int) -> Reply:
        """Requests for one group each."""

    @abstractmethod
    def topic_id(self, name: str) -> bytes:
        """Differs between worlds."""


# -- the shard ---------------------------------------------------------------------------------------------------------


class ShardReply(Reply):
    def __init__(self, groups: Groups, answer: Answer, request: Message) -> None:
        self._groups = groups
        self._answer = answer
        self._request = request

    @property
    def waits(self) -> bool:
        if not self._answer.done:
            self._groups.advance(WAIT_MS)
        return not self._answer.done

    @property
    def response(self) -> Message:
        for _ in range(ANSWER_TIMEOUT_MS // WAIT_MS):
            if self.waits:
                continue
            break
        response = self._answer.response
        match self._request:
            case DescribeGroupsRequest():
                return DescribeGroupsResponse(groups=[response])  # type: ignore[list-item]
            case DeleteGroupsRequest():
                return DeleteGroupsResponse(results=[response])  # type: ignore[list-item]
            case OffsetFetchRequest():
                assert isinstance(response, OffsetFetchResponseGroup)
                return OffsetFetchResponse(groups=[response])
            case _:
                return response


class ShardWorld(World):
    def __init__(self, groups: Groups) -> None:
        self.groups = groups

    def topic_id(self, name: str) -> bytes:
        topic = self.groups.image.topic(name)
        assert topic is not None
        return topic.topic_id

    def send(self, request: Message, version: int) -> Reply:
        shard = self.groups.shard
        info = RequestInfo(version, CLIENT_ID, "/127.0.0.1")
        match request:
            case JoinGroupRequest():
                answer = self.groups.call(lambda turn, ticket: shard.join_group(turn, ticket, info, request))
            case SyncGroupRequest():
                answer = self.groups.call(lambda turn, ticket: shard.sync_group(turn, ticket, info, request))
            case HeartbeatRequest():
                answer = self.groups.call(lambda turn, ticket: shard.heartbeat(turn, ticket, info, request))
            case LeaveGroupRequest():
                answer = self.groups.call(lambda turn, ticket: shard.leave_group(turn, ticket, info, request))
            case OffsetCommitRequest():
                answer = self.groups.call(lambda turn, ticket: shard.offset_commit(turn, ticket, info, request))
            case OffsetFetchRequest():
                group = request.groups[0]
                stable = request.require_stable
                answer = self.groups.call(
                    lambda turn, ticket: shard.offset_fetch_group(turn, ticket, info, group, stable)
                )
            case OffsetDeleteRequest():
                answer = self.groups.call(lambda turn, ticket: shard.offset_delete(turn, ticket, info, request))
            case DescribeGroupsRequest():
                group_id = request.groups[0]
                answer = self.groups.call(lambda turn, ticket: shard.describe_group(turn, ticket, info, group_id))
            case ListGroupsRequest():
                answer = self.groups.call(
                    lambda turn, ticket: shard.list_groups(turn, ticket, request.states_filter, request.types_filter)
                )
            case DeleteGroupsRequest():
                name = request.groups_names[0]
                answer = self.groups.call(lambda turn, ticket: shard.delete_group(turn, ticket, name))
            case _:
                raise AssertionError(f"{type(request).__name__} is none of a group's")
        return ShardReply(self.groups, answer, request)


# -- a broker ----------------------------------------------------------------------------------------------------------


class BrokerReply(Reply):
    """Every request has a connection of its own, so that one that waits holds up nobody."""

    def __init__(self, connection: socket.socket, key: ApiKey, version: int, cls: type[Message]) -> None:
        self._connection = connection
        self._key = key
        self._version = version
        self._class = cls
        self._response: Message | None = None

    @property
    def waits(self) -> bool:
        return self._response is None and not select.select([self._connection], [], [], WAIT_MS / 1_000)[0]

    @property
    def response(self) -> Message:
        if self._response is None:
            self._connection.settimeout(ANSWER_TIMEOUT_MS / 1_000)
            (size,) = _SIZE.unpack(self._read(4))
            frame = self._read(size)
            position = 4 + has_tagged_response_header(self._key, self._version)
            self._response = decode(self._class, self._version, frame, position)[0]
            self._connection.close()
        return self._response

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._connection.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data


class BrokerWorld(World):
    def __init__(self, port: int) -> None:
        self._port = port
        self._correlation_ids = count()

    def topic_id(self, name: str) -> bytes:
        response = self.send(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).response
        assert isinstance(response, MetadataResponse)
        return response.topics[0].topic_id

    def send(self, request: Message, version: int) -> Reply:
        key, response = APIS[type(request)]
        frame = bytearray(4)
        write_request_header(frame, key, version, next(self._correlation_ids), CLIENT_ID)
        encode(request, version, frame)
        frame[:4] = _SIZE.pack(len(frame) - 4)
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.sendall(frame)
        return BrokerReply(connection, key, version, response)
