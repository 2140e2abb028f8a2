"""Closing a librdkafka consumer that has a subscription."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import Consumer as NativeConsumer
from confluent_kafka import KafkaException

LEAVE_S: Final = 5.0
STEP_S: Final = 0.005


def close_member(native: NativeConsumer, properties: Mapping[str, object]) -> None:
    """Closes a group member that has rebalance callbacks; `properties` are its settings.

    It unsubscribes first. If a partition is assigned during librdkafka's `close`, the rebalance callback is queued
    where nothing serves it any more, and `close` hangs with the interpreter's lock held
    (confluentinc/librdkafka#4041, #4884; seen with classic groups). A member that has left gets no assignment.

    Two kinds of members skip this. A static member does not leave, to keep its assignment. A member of the consumer
    protocol keeps its id when it leaves, so there is no way to see when it has left.
    """
    protocol = str(properties.get("group.protocol", "classic")).lower()
    if protocol == "classic" and "group.instance.id" not in properties:
        with suppress(KafkaException):  # close the consumer even after a fatal error
            native.pause(native.assignment())  # deliver no more records
            native.unsubscribe()
        deadline_s = time.monotonic() + LEAVE_S
        while native.memberid() and time.monotonic() < deadline_s:
            native.poll(STEP_S)
    native.poll(0)
    native.close()
