"""How long librdkafka's synchronous commit waits for an answer that does not come.

It asks three times, each time for `socket.timeout.ms`: three minutes by default, in which the member stays in its group
and reads nothing. docs/reference/compatibility.md says so; when this fails, change that. A broker must therefore answer
every commit, with an error if need be (tests/broker/test_answers_in_time.py).
"""

from __future__ import annotations

import socket
import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.wire.apis import ApiKey
from support.frame_proxy import FrameProxy
from support.penstock import PenstockServer
from support.ports import free_ports

SOCKET_TIMEOUT_S = 1.5
ATTEMPTS = 3


class DeafProxy(FrameProxy):
    """Loses commits of offsets once it is told to."""

    deaf = False
    lost = 0

    def passes_request(self, frame: bytes, client: socket.socket) -> bool:
        if not self.deaf or int.from_bytes(frame[:2], "big") != ApiKey.OFFSET_COMMIT:
            return True
        self.lost += 1
        return False


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_librdkafka_sends_a_commit_three_times_and_waits_each_time(protocol: str) -> None:
    (port,) = free_ports(1)
    server = PenstockServer({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    with DeafProxy(port, int(server.bootstrap.rpartition(":")[2])) as proxy, server:
        bootstrap = f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": "g", "group.protocol": protocol,
                "enable.auto.commit": False, "socket.timeout.ms": int(SOCKET_TIMEOUT_S * 1000), "log_level": 0,
            }
        )  # fmt: skip
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(0.1)
        offsets = [TopicPartition("t", 0, 0)]
        consumer.commit(offsets=offsets, asynchronous=False)
        proxy.deaf = True
        began_s = time.monotonic()
        with pytest.raises(KafkaException) as failed:
            consumer.commit(offsets=offsets, asynchronous=False)
        took_s = time.monotonic() - began_s
        assert failed.value.args[0].code() == KafkaError._TIMED_OUT
        assert proxy.lost == ATTEMPTS
        assert took_s > ATTEMPTS * SOCKET_TIMEOUT_S
        proxy.deaf = False
        consumer.close()
