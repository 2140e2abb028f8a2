"""The end of a librdkafka consumer that has a subscription."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer as NativeConsumer

SERVED_MAX: Final = 1000


def close_member(native: NativeConsumer, *, is_static: bool = False) -> None:
    """Closes a member of a group that is told of its partitions, and serves before what the group has to say.

    A partition that is assigned at this very moment is told from within librdkafka's `close`, when nobody is there any
    more to answer the question that follows: it waits for ever, with the interpreter's lock held
    (confluentinc/librdkafka#4041, #4884). Whoever has no subscription is assigned nothing more. A static member keeps
    its place in the group, so for it only what came until now is served.
    """
    native.pause(native.assignment())  # no record is given out any more
    if not is_static:
        native.unsubscribe()
    for _ in range(SERVED_MAX):
        if native.poll(0) is None:
            break
    native.close()
