"""Groups on a real process that is killed while they commit, or stopped for longer than their sessions."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.sim.broker import read_answer, request_frame
from penstock.wire.codec import Message
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.penstock import PenstockServer

KILLS = 3
COMMITS_MIN = 20
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
SESSION_TIMEOUT_S = 6
LIMIT_S = 60

_SIZE = Struct(">i")


class RawClient:
    """One connection, one request at a time: a member without a mind of its own."""

    def __init__(self, server: PenstockServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S)
        self._correlation_id = 0

    def call(self, request: Message, version: int) -> Any:
        self._correlation_id += 1
        frame = request_frame(request, version, self._correlation_id)
        self._socket.sendall(_SIZE.pack(len(frame)) + frame)
        answer = self._read(_SIZE.unpack(self._read(4))[0])
        return read_answer(answer, request, version, self._correlation_id)

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return data


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kill_during_commits_loses_none_that_was_acknowledged(protocol: str) -> None:
    with PenstockServer(SETTINGS) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(60)
        told: list[bool] = []
        consumer = member(server, protocol, lambda error, parts: told.append(error is None and not any_failed(parts)))
        acknowledged = attempted = 0
        try:
            wait_for_assignment(consumer)
            for life in range(KILLS):
                before = acknowledged
                # Killed from another thread, at a moment that this one does not choose.
                killer = threading.Timer(0.3 + 0.17 * life, server.kill)
                killer.start()
                while killer.is_alive() or acknowledged == before:
                    attempted += 1
                    told.clear()
                    offsets = [TopicPartition("t", number, attempted, f"n{attempted}") for number in (0, 1)]
                    with suppress(KafkaException):
                        consumer.commit(offsets=offsets, asynchronous=True)
                        while not told:
                            consumer.poll(0.01)
                            if not killer.is_alive() and not server.alive():
                                server.start()
                    if told == [True]:
                        acknowledged = attempted
                    else:
                        consumer.poll(0.05)  # it may have to join again
                if not server.alive():
                    server.start()
            assert acknowledged > COMMITS_MIN
            # A commit names both partitions and is one decision: none of them without the other.
            found = committed(server, "g")
            assert found in ({0: (n, f"n{n}"), 1: (n, f"n{n}")} for n in range(acknowledged, attempted + 1)), found
        finally:
            consumer.close()


def any_failed(parts: list[TopicPartition]) -> bool:
    return any(part.error is not None for part in parts)


def member(server: PenstockServer, protocol: str, on_commit: Callable[..., None]) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": server.bootstrap,
        "group.id": "g",
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
        "on_commit": on_commit,
    }
    if protocol == "classic":
        settings["session.timeout.ms"] = 45_000
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    return consumer


def wait_for_assignment(consumer: Consumer) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while len(consumer.assignment()) < 2:
        assert time.monotonic() < deadline_s, "no assignment"
        consumer.poll(0.1)


def committed(server: PenstockServer, group: str) -> dict[int, tuple[int, str]]:
    """What the broker has of both partitions, once it has loaded."""
    client = RawClient(server)
    deadline_s = time.monotonic() + LIMIT_S
    while True:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        (answer,) = client.call(request, 8).groups
        if answer.error_code == ErrorCode.NONE:
            client.close()
            return {
                # This client counts the zero at the end of a C string as part of it.
                part.partition_index: (part.committed_offset, part.metadata.rstrip("\0"))
                for topic in answer.topics
                for part in topic.partitions
            }
        assert answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        assert time.monotonic() < deadline_s


@pytest.mark.long
def test_a_broker_that_was_stopped_expires_no_member_that_comes_back() -> None:
    """What tests/broker/test_groups_restarts.py shows in virtual time, of a process that is really stopped."""
    with PenstockServer(SETTINGS) as server:
        client = RawClient(server)
        client.call(FindCoordinatorRequest(key="g"), 3)
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_TIMEOUT_S * 1000,
            rebalance_timeout_ms=SESSION_TIMEOUT_S * 1000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        join.member_id = client.call(join, 5).member_id
        joined = client.call(join, 5)
        assert joined.error_code == ErrorCode.NONE
        shares = [SyncGroupRequestAssignment(member_id=join.member_id, assignment=b"all")]
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=join.member_id, assignments=shares)
        assert client.call(sync, 3).error_code == ErrorCode.NONE
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=join.member_id)
        assert client.call(heartbeat, 3).error_code == ErrorCode.NONE

        # The clock that counts is the broker's: there is no virtual one for a process that is really stopped.
        time.sleep(SESSION_TIMEOUT_S - 2)
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(SESSION_TIMEOUT_S + 2)
        os.kill(server.pid, signal.SIGCONT)
        time.sleep(SESSION_TIMEOUT_S - 2)
        assert client.call(heartbeat, 3).error_code == ErrorCode.NONE
        # And one that stays away after that is missed, as always.
        deadline_s = time.monotonic() + SESSION_TIMEOUT_S + 10
        time.sleep(SESSION_TIMEOUT_S)
        while client.call(heartbeat, 3).error_code == ErrorCode.NONE:
            assert time.monotonic() < deadline_s
            time.sleep(SESSION_TIMEOUT_S + 1)
        client.close()
