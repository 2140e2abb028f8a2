"""Produce requests over a socket, byte for byte: client libraries send no batches that are wrong."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from penstock.sim.broker import read_answer, request_frame
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

VERSION = 12
TIMEOUT_S = 60


class RawProducer:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def produce(self, topic: str, records: bytes, partition: int = 0) -> PartitionProduceResponse:
        (answer,) = self.produce_all(topic, {partition: records}.items())
        return answer

    def produce_all(self, topic: str, batches: Iterable[tuple[int, bytes]]) -> list[PartitionProduceResponse]:
        """One request for several partitions of a topic."""
        parts = [PartitionProduceData(index=index, records=records) for index, records in batches]
        request = ProduceRequest(
            acks=-1, timeout_ms=TIMEOUT_S * 1000, topic_data=[TopicProduceData(name=topic, partition_data=parts)]
        )
        self._sent += 1
        frame = request_frame(request, VERSION, self._sent)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = read_answer(self._receive(int.from_bytes(self._receive(4), "big")), request, VERSION, self._sent)
        assert isinstance(answer, ProduceResponse)
        return list(answer.responses[0].partition_responses)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            got = self._socket.recv(size - len(data))
            if not got:
                raise ConnectionError("the broker closed the connection")
            data += got
        return bytes(data)
