"""Tests of an application against real brokers, with the fixtures that Penstock gives pytest.

    pip install . pytest          (in a checkout)
    pytest examples/test_order_service.py

The application below counts orders per customer. Replace it with your own: it needs to know nothing of Penstock, only
the address of its brokers.
"""

import json
from collections import Counter

from confluent_kafka import Consumer, Producer

from penstock.testing import Cluster


class OrderService:
    """The application: takes orders, and counts them."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.topic = topic
        self.count: Counter[str] = Counter()
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0})
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "order-service", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([topic])

    def order(self, customer: str, item: str) -> None:
        self._producer.produce(self.topic, json.dumps({"customer": customer, "item": item}), customer)
        self._producer.flush()

    def work(self, orders: int) -> None:
        for message in self._consumer.consume(orders, timeout=30):
            self.count[json.loads(message.value() or b"")["customer"]] += 1
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def test_orders_are_counted_per_customer(penstock: Cluster, penstock_topic: str) -> None:
    service = OrderService(penstock.bootstrap_servers, penstock_topic)
    for customer in ("ada", "bob", "ada"):
        service.order(customer, "book")
    service.work(orders=3)
    service.close()
    assert service.count == {"ada": 2, "bob": 1}
    assert [record.key for record in penstock.consume(penstock_topic)] == [b"ada", b"bob", b"ada"]


def test_no_order_is_lost_when_the_leader_dies(penstock_cluster: Cluster, penstock_topic: str) -> None:
    service = OrderService(penstock_cluster.bootstrap_servers, penstock_topic)
    service.order("ada", "book")
    penstock_cluster.leader(penstock_topic).kill()
    service.order("ada", "pen")
    service.work(orders=2)
    service.close()
    assert service.count == {"ada": 2}


def test_a_slow_broker_makes_orders_slow_and_loses_none(penstock: Cluster, penstock_topic: str) -> None:
    service = OrderService(penstock.bootstrap_servers, penstock_topic)
    penstock.node(1).slow_disk(50)
    service.order("bob", "ink")
    penstock.node(1).slow_disk(0)
    service.work(orders=1)
    service.close()
    assert service.count == {"bob": 1}
