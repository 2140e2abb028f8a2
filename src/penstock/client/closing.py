"""The end of a librdkafka consumer that has a subscription."""

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
    """Closes a member of a group that is told of its partitions; `properties` are its settings.

    A partition that is assigned at this very moment is told from within librdkafka's `close`, when nobody is there any
    more to answer the question that follows: it waits for ever, with the interpreter's lock held
    (confluentinc/librdkafka#4041, #4884; seen with classic groups). Whoever has left is assigned nothing more.

    A static member does not leave, to keep its place. By the newer protocol a member keeps its name when it leaves, so
    that nobody could tell when it has.
    """
    protocol = str(properties.get("group.protocol", "classic")).lower()
    if protocol == "classic" and "group.instance.id" not in properties:
        with suppress(KafkaException):  # a consumer that failed for good is closed all the same
            native.pause(native.assignment())  # no record is given out any more
            native.unsubscribe()
        deadline_s = time.monotonic() + LEAVE_S
        while native.memberid() and time.monotonic() < deadline_s:
            native.poll(STEP_S)
    native.poll(0)
    native.close()
