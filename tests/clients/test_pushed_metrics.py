"""librdkafka pushes its metrics (KIP-714) if a subscription asks for them."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer

from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from support.measured import MeasuredServer
from tools_of_kafka.asking import ask

WAIT_S = 60.0
CLIENT_METRICS = 16


def test_producers_and_consumers_push_what_they_are_asked_for() -> None:
    with MeasuredServer({"auto.create.topics.enable": "true"}) as server:
        settings = [AlterableConfig(name="metrics", value="*"), AlterableConfig(name="interval.ms", value="200")]
        resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=settings)
        answer = ask(server, IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == 0
        producer = Producer({"bootstrap.servers": server.bootstrap, "client.id": "pushing-producer"})
        consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "client.id": "pushing-consumer",
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
        consumer.subscribe(["t"])
        deadline_s = time.monotonic() + WAIT_S
        wanted = (
            'kafka_client_producer_connection_creation_total{client_id="pushing-producer"',
            'kafka_client_consumer_connection_creation_total{client_id="pushing-consumer"',
        )
        while not all(one in server.exported() for one in wanted):
            assert time.monotonic() < deadline_s, [line for line in server.exported().splitlines() if "client_" in line]
            producer.poll(0.1)
            consumer.poll(0.1)
        consumer.close()
