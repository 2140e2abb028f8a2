"""The topics of the demo."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

CLICKS: Final = "shop.clicks"
ORDERS: Final = "shop.orders"
PAYMENTS: Final = "shop.payments"
EVENTS: Final = (CLICKS, ORDERS, PAYMENTS)

REVENUE: Final = "shop.revenue"
TOP_PRODUCTS: Final = "shop.top-products"
SESSIONS: Final = "shop.sessions"
DEAD_LETTERS: Final = "shop.dead-letters"
RESULTS: Final = (REVENUE, TOP_PRODUCTS, SESSIONS, DEAD_LETTERS)

CHANGE_TIMEOUT_S: Final = 20.0

# A demo that runs for days must not fill the disk; what has been read can go.
_EVENT_RETENTION: Final = {"retention.bytes": str(256 << 20), "segment.bytes": str(32 << 20)}
# A result is the newest value of its key.
_RESULT: Final = {"cleanup.policy": "compact"}


class Topic(NamedTuple):
    name: str
    partitions: int
    settings: Mapping[str, str]
    holds: str


TOPICS: Final = (
    Topic(CLICKS, 2, _EVENT_RETENTION, "clicks, by customer"),
    Topic(ORDERS, 1, _EVENT_RETENTION, "orders, by customer"),
    Topic(PAYMENTS, 1, _EVENT_RETENTION, "payments, by customer"),
    Topic(REVENUE, 1, _RESULT, "revenue of each hour"),
    Topic(TOP_PRODUCTS, 1, _RESULT, "the best sellers of each hour"),
    Topic(SESSIONS, 1, _EVENT_RETENTION, "visits: clicks, minutes, bought or not"),
    Topic(DEAD_LETTERS, 1, _EVENT_RETENTION, "what could not be read, with the reason"),
)


class Origin(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


def origin_of(message: Message) -> Origin:
    """The library's hints allow for messages without a place; those that were consumed have one."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Origin(topic, partition, offset)


def headers_of(message: Message) -> list[tuple[str, str | bytes | None]]:
    """The library's hints allow for a mapping, which only a producer may be given."""
    headers = message.headers() or []
    assert isinstance(headers, list)
    return headers


class TopicsRefused(Exception):
    """The broker did not delete or create a topic; the message is its own."""


def replace_topics(address: str) -> None:
    """Creates every topic of the demo, empty: one that an earlier demo filled is deleted first."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    names = [topic.name for topic in TOPICS]
    deleted = admin.delete_topics(names, operation_timeout=CHANGE_TIMEOUT_S, request_timeout=CHANGE_TIMEOUT_S)
    _wait_for("delete", deleted, harmless="UNKNOWN_TOPIC_OR_PART")
    created = admin.create_topics(
        [NewTopic(topic.name, topic.partitions, 1, config=dict(topic.settings)) for topic in TOPICS],
        request_timeout=CHANGE_TIMEOUT_S,
    )
    _wait_for("create", created)


def _wait_for(change: str, futures: Mapping[str, Future[None]], *, harmless: str = "") -> None:
    for name, future in futures.items():
        try:
            future.result(CHANGE_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].name() != harmless:
                raise TopicsRefused(f"could not {change} the topic {name}: {error.args[0].str()}") from None
